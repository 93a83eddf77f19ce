"""Samples have the right probabilities, scores are teacher forcing's; test_search_random.py has the search itself."""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from models import FAMILY, Table, TableModel, make, name, sources
from torch import Tensor

from nmt.decode.constraints import Constraint
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import TraceStep, search
from nmt.errors import ConfigError
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.text import BOS, EOS

A, B, C = 4, 5, 6  # token ids of words
V = 7


def random_table(seed: int) -> Table:
    def table(source: tuple[int, ...], prefix: tuple[int, ...]) -> Sequence[float]:
        generator = torch.Generator().manual_seed(hash((seed, source, prefix)) % 2**62)
        probabilities: list[float] = torch.randn(V, dtype=torch.float64, generator=generator).softmax(0).tolist()
        return probabilities

    return table


def all_hypotheses(
    table: Table, source: tuple[int, ...], options: SearchOptions, n_required: int = 0
) -> list[Hypothesis]:
    """Every sequence that search may return, scored by the definition, best first."""
    limit = options.limit(len(source), n_required)
    found = []
    for n_words in range(limit):
        if n_words < options.min_length and n_words + 1 < limit:
            continue
        for words in itertools.product((A, B, C), repeat=n_words):
            ids = [*words, EOS]
            log_probs = [math.log(table(source, tuple(ids[:t]))[ids[t]]) for t in range(len(ids))]
            length = len(ids)
            found.append(Hypothesis(ids, log_probs, sum(log_probs) / length**options.alpha))
    return sorted(found, key=lambda h: -h.score)


@pytest.mark.parametrize("seed", range(50))
def test_one_beam_is_greedy_search(seed: int) -> None:
    options = SearchOptions(beam=1, max_length_a=1, max_length_b=3, min_length=seed % 3)
    table, row, ids = random_table(seed), (A, B, C, C), list[int]()
    while EOS not in ids:
        probabilities = list(table((*row, EOS), tuple(ids)))
        allowed = [A, B, C] if len(ids) < options.min_length else [A, B, C, EOS]
        is_last = len(ids) + 1 == options.limit(len(row) + 1)
        ids.append(EOS if is_last else max(allowed, key=lambda i: probabilities[i]))
    assert search(TableModel(table), sources(row), options)[0][0].tokens == ids


def test_a_prefix_that_the_model_cannot_hold_is_refused() -> None:
    model, prefixes = TableModel(random_table(1)), [[], [A] * 5]
    with pytest.raises(ConfigError, match="the prefix has 5 pieces, the model takes at most 4"):
        search(model, sources((B,), (A,)), SearchOptions(), prefixes=prefixes, max_length=5)


@pytest.mark.parametrize(
    "narrowed",
    [{}, {"temperature": 0.6}, {"top_k": 40}, {"top_p": 0.8}, {"temperature": 1.4, "top_k": 70, "top_p": 0.7}],
    ids=str,
)
def test_sampled_tokens_have_their_probabilities_by_a_chi_square_test(narrowed: dict[str, Any]) -> None:
    logits = torch.randn(150, dtype=torch.float64, generator=torch.Generator().manual_seed(1))  # 2.3 groups of 64
    limits = {"max_length_a": 0, "max_length_b": 2, "min_length": 1}
    options = SearchOptions(beam=1000, n_best=1000, sample=True, seed=4, **limits, **narrowed)
    table: list[float] = logits.softmax(0).tolist()
    model = TableModel(lambda *_: table)
    found = [h for samples in search(model, sources(*[(A,)] * 10), options) for h in samples]
    n = len(found)
    counts = torch.bincount(torch.tensor([h.tokens[0] for h in found]), minlength=150)

    scaled = logits / options.temperature
    scaled[: EOS + 1] = -math.inf  # PAD, UNK and BOS are banned, and EOS by min_length
    kept = scaled.argsort(descending=True).tolist()[: options.top_k or 146]
    probs = scaled[kept].softmax(0)
    n_kept = 1 + int((probs.cumsum(0) < options.top_p - 1e-9).sum())
    expected = torch.zeros(150, dtype=torch.float64)
    expected[kept[:n_kept]] = n * probs[:n_kept] / probs[:n_kept].sum()
    assert counts[expected == 0].sum() == 0
    counts, expected = counts[expected > 0], expected[expected > 0]
    chi_square, freedom = float(((counts - expected) ** 2 / expected).sum()), len(expected) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


class Rounded:
    """A decoder that adds random noise to the last bits of float32 logits, as a change of the batch size does."""

    def __init__(self, model: Seq2Seq) -> None:
        self.decoder, self.generator = incremental_decoder(model), torch.Generator().manual_seed(1)
        self.start, self.select = self.decoder.start, self.decoder.select

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.decoder.step(ids, state)
        return logits + 2e-6 * torch.randn(logits.shape, generator=self.generator), state


