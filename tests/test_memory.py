"""What is prepared for products of one shape does not pile up while the shapes change."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
from nmt.cli import set_up_torch

if sys.argv[1] == "as we do":
    set_up_torch(1)
import torch

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) // 1024

weight = torch.ones(512, 512, dtype=torch.bfloat16)
before = anonymous()
for n in range(400):
    torch.ones(100 + n, 512, dtype=torch.bfloat16) @ weight
print(anonymous() - before)
"""


def grown(how: str) -> int:
    """MiB."""
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    alone = {name: value for name, value in os.environ.items() if name not in names} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, capture_output=True, check=True, text=True, env=alone).stdout)


@pytest.mark.skipif(platform.system() != "Linux", reason="/proc")
def test_products_of_many_shapes_leave_little_behind() -> None:
    usually = grown("as torch does")
    if usually < 100:
        pytest.skip(f"this torch keeps {usually} MiB for 400 shapes on this machine")
    assert grown("as we do") < usually / 3
