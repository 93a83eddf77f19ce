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


def figures_of(*heads: Tensor, n_real: int = N) -> list[HeadSummary]:
    """Mean statistics of the heads of one layer, each (N, N); positions from `n_real` on are padding."""
    weights = torch.stack(heads)[None, None].double()  # (1, 1, H, N, N)
    real = (torch.arange(N) < n_real)[None]
    end = (torch.arange(N) == n_real - 1)[None]
    means = head_figures(weights, real, real, end)[0] / n_real
    return [HeadSummary("", 0, 0, *head) for head in means.tolist()]


UNIFORM = torch.full((N, N), 1 / N)
DIAGONAL = torch.eye(N)
PREVIOUS = torch.eye(N).roll(-1, 1)  # every position attends to the previous one
PREVIOUS[0] = DIAGONAL[0]  # the first position attends to itself


def test_figures_of_heads_by_hand() -> None:
    (found,) = figures_of(UNIFORM)
    assert found.entropy == pytest.approx(math.log2(N))
    assert found.distance == pytest.approx(np.abs(np.arange(N) - np.arange(N)[:, None]).mean())
    assert [found.same, found.boundary] == pytest.approx([1 / N, 1 / N])
    assert [found.previous, found.next] == pytest.approx([(N - 1) / N**2] * 2), "the ends lack one"
    diagonal, previous = figures_of(DIAGONAL, PREVIOUS)
    assert astuple(diagonal)[3:] == pytest.approx([0, 0, 0, 1, 0, 1 / N], abs=1e-12)
    assert astuple(previous)[3:] == pytest.approx([0, (N - 1) / N, (N - 1) / N, 1 / N, 0, 0])


@pytest.mark.parametrize("has_weight", [False, True])
def test_padding_does_not_count(has_weight: bool) -> None:
    n_real = 4
    weights = torch.rand(2, N, N, generator=torch.Generator().manual_seed(1)).softmax(-1)
    short = weights[:, :n_real, :n_real] / weights[:, :n_real, :n_real].sum(-1, keepdim=True)
    if not has_weight:
        weights[:, :n_real] = F.pad(short, (0, N - n_real))
    every, last = torch.ones(1, n_real, dtype=torch.bool), torch.arange(n_real)[None] == n_real - 1
    alone = head_figures(short[None, None].double(), every, every, last)[0] / n_real
    for head, expected in zip(figures_of(*weights, n_real=n_real), alone.tolist(), strict=True):
        assert astuple(head)[3:] == pytest.approx(expected, abs=1e-6)


def test_summary_is_the_mean_over_positions_in_any_batches(five_run: FiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, corpus = load(five_run.run, engine="torch"), list(zip(SOURCE, TARGET, strict=True))
    model, encode = model_of(translator), translator.tokenizers.source.encode
    found = attention_summary(translator, corpus)
    expected = product(("encoder", "decoder", "cross"), (1, 2), (1, 2, 3, 4))
    assert [(one.part, one.layer, one.head) for one in found] == list(expected)
    rows = []
    with torch.no_grad():
        for source, target in corpus:
            batch = collate([encode(source)], [encode(target)], [1])
            w = model.attention(batch.src, batch.tgt_in).cross[0, 0, 0]  # (T, S), the first head of the first layer
            rows += (-(w * w.log2()).nansum(-1)).tolist()
    first = next(one for one in found if one.part == "cross")
    assert first.entropy == pytest.approx(np.mean(rows), abs=1e-4)
    assert all(one.next == pytest.approx(0, abs=1e-6) for one in found if one.part == "decoder"), "it is causal"
    monkeypatch.setattr("nmt.insight.heads.ATTENTION_POSITIONS", 1)
    for one, alone in zip(found, attention_summary(five_run.run, corpus), strict=True):
        assert list(vars(one).values())[1:] == pytest.approx(list(vars(alone).values())[1:], abs=1e-4)


def test_parts_without_attention_are_left_out() -> None:
    found = attention_summary(translator_without_bytes(**RNNS[2]), [("a cat", "a dog")])
    assert [(one.part, one.layer, one.head) for one in found] == [("cross", 1, 1)]


def test_ensembles_and_empty_corpora_are_refused(five_run: FiveRun) -> None:
    assert nmt.attention_summary is attention_summary
    with pytest.raises(InputError, match="an ensemble gives no attention weights"):
        attention_summary(load([five_run.run, five_run.run]), [("a", "b")])
    with pytest.raises(DataError, match="no pairs to compute attention for"):
        attention_summary(five_run.run, [])
