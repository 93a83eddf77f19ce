"""The lexicon, agreement, and blocks of unrelated lines."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nmt.corpus import alignment
from nmt.corpus.alignment import SWITCH, blocks, place_edge, words_of

NOUNS = [("hund", "dog"), ("katze", "cat"), ("vogel", "bird"), ("fisch", "fish"), ("baum", "tree")]
VERBS = [("läuft", "runs"), ("schläft", "sleeps"), ("singt", "sings"), ("fällt", "falls"), ("wartet", "waits")]
SOURCE = [f"der {noun} {verb}" for noun, _ in NOUNS for verb, _ in VERBS] * 10
TARGET = [f"the {noun} {verb}" for _, noun in NOUNS for _, verb in VERBS] * 10


def test_words_are_hashed_per_text() -> None:
    found = words_of(["Der Hund, der Hund", "", "我在家 ok"])
    assert found.shape == (3, alignment.MAX_WORDS)
    assert (found != 0).sum(1).tolist() == [4, 0, 4]
    assert found[0, 0] == found[0, 2] != found[0, 1]
    assert (words_of([" ".join(map(str, range(99)))]) != 0).all()


def test_vowel_signs_are_parts_of_words() -> None:
    texts = ["हिन्दी की किताबें।", "বাংলা ভাষা", "བོད་སྐད།", "ภาษา", "我在家", "snake_case"]
    assert [alignment.WORD_OR_END.findall(text) for text in texts] == [
        ["हिन्दी", "की", "किताबें"],
        ["বাংলা", "ভাষা"],
        ["བོད", "སྐད"],
        ["ภ", "า", "ษ", "า"],
        ["我", "在", "家"],
        ["snake", "case"],
    ]


def test_translations_agree_more_than_other_lines() -> None:
    lexicon = alignment.learn(words_of(SOURCE), words_of(TARGET))
    true = alignment.agreement(words_of(SOURCE[:4]), words_of(TARGET[:4]), lexicon)
    assert (true > 0).all()
    wrong = alignment.agreement(words_of(SOURCE[:4]), words_of([TARGET[i] for i in (11, 12, 13, 14)]), lexicon)
    assert (true > wrong).all()
    names = alignment.agreement(words_of(["Ernő Rubik"]), words_of(["Ernő Rubik"]), lexicon)
    assert names[0] == alignment.SAME_WORD
    assert np.isnan(alignment.agreement(words_of(["", "a"]), words_of(["b", ""]), lexicon)).all()


def test_sure_links_are_words_that_translate_each_other() -> None:
    """Here, they have the same number. İ is two characters in lower case."""
    pairs = [(i, j) for i in range(12) for j in range(12, 24)]
    source = [f"Aİa s{i} (w{j}) d" for i, j in pairs] * 3
    target = [f"t{j} the v{i}!" for i, j in pairs] * 3
    lexicon = alignment.learn(words_of(source), words_of(target))
    found = alignment.sure_links([*source[:9], "s1 w12 w12", "w12"], [*target[:9], "v1 t12", "x"], lexicon)
    for (i, j), links, one, other in zip(pairs, found[:9], source, target, strict=False):
        assert [(one[slice(*s)], other[slice(*t)]) for s, t in links] == [(f"s{i}", f"v{i}"), (f"w{j}", f"t{j}")]
    assert [len(links) for links in found[9:]] == [1, 0]


def brute_force(ratios: list[float]) -> float:
    """The greatest log-likelihood of any state sequence; a block that reaches the last line pays one switch only."""
    best = -np.inf
    for bits in range(2 ** len(ratios)):
        states = [bits >> i & 1 for i in range(len(ratios))]
        n_switches = sum(a != b for a, b in zip([0, *states], states, strict=False))
        best = max(best, sum(r for r, s in zip(ratios, states, strict=True) if s) - SWITCH * n_switches)
    return best


@given(arrays(np.float64, st.integers(1, 9), elements=st.floats(-20, 20)))
def test_blocks_are_the_likeliest_path(ratios: np.ndarray) -> None:
    found = blocks(ratios)
    assert all(start < end for start, end in found)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
    ends = sum(end < len(ratios) for _, end in found)
    value = sum(ratios[start:end].sum() for start, end in found) - SWITCH * (len(found) + ends)
    assert np.isclose(value, brute_force(ratios.tolist()))


def test_an_edge_is_placed_where_one_state_fits_better() -> None:
    before, after = np.array([3.0, 3, -4, -4]), np.array([-4.0, -4, 3, 3])
    assert place_edge(before, after) == 2
    assert place_edge(np.array([1.0, 1]), np.zeros(2)) == 2
    assert place_edge(np.zeros(0), np.zeros(0)) == 0
