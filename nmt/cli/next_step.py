"""What a plain `nmt` suggests, from the files of the working directory."""

import contextlib
import shlex
from itertools import combinations
from pathlib import Path

MAX_SIZE_RATIO = 4  # of two parallel texts, in bytes


def next_step() -> str:
    """The command to run next in the working directory, or an empty string.

    A run suggests `nmt translate`, else a config `nmt train`, else two parallel texts `nmt check` and `nmt init`.
    """
    from nmt.run.directory import newest_model

    with contextlib.suppress(OSError):
        if model := newest_model():
            return f'nmt translate "A sentence."  (with {shlex.quote(str(model.parent))})'
        for file in sorted(Path().glob("*.y*ml"), key=lambda file: -file.stat().st_mtime_ns):
            if file.is_file() and file.stat().st_size < 100_000 and b"\nrun:" in b"\n" + file.read_bytes():
                return shlex.join(["nmt", "train", file.name])
        for pair in combinations(texts(), 2):
            small, large = sorted(file.stat().st_size for file in pair)
            stems = {Path(file.name.removesuffix(".gz")).stem for file in pair}
            if len(stems) == 1 and large <= MAX_SIZE_RATIO * small:
                names = shlex.join(sorted(file.name for file in pair))
                return f"nmt check {names}, then nmt init {names} -o mine.yaml"
    return ""


def texts() -> list[Path]:
    """Files whose names end in the code of a language, such as text.de; the largest first."""
    from nmt.config import language_of

    def is_text(file: Path) -> bool:
        with file.open("rb") as stream:
            return file.suffix == ".gz" or b"\0" not in stream.read(4096)

    found = (file for file in Path().iterdir() if file.is_file() and language_of(file) and is_text(file))
    return sorted(found, key=lambda file: -file.stat().st_size)
