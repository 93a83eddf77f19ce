"""Load every model and run of a folder in one process; print the outcome and the memory growth of each as JSON lines.

    python load_all.py INTACT CONFIG FOLDER     load the entries of FOLDER in order of their names

An entry that is a directory is also prepared for training, as `nmt train CONFIG run=ENTRY` does. The intact run INTACT
is loaded and prepared first, to measure the memory that this normally takes.
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
from nmt.decode import translator
from nmt.errors import NmtError
from nmt.train import session

# By torch: CTranslate2 reads a model in another process, and its cache would count as memory of the first load.
load = partial(translator.load, engine="torch")


def growth_kb(work: Callable[[], object]) -> int:
    """Call `work`; return by how much its peak memory exceeds the memory before, in kB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory to the system, or `work` would reuse it uncounted
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current memory
    before = peak_kb()
    work()
    return peak_kb() - before


def peak_kb() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def make_ready(config: Path, run: Path) -> None:
    with session.prepare(load_config(config, [f"run={run}"]), device="cpu").run.lock():
        pass


def attempt(work: Callable[[], object]) -> list[str]:
    """Call `work`; return its outcome ("well", "error" or "traceback"), the message and the hint."""
    try:
        work()
    except NmtError as error:
        return ["error", str(error), error.hint]
    except BaseException:
        return ["traceback", traceback.format_exc(), ""]
    return ["well", "", ""]


def main(intact: Path, config: Path, folder: Path) -> None:
    for _ in range(3):  # warm-up: imports, and memory that libraries keep
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
            if way == "load" and ends[0][0] == "well":  # then it must also translate
                load(entry).translate(["a"], beam=1)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
