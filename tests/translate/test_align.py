"""Word alignments: words and pieces, links, alignments of known attention weights, and the gold alignments."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import model_of
from measure_alignments import GoldPair, alignment_error_rate, read_gold
from models import FAMILY, LINES, RNNS, name, small_translator, translator_without_bytes
from numpy.typing import NDArray
from torch import Tensor

from nmt.decode.options import Attention
from nmt.errors import InputError
from nmt.model.base import AttentionWeights
from nmt.text.words import WordText, bare_span, likeness
from nmt.translate import align as aligning
from nmt.translate.align import (
    EVENNESS,
    AttendedPair,
    EncodedWords,
    Links,
    WordPair,
    align,
    align_for_markup,
    encoded_words,
    links,
    word_scores,
)
from nmt.translate.translator import Translator

TEXT = WordText.split("the red dog runs.")
BLANK = WordText.split("")
TOKENIZER = small_translator().tokenizers.source


def aligned(translator: Translator, pairs: Iterable[WordPair]) -> list[Links]:
    return list(align(translator.engine, translator.tokenizers, pairs))


# --- words ------------------------------------------------------------------------------------------------

SPLIT = [
    (" a big  dog. ", ["a", "big", "dog."]),
    ("\u3000我喜欢", ["我", "喜", "欢"]),
    ("我喜欢Python3。", ["我", "喜", "欢", "Python3", "。"]),
    ("รัก", ["รั", "ก"]),
]


@pytest.mark.parametrize(("text", "words"), SPLIT)
def test_words_are_separated_by_spaces_or_are_characters(text: str, words: list[str]) -> None:
    assert WordText.split(text).words == words


def test_punctuation_around_a_word_does_not_count() -> None:
    text = '"Who\'s there?", ... 3-4'
    words = []
    for span in WordText.split(text).spans:
        start, end = bare_span(text, span)
        words.append(text[start:end])
    assert words == ["Who's", "there", "...", "3-4"]


# --- links ------------------------------------------------------------------------------------------------


def test_links_are_best_in_either_direction() -> None:
    diagonal = np.eye(3)
    result = links(diagonal)
    assert result == [(0, 0), (1, 1), (2, 2)]


def test_without_weight_there_is_no_link() -> None:
    matrix = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.7], [0.0, 0.0, 0.0]])
    result = links(matrix)
    assert result == [(0, 0), (1, 1), (1, 2)]


# --- scores -----------------------------------------------------------------------------------------------


def test_a_piece_is_aligned_with_the_piece_that_it_attends_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Target piece i attends to source piece i with weight 0.9; the rest is spread evenly."""
        n_source = src.size(1)
        diagonal = torch.eye(tgt_in.size(1), n_source)
        weights = 0.9 * diagonal + 0.1 / n_source
        cross = weights.expand(2, len(src), 4, -1, -1)
        return AttentionWeights(cross[:0], cross[:0], cross)

    translator = small_translator()
    monkeypatch.setattr(model_of(translator), "attention", attention)
    result = aligned(translator, [(TEXT, TEXT)])
    assert result == [[(0, 0), (1, 1), (2, 2), (3, 3)]]


def test_scores_are_the_product_of_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """With even attention, each is the share of the pieces that a word has."""
    monkeypatch.setattr(aligning, "N_ROUNDS", 0)
    tokens, shares = encoded_words(TEXT, TOKENIZER)
    even = np.ones((len(tokens), len(tokens)))
    n_pieces = shares.sum(0)  # of each word
    assert n_pieces.max() > 1
    share = n_pieces / n_pieces.sum()
    scores = word_scores(even, shares, shares)
    np.testing.assert_allclose(scores, np.outer(share, share), rtol=1e-5)


def test_of_two_words_with_equal_attention_the_one_beside_a_linked_word_has_the_higher_score() -> None:
    """The target is "the dog", the source "the cat the dog"."""
    weights = np.array([[0.5, 0, 0.5, 0], [0, 0, 0, 1]])  # (target words, source words)
    scores = word_scores(weights, np.eye(4), np.eye(2))
    assert scores[2, 0] > scores[0, 0]


def test_large_weights_count_less() -> None:
    scores = word_scores(np.array([[0.8, 0.2]]), np.eye(2), np.eye(1))
    assert scores[0, 0] == pytest.approx(4**EVENNESS * scores[1, 0])


def test_neighbors_do_not_link_a_target_word_to_a_group_that_it_does_not_depend_on() -> None:
    side = EncodedWords([4, 5, 6], np.eye(3))
    factors = np.ones((3, 3))
    factors[1, 2] = 0
    scores = AttendedPair(side, side, np.zeros((3, 3)), np.ones((3, 3))).scores_with(factors)
    assert scores[1, 2] == 0 < scores[1, 1]


