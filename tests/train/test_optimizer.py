"""Muon and AdamW, and which parameters each of them updates."""

from typing import Any

import pytest
import torch
from models import fresh
from torch import nn

from nmt.config import TrainSettings
from nmt.train.optimizer import Muon, make_optimizers, orthogonalize

LR, DECAY = 0.01, 0.1


def weights_after(steps: int, gradients: list[torch.Tensor], weight: torch.Tensor, n_stacked: int) -> torch.Tensor:
    parameter = nn.Parameter(weight.clone())
    optimizer = Muon([(parameter, n_stacked)], LR, DECAY)
    for gradient in gradients[:steps]:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(8, 8), (8, 32), (64, 64)])
def test_singular_values_become_about_1(shape: tuple[int, int]) -> None:
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    left, values, right = torch.linalg.svd(x, full_matrices=False)
    found = orthogonalize(x)
    expected = torch.linalg.svdvals(found)
    assert expected[values > 0.05 * values[:, :1]].min() > 0.6
    assert expected.max() < 1.3
    # The singular vectors stay: U^T x V is diagonal.
    diagonal = left.mT @ found @ right.mT
    assert (diagonal - torch.diag_embed(diagonal.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4


@pytest.mark.parametrize("shape", [(16, 16), (32, 8), (8, 32)])
def test_muon_equals_that_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    weight, gradients = torch.randn(shape), [torch.randn(shape) for _ in range(4)]
    theirs = nn.Parameter(weight.clone())
    optimizer: Any = torch.optim.Muon([theirs], LR, DECAY, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        theirs.grad = gradient
        optimizer.step()
    moved = (theirs - weight).norm()
    assert (weights_after(4, gradients, weight, 1) - theirs).norm() < 0.02 * moved  # torch's computes in bf16


def test_stacked_matrices_are_orthogonalized_one_by_one() -> None:
    torch.manual_seed(1)
    weight, gradients = torch.randn(24, 8), [torch.randn(24, 8) for _ in range(3)]
    parts = [weights_after(3, [g[i : i + 8] for g in gradients], weight[i : i + 8], 1) for i in (0, 8, 16)]
    torch.testing.assert_close(weights_after(3, gradients, weight, 3), torch.cat(parts))


def test_a_matrix_without_a_gradient_stays_and_a_gradient_of_zero_moves_nothing() -> None:
    used, unused = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    optimizer = Muon([(used, 1), (unused, 1)], LR, DECAY)
    used.grad = torch.eye(4)
    optimizer.step()
    assert torch.equal(unused, torch.ones(4, 4))
    assert not torch.equal(used, torch.ones(4, 4))
    assert torch.equal(weights_after(1, [torch.zeros(4, 4)], torch.zeros(4, 4), 1), torch.zeros(4, 4))


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_weight_decay_spares_biases_and_norms(name: str) -> None:
    settings = TrainSettings.model_validate({"optimizer": name, "weight_decay": DECAY})
    groups = [group for optimizer in make_optimizers(fresh(), settings) for group in optimizer.param_groups]
    found = {(p.dim() >= 2, group["weight_decay"]) for group in groups for p in group["params"]}
    assert found == {(True, DECAY), (False, 0.0)}


@pytest.mark.parametrize("tied", ["all", "none"])
def test_muon_has_the_linear_layers_and_adamw_the_rest(tied: str) -> None:
    model = fresh(n_encoder_layers=1, n_decoder_layers=1, tied_embeddings=tied)
    model.freeze(["encoder"])
    adamw, muon = make_optimizers(model, TrainSettings(weight_decay=DECAY))
    names = {p: name for name, p in model.named_parameters()}
    of_muon = {names[p] for p in muon.param_groups[0]["params"]}
    of_adamw = {names[p] for group in adamw.param_groups for p in group["params"]}
    weights = {name for name in names.values() if name.startswith("decoder.0.") and name.endswith(".weight")}
    assert of_muon == {name for name in weights if "norm" not in name}
    assert of_muon | of_adamw == {name for name in names.values() if not name.startswith("encoder")}
    assert not of_muon & of_adamw
    (only,) = make_optimizers(model, TrainSettings(optimizer="adamw"))
    assert len([p for group in only.param_groups for p in group["params"]]) == len(of_muon) + len(of_adamw)
