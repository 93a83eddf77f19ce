"""Download a corpus that mtdata knows (Gowda et al. 2021), with mtdata's own command. Needs the extra `mtdata`."""

import contextlib
import gzip
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from nmt.corpus.download import reserved
from nmt.errors import DownloadError, InputError
from nmt.files import atomic_directory, atomic_write
from nmt.processes import child_variables

# GROUP-NAME-VERSION-SOURCE-TARGET; a language may have a region and a script: zho_Hans_CN.
DATASET_ID = re.compile(r"\w[\w.+]*-[\w.+]+-[\w.+]+-([a-z]{2,3}(?:_\w+)?)-([a-z]{2,3}(?:_\w+)?)")
SEE = "`mtdata list -id -l deu-eng` lists them"
TERMS = """\
Downloaded by mtdata (https://github.com/thammegowda/mtdata) as {id}.
Its license is that of its publisher: `mtdata list --full -n NAME` shows the source and what to cite.
"""


def languages_of(dataset_id: str) -> tuple[str, str]:
    """Source and target language: the last two parts of the id. Raises InputError if the id has another form."""
    found = DATASET_ID.fullmatch(dataset_id)
    if not found:
        raise InputError(f"'{dataset_id}' is no mtdata id of parallel text", hint=f"GROUP-NAME-VERSION-L1-L2; {SEE}")
    return found[1], found[2]


def download_with_mtdata(dataset_id: str, path: Path) -> bool:
    """Write train.L1.gz and train.L2.gz into the directory `path`; return False if it exists already.

    Rows without two columns, or with an empty one, are left out. Raises InputError if mtdata is not installed or the id
    is none, and DownloadError with mtdata's last message if it fails.
    """
    languages = languages_of(dataset_id)
    if path.exists():
        return False
    if find_spec("mtdata") is None:
        raise InputError("mtdata is not installed", hint="pip install 'nmt-trainer[mtdata]'")
    with reserved(path), atomic_directory(path) as directory, tempfile.TemporaryFile() as messages:
        with contextlib.ExitStack() as stack:
            names = [directory / f"train.{language}.gz" for language in languages]
            source, target = (stack.enter_context(gzip.GzipFile(name, "wb", mtime=0)) for name in names)
            n_pairs = 0
            for columns in _rows(dataset_id, messages):
                source.write(columns[0] + b"\n")
                target.write(columns[1] + b"\n")
                n_pairs += 1
        if not n_pairs:
            raise DownloadError(f"mtdata has no pairs of {dataset_id}", hint=f"check the id; {SEE}")
        atomic_write(directory / "LICENSE.txt", TERMS.format(id=dataset_id))
    return True


def _rows(dataset_id: str, messages: IO[bytes]) -> Iterator[list[bytes]]:
    """The columns of the complete rows that `mtdata echo` prints; its stderr goes to the file `messages`."""
    command = [sys.executable, "-m", "mtdata", "-no-pb", "echo", dataset_id]
    variables = {**os.environ, **child_variables(), "PYTHONUTF8": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=messages, env=variables) as mtdata:
        assert mtdata.stdout is not None
        try:
            for row in mtdata.stdout:
                columns = [column.strip() for column in row.split(b"\t")]
                if len(columns) >= 2 and all(columns[:2]):
                    yield columns
        except BaseException:  # Ctrl-C, or GeneratorExit because the caller stopped early
            mtdata.kill()
            raise
    if mtdata.returncode:
        messages.seek(0)
        lines = messages.read().decode(errors="replace").split("\n")
        reason = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {mtdata.returncode}")
        if reason == "AssertionError":  # mtdata's only message for an unknown id
            reason = "it knows no such id"
        hint = f"check the id and the network; {SEE}"
        raise DownloadError(f"mtdata cannot get {dataset_id}: {reason}", hint=hint)
