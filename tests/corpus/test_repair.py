"""`nmt check --fix`: cleaned copies, and a list of changes; the original files stay."""

import gzip
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import soak
from parallel_text import (
    PairText,
    fix_sides,
    grammar_pairs,
    grammar_sides,
    read_lines,
    read_pairs,
    shuffled,
    write_pairs,
)

from nmt.corpus.characters import MENDED, TESTS
from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles, side_lines
from nmt.corpus.repair import CHANGES, UNUSABLE, CorpusRepair, fix, output_paths

Change = dict[str, Any]


def changes_in(folder: Path) -> list[Change]:
    return [json.loads(line) for line in read_lines(folder / CHANGES)]


class Repaired(NamedTuple):
    repair: CorpusRepair
    pairs: list[PairText]  # the cleaned copy
    changes: dict[int, Change]  # by source line


GARBLED = "It’s a café &amp; a <b> bar.".encode().decode("cp1252")
SPANISH = "Te acabo de enviar un correo electrónico."


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Repaired:
    """3000 pairs in which faults are planted in lines 11, 21 and so on, counted from 1."""
    folder = tmp_path_factory.mktemp("repaired")
    source, target = grammar_sides(3000)
    target[10] = ""
    target[20] = "caf\udce9"
    target[30] += "\r"
    target[40] = GARBLED
    source[50], target[50] = target[50], source[50]
    target[60] = source[60]
    target[70] = SPANISH
    source[1000] = source[5]
    target[1000] = target[5]
    del target[1500]
    repair = fix_sides(folder, source, target)
    pairs = read_pairs(*repair.paths)
    changes = {change["source_line"]: change for change in changes_in(folder / "fixed")}
    return Repaired(repair, pairs, changes)


DROPPED = {11: "blank", 21: "encoding", 61: "copy", 1001: "duplicate", 1501: "no partner"}


@pytest.mark.parametrize("line", DROPPED)
def test_unusable_lines_are_dropped(repaired: Repaired, line: int) -> None:
    change = repaired.changes[line]
    assert change["action"] == "dropped"
    assert DROPPED[line] in change["kinds"]


@pytest.mark.parametrize("i", [30, 50, 5, 2999])
def test_clean_exchanged_and_shifted_lines_are_paired_as_they_should_be(repaired: Repaired, i: int) -> None:
    pair = grammar_pairs(3000)[i]
    assert repaired.pairs.count(pair) == 1


def test_text_is_cleaned(repaired: Repaired) -> None:
    source, _ = grammar_pairs(3000)[40]
    assert (source, "It’s a café & a bar.") in repaired.pairs
    change = repaired.changes[41]
    assert change["action"] == "changed"
    assert change["kinds"] == ["mojibake", "markup", "spacing"]


def test_a_third_language_stays_because_the_check_may_be_wrong(repaired: Repaired) -> None:
    source, _ = grammar_pairs(3000)[70]
    assert (source, SPANISH) in repaired.pairs


def test_hardly_any_other_pair_is_changed_or_dropped(repaired: Repaired) -> None:
    changed = set(repaired.pairs) - set(grammar_pairs(3000))
    assert len(changed) <= 2 + 3
    assert len(repaired.repair.kept) == len(repaired.pairs) >= 3000 - 12


def test_all_changes_are_listed_and_counted(repaired: Repaired) -> None:
    repair = repaired.repair
    result = len(repaired.changes)
    assert result == repair.counts.total()


def test_an_exchanged_dev_set_is_written_as_it_should_be(tmp_path: Path) -> None:
    dev = grammar_pairs(part="dev")
    dev[:150] = [(target, source) for source, target in dev[:150]]
    train_files = write_pairs(tmp_path, "train", grammar_pairs(2000))
    corpora = [train_files, write_pairs(tmp_path, "dev", dev)]
    _, repair = fix(check(corpora), corpora, tmp_path / "fixed")
    result = read_pairs(*repair.paths)
    assert result == grammar_pairs(part="dev")


def test_shuffled_lines_are_dropped(tmp_path: Path) -> None:
    source, target = grammar_sides(2000)
    target[500:600] = shuffled(target[500:600])
    repair = fix_sides(tmp_path, source, target)
    result = abs(len(repair.kept) - 1900)
    assert result <= 6


def test_copies_are_named_by_their_languages_or_else_by_their_sides(tmp_path: Path) -> None:
    files = CorpusFiles("train", [Path("a.txt")], [Path("b.txt.gz")])
    result = output_paths(files, tmp_path)
    assert result == (tmp_path / "train.source", tmp_path / "train.target")


N_CORPORA = soak(10, 50)
N_LINES = {"train": 600, "dev": 80, "test": 80}
AROUND = [  # what is before and after a faulty text
    ("  ", "\t"),
    ("<i>", "</i>"),
    ("", " &amp;#10; &quot;"),
    ("\u200b", "\x07"),
    ("", "e\u0301"),
    ("", "ＡＢＣ１２"),
    ("", "café’s".encode().decode("cp1252")),
    ("", "\udce9\udcff"),  # bytes that are not UTF-8
    ("", "\ufffd"),
    ("", "\r"),
    ("\ufeff", ""),
    ("", " 123456"),
    ("", "\0"),
    ("", "\u2028a\x85"),
    ("", "<\xadb> &am\0p;"),  # hidden markup
]
INSTEAD = ["", " \t ", "<br/>"]


