"""The command that `nmt` without arguments suggests next, which depends on the files in the working directory."""

import contextlib
import shlex
from itertools import combinations
from pathlib import Path

MAX_SIZE_RATIO = 4  # maximum ratio of the file sizes of two parallel texts, larger to smaller
MAX_CONFIG_BYTES = 100_000  # maximum size of a config; larger files are not read


def next_step() -> str:
    """Return the command to run next in the working directory, or an empty string.

    If there is a run with a model, the command is `nmt translate`. Otherwise, if there is a config, the command is
    `nmt train`. Otherwise, if there are two parallel texts, the commands are `nmt check` and `nmt init`.
    """
    from nmt.run.directory import newest_model

    with contextlib.suppress(OSError):
        # 1. A trained model.
        model = newest_model()
        if model is not None:
            return f'nmt translate "A sentence."  (with {shlex.quote(str(model.parent))})'
        # 2. A config.
        for file in sorted(Path().glob("*.y*ml"), key=lambda file: -file.stat().st_mtime_ns):
            if is_config(file):
                return shlex.join(["nmt", "train", file.name])
        # 3. Two parallel texts.
        for pair in combinations(texts(), 2):
            if are_parallel(*pair):
                names = shlex.join(sorted(file.name for file in pair))
                return f"nmt check {names}, then nmt init {names} -o mine.yaml"
    return ""


def is_config(file: Path) -> bool:
    """Return whether a file is small and has the setting `run`, which every config has."""
    return file.is_file() and file.stat().st_size < MAX_CONFIG_BYTES and b"\nrun:" in b"\n" + file.read_bytes()


def texts() -> list[Path]:
    """Return the text files whose names end in a language code, such as text.de, the largest file first."""
    from nmt.config import language_of

    files = [file for file in Path().iterdir() if file.is_file() and language_of(file) and not is_binary(file)]
    return sorted(files, key=lambda file: -file.stat().st_size)


def is_binary(file: Path) -> bool:
    with file.open("rb") as stream:
        return file.suffix != ".gz" and b"\0" in stream.read(4096)


def are_parallel(large: Path, small: Path) -> bool:
    """Return whether two files have the same name up to the suffix, and similar sizes."""
    is_similar = large.stat().st_size <= MAX_SIZE_RATIO * small.stat().st_size
    return is_similar and stem(large) == stem(small)


def stem(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).stem
