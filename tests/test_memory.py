"""What is freed is kept, and given back at times."""

import json
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import json
from pathlib import Path
from nmt import memory

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) // 1024

def used_and_freed():
    blocks = [b"x" * 2**20 for _ in range(200)]  # small enough for the heap
    del blocks[:-1]  # the last one stays, so that the heap does not end before it
    return anonymous(), blocks

memory.keep_freed()
found = [anonymous()]
kept, blocks = used_and_freed()
memory.give_back_at_times()
found += [kept, anonymous()]
kept, more = used_and_freed()
memory.give_back_at_times()  # too early
print(json.dumps([*found, kept, anonymous()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")
def test_what_is_freed_is_kept_until_it_is_given_back() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True)
    first, kept, given_back, again, too_early = json.loads(run.stdout)
    assert kept > first + 190
    assert given_back < first + 10
    assert again > first + 190
    assert too_early > first + 190
