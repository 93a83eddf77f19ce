"""Lines that belong together are found where lines are missing or were added."""

import itertools
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import soak
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from parallel_text import PairText, fix_sides, grammar_pairs, grammar_sides, read_pairs, write_sides

from nmt.corpus import alignment
from nmt.corpus.alignment import SWITCH, FeatureExtractor, hash_lines, hash_words
from nmt.corpus.check import check
from nmt.corpus.lengths import learn_lengths
from nmt.corpus.pairing import (
    AROUND,
    LineComparison,
    Run,
    Window,
    likeliest_runs,
    stretches,
    widened,
    without_crossings,
)
from nmt.errors import DataError

N_TRIALS = soak(3, 60)
LENGTHS = learn_lengths(np.arange(9), np.arange(9))


def likelihood(states: np.ndarray, scores: np.ndarray) -> float:
    """The log-likelihood of a sequence of states; the last state pairs a line with none and has the score 0."""
    n_lines, none = scores.shape
    with_none = np.pad(scores, [(0, 0), (0, 1)])
    of_states = with_none[range(n_lines), states]
    # A change from one offset to another is two changes: to the last state, and from it.
    n_switches = 0
    for before, after in itertools.pairwise(states.tolist()):
        if before != after:
            n_switches += 1 if none in (before, after) else 2
    return float(of_states.sum()) - SWITCH * n_switches


SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 3))  # lines, offsets
SCORES = arrays(np.float64, SHAPES, elements=st.floats(-40, 40))


@given(SCORES)
def test_the_runs_are_the_likeliest_path(scores: np.ndarray) -> None:
    n_lines, n_offsets = scores.shape
    runs = likeliest_runs(scores, 100, range(-1, n_offsets - 1))
    states = np.full(n_lines, n_offsets)
    for run in runs:
        start, end = run.start - 100, run.end - 100
        states[start:end] = run.offset + 1
    # Compare their states with all others.
    all_states = itertools.product(range(n_offsets + 1), repeat=n_lines)
    best = max(likelihood(np.array(path), scores) for path in all_states)
    assert np.isclose(likelihood(states, scores), best)


RUNS = st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(-20, 20))  # start, length, offset


@given(st.lists(RUNS, max_size=6))
def test_runs_that_are_kept_do_not_cross(drawn: list[tuple[int, int, int]]) -> None:
    runs = [Run(start, start + length, offset) for start, length, offset in sorted(drawn)]
    kept = without_crossings(runs)
    for before, after in itertools.pairwise(kept):
        assert before.end <= after.start
        assert before.target_end <= after.target_start
    n_kept = sum(map(len, kept))
    assert n_kept >= max(map(len, runs), default=0)


def test_a_window_compares_lines_as_single_pairs_are_compared() -> None:
    # The window begins at source line 40 and has all target lines at offsets of -5 to 2.
    rng = random.Random(1)
    source, target = [], []
    for _ in range(300):
        words = " ".join(rng.choices("abcdefghijkl", k=rng.randrange(6)))
        source.append(words)
        target.append(words.translate(str.maketrans("abcdef", "uvwxyz")))
    lexicon = alignment.learn_lexicon(hash_words(source), hash_words(target))
    features = FeatureExtractor(lexicon, LENGTHS)
    source_lines = hash_lines(source[40:60])
    target_lines = hash_lines(target[35:62])
    window = Window(source_lines, target_lines, source_start=40, target_start=35)
    pairs = features(hash_lines(source), hash_lines(target))
    evidence = alignment.weigh(pairs, pairs[:, ::-1])
    rows = np.stack([*LineComparison(features, evidence).rows(window, range(-5, 3))])
    for i in range(8):
        target_lines = hash_lines(target[35 + i : 55 + i])
        expected = evidence(features(source_lines, target_lines))
        np.testing.assert_allclose(rows[:, i], -expected, rtol=1e-5)