def dirty_text(text: str, rng: random.Random) -> str:
    before, after = rng.choice(AROUND)
    around = before + text + after
    cut = text[: len(text) // 4]
    spaced = text.replace(" ", "  ")
    return rng.choice([around, around, around, cut, text * 8, spaced, *INSTEAD])


def dirty_pair(pair: PairText, rng: random.Random) -> PairText:
    source, target = pair
    dirty_source, dirty_target = dirty_text(source, rng), dirty_text(target, rng)
    faulty = [(dirty_source, target), (source, dirty_target), (dirty_source, dirty_target)]
    return rng.choice([*faulty, (target, source), (source, source)])


class RandomCorpus(NamedTuple):
    files: CorpusFiles
    clean: set[PairText]  # the pairs left as they were; none if lines are shifted


def random_corpus(folder: Path, name: str, pairs: list[PairText], train: list[PairText], seed: int) -> RandomCorpus:
    """Write pairs with planted faults, also in repeated lines and in lines of train."""
    rng = random.Random(f"{name}{seed}")
    clean = set(pairs)
    dirtied = list(pairs)
    n_dirty = len(pairs) // 8
    for i in rng.sample(range(len(pairs)), n_dirty):
        pair = rng.choice([pairs[i], rng.choice(pairs), rng.choice(train)])
        dirtied[i] = dirty_pair(pair, rng)
        clean.discard(pairs[i])
    source = [source for source, _ in dirtied]
    target = [target for _, target in dirtied]
    at = rng.randrange(len(pairs))
    lines = rng.choice([source, target])
    match rng.choice(["as it is", "as it is", "missing", "added"]):
        case "missing":
            del lines[at]
            clean = set()
        case "added":
            lines.insert(at, rng.choice(["", "more", lines[at]]))
            clean = set()
    source_paths = split_side(folder, f"{name}.zh", source, rng)
    target_paths = split_side(folder, f"{name}.en", target, rng)
    return RandomCorpus(CorpusFiles(name, source_paths, target_paths), clean)


def split_side(folder: Path, name: str, lines: list[str], rng: random.Random) -> list[Path]:
    """Write a side to two files, one of them gzipped; the last has perhaps no newline at the end."""
    content = "\n".join(lines).encode(errors="surrogateescape")
    if not lines[-1] or rng.random() < 0.7:
        content += b"\n"
    n_first = rng.randrange(1, len(lines))
    *first, rest = content.split(b"\n", n_first)
    plain, packed = folder / f"1.{name}", folder / f"2.{name}.gz"
    plain.write_bytes(b"\n".join([*first, b""]))
    packed.write_bytes(gzip.compress(rest))
    return [plain, packed]


@pytest.mark.parametrize("seed", range(N_CORPORA))
def test_repair_of_random_corpora_loses_and_leaks_nothing(seed: int, tmp_path: Path) -> None:
    pairs = grammar_pairs()
    random.Random(seed).shuffle(pairs)
    train = pairs[: N_LINES["train"]]
    originals = {}
    for name, n_lines in N_LINES.items():
        originals[name] = random_corpus(tmp_path, name, pairs[:n_lines], train[::7], seed)
        del pairs[:n_lines]
    corpora = [original.files for original in originals.values()]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    repairs = fix(check(corpora), corpora, tmp_path / "fixed")
    assert {path: path.read_bytes() for path in before} == before

    cleaned = {repair.files.name: read_pairs(*repair.paths) for repair in repairs}
    held_out = cleaned["dev"] + cleaned["test"]
    assert_disjoint(cleaned["train"], held_out)
    n_distinct = len(set(cleaned["train"]))
    assert n_distinct == len(cleaned["train"]), "a pair of train is written twice"
    # From dev and test, no clean line is dropped; in train, `check` accuses few of them.
    for name in ("dev", "test"):
        assert originals[name].clean <= set(cleaned[name])
    clean = originals["train"].clean
    lost = clean - set(cleaned["train"])
    not_held_out = [pair for pair in lost if not shares_a_side(pair, held_out)]
    assert len(not_held_out) <= 0.01 * len(clean)
    changes = changes_in(tmp_path / "fixed")
    for repair in repairs:
        of_corpus = [change for change in changes if change["corpus"] == repair.files.name]
        assert_undone(repair, of_corpus)
        assert_clean(repair)
    for change in changes:
        is_held_out = change["corpus"] != "train"
        if is_held_out and change["action"] == "dropped":
            assert set(change["kinds"]) <= {*UNUSABLE, "no partner"}


def shares_a_side(pair: PairText, held_out: list[PairText]) -> bool:
    source, target = pair
    sources = {source for source, _ in held_out}
    targets = {target for _, target in held_out}
    return source in sources or target in targets


def assert_disjoint(train: list[PairText], held_out: list[PairText]) -> None:
    for side in (0, 1):
        texts = {pair[side] for pair in held_out}
        in_train = {pair[side] for pair in train}
        # No line of dev or test is in train.
        assert texts.isdisjoint(in_train)


def assert_undone(repair: CorpusRepair, changes: list[Change]) -> None:
    """The cleaned copies, with the listed lines of the originals, are the originals."""
    for side, name in enumerate(("source", "target")):
        actions = {change[f"{name}_line"]: change["action"] for change in changes}
        expected = []
        *written, _ = repair.paths[side].read_bytes().split(b"\n")
        for number, line in enumerate(side_lines(repair.files.sides[side]), 1):
            action = actions.get(number)
            if action is None:
                expected.append(line)
            elif action != "dropped":
                expected.append(written[len(expected)])
        assert written == expected


def assert_clean(repair: CorpusRepair) -> None:
    for path in repair.paths:
        for text in read_lines(path):
            faults = [kind for kind in MENDED if TESTS[kind](text)]
            assert faults == []
