"""Word alignments: words and pieces, links, alignments of known attention weights, and the gold alignments."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import model_of
from measure_alignments import GoldPair, alignment_error_rate, read_gold
from models import FAMILY, LINES, RNNS, name, small_translator, translator_without_bytes
from torch import Tensor

from nmt.errors import InputError
from nmt.model.base import AttentionWeights
from nmt.text.words import WordText, bare_span, likeness
from nmt.translate import align as aligning
from nmt.translate.align import (
    Links,
    WordAlignment,
    WordPair,
    align,
    align_for_markup,
    encoded,
    grow_diagonal,
    links,
    word_scores,
)
from nmt.translate.translator import Translator


def aligned(translator: Translator, pairs: Iterable[WordPair]) -> Iterator[Links]:
    return align(translator.engine, translator.tokenizers, pairs)


FEW = [FAMILY[0], {"positions": "rotary", "norm": "post"}, {"attention": "additive"}, *RNNS[2:4]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" a big  dog. ", ["a", "big", "dog."]),
        ("我喜欢Python3。", ["我", "喜", "欢", "Python3", "。"]),
        ("我 喜欢\tPython 。", ["我", "喜欢", "Python", "。"]),
        ("ฉันรัก", list("ฉันรัก")),
        ("\u3000", []),
        ("\u3000我喜欢", ["我", "喜", "欢"]),
        ("", []),
    ],
)
def test_words_are_separated_by_spaces_or_are_characters(text: str, words: list[str]) -> None:
    assert WordText.split(text).words == words


def test_links_are_best_in_either_direction_and_grow_from_those_best_in_both() -> None:
    assert links(np.eye(3)) == [(0, 0), (1, 1), (2, 2)]
    matrix = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.7], [0.0, 0.0, 0.0]])
    assert links(matrix) == [(0, 0), (1, 1), (1, 2)], "no weight, no link"
    assert links(np.zeros((2, 3))) == []
    assert grow_diagonal({(0, 0), (1, 1), (4, 4)}, {(0, 0), (1, 2), (5, 6)}) == {(0, 0), (1, 1), (1, 2)}
    assert grow_diagonal({(0, 0), (1, 0)}, {(0, 0), (0, 1)}) == {(0, 0), (1, 0), (0, 1)}


def test_scores_and_links_of_planted_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    text = WordText.split("the red dog runs.")
    tokens, shares = encoded(text, translator.tokenizers.source)
    n_pieces = shares.sum(0)  # of each word
    assert n_pieces.max() > 1

    def attention(src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Target piece i attends to source piece i with weight 0.9; the rest is spread evenly."""
        weights = 0.9 * torch.eye(tgt_in.size(1), src.size(1)) + 0.1 / src.size(1)
        cross = weights.expand(2, len(src), 4, -1, -1)
        return AttentionWeights(cross[:0], cross[:0], cross)

    monkeypatch.setattr(model_of(translator), "attention", attention)
    assert list(aligned(translator, [(text, text)])) == [[(i, i) for i in range(len(n_pieces))]]
    scores = word_scores(np.full((len(tokens), len(tokens)), 1 / len(tokens)), shares, shares)
    share = n_pieces / n_pieces.sum()
    np.testing.assert_allclose(scores, np.outer(share, share), rtol=1e-5)  # p(source | target) · p(target | source)


