"""`nmt check --fix`: cleaned copies, and a list of changes; the original files stay."""

import gzip
import json
import random
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import soak

from nmt.corpus.characters import MENDED, TESTS
from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles, side_lines
from nmt.corpus.repair import CHANGES, UNUSABLE, Repair, fix, output_paths

DATA = Path(__file__).parents[2] / "data" / "zh-en"


def lines_of(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().split(b"\n")[:-1]


def write(folder: Path, name: str, sides: tuple[list[bytes], list[bytes]]) -> CorpusFiles:
    paths = [folder / f"{name}.zh", folder / f"{name}.en"]
    for path, lines in zip(paths, sides, strict=True):
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    return CorpusFiles(name, [paths[0]], [paths[1]])


def test_faulty_lines_are_mended_or_dropped(tmp_path: Path) -> None:
    source, target = lines_of("train.zh")[:3000], lines_of("train.en")[:3000]
    clean = list(zip(source, target, strict=True))
    target[10] = b""
    target[20] = b"caf\xe9"
    target[30] += b"\r"
    target[40] = "It’s a café &amp; a <b> bar.".encode().decode("cp1252").encode()
    source[50], target[50] = target[50], source[50]
    target[60] = source[60]
    target[70] = "Te acabo de enviar un correo electrónico.".encode()
    source[1000], target[1000] = source[5], target[5]
    del target[1500]
    files = write(tmp_path, "train", (source, target))
    report = check([files])
    (done,) = fix(report, [files], tmp_path / "fixed")
    cleaned = [file.read_bytes().split(b"\n")[:-1] for file in done.paths]
    pairs = list(zip(*cleaned, strict=True))
    assert len(pairs) == done.n_pairs
    assert pairs[10] == clean[11]
    assert (source[40], "It’s a café & a bar.".encode()) in pairs
    assert clean[50] in pairs
    assert not {b"", source[20], source[60]} & {*cleaned[0], *cleaned[1]} - {source[5]}
    assert not any(line.endswith(b"\r") for line in cleaned[1])
    assert (source[70], target[70]) in pairs, "the check may be wrong about a third language"
    known = {*clean, (source[70], target[70]), (source[40], "It’s a café & a bar.".encode())}
    assert sum(pair not in known for pair in pairs) <= 3, "the pairs after the missing line belong together again"
    assert len(pairs) >= 3000 - 12
    assert pairs.count(clean[5]) == 1
    listed = [json.loads(line) for line in (tmp_path / "fixed" / CHANGES).read_text().splitlines()]
    assert len(listed) == done.n_changed + done.n_dropped
    (changed,) = [one for one in listed if one["source_line"] == 41]
    assert (changed["action"], changed["kinds"]) == ("changed", ["mojibake", "markup", "spacing"])


def test_exchanged_and_shuffled_corpora(tmp_path: Path) -> None:
    sides = lines_of("train.zh")[:2000], lines_of("train.en")[:2000]
    block = sides[1][500:600]
    random.Random(1).shuffle(block)
    sides[1][500:600] = block
    exchanged = lines_of("dev.en")[:150] + lines_of("dev.zh")[150:], lines_of("dev.zh")[:150] + lines_of("dev.en")[150:]
    corpora = [write(tmp_path, "train", sides), write(tmp_path, "dev", exchanged)]
    report = check(corpora)
    assert {one.kind.name for one in report.findings if one.corpus == "dev"} == {"exchanged", "swapped"}
    train, dev = fix(report, corpora, tmp_path / "fixed")
    assert abs(train.n_pairs - 1900) <= 6
    assert dev.paths[0].read_bytes() == (DATA / "dev.zh").read_bytes()


def test_copies_are_named_by_their_languages_or_else_by_their_sides(tmp_path: Path) -> None:
    files = CorpusFiles("train", [Path("a.txt")], [Path("b.txt.gz")])
    assert output_paths(files, tmp_path) == (tmp_path / "train.source", tmp_path / "train.target")


N_CORPORA = soak(10, 50)
N_LINES = {"train": 600, "dev": 80, "test": 80}
DIRT: dict[str, Callable[[bytes], bytes]] = {  # of a text
    "spaces": lambda text: b"  " + text.replace(b" ", b"  ") + b"\t",
    "markup": lambda text: b"<i>" + text + b"</i>",
    "entity": lambda text: text + b" &amp;#10; &quot;",
    "control": lambda text: text[:0] + "\u200b".encode() + text + b"\x07",
    "decomposed": lambda text: unicodedata.normalize("NFD", text.decode() + "é").encode(),
    "full-width": lambda text: text + "ＡＢＣ１２".encode(),
    "mojibake": lambda text: text + "café’s".encode().decode("cp1252").encode(),
    "bytes": lambda text: text + b"\xe9\xff",
    "replaced": lambda text: text + "\ufffd".encode(),
    "crlf": lambda text: text + b"\r",
    "bom": lambda text: b"\xef\xbb\xbf" + text,
    "blank": lambda _: b"",
    "white": lambda _: b" \t ",
    "only markup": lambda _: b"<br/>",
    "cut": lambda text: text[: len(text) // 4].decode(errors="ignore").encode(),
    "repeated": lambda text: text * 8,
    "number": lambda text: text + b" 123456",
    "nul": lambda text: text + b"\0",
    "separators": lambda text: text + "\u2028a\x85".encode(),
    "hidden markup": lambda text: text + "<\xadb> &am\0p;".encode(),
}
DIRT_OF_PAIRS: dict[str, Callable[[bytes, bytes], tuple[bytes, bytes]]] = {
    "exchanged": lambda source, target: (target, source),
    "copy": lambda source, _: (source, source),
}


def dirtied(
    pairs: list[tuple[bytes, bytes]], rng: random.Random, others: list[tuple[bytes, bytes]]
) -> tuple[tuple[list[bytes], list[bytes]], set[tuple[bytes, bytes]]]:
    """Both sides with planted faults, also in repeated lines, and the pairs left as they were (none if shifted)."""
    pairs, clean = list(pairs), set(pairs)
    for i in rng.sample(range(len(pairs)), len(pairs) // 8):
        clean.discard(pairs[i])
        pair = rng.choice([pairs[i], rng.choice(pairs), rng.choice(others)])
        if rng.random() < 0.2:
            pairs[i] = rng.choice(list(DIRT_OF_PAIRS.values()))(*pair)
        else:
            change, side = rng.choice(list(DIRT.values())), rng.randrange(3)
            pairs[i] = (pair[0] if side == 1 else change(pair[0]), pair[1] if side == 0 else change(pair[1]))
    source, target = [one for one, _ in pairs], [one for _, one in pairs]
    if rng.random() < 0.5:  # a line is missing or added, so that the lines after it are shifted
        at, lines = rng.randrange(len(pairs)), rng.choice([source, target])
        clean = set()
        if rng.random() < 0.5:
            del lines[at]
        else:
            lines.insert(at, rng.choice([b"", b"more", lines[at]]))
    return (source, target), clean


def write_files(folder: Path, name: str, sides: tuple[list[bytes], list[bytes]], rng: random.Random) -> CorpusFiles:
    """Write each side to one or two files, plain or gzipped, with or without a newline at the end."""
    found: list[list[Path]] = []
    for lines, suffix in zip(sides, ("zh", "en"), strict=True):
        cuts = [0, *([rng.randrange(1, len(lines))] if rng.random() < 0.5 else []), len(lines)]
        paths = []
        for first, last in pairwise(cuts):
            path = folder / f"{name}{first}.{suffix}{rng.choice(['', '.gz'])}"
            content = b"\n".join(lines[first:last]) + (b"\n" if not lines[last - 1] or rng.random() < 0.7 else b"")
            path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
            paths.append(path)
        found.append(paths)
    return CorpusFiles(name, *found)


@pytest.mark.parametrize("seed", range(N_CORPORA))
def test_repair_of_random_corpora_loses_and_leaks_nothing(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    pairs = list(zip(lines_of("train.zh"), lines_of("train.en"), strict=True))
    rng.shuffle(pairs)
    corpora, clean, first = [], {}, 0
    for name, n in N_LINES.items():
        sides, clean[name] = dirtied(pairs[first : first + n], rng, pairs[: N_LINES["train"]][::7])
        corpora.append(write_files(tmp_path, name, sides, rng))
        first += n
    original = {path: path.read_bytes() for files in corpora for side in files.sides for path in side}
    done = fix(check(corpora), corpora, tmp_path / "fixed")
    assert {path: path.read_bytes() for path in original} == original

    cleaned = {one.files.name: [file.read_bytes().split(b"\n")[:-1] for file in one.paths] for one in done}
    held_out = [{*cleaned["dev"][i], *cleaned["test"][i]} for i in (0, 1)]
    for i in (0, 1):
        assert not held_out[i] & {*cleaned["train"][i]}, "a line of dev or test is in train"
    written = list(zip(*cleaned["train"], strict=True))
    assert len(written) == len(set(written)), "a pair of train is written twice"
    for name, left in clean.items():
        kept = set(zip(*cleaned[name], strict=True))
        lost = {one for one in left - kept if name != "train" or not (one[0] in held_out[0] or one[1] in held_out[1])}
        # In train, `check` accuses few clean lines; from dev and test, it drops none of them.
        assert len(lost) <= (0.01 * len(left) if name == "train" else 0), lost
    changes = [json.loads(line) for line in (tmp_path / "fixed" / CHANGES).read_text().splitlines()]
    for one in done:
        assert_undone(one, [entry for entry in changes if entry["corpus"] == one.files.name])
    dropped = [one for one in changes if one["action"] == "dropped" and one["corpus"] != "train"]
    assert {kind for one in dropped for kind in one["kinds"]} <= {*UNUSABLE, "no partner"}


def assert_undone(done: Repair, changes: list[dict[str, Any]]) -> None:
    """The cleaned copies, with the listed lines of the originals, are the originals; no fault is left in them."""
    for side, name in enumerate(("source", "target")):
        written = done.paths[side].read_bytes().split(b"\n")[:-1]
        rest, listed = iter(written), {entry[f"{name}_line"]: entry["action"] for entry in changes}
        for number, line in enumerate(side_lines(done.files.sides[side]), 1):
            if listed.get(number) != "dropped":
                assert next(rest) == line or number in listed, (number, line)
        assert next(rest, None) is None
        assert not [(kind, text) for kind in MENDED for text in written if TESTS[kind](text.decode())]
