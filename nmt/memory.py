"""What a process keeps of the memory that it has freed; with glibc, elsewhere nothing here does anything.

Every page that comes anew from the system is cleared, which takes a third of a training step: so what is freed is
kept. But tensors differ in size from batch to batch, and between those in use ever more pages lie free, which are
given back now and then.
"""

import contextlib
import ctypes
import time

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST = 2**25  # bytes of a block that can be kept
GIVE_BACK_S = 20.0  # of which it takes about a hundredth

_next = 0.0


def keep_freed() -> None:
    """Keep what is freed from now on."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def give_back_at_times() -> None:
    """Give the system what lies free, if it is some time since; to be called often."""
    global _next
    if time.monotonic() >= _next:
        _next = time.monotonic() + GIVE_BACK_S
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