def test_for_markup_attention_is_weighted_by_what_a_target_token_loses_without_a_source_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A target word needs the source word at the mirrored place; attention says nothing."""
    translator = small_translator()
    text, blank = WordText.split("the red dog runs."), WordText.split("")
    tokens, words = encoded(text, translator.tokenizers.source)
    n_words, owners = len(text.spans), words.argmax(1).tolist()
    without = [[token for token, row in zip(tokens, words, strict=True) if not row[w]] for w in range(n_words)]

    def attention(_: list[list[int]], target: list[list[int]]) -> list[Any]:
        return [np.ones((len(one), len(tokens)), np.float32) for one in target]

    def score(source: list[list[int]], _: list[list[int]]) -> list[list[float]]:
        return [[-float(left == without[n_words - 1 - owner]) for owner in owners] + [0.0] for left in source]

    monkeypatch.setattr(translator.engine, "attention", attention)
    monkeypatch.setattr(translator.engine, "score", score)
    alignment, of_blank = align_for_markup(translator.engine, translator.tokenizers, [(text, text), (blank, text)])
    assert alignment.links == [(i, n_words - 1 - i) for i in range(n_words)]
    assert alignment.shares == [{n_words - 1 - t: pytest.approx(1)} for t in range(n_words)]
    assert of_blank == WordAlignment([], [])


def test_of_words_with_equal_attention_those_that_are_spelled_alike_are_linked() -> None:
    source, target = WordText.split("„Tom“ spielt Gitarre 42"), WordText.split("42 plays, tom's guitars Tom")
    alike = likeness(source, target)
    assert alike[0].tolist() == pytest.approx([0, 0, 2 * 3 / 10, 0, 1])
    assert alike[3].tolist() == [1, 0, 0, 0, 0]
    assert 0.4 < alike[2, 3] < 0.6
    scores = word_scores(np.ones((5, 4)), np.eye(4), np.eye(5), alike)
    assert {(0, 4), (2, 3), (3, 0)} <= set(links(scores))
    np.testing.assert_allclose(word_scores(np.ones((5, 4)), np.eye(4), np.eye(5)), 1 / 20)


def test_punctuation_around_a_word_does_not_count() -> None:
    text = '"Who\'s there?", ... 3-4'
    spans = WordText.split(text).spans
    assert [text[slice(*bare_span(text, span))] for span in spans] == ["Who's", "there", "...", "3-4"]


@pytest.mark.parametrize("choices", FEW, ids=name)
def test_an_alignment_depends_on_its_pair_alone(choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    translator = translator_without_bytes(**choices)
    texts = [WordText.split(line) for line in (*LINES, "Ω dog, 中 cat !")]
    pairs = [(source, target) for source in texts for target in texts]
    found = list(aligned(translator, pairs))
    assert found == [links for pair in pairs for links in aligned(translator, [pair])]
    assert all(0 <= s < len(pairs[n][0].spans) and t >= 0 for n, links in enumerate(found) for s, t in links)
    assert all(found)
    monkeypatch.setattr(aligning, "WINDOW", 3)
    assert list(aligned(translator, iter(pairs))) == found


def test_blank_and_long_pairs_have_no_links(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    monkeypatch.setattr(translator.engine, "max_length", 16)
    blank, short, long = map(WordText.split, ("", "A\u2003CAT\u2003RUNS\u2003A", "the red dog runs " * 9))
    with caplog.at_level("WARNING", "nmt"):
        found = list(
            align(
                translator.engine,
                translator.tokenizers,
                [(blank, short), (short, blank), (short, long), (short, short)],
            )
        )
    assert found[:3] == [[], [], []]
    assert found[3]
    assert caplog.messages == ["line 3 is not aligned: a side has more than the 15 pieces that the model takes"]
    huge = WordText.split("the " * 50_000)
    assert list(aligned(translator, [(huge, huge)])) == [[]], "memory is bounded"


def test_models_without_attention_are_refused() -> None:
    translator, pair = translator_without_bytes(**RNNS[0]), WordText.split("a cat")
    with pytest.raises(InputError, match="the model has no attention"):
        list(aligned(translator, [(pair, pair)]))


def test_alignment_error_rate_by_hand(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("ja .\tyes .\t0-0 1-1 1?2\n")
    gold = GoldPair(["ja", "."], ["yes", "."], {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)})
    assert read_gold(tmp_path / "gold") == [gold]
    assert alignment_error_rate([[(0, 0), (1, 1)]], [gold]) == 0
    assert alignment_error_rate([[(2, 2)], [(0, 0), (1, 2)]], [gold, gold]) == pytest.approx(1 - (1 + 2) / (3 + 4))
