"""Measure the machine's peak FLOP/s in a large matmul; print it for fp32 and bf16 as JSON."""

import json
import time

import torch

SIZE = 2048


def flops(dtype: torch.dtype, device: str = "cpu", size: int = SIZE) -> float:
    """FLOP/s of the fastest of several matmuls."""
    a = torch.ones(size, size, dtype=dtype, device=device)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)


if __name__ == "__main__":
    print(json.dumps({"fp32": flops(torch.float32), "bf16": flops(torch.bfloat16)}))
