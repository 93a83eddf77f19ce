"""Load every entry of a folder in one process of limited memory: `python load_all.py INTACT CONFIG FOLDER`.

Prints each outcome as a JSON line. A directory is also prepared for training, as `nmt train CONFIG run=ENTRY` does.
"""

import json
import resource
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nmt.config import load_config
from nmt.errors import NmtError
from nmt.train import session
from nmt.translate import loading

MORE_BYTES = 100_000_000
# By torch: CTranslate2 reads a model in another process, which would not be limited.
load = partial(loading.load, engine="torch")


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
    load(intact).translate(["a"], beam=1)
    make_ready(config, intact)
    data_kb = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0])
    resource.setrlimit(resource.RLIMIT_DATA, (1024 * data_kb + MORE_BYTES,) * 2)
    for entry in sorted(folder.iterdir()):
        found = attempt(partial(load, entry))
        print(json.dumps([entry.name, "load", *found]), flush=True)
        if found[0] == "well":  # then it must also translate
            load(entry).translate(["a"], beam=1)
        if entry.is_dir():
            print(json.dumps([entry.name, "train", *attempt(partial(make_ready, config, entry))]), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
