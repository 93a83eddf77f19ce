"""What a plain `nmt` suggests, from the files of the working directory."""

import contextlib
import shlex
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
        if config := newest_config():
            return shlex.join(["nmt", "train", config.name])
        if files := parallel_files():
            names = shlex.join(file.name for file in files)
            return f"nmt check {names}, then nmt init {names} -o mine.yaml"
    return ""


def newest_config() -> Path | None:
    """The YAML file written last that names a run, as those of `nmt init` do."""
    configs = (file for file in Path().glob("*.y*ml") if file.is_file())
    named = [file for file in configs if any(line.startswith(b"run:") for line in file.read_bytes().splitlines())]
    return max(named, key=lambda file: file.stat().st_mtime_ns, default=None)


def parallel_files() -> tuple[Path, Path] | None:
    """The two largest texts that differ only in the language code of their names: text.de and text.en."""
    from nmt.config import language_of

    texts = sorted(file for file in Path().iterdir() if file.is_file() and language_of(file) and is_text(file))
    pairs = [(one, other) for one in texts for other in texts if one < other and stem(one) == stem(other)]
    alike = [pair for pair in pairs if max(map(size, pair)) <= MAX_SIZE_RATIO * min(map(size, pair))]
    return max(alike, key=lambda pair: size(pair[0]), default=None)


def stem(file: Path) -> str:
    """`text` for text.de and text.de.gz."""
    return Path(file.name.removesuffix(".gz")).stem


def size(file: Path) -> int:
    return file.stat().st_size


def is_text(file: Path) -> bool:
    """Whether a file is not empty and its beginning has no NUL; gzip is taken for text."""
    with file.open("rb") as stream:
        head = stream.read(4096)
    return bool(head) and (file.suffix == ".gz" or b"\0" not in head)