def mask_of(n_lines: int, *blocks: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(n_lines, bool)
    for start, end in blocks:
        mask[start:end] = True
    return mask


def test_blocks_are_widened_within_the_file() -> None:
    assert stretches(widened(mask_of(500))) == []
    result = stretches(widened(mask_of(500, (3, 9))))
    assert result == [(0, 9 + AROUND)]
    found = stretches(widened(mask_of(500, (490, 495))))
    assert found == [(490 - AROUND, 500)]
    outcome = stretches(widened(mask_of(9, (3, 4))))
    assert outcome == [(0, 9)]


def test_blocks_that_touch_when_widened_are_joined() -> None:
    second = 120 + 2 * AROUND
    found = stretches(widened(mask_of(500, (100, 120), (second, 490))))
    assert found == [(100 - AROUND, 500)]
    result = len(stretches(widened(mask_of(500, (100, 120), (second + 1, 490)))))
    assert result == 2


class NumberedText(NamedTuple):
    number: int  # of the pair that the text is from; -1 if from none
    text: str


def break_sides(
    pairs: list[PairText], rng: random.Random, n_breaks: int
) -> tuple[list[NumberedText], list[NumberedText]]:
    """Both sides with 1 to 30 lines missing or added at some of 10 positions from 50 % to 99 %."""
    source, target = [], []
    for number, (source_text, target_text) in enumerate(pairs):
        source.append(NumberedText(number, source_text))
        target.append(NumberedText(number, target_text))
    positions = np.linspace(0.5, 0.99, 10) * len(pairs)
    # From the last to the first, so that the positions that are left stay valid.
    for position in sorted(rng.sample(list(positions), n_breaks), reverse=True):
        at = int(position)
        size = rng.randint(1, 30)
        lines = rng.choice([source, target])
        text = lines[at].text
        match rng.choice(["missing", "other lines", "blank lines", "repeated", "line break"]):
            case "missing":
                del lines[at : at + size]
            case "other lines":
                for other in rng.choices(lines, k=size):
                    lines.insert(at, NumberedText(-1, other.text))
            case "blank lines":
                lines[at:at] = [NumberedText(-1, "")] * size
            case "repeated":
                lines[at:at] = [NumberedText(-1, text)] * size
            case "line break":
                middle = len(text) // 2
                lines[at] = NumberedText(-1, text[:middle])
                lines.insert(at + 1, NumberedText(-1, text[middle:]))
    return source, target


@pytest.mark.parametrize("has_equal_lengths", [False, True])
@pytest.mark.parametrize("seed", range(N_TRIALS))
def test_lines_are_paired_again(seed: int, has_equal_lengths: bool, tmp_path: Path) -> None:
    pairs = grammar_pairs(1500)
    n_breaks = 1 + seed % 5
    source, target = break_sides(pairs, random.Random(seed), n_breaks)
    if has_equal_lengths:
        n = min(len(source), len(target))
        source, target = source[:n], target[:n]
    source_texts = [line.text for line in source]
    target_texts = [line.text for line in target]
    repair = fix_sides(tmp_path, source_texts, target_texts)
    # Hardly any written pair is wrong, and hardly any pair that both files still have is lost.
    written = read_pairs(*repair.paths)
    n_right = sum(pair in pairs for pair in written)
    assert n_right >= 0.99 * len(written)
    in_source = {line.number for line in source}
    in_target = {line.number for line in target}
    left = {pairs[number] for number in in_source & in_target - {-1}}
    recovered = left & set(written)
    assert len(recovered) >= 0.95 * len(left)


@pytest.mark.parametrize(
    "arrangement", ["shuffled", "sorted by length", "halves exchanged", "two thirds shuffled", "one line missing"]
)
def test_unrelated_sides_are_refused(arrangement: str, tmp_path: Path) -> None:
    source, target = grammar_sides(1200)
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
        case "one line missing":
            target = rng.sample(target, 1199)
    with pytest.raises(DataError, match=r"nothing is written: .* have no translation in the other file"):
        fix_sides(tmp_path, source, target)
    assert not (tmp_path / "fixed").exists()


def test_different_numbers_of_lines_that_are_too_few_to_be_paired_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing is written: 2 of 2 lines"):
        fix_sides(tmp_path, ["一", "二", "三"], ["one", "two"])


def test_a_line_added_near_the_beginning_is_found(tmp_path: Path) -> None:
    source, target = grammar_sides(1500)
    # Of the lines with the same number, only the first 60 belong together.
    source.insert(60, "男孩们")
    files = write_sides(tmp_path, "corpus", source, target)
    report = check([files])
    first, second = report.runs["corpus"]
    assert first == Run(0, 60)
    assert second == Run(61, 1501, -1)
    faults = {finding.kind.name for finding in report.findings}
    assert faults.isdisjoint({"unrelated", "unchecked", "ratio", "numbers"})


def test_lines_missing_in_several_places_before_the_middle_are_found(tmp_path: Path) -> None:
    source, target = grammar_sides(1500)
    del target[450:453]
    del source[150]
    files = write_sides(tmp_path, "corpus", source, target)
    first, second, third = check([files]).runs["corpus"]
    assert first == Run(0, 150)
    assert second == Run(150, 449, 1)
    assert third == Run(452, 1499, -2)


def test_the_sides_are_learned_from_the_beginning_if_that_tells_more(tmp_path: Path) -> None:
    source, target = grammar_sides(1500)
    source.append("男孩们")
    files = write_sides(tmp_path, "corpus", source, target)
    (run,) = check([files]).runs["corpus"]
    assert run == Run(0, 1500)
