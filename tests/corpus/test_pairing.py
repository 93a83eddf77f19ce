"""Lines that belong together are found wherever lines are missing or were added."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from conftest import soak
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nmt.corpus import alignment, bootstrap, findings
from nmt.corpus.alignment import SWITCH, words_of
from nmt.corpus.check import check
from nmt.corpus.pairing import AROUND, Run, Window, likeliest_runs, lines_of, widened, without_crossings
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.repair import fix
from nmt.errors import DataError

DATA = Path(__file__).parents[2] / "data" / "zh-en"
N_TRIALS = soak(3, 60)


def best_total(scores: np.ndarray) -> float:
    """The greatest total of any sequence of states, by trying all; the last state pairs a line with none."""
    n_lines, n_offsets = scores.shape
    with_none = np.concatenate([scores, np.zeros((n_lines, 1))], 1)
    totals = []
    for states in itertools.product(range(n_offsets + 1), repeat=n_lines):
        n_switches = sum(state != following for state, following in itertools.pairwise(states))
        totals.append(with_none[range(n_lines), states].sum() - SWITCH * n_switches)
    return float(max(totals))


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 3)), elements=st.floats(-40, 40)))
def test_the_runs_are_the_likeliest_path(scores: np.ndarray) -> None:
    n_lines, n_offsets = scores.shape
    runs = likeliest_runs([scores[:2], scores[2:]], 100, range(-1, n_offsets - 1))
    states = np.full(n_lines, n_offsets)
    for run in runs:
        states[run.start - 100 : run.end - 100] = run.offset + 1
    with_none = np.concatenate([scores, np.zeros((n_lines, 1))], 1)
    n_switches = int((states[1:] != states[:-1]).sum())
    assert np.isclose(with_none[range(n_lines), states].sum() - SWITCH * n_switches, best_total(scores))


RUN = st.builds(
    lambda start, size, offset: Run(start, start + size, offset),
    st.integers(0, 40),
    st.integers(1, 20),
    st.integers(-20, 20),
)


@given(st.lists(RUN, max_size=6))
def test_runs_that_are_kept_do_not_cross(runs: list[Run]) -> None:
    kept = without_crossings(sorted(runs, key=lambda run: (run.start, run.end)))
    for before, after in itertools.pairwise(kept):
        assert before.end <= after.start
        assert before.end + before.offset <= after.start + after.offset
    assert sum(len(run) for run in kept) >= max((len(run) for run in runs), default=0)


def test_a_window_compares_lines_as_single_pairs_are_compared() -> None:
    words = [f"w{i}" for i in range(12)]
    rng = random.Random(1)
    source = [" ".join(rng.choices(words, k=rng.randrange(6))) for _ in range(300)]
    target = [text.replace("w", "v") for text in source]
    lexicon = alignment.learn(words_of(source), words_of(target))
    window = Window(lines_of(source[40:60], 40), lines_of(target[35:62], 35))
    offsets = range(-8, 5)
    agreement = window.agreement(window.lines, offsets, lexicon)
    for line in window.lines:
        for offset in offsets:
            shown = agreement[line - 40, offset - offsets.start]
            if 35 <= line + offset < 62:
                pair = words_of([source[line]]), words_of([target[line + offset]])
                assert shown == pytest.approx(alignment.agreement(*pair, lexicon)[0], abs=0.05, nan_ok=True)
            else:
                assert np.isnan(shown)


def test_blocks_are_widened_and_joined_within_the_file() -> None:
    far = 20 + 2 * AROUND
    assert widened([], 500) == []
    assert widened([(3, 9)], 500) == [(0, 9 + AROUND)]
    assert widened([(3, 20), (far, 490)], 500) == [(0, 500)]
    assert widened([(3, 20), (far + 1, 490)], 500) == [(0, 20 + AROUND), (far + 1 - AROUND, 500)]


Numbered = list[tuple[int, str]]  # lines with the number of the pair that they are from; -1 if from none


def broken(pairs: list[tuple[str, str]], rng: random.Random, n_breaks: int) -> tuple[Numbered, Numbered]:
    """Both sides with 1 to 30 lines missing or added at some of 20 positions from 1 % to 99 %."""
    sides = [list(enumerate(texts)) for texts in zip(*pairs, strict=True)]
    positions = rng.sample([0.01 + 0.98 * i / 19 for i in range(20)], n_breaks)
    for position in sorted(positions, reverse=True):
        at = int(position * len(pairs))
        size = rng.randint(1, 30)
        side = rng.randrange(2)
        lines = sides[side]
        match rng.choice(["missing", "other lines", "blank lines", "repeated", "line break"]):
            case "missing":
                del lines[at : at + size]
            case "other lines":
                lines[at:at] = [(-1, rng.choice(pairs)[side]) for _ in range(size)]
            case "blank lines":
                lines[at:at] = [(-1, "")] * size
            case "repeated":
                lines[at:at] = [(-1, lines[at][1])] * size
            case "line break":
                text = lines[at][1]
                lines[at : at + 1] = [(-1, text[: len(text) // 2]), (-1, text[len(text) // 2 :])]
    return sides[0], sides[1]


def grammar_pairs(n: int) -> list[tuple[str, str]]:
    sides = [(DATA / f"train.{language}").read_text("utf-8").split("\n")[:n] for language in ("zh", "en")]
    return list(zip(*sides, strict=True))


def write_sides(folder: Path, *sides: list[str]) -> CorpusFiles:
    paths = [folder / "corpus.zh", folder / "corpus.en"]
    for path, texts in zip(paths, sides, strict=True):
        path.write_text("\n".join(texts) + "\n", "utf-8")
    return CorpusFiles("corpus", [paths[0]], [paths[1]])


@pytest.mark.parametrize("has_equal_lengths", [False, True])
@pytest.mark.parametrize("seed", range(N_TRIALS))
def test_lines_are_paired_again(seed: int, has_equal_lengths: bool, tmp_path: Path) -> None:
    pairs = grammar_pairs(1500)
    source, target = broken(pairs, random.Random(seed), n_breaks=1 + seed % 5)
    if has_equal_lengths:
        source, target = source[: len(target)], target[: len(source)]
    files = write_sides(tmp_path, [text for _, text in source], [text for _, text in target])
    (repair,) = fix(check([files]), [files], tmp_path / "fixed")
    written = list(zip(*(path.read_text("utf-8").split("\n")[:-1] for path in repair.paths), strict=True))
    assert sum(pair in pairs for pair in written) >= 0.99 * len(written)
    recoverable = {number for number, _ in source} & {number for number, _ in target} - {-1}
    assert len({pairs[number] for number in recoverable} & set(written)) >= 0.95 * len(recoverable)


def test_a_corpus_with_an_early_break_is_not_called_unrelated(tmp_path: Path) -> None:
    source, target = map(list, zip(*grammar_pairs(1500), strict=True))
    source.insert(60, "男孩们")
    files = write_sides(tmp_path, source, target)
    report = check([files])
    assert report.runs["corpus"] == [Run(0, 60), Run(61, 1501, -1)]
    assert not {finding.kind.name for finding in report.findings} & {"unrelated", "unchecked", "ratio", "numbers"}


def test_shifted_lines_whose_neighbors_are_alike_are_found(tmp_path: Path) -> None:
    source, target = map(list, zip(*sorted(grammar_pairs(1500), key=lambda pair: pair[1]), strict=True))
    del target[300:302]
    target[1400:1400] = ["Something else."] * 2
    files = write_sides(tmp_path, source, target)
    assert check([files]).runs["corpus"] == [Run(0, 300), Run(302, 1402, -2), Run(1402, 1500)]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([Run(0, 70), Run(70, 99, 1)], "; they part at about line 71"),
        ([Run(1, 99, -1)], "; they part at about line 1"),  # a header
        ([Run(0, 10), Run(50, 99, -40)], "; they part at about line 11"),  # where lines are missing, not after them
        ([Run(10 * i, 10 * i + 9, -i) for i in range(1, 6)], "; they part at about line 1 and 20 and 30 and 2 more"),
        ([Run(0, 98)], "; the longer side goes on after the end of the other"),
        ([Run(0, 40), Run(60, 98)], "; the longer side goes on after the end of the other"),
        ([Run(0, 60)], ""),
        ([], ""),
    ],
)
def test_where_the_sides_part(runs: list[Run], message: str) -> None:
    assert findings.where_they_part(runs, n_pairs=98) == message


@pytest.mark.parametrize("arrangement", ["shuffled", "sorted by length", "halves exchanged", "two thirds shuffled"])
def test_unrelated_sides_are_refused(arrangement: str, tmp_path: Path) -> None:
    source, target = map(list, zip(*grammar_pairs(1200), strict=True))
    rng = random.Random(1)
    match arrangement:
        case "shuffled":
            rng.shuffle(target)
        case "sorted by length":
            target.sort(key=len)
        case "halves exchanged":
            target = target[600:] + target[:600]
        case "two thirds shuffled":
            target[400:] = rng.sample(target[400:], 800)
    files = write_sides(tmp_path, source, target)
    with pytest.raises(DataError, match=r"nothing is written: .* have no translation in the other file"):
        fix(check([files]), [files], tmp_path / "fixed")
    assert not (tmp_path / "fixed").exists()


def test_different_numbers_of_lines_that_are_too_few_to_be_paired_are_refused(tmp_path: Path) -> None:
    files = write_sides(tmp_path, ["一", "二", "三"], ["one", "two"])
    with pytest.raises(DataError, match="nothing is written: 2 of 2 lines"):
        fix(check([files]), [files], tmp_path / "fixed")


def test_a_long_corpus_is_learned_from_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bootstrap, "WINDOW", 150)
    source, target = map(list, zip(*grammar_pairs(3000), strict=True))
    del target[45:50]
    files = write_sides(tmp_path, source, target)
    assert check([files]).runs["corpus"] == [Run(0, 45), Run(50, 3000, -5)]