def test_if_attention_is_unsure_a_target_word_is_linked_to_the_group_without_which_it_is_improbable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last two target words need the first two source words, and the reverse."""
    translator = small_translator()
    tokens, shares = encoded_words(TEXT, TOKENIZER)
    first_half: NDArray[np.bool_] = shares[:, :2].sum(1) > 0  # whether a token belongs to it
    without_first_half = [token for token, is_first in zip(tokens, first_half, strict=True) if not is_first]

    def attention(_: list[list[int]], targets: list[list[int]]) -> list[Any]:
        return [np.ones((len(target), len(tokens)), np.float32) for target in targets]

    def score(sources: list[list[int]], _: list[list[int]]) -> list[list[float]]:
        rows = []
        for source in sources:
            is_improbable = first_half != (source == without_first_half)
            rows.append([*np.where(is_improbable, -9.0, -0.001), 0.0])
        return rows

    monkeypatch.setattr(translator.engine, "attention", attention)
    monkeypatch.setattr(translator.engine, "score", score)
    monkeypatch.setattr(aligning, "ALIKE", 0.0)
    pairs = [(TEXT, TEXT), (BLANK, TEXT)]
    groups = [[0, 0, 1, 1], []]
    scores, of_blank = align_for_markup(translator.engine, translator.tokenizers, pairs, groups, {})
    assert scores[:2, :2].max() < 0.01 < scores[:2, 2:].min()
    assert scores[2:, 2:].max() < 0.01 < scores[2:, :2].min()
    assert of_blank.size == 0


def test_known_attention_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    tokens, _ = encoded_words(TEXT, TOKENIZER)
    diagonal = np.eye(len(tokens), dtype=np.float32)
    pair = tuple(tokens), tuple(tokens)
    known: Attention = {pair: diagonal}
    monkeypatch.setattr(translator.engine, "attention", lambda sources, _: [1 / 0 for _ in sources])
    (scores,) = align_for_markup(translator.engine, translator.tokenizers, [(TEXT, TEXT)], [[0] * 4], known)
    result = links(scores)
    assert result == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_of_words_with_equal_attention_those_that_are_spelled_alike_are_linked() -> None:
    source = WordText.split("„Tom“ spielt Gitarre 42")
    target = WordText.split("42 plays, tom's guitars Tom")
    alike = likeness(source, target)
    result = alike[0].tolist()
    assert result == pytest.approx([0, 0, 2 * 3 / 10, 0, 1])
    assert 0.4 < alike[2, 3] < 0.6
    result = alike[3].tolist()
    assert result == [1, 0, 0, 0, 0]
    even = np.ones((5, 4))
    linked = links(word_scores(even, np.eye(4), np.eye(5), alike))
    found = {(0, 4), (2, 3), (3, 0)}
    assert found <= set(linked)


# --- of a model -------------------------------------------------------------------------------------------

FEW = [FAMILY[0], {"positions": "rotary", "norm": "post"}, {"attention": "additive"}, *RNNS[2:4]]


@pytest.mark.parametrize("choices", FEW, ids=name)
def test_an_alignment_depends_on_its_pair_alone(choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    translator = translator_without_bytes(**choices)
    texts = [WordText.split(line) for line in [*LINES, "Ω dog, 中 cat !"]]
    pairs = list(itertools.product(texts, texts))
    together = aligned(translator, pairs)
    monkeypatch.setattr(aligning, "WINDOW", 3)
    assert aligned(translator, pairs) == together
    for (source, target), alignment in zip(pairs, together, strict=True):
        assert aligned(translator, [(source, target)]) == [alignment]
        assert alignment
        for s, t in alignment:
            assert 0 <= s < len(source.spans)
            assert 0 <= t < len(target.spans)


def test_blank_and_long_pairs_have_no_links(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    monkeypatch.setattr(translator.engine, "max_length", 16)
    short = WordText.split("A\u2003CAT\u2003RUNS\u2003A")
    long = WordText.split("the red dog runs " * 9)
    pairs = [(BLANK, short), (short, BLANK), (short, long), (short, short)]
    *without_links, linked = aligned(translator, pairs)
    assert without_links == [[], [], []]
    assert linked
    assert caplog.messages == ["line 3 is not aligned: a side has more than the 15 pieces that the model takes"]


def test_the_memory_for_a_huge_pair_is_bounded() -> None:
    huge = WordText.split("the " * 50_000)
    (alignment,) = aligned(small_translator(), [(huge, huge)])
    assert alignment == []


def test_models_without_attention_are_refused() -> None:
    with pytest.raises(InputError, match="the model has no attention"):
        aligned(translator_without_bytes(**RNNS[0]), [(TEXT, TEXT)])


# --- gold alignments --------------------------------------------------------------------------------------

SURE = {(0, 0), (1, 1)}
GOLD = GoldPair(["ja", "."], ["yes", "."], SURE, SURE | {(1, 2)})


def test_the_error_rate_is_that_of_sure_and_possible_links(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("ja .\tyes .\t0-0 1-1 1?2\n")
    gold = read_gold(tmp_path / "gold")
    assert gold == [GOLD]
    n_good, n_all = 1 + 2, 2 + 2
    result = alignment_error_rate([[(0, 0), (1, 2)]], gold)
    assert result == 1 - n_good / n_all
