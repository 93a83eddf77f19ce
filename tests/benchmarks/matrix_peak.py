"""The machine's best at a large matrix product: prints FLOP/s in fp32 and in bf16 as JSON."""

import json
import time

import torch

SIZE = 2048


def flops(dtype: torch.dtype) -> float:
    """The best of several products, operations a second."""
    a = torch.ones(SIZE, SIZE, dtype=dtype)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return 2 * SIZE**3 / min(times)


if __name__ == "__main__":
    print(json.dumps({"fp32": flops(torch.float32), "bf16": flops(torch.bfloat16)}))
