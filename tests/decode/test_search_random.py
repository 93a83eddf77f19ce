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
N_BATCHES = 2  # per model: steps traced in the first batch must be correct in the second
WORK = 60  # about beams x sentences x target tokens of a batch, the number of the reference's forward passes
VOCABULARIES = [5, 7, 11, 23, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP, 150, 700]


def random_models(seed: int, rng: random.Random) -> list[Seq2Seq]:
    """One model of the family, or the two models of an ensemble, which have only the vocabularies in common."""
    choices = [FAMILY[seed % len(FAMILY)], *rng.choices([*TRANSFORMERS, *FAMILY], k=rng.choice([0, 0, 1]))]
    n_source_vocab, n_target_vocab = rng.choice(VOCABULARIES), rng.choice(VOCABULARIES)
    if any(one.get("tied_embeddings", "all") == "all" for one in choices):
        n_source_vocab = n_target_vocab
    models = []
    for number, one in enumerate(choices):
        sizes = {"max_positions": rng.choice([8, 16, 64]), "padding_mask": rng.random() < 0.9 or "architecture" in one}
        scale = rng.choice([1.0, 2.0])
        model = make(1000 * number + seed, n_target_vocab, n_source_vocab, scale, dropout=0.5, **sizes, **one)
        with torch.no_grad():  # scaled EOS logits make some hypotheses end before the limit
            model.projection.weight[EOS] *= rng.choice([1.0, 3.0, 6.0])
        models.append(model)
    return models


def random_options(rng: random.Random, n_sentences: int) -> SearchOptions:
    beam = rng.choice([1, 1, 1, 2, 3, 4, 5, 6, 7, 8])
    longest, a = rng.randint(1, max(WORK // (beam * n_sentences), 4)), rng.choice([0.0, 0.5, 1.2])
    return SearchOptions(
        beam=beam,
        n_best=rng.randint(1, beam),
        alpha=rng.choice([0.0, 0.6, 1.0, 2.0, 10.0]),
        max_length_a=a,
        max_length_b=max(longest - round(a * 4), 1),  # 4: a typical source length
        min_length=rng.choice([0, 1, 1, 1, 2, 5]),
    )


@pytest.mark.parametrize("seed", range(N_MODELS))
def test_search_finds_what_the_reference_finds(seed: int) -> None:
    rng = random.Random(seed)
    models = random_models(seed, rng)
    decoders, model_length = [*map(incremental_decoder, models)], min(model.max_length for model in models)
    decoder: IncrementalDecoder[Any] = decoders[0] if len(decoders) == 1 else EnsembleDecoder(decoders)
    masked = all(one.settings.padding_mask for one in models)

    def tokens(vocabulary: nn.Embedding, fewest: int, most: int) -> list[int]:
        n = rng.randint(fewest, min(most, model_length - 1))
        return rng.choices([UNK, *range(EOS + 1, vocabulary.num_embeddings)], k=n)

    for number in range(N_BATCHES):
        n_sentences = rng.choice([1, 1, 1, 2, 3, 4, 5, 6, 7, 8])  # a single sentence takes other code paths
        options = random_options(rng, n_sentences)
        longest = rng.choice([3, 6, 6, 20])
        sources = [tokens(models[0].source_embedding, 0, longest) for _ in range(n_sentences)]
        share = rng.choice([0, 0, 0.5, 1])
        prefixes = [tokens(models[0].target_embedding, 1, 5) if rng.random() < share else [] for _ in sources]
        src = pad_source(sources)
        with torch.inference_mode():
            found = search(decoder, src, options, prefixes=prefixes, max_length=model_length)
            for b, (source, prefix) in enumerate(zip(sources, prefixes, strict=True)):
                read = [*source, EOS] if masked else src[b].tolist()
                expected = reference_search(
                    teacher_forced(models, read), len(source) + 1, options, prefix=prefix, max_length=model_length
                )
                where = f"seed {seed}, batch {number}, sentence {b} of {n_sentences}"
                assert_same(found[b], expected, options, where)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis], options: SearchOptions, where: str) -> None:
    """Assert equal tokens, log-probabilities and scores in the same order; hypotheses of equal score may swap."""
    assert len(found) == min(options.n_best, len(expected)), where
    assert len({tuple(h.tokens) for h in found}) == len(found), where
    for hypothesis, by_rank in zip(found, expected, strict=False):
        rounding = 1e-9 / options.length_divisor(len(by_rank.tokens))
        assert hypothesis.score == pytest.approx(by_rank.score, rel=1e-9, abs=rounding), where
        tied = [h for h in expected if h.score == pytest.approx(by_rank.score, rel=1e-9, abs=rounding)]
        same = [h for h in tied if h.tokens == hypothesis.tokens]
        assert same, f"{where}: {hypothesis.tokens} for {by_rank.tokens}"
        assert hypothesis.log_probs == pytest.approx(same[0].log_probs, rel=1e-9, abs=1e-9), where
