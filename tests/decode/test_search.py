"""Samples have the right probabilities, scores are teacher forcing's; test_search_random.py has the search itself."""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from models import FAMILY, Table, TableModel, make, name, sources
from reference_search import penalized
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
        generator = torch.Generator()
        generator.manual_seed(hash((seed, source, prefix)) % 2**62)
        logits = torch.randn(V, dtype=torch.float64, generator=generator)
        probabilities: list[float] = logits.softmax(0).tolist()
        return probabilities

    return table


def all_hypotheses(
    table: Table, source: tuple[int, ...], options: SearchOptions, n_required: int = 0
) -> list[Hypothesis]:
    """Every sequence that search may return, scored by the definition, best first."""
    limit = options.limit(len(source), n_required)
    hypotheses = []
    for n_words in range(limit):
        is_longest = n_words + 1 == limit
        if n_words < options.min_length and not is_longest:
            continue
        for words in itertools.product((A, B, C), repeat=n_words):
            tokens = [*words, EOS]
            log_probs = []
            for i, token in enumerate(tokens):
                probabilities = table(source, words[:i])
                log_probs.append(math.log(probabilities[token]))
            score = penalized(sum(log_probs), len(tokens), options)
            hypotheses.append(Hypothesis(tokens, log_probs, score))
    hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
    return hypotheses


def greedy(table: Table, source: tuple[int, ...], options: SearchOptions) -> list[int]:
    """The likeliest token at each position, by the definition."""
    limit = options.limit(len(source))
    tokens: list[int] = []
    while EOS not in tokens:
        probabilities = table(source, tuple(tokens))
        allowed = [A, B, C]
        if len(tokens) >= options.min_length:
            allowed.append(EOS)
        if len(tokens) + 1 == limit:
            allowed = [EOS]
        likeliest = max(allowed, key=probabilities.__getitem__)
        tokens.append(likeliest)
    return tokens


@pytest.mark.parametrize("seed", range(50))
def test_one_beam_is_greedy_search(seed: int) -> None:
    options = SearchOptions(beam=1, max_length_a=1, max_length_b=3, min_length=seed % 3)
    table = random_table(seed)
    row = (A, B, C, C)
    ((best,),) = search(TableModel(table), sources(row), options)
    assert best.tokens == greedy(table, (*row, EOS), options)


def test_a_prefix_that_the_model_cannot_hold_is_refused() -> None:
    model = TableModel(random_table(1))
    src = sources((B,), (A,))
    with pytest.raises(ConfigError, match="the prefix has 5 pieces, the model takes at most 4"):
        search(model, src, SearchOptions(), prefixes=[[], [A] * 5], max_length=5)


def test_a_live_hypothesis_that_is_as_good_as_the_worst_finished_one_ends_the_search() -> None:
    steps: list[TraceStep] = []
    model = TableModel(lambda *_: [0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0])
    options = SearchOptions(beam=2, alpha=0.0, min_length=0)
    search(model, sources((A,)), options, trace=steps.append)
    assert len(steps) == 2


# --- samples ----------------------------------------------------------------------------------------------

NARROWED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 40},
    {"top_p": 0.8},
    {"temperature": 1.4, "top_k": 70, "top_p": 0.7},
]


def narrowed_probabilities(logits: Tensor, options: SearchOptions) -> Tensor:
    """The probabilities from which the options let tokens be drawn, by their definition: (V,)."""
    scaled = logits / options.temperature
    scaled[: EOS + 1] = -math.inf  # PAD, UNK and BOS are banned, and EOS by min_length
    n_words = len(logits) - EOS - 1
    best_first = scaled.argsort(descending=True)[: options.top_k or n_words]
    probabilities = scaled[best_first].softmax(0)
    # The fewest tokens that reach top_p.
    cumulated = probabilities.cumsum(0)
    is_before = cumulated < options.top_p - 1e-9
    n_kept = int(is_before.sum()) + 1
    kept = probabilities[:n_kept]
    narrowed = torch.zeros_like(logits)
    narrowed[best_first[:n_kept]] = kept / kept.sum()
    return narrowed


