"""Load every model and run of a folder in one process, and say what became of each and of the process' memory.

    python load_all.py INTACT CONFIG FOLDER     a line of JSON for each entry of FOLDER, in order of their names

INTACT is loaded and made ready first: what that takes when all is well. CONFIG's training is made ready in each
entry that is a directory, as `nmt train CONFIG run=ENTRY` would.
"""

import ctypes
import gc
import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nmt.config import load_config
from nmt.decode.translator import load
from nmt.errors import NmtError
from nmt.train import session


def growth_kb(work: Callable[[], object]) -> int:
    """By how much the process has more memory at once while it works than before, kB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier work has left must not be used instead
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew at what is taken now
    before = peak_kb()
    work()
    return peak_kb() - before


def peak_kb() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def make_ready(config: Path, run: Path) -> None:
    with session.prepare(load_config(config, [f"run={run}"]), device="cpu").run.lock():
        pass


def attempt(work: Callable[[], object]) -> list[str]:
    """What kind of end it came to, the message and the hint."""
    try:
        work()
    except NmtError as error:
        return ["error", str(error), error.hint]
    except BaseException:
        return ["traceback", traceback.format_exc(), ""]
    return ["well", "", ""]


def main(intact: Path, config: Path, folder: Path) -> None:
    for _ in range(3):  # imports, and what libraries keep
        load(intact).translate(["a"], beam=1)
        make_ready(config, intact)
    print(json.dumps(["intact", "load", "well", "", "", growth_kb(lambda: load(intact))]))
    print(json.dumps(["intact", "train", "well", "", "", growth_kb(lambda: make_ready(config, intact))]))
    for entry in sorted(folder.iterdir()):
        ways: dict[str, Callable[[], object]] = {"load": partial(load, entry)}
        if entry.is_dir():
            ways["train"] = partial(make_ready, config, entry)
        for way, work in ways.items():
            ends: list[list[str]] = []
            kb = growth_kb(lambda: ends.append(attempt(work)))  # noqa: B023
            print(json.dumps([entry.name, way, *ends[0], kb]), flush=True)
            if way == "load" and ends[0][0] == "well":  # then it can be used, too
                load(entry).translate(["a"], beam=1)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
