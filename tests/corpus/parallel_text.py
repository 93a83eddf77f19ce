"""Parallel text that the tests of this folder read and write. A byte that is not UTF-8 is a surrogate escape."""

import random
from collections.abc import Iterable
from pathlib import Path

from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.repair import CorpusRepair, fix
from nmt.corpus.tatoeba import pair_pin

GRAMMAR = Path(__file__).parents[2] / "data" / "zh-en"
PairText = tuple[str, str]


def read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode(errors="surrogateescape").split("\n")[:-1]


def read_pairs(source: Path, target: Path) -> list[PairText]:
    return list(zip(read_lines(source), read_lines(target), strict=True))


def grammar_pairs(n: int = 5000, part: str = "train") -> list[PairText]:
    return list(zip(*grammar_sides(n, part), strict=True))


def fix_sides(folder: Path, source: list[str], target: list[str]) -> CorpusRepair:
    """Write both sides, check them, and write cleaned copies to a folder "fixed"."""
    files = write_sides(folder, "train", source, target)
    (repair,) = fix(check([files]), [files], folder / "fixed")
    return repair


def grammar_sides(n: int = 5000, part: str = "train") -> tuple[list[str], list[str]]:
    """The first `n` lines of both sides of a part of the Chinese-English grammar."""
    source = read_lines(GRAMMAR / f"{part}.zh")
    target = read_lines(GRAMMAR / f"{part}.en")
    return source[:n], target[:n]


def shuffled(lines: list[str]) -> list[str]:
    return random.Random(1).sample(lines, len(lines))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(text.encode(errors="surrogateescape"))


def write_sides(folder: Path, name: str, source: Iterable[str], target: Iterable[str]) -> CorpusFiles:
    """Write NAME.zh and NAME.en."""
    source_path, target_path = folder / f"{name}.zh", folder / f"{name}.en"
    write_lines(source_path, source)
    write_lines(target_path, target)
    return CorpusFiles(name, [source_path], [target_path])


def write_pairs(folder: Path, name: str, pairs: Iterable[PairText]) -> CorpusFiles:
    source, target = zip(*pairs, strict=True)
    return write_sides(folder, name, source, target)


def pins_of(dev: list[PairText], test: list[PairText]) -> str:
    """The list of the pinned pairs, as in nmt/corpus/pins."""
    lines = [f"dev {pair_pin(pair)}\n" for pair in dev] + [f"test {pair_pin(pair)}\n" for pair in test]
    return "".join(lines)
