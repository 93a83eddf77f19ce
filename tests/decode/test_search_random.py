"""Search agrees with the reference on random models, batches and options; the test's parameter seeds all of them.

Models are in float64, so that rounding changes only the order of hypotheses with equal scores.
"""

import random
from typing import Any

import pytest
import torch
from conftest import soak
from models import FAMILY, TRANSFORMERS, make
from reference_search import reference_search, teacher_forced
from torch import nn

from nmt.decode.engines.torch_engine import EnsembleDecoder
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.sampling import GROUP
from nmt.decode.search import IncrementalDecoder, search
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.text import EOS, UNK
from nmt.text.batches import pad_source

N_MODELS = soak(32, 1000)
N_BATCHES = 2  # per model
WORK = 60  # about beams x sentences x target tokens of a batch, the number of the reference's forward passes
VOCABULARIES = [5, 7, 23, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP, 150, 700]


def random_models(seed: int, rng: random.Random) -> list[Seq2Seq]:
    """One model of the family, or the two models of an ensemble, which have only the vocabularies in common."""
    number = seed % len(FAMILY)
    families = [FAMILY[number]]
    if rng.random() < 1 / 3:
        families.append(rng.choice([*TRANSFORMERS, *FAMILY]))
    n_source_vocab = rng.choice(VOCABULARIES)
    n_target_vocab = rng.choice(VOCABULARIES)
    tied = [choices.get("tied_embeddings", "all") for choices in families]
    if "all" in tied:
        n_source_vocab = n_target_vocab
    models = []
    for number, choices in enumerate(families):
        sizes = {"max_positions": rng.choice([8, 16, 64]), "dropout": 0.5}
        # Recurrent models always mask padding.
        padding_mask = "architecture" in choices or rng.random() < 0.9
        scale = rng.choice([1.0, 2.0])
        settings = {"padding_mask": padding_mask, **sizes, **choices}
        model = make(1000 * number + seed, n_target_vocab, n_source_vocab, scale, **settings)
        with torch.no_grad():  # scaled EOS logits make some hypotheses end before the limit
            model.projection.weight[EOS] *= rng.choice([1.0, 3.0, 6.0])
        models.append(model)
    return models


CHOICES: dict[str, list[Any]] = {  # of the options
    "beam": [1, 1, *range(1, 9)],
    "alpha": [0.0, 0.6, 1.0, 2.0, 10.0],
    "max_length_a": [0.0, 0.5, 1.2],
    "min_length": [0, 1, 1, 1, 2, 5],
}
N_SENTENCES = [1, 1, *range(1, 9)]  # a single sentence takes other code paths


def random_options(rng: random.Random, n_sentences: int) -> SearchOptions:
    options = {name: rng.choice(values) for name, values in CHOICES.items()}
    beam = options["beam"]
    n_beams = beam * n_sentences
    most = max(WORK // n_beams, 4)
    by_source = round(options["max_length_a"] * 4)  # 4: a typical source length
    longest = rng.randint(1, most)
    b = max(longest - by_source, 1)
    return SearchOptions(**options, n_best=rng.randint(1, beam), max_length_b=b)


class RandomBatch:
    """Sources and prefixes for a model."""

    def __init__(self, rng: random.Random, model: Seq2Seq, max_length: int) -> None:
        n_sentences = rng.choice(N_SENTENCES)
        longest = rng.choice([3, 6, 6, 20])
        prefixed = rng.choice([0, 0, 0.5, 1])  # share of the sentences

        def tokens(vocabulary: nn.Embedding, least: int, most: int) -> list[int]:
            most = min(most, max_length - 1)
            n = rng.randint(least, most)
            words = range(EOS + 1, vocabulary.num_embeddings)
            return rng.choices([UNK, *words], k=n)

        self.sources = [tokens(model.source_embedding, 0, longest) for _ in range(n_sentences)]
        self.prefixes: list[list[int]] = []
        for _ in self.sources:
            prefix: list[int] = []
            if rng.random() < prefixed:
                prefix = tokens(model.target_embedding, 1, 5)
            self.prefixes.append(prefix)


@pytest.mark.parametrize("seed", range(N_MODELS))
def test_search_finds_what_the_reference_finds(seed: int) -> None:
    rng = random.Random(seed)
    models = random_models(seed, rng)
    max_length = min(model.max_length for model in models)
    decoders = [incremental_decoder(model) for model in models]
    decoder: IncrementalDecoder[Any] = EnsembleDecoder(decoders)
    if len(decoders) == 1:
        decoder = decoders[0]
    is_masked = all(model.settings.padding_mask for model in models)
    for number in range(N_BATCHES):
        batch = RandomBatch(rng, models[0], max_length)
        n_sentences = len(batch.sources)
        options = random_options(rng, n_sentences)
        src = pad_source(batch.sources)
        with torch.inference_mode():
            n_bests = search(decoder, src, options, prefixes=batch.prefixes, max_length=max_length)
            for i, source in enumerate(batch.sources):
                # Without a mask, a model reads the padding.
                read = src[i].tolist()
                if is_masked:
                    read = [*source, EOS]
                next_log_probs = teacher_forced(models, read)
                prefix = batch.prefixes[i]
                length = len(source) + 1  # with EOS
                expected = reference_search(next_log_probs, length, options, prefix=prefix, max_length=max_length)
                where = f"seed {seed}, batch {number}, sentence {i} of {n_sentences}"
                assert_same(n_bests[i], expected, options, where)


def assert_same(n_best: list[Hypothesis], expected: list[Hypothesis], options: SearchOptions, where: str) -> None:
    """Assert equal tokens, log-probabilities and scores in the same order; hypotheses of equal score may swap."""
    assert len(n_best) == min(options.n_best, len(expected)), where
    different = {tuple(hypothesis.tokens) for hypothesis in n_best}
    assert len(different) == len(n_best), where
    # What has the same score may be in another place.
    by_tokens = {tuple(hypothesis.tokens): hypothesis for hypothesis in expected}
    for hypothesis, by_rank in zip(n_best, expected, strict=False):
        rounding = 1e-9 / options.length_divisor(len(by_rank.tokens))
        score = pytest.approx(by_rank.score, rel=1e-9, abs=rounding)
        assert hypothesis.score == score, where
        same = by_tokens.get(tuple(hypothesis.tokens))
        assert same, f"{where}: {hypothesis.tokens} for {by_rank.tokens}"
        assert same.score == score, where
        assert hypothesis.log_probs == pytest.approx(same.log_probs, rel=1e-9, abs=1e-9), where