@pytest.mark.parametrize("narrowed", NARROWED, ids=str)
def test_sampled_tokens_have_their_probabilities_by_a_chi_square_test(narrowed: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(150, dtype=torch.float64, generator=generator)  # 2.3 groups of 64
    table: list[float] = logits.softmax(0).tolist()
    limits = {"max_length_a": 0, "max_length_b": 2, "min_length": 1}
    options = SearchOptions(beam=1000, n_best=1000, sample=True, seed=4, **limits, **narrowed)
    rows = [(A,)] * 10
    samples = search(TableModel(lambda *_: table), sources(*rows), options)

    hypotheses = itertools.chain.from_iterable(samples)
    tokens = [hypothesis.tokens[0] for hypothesis in hypotheses]
    counts = torch.bincount(torch.tensor(tokens), minlength=150)
    probabilities = narrowed_probabilities(logits, options)
    is_possible = probabilities > 0
    assert counts[~is_possible].sum() == 0
    expected = len(tokens) * probabilities[is_possible]
    differences = counts[is_possible] - expected
    chi_square = (differences**2 / expected).sum()
    freedom = len(expected) - 1
    deviation = math.sqrt(2 * freedom)  # the standard deviation of chi-square
    assert float(chi_square) < freedom + 4 * deviation


class Rounded:
    """A decoder that adds random noise to the last bits of float32 logits, as a change of the batch size does."""

    def __init__(self, model: Seq2Seq) -> None:
        self.decoder = incremental_decoder(model)
        self.generator = torch.Generator().manual_seed(1)
        self.start = self.decoder.start
        self.select = self.decoder.select

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.decoder.step(ids, state)
        noise = torch.randn(logits.shape, generator=self.generator)
        return logits + 2e-6 * noise, state


ROUNDED: list[tuple[int, float, dict[str, Any]]] = [
    (8000, 1.5, {}),
    (1000, 0.5, {"top_p": 0.9, "top_k": 300, "temperature": 1.5}),
    (100, 0.5, {"beam": 800, "n_best": 800}),  # so many that some have nearly equal log-probabilities
]


@pytest.mark.parametrize(("n_vocab", "scale", "narrowed"), ROUNDED, ids=str)
def test_in_fp32_samples_are_the_same_in_any_batch(n_vocab: int, scale: float, narrowed: dict[str, Any]) -> None:
    numbers = {"beam": 32, "n_best": 32, "max_length_a": 0, "max_length_b": 5, **narrowed}
    options = SearchOptions(sample=True, **numbers)
    model = make(n_target_vocab=n_vocab, tied_embeddings="decoder", scale=scale)
    rounded = Rounded(model.float())
    rng = random.Random(1)
    words = range(EOS + 1, 23)
    rows = [rng.choices(words, k=rng.randint(1, 12)) for _ in range(16)]

    def samples(order: list[int], batch_size: int) -> dict[int, list[list[int]]]:
        """The samples of each row, sorted, by its number."""
        tokens: dict[int, list[list[int]]] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            src = sources(*(rows[i] for i in batch))
            n_bests = search(rounded, src, options, sentence_seeds=batch)
            for i, n_best in zip(batch, n_bests, strict=True):
                tokens[i] = sorted(hypothesis.tokens for hypothesis in n_best)
        return tokens

    order = list(range(len(rows)))
    with torch.inference_mode():
        alone = samples(order, 1)
        for batch_size in (2, 7, 16):
            rng.shuffle(order)
            together = samples(order, batch_size)
            assert together == alone


# --- scores -----------------------------------------------------------------------------------------------

TERMS = [Constraint([(5, 6), (7,)]), Constraint(), Constraint([(8, 9, 8)], [4, 5, 6]), Constraint()]


def forced_log_probs(model: Seq2Seq, row: list[int], tokens: list[int]) -> list[float]:
    """The log-probability of each token by teacher forcing."""
    before = [BOS, *tokens[:-1]]
    tgt_in = torch.tensor([before])
    logits = model(sources(row), tgt_in)
    log_probs = logits[0].log_softmax(-1)  # (T, V)
    forced: list[float] = log_probs[range(len(tokens)), tokens].tolist()
    return forced


@pytest.mark.parametrize("kind", ["beam", "sample", "terms"])
@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_score_is_teacher_forcings_and_neighbours_do_not_matter(choices: dict[str, Any], kind: str) -> None:
    options = SearchOptions(beam=4, n_best=4, max_length_a=1, max_length_b=3)
    if kind == "sample":
        options = options.changed(sample=True, temperature=1.7, top_k=9)
    terms = TERMS if kind == "terms" else [Constraint()] * 4
    sizes = {**choices, "max_positions": 64}
    model = make(**sizes, scale=2.0)  # its distributions are far from uniform
    decoder = incremental_decoder(model)
    generator = torch.Generator().manual_seed(1)
    # Sentences of different lengths.
    words: list[int] = torch.randint(4, 23, (19,), generator=generator).tolist()
    rows = [words[:3], words[3:12], words[12:13], words[13:]]
    with torch.no_grad():
        src = sources(*rows)
        together = search(decoder, src, options, constraints=terms)
        unconstrained = search(decoder, src, options)
        assert together[1::2] == unconstrained[1::2], "they have no terms"
        for i, row in enumerate(rows):
            src = sources(row)
            (alone,) = search(decoder, src, options, sentence_seeds=[i], constraints=[terms[i]])
            for hypothesis, same in zip(together[i], alone, strict=True):
                assert same.tokens == hypothesis.tokens
                assert same.score == pytest.approx(hypothesis.score, abs=1e-9)
                forced = forced_log_probs(model, row, hypothesis.tokens)
                assert hypothesis.log_probs == pytest.approx(forced, abs=1e-9)


# --- hypotheses that are cut ------------------------------------------------------------------------------


def ends_after(n: int) -> Table:
    """A model whose translations have n words: EOS is its likeliest token only after them."""

    def table(_: tuple[int, ...], prefix: tuple[int, ...]) -> Sequence[float]:
        if len(prefix) < n:
            return [0, 0, 0, 0.1, 0.7, 0.1, 0.1]
        return [0, 0, 0, 0.7, 0.1, 0.1, 0.1]

    return table


SEARCHES = [(1, False), (3, False), (1, True)]


# The limit is 4 tokens: three words and EOS, which is forced either way.
@pytest.mark.parametrize(("beam", "sample"), SEARCHES)
@pytest.mark.parametrize(("n_words", "is_cut"), [(3, False), (4, True), (9, True)])
def test_a_hypothesis_is_cut_if_the_model_would_go_on_at_the_limit(
    beam: int, sample: bool, n_words: int, is_cut: bool
) -> None:
    options = SearchOptions(beam=beam, sample=sample, max_length_a=0, max_length_b=4, min_length=3)
    model = TableModel(ends_after(n_words))
    (n_best,) = search(model, sources((A,)), options)
    best = n_best[0]
    assert len(best.tokens) == 4
    assert best.is_cut is is_cut
