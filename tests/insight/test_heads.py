"""Statistics of attention heads, compared with values computed by hand and by NumPy."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, model_of
from numpy.typing import NDArray
from torch import Tensor

import nmt
from nmt.config import ModelSettings
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.translator import Translator, load
from nmt.errors import ConfigError, DataError, InputError
from nmt.insight.heads import FIGURES, attention_summary, head_figures, parts_of, table
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.model.base import AttentionWeights
from nmt.model.transformer import Transformer
from nmt.text.batches import collate

N = 6


def figures_of(*heads: Tensor, n_real: int = N) -> list[dict[str, float]]:
    """Mean statistics of the heads of one layer, each (N, N); positions from `n_real` on are padding."""
    weights = torch.stack(heads)[None, None].double()  # (1, 1, H, N, N)
    real = (torch.arange(N) < n_real)[None]
    end = (torch.arange(N) == n_real - 1)[None]
    means = head_figures(weights, real, real, end)[0] / n_real
    return [dict(zip(FIGURES, head, strict=True)) for head in means.tolist()]


UNIFORM = torch.full((N, N), 1 / N)
DIAGONAL = torch.eye(N)
PREVIOUS = torch.eye(N).roll(-1, 1)  # every position attends to the previous one
PREVIOUS[0] = DIAGONAL[0]  # the first position attends to itself


def test_figures_of_heads_by_hand() -> None:
    (found,) = figures_of(UNIFORM)
    assert found["entropy"] == pytest.approx(math.log2(N))
    assert found["distance"] == pytest.approx(np.abs(np.arange(N) - np.arange(N)[:, None]).mean())
    assert [found["same"], found["boundary"]] == pytest.approx([1 / N, 1 / N])
    assert [found["previous"], found["next"]] == pytest.approx([(N - 1) / N**2] * 2), "the ends lack one"
    assert math.isnan(found["divergence"])
    diagonal, previous = figures_of(DIAGONAL, PREVIOUS)
    assert [diagonal[name] for name in FIGURES[:6]] == pytest.approx([0, 0, 0, 1, 0, 1 / N], abs=1e-12)
    assert [previous[name] for name in FIGURES[:6]] == pytest.approx([0, (N - 1) / N, (N - 1) / N, 1 / N, 0, 0])
    # The heads are equal at the first position and disjoint elsewhere.
    assert diagonal["divergence"] == previous["divergence"] == pytest.approx((N - 1) / N)
    assert [head["divergence"] for head in figures_of(UNIFORM, UNIFORM, UNIFORM)] == pytest.approx([0] * 3, abs=1e-12)


def test_figures_of_random_heads_are_those_of_numpy() -> None:
    rng = np.random.default_rng(1)
    heads = [np.exp(rng.normal(size=(N, N)) * 3) for _ in range(4)]
    p = np.stack([head / head.sum(1, keepdims=True) for head in heads])  # (H, N, N)

    def h(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(-(x * np.log2(x)).sum(-1))

    where = np.arange(N)
    for i, found in enumerate(figures_of(*map(torch.tensor, p))):
        apart = [(h((p[i] + p[j]) / 2) - h(p[i]) / 2 - h(p[j]) / 2).mean() for j in range(4) if j != i]
        expected = [
            h(p[i]).mean(),
            (p[i] * abs(where - where[:, None])).sum(1).mean(),
            np.diag(p[i], -1).sum() / N,
            np.diag(p[i]).sum() / N,
            np.diag(p[i], 1).sum() / N,
            p[i][:, -1].mean(),
            np.mean(apart),
        ]
        assert [found[name] for name in FIGURES] == pytest.approx(expected, abs=1e-12)


def test_padding_does_not_count() -> None:
    n_real = 4
    weights = torch.rand(2, N, N, generator=torch.Generator().manual_seed(1)).softmax(-1)
    short = weights[:, :n_real, :n_real] / weights[:, :n_real, :n_real].sum(-1, keepdim=True)
    padded = weights.clone()
    padded[:, :n_real] = 0
    padded[:, :n_real, :n_real] = short
    every, last = torch.ones(1, n_real, dtype=torch.bool), torch.arange(n_real)[None] == n_real - 1
    alone = head_figures(short[None, None].double(), every, every, last)[0]
    for given in (padded, weights):  # `padded` has no weight on padding keys, `weights` has
        found = figures_of(*given, n_real=n_real)
        for head, expected in zip(found, (alone / n_real).tolist(), strict=True):
            assert list(head.values()) == pytest.approx(expected, abs=1e-6)


def test_parts_without_attention_are_left_out() -> None:
    batch = collate([[5, 6]], [[7]], [1])
    cross = torch.rand(1, 1, 1, 2, 3)
    weights = AttentionWeights(encoder=torch.empty(0, 1, 1, 3, 3), decoder=torch.empty(0, 1, 1, 2, 2), cross=cross)
    assert table([]) == ["the model has no attention heads"]
    ((part, found, queries, keys, boundary),) = parts_of(weights, batch)
    assert (part, found is cross) == ("cross", True)
    assert (queries.tolist(), keys.tolist()) == ([[True, True]], [[True, True, True]])
    assert boundary.tolist() == [[False, False, True]]


def test_summary_is_the_mean_over_all_positions_in_any_batches(
    five_run: FiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = load(five_run.run, engine="torch")
    model, encode = model_of(translator), translator.tokenizers.source.encode
    found = attention_summary(translator, list(zip(SOURCE, TARGET, strict=True)))
    settings = model.settings
    assert [(one.part, one.layer, one.head) for one in found] == [
        (part, layer + 1, head + 1)
        for part in ("encoder", "decoder", "cross")
        for layer in range(settings.n_encoder_layers)
        for head in range(settings.n_heads)
    ]
    rows = []
    with torch.no_grad():
        for source, target in zip(SOURCE, TARGET, strict=True):
            batch = collate([encode(source)], [encode(target)], [1])
            w = model.attention(batch.src, batch.tgt_in).cross[0, 0, 0]  # (T, S), the first head of the first layer
            rows += (-(w * w.log2()).nansum(-1)).tolist()
    first = next(one for one in found if one.part == "cross")
    assert first.entropy == pytest.approx(np.mean(rows), abs=1e-4)
    assert all(one.next == pytest.approx(0, abs=1e-6) for one in found if one.part == "decoder"), "it is causal"
    monkeypatch.setattr("nmt.insight.heads.MAX_POSITIONS", 1)
    for one, alone in zip(found, attention_summary(five_run.run, list(zip(SOURCE, TARGET, strict=True))), strict=True):
        assert [getattr(one, name) for name in FIGURES] == pytest.approx(
            [getattr(alone, name) for name in FIGURES], abs=1e-4
        )
    lines = table(found)
    assert lines[0].split() == ["part", "layer", "head", *FIGURES]
    assert lines[1].split()[:4] == ["encoder", "1", "1", f"{found[0].entropy:.3f}"]
    assert len(set(map(len, lines))) == 1


def test_single_head_has_no_divergence(five_run: FiveRun) -> None:
    translator = load(five_run.run, engine="torch")
    n_pieces = len(translator.tokenizers.source)
    settings = ModelSettings(d_model=16, n_heads=1, n_encoder_layers=1, n_decoder_layers=1)
    model = Transformer(settings, n_pieces, n_pieces).eval()
    translator = Translator(TorchEngine(model), translator.tokenizers, translator.config)
    found = attention_summary(translator, [(SOURCE[0], TARGET[0])])
    assert [one.divergence for one in found] == [None] * 3
    assert table(found)[1].endswith(" -")


def test_exports_ensembles_and_empty_corpora_are_refused(five_run: FiveRun, tmp_path: Path) -> None:
    assert nmt.attention_summary is attention_summary
    with pytest.raises(InputError, match="an ensemble gives no attention weights"):
        attention_summary(load([five_run.run, five_run.run]), [("a", "b")])
    translator = load(five_run.run, engine="torch")
    to_ctranslate2(translator, tmp_path / "export")
    with pytest.raises(ConfigError, match="CTranslate2 has no attention weights"):
        attention_summary(load(tmp_path / "export"), [("a", "b")])
    with pytest.raises(DataError, match="no pairs to compute attention for"):
        attention_summary(five_run.run, [])
