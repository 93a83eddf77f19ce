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
        configs = [file for file in Path().glob("*.y*ml") if file.is_file() and b"\nrun:" in b"\n" + file.read_bytes()]
        if configs:
            return shlex.join(["nmt", "train", max(configs, key=lambda file: file.stat().st_mtime_ns).name])
        if files := parallel_files():
            names = shlex.join(file.name for file in files)
            return f"nmt check {names}, then nmt init {names} -o mine.yaml"
    return ""


def parallel_files() -> tuple[Path, Path] | None:
    """The two largest files that differ only in the language code of their names: text.de and text.en."""
    from nmt.config import language_of

    def stem(file: Path) -> str:
        return Path(file.name.removesuffix(".gz")).stem

    def size(file: Path) -> int:
        return file.stat().st_size

    def is_text(file: Path) -> bool:
        with file.open("rb") as stream:
            return file.suffix == ".gz" or b"\0" not in stream.read(4096)

    texts = sorted(file for file in Path().iterdir() if file.is_file() and language_of(file) and is_text(file))
    pairs = [pair for pair in combinations(texts, 2) if stem(pair[0]) == stem(pair[1])]
    alike = [pair for pair in pairs if 0 < max(map(size, pair)) <= MAX_SIZE_RATIO * min(map(size, pair))]
    return max(alike, key=lambda pair: size(pair[0]), default=None)
