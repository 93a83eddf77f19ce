"""`nmt check --fix`: cleaned copies, and a list with which every change can be undone."""

import json
import random
from pathlib import Path

import pytest

from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.repair import CHANGES, fix
from nmt.errors import OutputError

DATA = Path(__file__).parents[2] / "data" / "zh-en"


def lines_of(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().split(b"\n")[:-1]


def write(folder: Path, name: str, sides: tuple[list[bytes], list[bytes]]) -> CorpusFiles:
    paths = [folder / f"{name}.zh", folder / f"{name}.en"]
    for path, lines in zip(paths, sides, strict=True):
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    return CorpusFiles(name, [paths[0]], [paths[1]])


def undone(fixed: Path, side: str, name: str) -> list[bytes]:
    """The original lines of a side, from the cleaned file and the list of changes."""
    changes = map(json.loads, (fixed / CHANGES).read_text().splitlines())
    of_corpus = [change for change in changes if change["corpus"] == name and change[side] is not None]
    original = {change[f"{side}_line"]: change for change in of_corpus}
    cleaned = iter((fixed / f"{name}.{'zh' if side == 'source' else 'en'}").read_bytes().split(b"\n")[:-1])
    lines: list[bytes] = []
    for number in range(1, 10**6):
        change = original.get(number)
        kept = None if change is not None and change["action"] == "dropped" else next(cleaned, None)
        if change is None and kept is None:
            break
        lines.append(change[side].encode(errors="surrogateescape") if change is not None else kept or b"")
    return lines


def test_what_is_changed_can_be_undone(tmp_path: Path) -> None:
    source, target = lines_of("train.zh")[:3000], lines_of("train.en")[:3000]
    clean = list(zip(source, target, strict=True))
    target[10] = b""
    target[20] = b"caf\xe9"
    target[30] += b"\r"
    target[40] = "It’s a café &amp; a  bar.".encode().decode("cp1252").encode()
    source[50], target[50] = target[50], source[50]
    target[60] = source[60]
    source[1000], target[1000] = source[5], target[5]
    del target[1500]
    original = [*source], [*target]
    files = write(tmp_path, "train", (source, target))
    report = check([files])
    (done,) = fix(report, [files], tmp_path / "fixed")
    cleaned = [file.read_bytes().split(b"\n")[:-1] for file in done.files]
    pairs = list(zip(*cleaned, strict=True))
    assert len(pairs) == done.n_pairs
    assert pairs[10] == clean[11]
    assert (source[40], "It’s a café & a bar.".encode()) in pairs
    assert clean[50] in pairs
    assert not {b"", source[20], source[60]} & {*cleaned[0], *cleaned[1]} - {source[5]}
    assert not any(line.endswith(b"\r") for line in cleaned[1])
    known = {*clean, (source[40], "It’s a café & a bar.".encode())}
    assert sum(pair not in known for pair in pairs) <= 3, "the pairs after the missing line belong together again"
    assert len(pairs) >= 3000 - 12
    assert pairs.count(clean[5]) == 1
    for side, lines in zip(("source", "target"), original, strict=True):
        assert undone(tmp_path / "fixed", side, "train") == lines


def test_pairs_of_train_that_are_in_dev_are_dropped(tmp_path: Path) -> None:
    sides = lines_of("train.zh")[:500], lines_of("train.en")[:500]
    held_out = lines_of("dev.zh")[:90] + sides[0][7:17], lines_of("dev.en")[:90] + sides[1][7:17]
    corpora = [write(tmp_path, "train", sides), write(tmp_path, "dev", held_out)]
    train, dev = fix(check(corpora), corpora, tmp_path / "fixed")
    assert (train.n_pairs, train.n_dropped) == (490, 10)
    assert (dev.n_pairs, dev.n_dropped, dev.n_changed) == (100, 0, 0)
    assert not set(train.files[0].read_bytes().split(b"\n")) & set(sides[0][7:17])
    assert undone(tmp_path / "fixed", "source", "train") == sides[0]


def test_exchanged_and_shuffled_corpora(tmp_path: Path) -> None:
    sides = lines_of("train.zh")[:2000], lines_of("train.en")[:2000]
    block = sides[1][500:600]
    random.Random(1).shuffle(block)
    sides[1][500:600] = block
    exchanged = lines_of("dev.en"), lines_of("dev.zh")
    corpora = [write(tmp_path, "train", sides), write(tmp_path, "dev", exchanged)]
    train, dev = fix(check(corpora), corpora, tmp_path / "fixed")
    assert abs(train.n_pairs - 1900) <= 6
    assert dev.files[0].read_bytes() == (DATA / "dev.zh").read_bytes()
    for side, lines in zip(("source", "target"), sides, strict=True):
        assert undone(tmp_path / "fixed", side, "train") == lines


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    files = write(tmp_path, "train", ([b"a"], [b"b"]))
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "mine").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        fix(check([files]), [files], tmp_path / "fixed")
