"""The number of repetitions in these tests: few by default, all of them under `make soak`."""

import logging
import os
from typing import TypeVar

import pytest

T = TypeVar("T")

SOAK = os.environ.get("NMT_SOAK", "") not in ("", "0")


def soak(short: T, full: T) -> T:
    """Return `full` under `make soak`, else `short`, for example a number of kills, mutations or lines."""
    return full if SOAK else short


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log messages of nmt."""
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    return caplog
