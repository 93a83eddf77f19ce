"""Word alignments: words and pieces, links, alignments of known attention weights, and the gold alignments."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import model_of
from measure_alignments import alignment_error_rate, methods, natural_text, read_gold
from models import FAMILY, LINES, RNNS, name, small_translator, translator_without_bytes
from reference_model import ReferenceModel
from torch import Tensor

from nmt.decode import align as aligning
from nmt.decode.align import WordText, align, bare_span, grow_diagonal, links, moses, word_attention
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.translator import load
from nmt.errors import InputError
from nmt.model.base import AttentionWeights
from nmt.text import BOS, EOS
from nmt.text.tokenizer import Tokenizer, Tokenizers

FEW = [FAMILY[0], {"positions": "rotary", "norm": "post"}, {"attention": "additive"}, *RNNS[2:4]]
GOLD = Path(__file__).parent / "alignments"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" a big  dog. ", ["a", "big", "dog."]),
        ("Danke!", ["Danke!"]),
        ("我喜欢Python3。", ["我", "喜", "欢", "Python3", "。"]),
        ("我 喜欢\tPython 。", ["我", "喜欢", "Python", "。"]),
        ("ฉันรัก", list("ฉันรัก")),
        (" ", []),
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
    assert moses([(0, 0), (1, 2)]) == "0-0 1-2"


def planted(weights: Callable[[int, int], Tensor]) -> Callable[[Tensor, Tensor], AttentionWeights]:
    """Return a replacement of `model.attention` whose cross-attention is weights(T, S) for every sentence."""

    def attention(src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        cross = weights(tgt_in.size(1), src.size(1)).expand(2, len(src), 4, -1, -1)
        return AttentionWeights(cross[:0], cross[:0], cross)

    return attention


def test_planted_attention_gives_the_planted_links(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    text = WordText.split("the red dog runs.")
    n = len(text.spans)
    tokens, of_token = translator.tokenizers.source.encode_words(text.text, text.spans)
    assert len(tokens) > n, "words of several pieces"
    assert sorted({word for words in of_token for word in words}) == list(range(n))
    monkeypatch.setattr(model_of(translator), "attention", planted(lambda t, s: 0.9 * torch.eye(t, s) + 0.1 / s))
    (found,) = align(translator, [(text, text)])
    assert found == [(i, i) for i in range(n)]

    def turned(t: int, s: int) -> Tensor:
        """Attention in reverse order: target piece i attends to source piece i counted from the end, without EOS."""
        weights = torch.full((t, s), 0.01)
        weights[torch.arange(t - 1), torch.arange(s - 1).flip(0)] = 0.9
        return weights

    monkeypatch.setattr(model_of(translator), "attention", planted(turned))
    (found,) = align(translator, [(text, text)])
    assert (0, n - 1) in found
    assert (n - 1, 0) in found


def test_punctuation_around_a_word_does_not_count() -> None:
    text = '"Who\'s there?", ... 3-4'
    spans = WordText.split(text).spans
    assert [text[slice(*bare_span(text, span))] for span in spans] == ["Who's", "there", "...", "3-4"]


def test_an_alignment_depends_on_its_pair_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    texts = [WordText.split(line) for line in LINES]
    pairs = list(zip(texts, texts[::-1], strict=True))
    matrices, turned = (word_attention(translator, some) for some in (pairs, [pair[::-1] for pair in pairs]))
    found = list(align(translator, pairs))
    both = list(align(translator, pairs, reverse=translator))
    monkeypatch.setattr(aligning, "WINDOW", 3)
    assert list(align(translator, iter(pairs))) == found
    for pair, matrix, other, own, with_other in zip(pairs, matrices, turned, found, both, strict=True):
        assert matrix is not None
        assert other is not None
        assert matrix.shape == tuple(len(side.spans) for side in pair)
        assert ((matrix >= 0) & (matrix <= 1)).all()
        assert own == links(matrix)
        assert with_other == links(matrix * other.T), "a reverse model turns source and target"


def pieces_of_words(tokenizer: Tokenizer, text: str) -> list[set[int]]:
    """The indices of the pieces of each word of a text with single spaces, in which unknown characters stand alone."""
    pieces = tokenizer.pieces(tokenizer.encode(text))
    owner = [i for i, piece in enumerate(pieces) for _ in (piece if piece != "<unk>" else "?")]  # of each character
    found, start = [], 1  # the first character is the space that the tokenizer puts before a text
    for word in text.split(" "):
        inside = [i for i, character in enumerate(word) if character.isalnum()] or range(len(word))
        found.append({owner[start + i] for i in inside})
        start += len(word) + 1
    if owner[0] != owner[1]:
        found[0].add(owner[0])
    return found


def scores_by_definition(reference: ReferenceModel, tokenizers: Tokenizers, texts: Sequence[str]) -> list[list[float]]:
    """Steps 1 and 2 of nmt/insight/README.md for one pair."""
    src, tgt = (tokenizer.encode(text) for tokenizer, text in zip(tokenizers, texts, strict=True))
    sources, targets = (pieces_of_words(tokenizer, text) for tokenizer, text in zip(tokenizers, texts, strict=True))
    reference.run([*src, EOS], [BOS, *tgt])
    mean = [[sum(reference.cross[:, :, t, s].flatten()) for t in range(len(tgt))] for s in range(len(src))]
    total = [[sum(mean[s][t] for s in source for t in target) for target in targets] for source in sources]
    columns = [sum(row[j] for row in total) for j in range(len(targets))]
    return [[x / columns[j] * x / sum(row) for j, x in enumerate(row)] for row in total]


@pytest.mark.parametrize("choices", FEW, ids=name)
def test_scores_are_those_of_each_pair_alone_by_definition(choices: dict[str, Any]) -> None:
    translator = translator_without_bytes(**choices)
    reference = ReferenceModel(model_of(translator))
    texts = ["the red dog runs.", "a cat", "Ω dog, 中 cat !", "where is the small house?"]
    pairs = [(source, target) for source in texts for target in texts]
    found = word_attention(translator, [(WordText.split(source), WordText.split(target)) for source, target in pairs])
    for matrix, pair in zip(found, pairs, strict=True):
        expected = scores_by_definition(reference, translator.tokenizers, pair)
        assert matrix is not None
        np.testing.assert_allclose(matrix, expected, atol=1e-5, rtol=0)


def test_blank_and_long_pairs_have_no_links(caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    engine.max_length = 16
    blank, short, long = WordText.split(""), WordText.split("a cat"), WordText.split("the red dog runs " * 9)
    with caplog.at_level("WARNING", "nmt"):
        found = list(align(translator, [(blank, short), (short, blank), (short, long), (short, short)]))
    assert found[:3] == [[], [], []]
    assert found[3]
    assert caplog.messages == ["line 3 is not aligned: a side has more than the 15 pieces that the model takes"]
    huge = WordText.split("the " * 50_000)
    assert list(align(translator, [(huge, huge)], reverse=translator)) == [[]], "memory is bounded"
    assert list(align(translator, [])) == []


def test_models_without_attention_are_refused() -> None:
    translator, pair = translator_without_bytes(**RNNS[0]), WordText.split("a cat")
    with pytest.raises(InputError, match="the model has no attention"):
        list(align(translator, [(pair, pair)]))


# --- the gold alignments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["de-en", "zh-en"])
def test_gold_alignments_are_well_formed(name: str) -> None:
    pairs = read_gold(GOLD / f"{name}.tsv")
    assert len(pairs) == 25
    for pair in pairs:
        assert pair.sure
        assert pair.sure <= pair.possible
        assert all(s < len(pair.source) and t < len(pair.target) for s, t in pair.possible)
        unlinked = [word for i, word in enumerate(pair.target) if i not in {t for _, t in pair.possible}]
        assert unlinked == []
        text = natural_text(pair.target, spaced=True)
        assert text.words == pair.target
        assert not re.search(r" [.,?!']", text.text)
    assert natural_text(["我", "喜欢", "茶"], spaced=False).text == "我喜欢茶"


def test_alignment_error_rate_by_hand() -> None:
    sure, possible = {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)}
    assert alignment_error_rate([([(0, 0), (1, 1)], sure, possible)]) == 0
    found = [([(2, 2)], sure, possible), ([(0, 0), (1, 2)], sure, possible)]
    assert alignment_error_rate(found) == pytest.approx(1 - (1 + 2) / (3 + 4))


def test_the_method_beats_the_mean_of_all_heads_on_the_demo() -> None:
    run = Path(__file__).parents[2] / "runs" / "demo"
    if not (run / "model.safetensors").is_file():
        pytest.skip("no runs/demo: make demo")
    gold = read_gold(GOLD / "zh-en.tsv")
    pairs = [(natural_text(one.source, spaced=False), natural_text(one.target, spaced=True)) for one in gold]
    rates = {
        name: alignment_error_rate((own, one.sure, one.possible) for own, one in zip(found, gold, strict=True))
        for name, found in methods(load(run, "cpu"), pairs)
    }
    assert rates["both directions, grow-diagonal"] < 0.8 * rates["mean of all heads"]
