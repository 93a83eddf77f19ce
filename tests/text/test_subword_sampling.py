"""Subword sampling: segmentations have the right probabilities, and depend only on the seed."""

import math
from collections import Counter
from random import Random

import pytest
import sentencepiece

from nmt.config import TokenizerSettings
from nmt.text import subword_sampling
from nmt.text.subword_sampling import SubwordSampler
from nmt.text.tokenizer import Tokenizer, train_tokenizer

LINES = [
    "the cat sat on the mat",
    "a cat and a hat",
    "that is the hat of the cat",
    "猫在垫子上。",
    "fat cats chat",
] * 3


def trained(kind: str, *, byte_fallback: bool = True, vocab_size: int = 320) -> Tokenizer:
    settings = {"type": kind, "vocab_size": vocab_size, "byte_fallback": byte_fallback}
    return Tokenizer(train_tokenizer(LINES, TokenizerSettings.model_validate(settings)).model)


def sampler_of(tokenizer: Tokenizer) -> SubwordSampler:
    return SubwordSampler(sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model))


def segmentations(text: str, scores: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Return every segmentation of a text and its log-probability."""
    if not text:
        return {(): 0.0}
    return {
        (text[:end], *rest): scores[text[:end]] + log_prob
        for end in range(1, len(text) + 1)
        if text[:end] in scores
        for rest, log_prob in segmentations(text[end:], scores).items()
    }


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_unigram_segmentations_are_sampled_with_probability_to_the_power_alpha(alpha: float) -> None:
    sampler, word, n = sampler_of(trained("unigram")), "\u2581that", 4000
    names = {i: piece for piece, i in sampler.ids.items()}
    random = Random(1)
    counts = Counter(tuple(names[i] for i in sampler.sample(word, alpha, random)) for _ in range(n))
    weights = {pieces: math.exp(alpha * s) for pieces, s in segmentations(word, sampler.scores).items()}
    assert len(weights) >= 4
    for pieces, weight in weights.items():
        share = weight / sum(weights.values())
        assert counts[pieces] / n == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / n))


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize(("kind", "alpha"), [("unigram", 1e4), ("bpe", 0.0)])
def test_sampling_without_randomness_gives_the_best_segmentation(kind: str, alpha: float, byte_fallback: bool) -> None:
    tokenizer = trained(kind, byte_fallback=byte_fallback, vocab_size=320 if byte_fallback else 48)
    texts = [*LINES, "", " ", "two  spaces ", "unknown Ünïcode 龘龘 here", "龘"]
    assert tokenizer.sample_all(texts, alpha=alpha, seed=1) == tokenizer.encode_all(texts)


def test_bpe_dropout_of_all_merges_gives_characters() -> None:
    tokenizer = trained("bpe")
    (ids,) = tokenizer.sample_all(["the cat"], alpha=1.0, seed=1)
    assert tokenizer.pieces(ids) == list("\u2581the\u2581cat")


def test_the_cache_does_not_change_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*LINES, "thecatsatonthemat" * 9] * 2
    expected = trained("unigram").sample_all(texts, alpha=0.3, seed=7)
    monkeypatch.setattr(subword_sampling, "MAX_CACHED", 2)
    assert trained("unigram").sample_all(texts, alpha=0.3, seed=7) == expected


def test_sampling_does_not_change() -> None:
    """Resumed runs depend on it. SentencePiece's own sampling differs from process to process."""
    tokenizers = [trained(kind) for kind in ("unigram", "bpe")]
    found = [tokenizer.sample_all(LINES[:1] * 2, alpha=0.3, seed=7) for tokenizer in tokenizers]
    assert all(first != second for first, second in found), "equal lines are sampled independently"
    assert [first for first, _ in found] == [
        [261, 263, 264, 260, 265, 262, 269, 267, 261, 263, 260, 273, 262],
        [263, 306, 262, 260, 284, 301, 310, 309, 265, 301, 313, 260],
    ]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_symbols_are_never_cut(kind: str) -> None:
    wanted = {"type": kind, "vocab_size": 320, "symbols": "<BT> at"}
    tokenizer = Tokenizer(train_tokenizer(LINES, TokenizerSettings.model_validate(wanted)).model)
    assert sampler_of(tokenizer).symbols == {"<BT>", "at"}
    drawn = tokenizer.sample_all(["<BT> the cat<BT>at"] * 50, alpha=0.3, seed=1)
    assert len({tuple(ids) for ids in drawn}) > 1
    for ids in drawn:
        pieces = tokenizer.pieces(ids)
        assert (pieces.count("<BT>"), pieces.count("at")) == (2, 2)
        assert "".join(pieces) == "▁<BT>▁the▁cat<BT>at"
    assert not sampler_of(trained(kind)).symbols
