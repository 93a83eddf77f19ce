"""How much the tests of this folder try: a little by default, all of it by `make soak`."""

import os
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("NMT_SOAK", "") not in ("", "0")


def soak(short: T, full: T) -> T:
    """`full` under `make soak`, else `short`: how many kills, mutations or lines a test has time for."""
    return full if SOAK else short
