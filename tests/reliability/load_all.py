"""Load every entry of a folder in one process of limited memory: `python load_all.py INTACT CONFIG FOLDER`.

Prints each outcome as a JSON line. A directory is also prepared for training, as `nmt train CONFIG run=ENTRY` does.
"""

import json
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from nmt.config import load_config
from nmt.errors import NmtError
from nmt.train import session
from nmt.translate.loading import load
from nmt.translate.translator import Translator

MORE_BYTES = 100_000_000


def limit_data(more_bytes: int) -> None:
    """Limit the memory of this process to what it has now and `more_bytes`."""
    after_name = Path("/proc/self/status").read_text().partition("VmData:")[2]
    limit = 1024 * int(after_name.split()[0]) + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def load_by_torch(run: Path) -> Translator:
    """Load a model in this process; CTranslate2 reads a model in another one, which would not be limited."""
    return load(run, engine="torch")


def make_ready(config: Path, run: Path) -> None:
    prepared = session.prepare(load_config(config, [f"run={run}"]), device="cpu")
    with prepared.run.lock():
        pass


def tell(entry: Path, way: str, work: Callable[[], object]) -> str:
    """Call `work`; print its outcome ("well", "error" or "traceback"), which is returned, the message and the hint."""
    end = "well"
    message = ""
    hint = ""
    try:
        work()
    except NmtError as error:
        end = "error"
        message = str(error)
        hint = error.hint
    except BaseException:
        end = "traceback"
        message = traceback.format_exc()
    print(json.dumps([entry.name, way, end, message, hint]), flush=True)
    return end


def main(intact: Path, config: Path, folder: Path) -> None:
    # 1. What intact files need, and no more than a little above.
    load_by_torch(intact).translate(["a"], beam=1)
    make_ready(config, intact)
    limit_data(MORE_BYTES)

    # 2. The others. What can be loaded must also translate.
    for entry in sorted(folder.iterdir()):
        if tell(entry, "load", lambda: load_by_torch(entry)) == "well":  # noqa: B023
            load_by_torch(entry).translate(["a"], beam=1)
        if entry.is_dir():
            tell(entry, "train", lambda: make_ready(config, entry))  # noqa: B023


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
