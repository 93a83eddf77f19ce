"""The lexicon, agreement, and blocks of unrelated lines."""

import itertools
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nmt.corpus import alignment
from nmt.corpus.alignment import SWITCH, agreement, hash_words, in_blocks, learn_lexicon

NOUNS = {"hund": "dog", "katze": "cat", "vogel": "bird", "fisch": "fish", "baum": "tree"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "singt": "sings", "fällt": "falls", "wartet": "waits"}
# Each sentence comes ten times, so that its words are linked.
SOURCE, TARGET = [], []
for noun, verb in itertools.product(NOUNS, VERBS):
    SOURCE += [f"der {noun} {verb}"] * 10
    TARGET += [f"the {NOUNS[noun]} {VERBS[verb]}"] * 10


@pytest.fixture(scope="module")
def lexicon() -> alignment.Lexicon:
    return learn_lexicon(hash_words(SOURCE), hash_words(TARGET))


def test_words_are_hashed_per_text() -> None:
    words = hash_words(["Der Hund, der Hund", "", "我在家 ok"])
    assert words.shape == (3, alignment.MAX_WORDS)
    result = np.count_nonzero(words, 1).tolist()
    assert result == [4, 0, 4]
    der, hund, again, _ = words[0, :4]
    assert der == again != hund


def test_only_the_first_words_are_hashed() -> None:
    (words,) = hash_words(["a " * 99])
    assert len(words) == alignment.MAX_WORDS
    assert words.all()


WORDS = {
    "हिन्दी की किताबें।": ["हिन्दी", "की", "किताबें"],  # vowel signs are parts of words
    "বাংলা ভাষা": ["বাংলা", "ভাষা"],
    "བོད་སྐད།": ["བོད", "སྐད"],
    "ภาษา": ["ภา", "ษา"],
    "我在家": ["我", "在", "家"],
    "한국": ["한", "국"],
    "snake_case": ["snake", "case"],
}


@pytest.mark.parametrize("text", WORDS)
def test_words_of_scripts(text: str) -> None:
    result = alignment.ALIGNED_WORD.findall(text)
    assert result == WORDS[text]


def test_translations_agree_more_than_other_lines(lexicon: alignment.Lexicon) -> None:
    source = hash_words(SOURCE[:100])
    of_translations = agreement(source, hash_words(TARGET[:100]), lexicon)
    of_others = agreement(source, hash_words(TARGET[-100:]), lexicon)
    assert (of_translations > 0).all()
    assert (of_translations > of_others).all()


def test_names_agree_with_themselves(lexicon: alignment.Lexicon) -> None:
    name = hash_words(["Ernő Rubik"])
    result = agreement(name, name, lexicon)
    assert result == alignment.SAME_WORD


def test_lines_without_words_have_no_agreement(lexicon: alignment.Lexicon) -> None:
    source, target = hash_words(["", "a"]), hash_words(["b", ""])
    assert np.isnan(agreement(source, target, lexicon)).all()


def test_sure_links_are_words_that_translate_each_other() -> None:
    """Here, they have the same number. İ is two characters in lower case."""
    numbers, source, target = [], [], []
    for i, j in itertools.product(range(12), range(12, 24)):
        numbers.append((i, j))
        source.append(f"Aİa s{i} (w{j}) d")
        target.append(f"t{j} the v{i}!")
    lexicon = learn_lexicon(hash_words(source), hash_words(target))
    links = alignment.sure_links(source[:9], target[:9], lexicon)
    for k, spans in enumerate(links):
        linked = []
        for (start, end), (target_start, target_end) in spans:
            linked.append((source[k][start:end], target[k][target_start:target_end]))
        i, j = numbers[k]
        assert linked == [(f"s{i}", f"v{i}"), (f"w{j}", f"t{j}")]
    # A word with two equal links is not sure of either, nor is one whose translation is missing.
    twice, missing = alignment.sure_links(["s1 w12 w12", "w12"], ["v1 t12", "x"], lexicon)
    assert len(twice) == 1
    assert len(missing) == 0


def test_lines_that_share_no_words_have_no_links() -> None:
    latin, cyrillic = " ".join(string.ascii_letters), " ".join("абвгдежзийклмнопрстуфхцчшщ")
    greek, armenian = " ".join("αβγδεζηθικλμνξοπρστυφχψω"), " ".join("աբգդեզէըթժիլխծկհձղճմյնշո")
    source, target = hash_words([latin, cyrillic]), hash_words([greek, armenian])
    lexicon = learn_lexicon(source, target)
    assert not agreement(source, target, lexicon).any()


def likelihood_of_blocks(states: list[int], ratios: np.ndarray) -> float:
    """The log-likelihood of states that are 1 in blocks; a block that reaches the last line pays one switch only."""
    n_switches = np.count_nonzero(np.diff([0, *states]))
    return float(ratios @ states) - SWITCH * n_switches


@given(arrays(np.float64, st.integers(1, 9), elements=st.floats(-20, 20)))
def test_blocks_are_the_likeliest_path(ratios: np.ndarray) -> None:
    # Compare the path of states with all others.
    states = in_blocks(ratios).tolist()
    all_states = itertools.product([0, 1], repeat=len(ratios))
    best = max(likelihood_of_blocks(list(path), ratios) for path in all_states)
    assert np.isclose(likelihood_of_blocks(states, ratios), best)
