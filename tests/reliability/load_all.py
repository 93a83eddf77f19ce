"""Load every model and run of a folder in one process, and say what became of each and of the process' memory.

    python load_all.py INTACT CONFIG FOLDER     a line of JSON for each entry of FOLDER, in order of their names

INTACT is loaded first: what a load takes when all is well. CONFIG's training is made ready in each entry that is a
directory, as `nmt train CONFIG run=ENTRY` would.
"""

import json
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from nmt.config import load_config
from nmt.decode.translator import load
from nmt.errors import NmtError
from nmt.train import session


def peak_kb(work: Callable[[], object]) -> int:
    """The most memory that the process has at once while it works, kB."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew at what is taken now
    work()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


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
    load(intact).translate(["a"], beam=1)  # imports, and what libraries keep
    print(json.dumps(["intact", "load", "well", "", "", peak_kb(lambda: load(intact))]))
    for entry in sorted(folder.iterdir()):
        ways: dict[str, Callable[[], object]] = {"load": lambda path=entry: load(path)}  # type: ignore[misc]
        if entry.is_dir():
            overrides = [f"run={entry}"]
            ways["train"] = lambda: session.prepare(load_config(config, overrides), device="cpu")  # noqa: B023
        for way, work in ways.items():
            ends: list[list[str]] = []
            kb = peak_kb(lambda: ends.append(attempt(work)))  # noqa: B023
            print(json.dumps([entry.name, way, *ends[0], kb]), flush=True)
    print(json.dumps(["children", "", "well", "", "", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