@pytest.mark.parametrize(
    ("n_vocab", "scale", "narrowed"),
    [
        (8000, 1.5, {}),
        (1000, 0.5, {"top_p": 0.9, "top_k": 300, "temperature": 1.5}),
        (100, 0.5, {"beam": 800, "n_best": 800}),  # so many that some have nearly equal log-probabilities
    ],
    ids=str,
)
def test_in_fp32_samples_are_the_same_in_any_batch(n_vocab: int, scale: float, narrowed: dict[str, Any]) -> None:
    numbers = {"beam": 32, "n_best": 32, "max_length_a": 0, "max_length_b": 5, **narrowed}
    options = SearchOptions(sample=True, **numbers)
    model = Rounded(make(n_target_vocab=n_vocab, tied_embeddings="decoder", scale=scale).float())
    rng = random.Random(1)
    rows = [rng.choices(range(EOS + 1, 23), k=rng.randint(1, 12)) for _ in range(16)]

    def samples(order: list[int], batch_size: int) -> dict[int, list[list[int]]]:
        found: dict[int, list[list[int]]] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            hypotheses = search(model, sources(*(rows[i] for i in batch)), options, sentence_seeds=batch)
            found |= {i: sorted(h.tokens for h in one) for i, one in zip(batch, hypotheses, strict=True)}
        return found

    order = list(range(len(rows)))
    with torch.inference_mode():
        alone = samples(order, 1)
        for batch_size in (2, 7, len(rows)):
            rng.shuffle(order)
            assert samples(order, batch_size) == alone


def test_a_live_hypothesis_that_is_as_good_as_the_worst_finished_one_ends_the_search() -> None:
    steps: list[TraceStep] = []
    model = TableModel(lambda *_: [0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0])
    search(model, sources((A,)), SearchOptions(beam=2, alpha=0.0, min_length=0), trace=steps.append)
    assert len(steps) == 2


TERMS = [Constraint([(5, 6), (7,)]), Constraint(), Constraint([(8, 9, 8)], [4, 5, 6]), Constraint()]


@pytest.mark.parametrize("kind", ["beam", "sample", "terms"])
@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_score_is_teacher_forcings_and_neighbours_do_not_matter(choices: dict[str, Any], kind: str) -> None:
    narrowed = {"sample": True, "temperature": 1.7, "top_k": 9} if kind == "sample" else {}
    options = SearchOptions(beam=4, n_best=4, max_length_a=1, max_length_b=3, **narrowed)
    terms = TERMS if kind == "terms" else [Constraint()] * 4
    model = make(**{**choices, "max_positions": 64}, scale=2.0)  # its distributions are far from uniform
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, 23, (n,), generator=generator).tolist() for n in (3, 9, 1, 6)]
    with torch.no_grad():
        decoder = incremental_decoder(model)
        together = search(decoder, sources(*rows), options, constraints=terms)
        assert together[1::2] == search(decoder, sources(*rows), options)[1::2], "they have no terms"
        for number, (row, found) in enumerate(zip(rows, together, strict=True)):
            (alone,) = search(decoder, sources(row), options, sentence_seeds=[number], constraints=[terms[number]])
            assert [h.tokens for h in alone] == [h.tokens for h in found]
            for hypothesis, same in zip(found, alone, strict=True):
                assert same.score == pytest.approx(hypothesis.score, abs=1e-9)
                log_probs = model(sources(row), torch.tensor([[BOS, *hypothesis.tokens[:-1]]])).log_softmax(-1)[0]
                forced = log_probs[range(len(hypothesis.tokens)), hypothesis.tokens].tolist()
                assert hypothesis.log_probs == pytest.approx(forced, abs=1e-9)


def ends_after(n: int) -> Table:
    """A model whose translations have n words: EOS is its likeliest token only after them."""
    return lambda _, prefix: (
        [0.0, 0.0, 0.0, 0.7, 0.1, 0.1, 0.1] if len(prefix) >= n else [0.0, 0, 0, 0.1, 0.7, 0.1, 0.1]
    )


@pytest.mark.parametrize("narrowed", [{"beam": 1}, {"beam": 3}, {"sample": True, "beam": 1}], ids=str)
@pytest.mark.parametrize(("n_words", "is_cut"), [(3, False), (4, True), (9, True)])
def test_a_hypothesis_is_cut_if_the_model_would_go_on_at_the_limit(
    narrowed: dict[str, Any], n_words: int, is_cut: bool
) -> None:
    """The limit is 4 tokens: three words and EOS, which is forced either way."""
    options = SearchOptions(max_length_a=0, max_length_b=4, min_length=3, **narrowed)
    (best, *_), *_ = search(TableModel(ends_after(n_words)), sources((A,)), options)
    assert len(best.tokens) == 4
    assert best.is_cut is is_cut


def test_a_hypothesis_that_ends_before_the_limit_is_not_cut() -> None:
    options = SearchOptions(beam=1, max_length_a=0, max_length_b=9)
    (best,) = search(TableModel(ends_after(3)), sources((A,)), options)[0]
    assert (len(best.tokens), best.is_cut) == (4, False)
