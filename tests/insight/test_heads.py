"""Statistics of attention heads, compared with values computed by hand."""

import math
from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import SOURCE, TARGET, FiveRun, model_of
from models import RNNS, translator_without_bytes
from torch import Tensor

import nmt
from nmt.errors import DataError, InputError
from nmt.insight.heads import HeadSummary, attention_summary, head_figures
from nmt.text.batches import collate
from nmt.translate.loading import load

N = 6
PAIRS = list(zip(SOURCE, TARGET, strict=True))
UNIFORM = torch.full((N, N), 1 / N)
DIAGONAL = torch.eye(N)
PREVIOUS = torch.eye(N).roll(-1, 1)  # every position attends to the previous one
PREVIOUS[0] = DIAGONAL[0]  # the first position attends to itself


def figures_of(weights: Tensor, n_real: int = N) -> HeadSummary:
    """Statistics of a head, given its weights (T, T); positions from `n_real` on are padding, the last real one EOS."""
    positions = torch.arange(len(weights))
    is_real = (positions < n_real)[None]
    is_end = (positions == n_real - 1)[None]
    batch = weights[None, None, None].double()  # (1, 1, 1, T, T)
    sums = head_figures(batch, is_real, is_real, is_end)  # (1, 1, 6)
    means = sums[0, 0] / n_real
    return HeadSummary("", 0, 0, *means.tolist())


def test_a_uniform_head() -> None:
    head = figures_of(UNIFORM)
    assert head.entropy == pytest.approx(math.log2(N))
    positions = np.arange(N)
    distances = np.abs(positions[:, None] - positions)
    assert head.distance == pytest.approx(distances.mean())
    assert head.same == pytest.approx(1 / N)
    assert head.boundary == pytest.approx(1 / N)
    share = (N - 1) / N**2  # one position has no previous one, and one no next one
    assert head.previous == pytest.approx(share)
    assert head.next == pytest.approx(share)


def test_a_head_that_looks_at_the_previous_position() -> None:
    head = figures_of(PREVIOUS)
    assert head.entropy == pytest.approx(0, abs=1e-12)
    share = (N - 1) / N
    assert head.distance == head.previous == pytest.approx(share)
    assert head.same == pytest.approx(1 / N), "the first position looks at itself"
    assert head.next == head.boundary == 0


@pytest.mark.parametrize("has_weight", [False, True])
def test_padding_does_not_count(has_weight: bool) -> None:
    n_real = 4
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(N, N, generator=generator).softmax(-1)
    # The weights of the real positions alone.
    real = weights[:n_real, :n_real]
    real = real / real.sum(-1, keepdim=True)
    if not has_weight:
        weights[:n_real] = F.pad(real, (0, N - n_real))
    alone = astuple(figures_of(real, n_real))
    padded = astuple(figures_of(weights, n_real))
    assert padded[3:] == pytest.approx(alone[3:], abs=1e-6)


@pytest.fixture(scope="module")
def summaries(five_run: FiveRun) -> list[HeadSummary]:
    return attention_summary(five_run.run, PAIRS)


def test_a_summary_has_all_heads_in_order(summaries: list[HeadSummary]) -> None:
    places = product(("encoder", "decoder", "cross"), (1, 2), (1, 2, 3, 4))
    for head, place in zip(summaries, places, strict=True):
        assert (head.part, head.layer, head.head) == place


def test_a_summary_is_the_mean_over_positions(five_run: FiveRun, summaries: list[HeadSummary]) -> None:
    translator = load(five_run.run, engine="torch")
    model = model_of(translator)
    entropies = []
    for source, target in PAIRS:
        (src,), (tgt,) = translator.encode_pairs([source], [target])
        batch = collate([src], [tgt], [1])
        with torch.no_grad():
            attention = model.attention(batch.src, batch.tgt_in)
        weights = attention.cross[0, 0, 0]  # (T, S), head 1 of layer 1
        entropies += (-(weights * weights.log2()).nansum(-1)).tolist()
    first = next(head for head in summaries if head.part == "cross")
    assert first.entropy == pytest.approx(np.mean(entropies), abs=1e-4)


def test_a_summary_is_the_same_in_any_batches(
    five_run: FiveRun, summaries: list[HeadSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.insight.heads.ATTENTION_POSITIONS", 1)
    for head, alone in zip(summaries, attention_summary(five_run.run, PAIRS), strict=True):
        _, *figures = astuple(head)
        _, *expected = astuple(alone)
        assert figures == pytest.approx(expected, abs=1e-4)


def test_parts_without_attention_are_left_out() -> None:
    (head,) = attention_summary(translator_without_bytes(**RNNS[2]), [("a cat", "a dog")])
    assert (head.part, head.layer, head.head) == ("cross", 1, 1)


def test_an_ensemble_is_refused(five_run: FiveRun) -> None:
    with pytest.raises(InputError, match="an ensemble gives no attention weights"):
        attention_summary(load([five_run.run, five_run.run]), [("a", "b")])


def test_an_empty_corpus_is_refused(five_run: FiveRun) -> None:
    with pytest.raises(DataError, match="no pairs to compute attention for"):
        nmt.attention_summary(five_run.run, [])
