"""Muon and AdamW, and which parameters each of them updates."""

from typing import Any

import pytest
import torch
from models import fresh
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.train import optimizer
from nmt.train.optimizer import Muon, make_optimizers

LR, DECAY = 0.01, 0.1


def muon_steps(weight: Tensor, gradients: Tensor, n_stacked: int = 1) -> Tensor:
    """Return the weight after one step for each gradient: (steps, rows, columns)."""
    parameter = nn.Parameter(weight.clone())
    muon = Muon([(parameter, n_stacked)], LR, DECAY)
    for gradient in gradients:
        parameter.grad = gradient
        muon.step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(16, 16), (32, 8), (8, 32)])
def test_muon_equals_that_of_torch(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's iterations."""
    monkeypatch.setattr(optimizer, "COEFFICIENTS", [(3.4445, -4.7750, 2.0315)] * 5)
    torch.manual_seed(1)
    weight = torch.randn(shape)
    gradients = torch.randn(4, *shape)
    theirs = nn.Parameter(weight.clone())
    muon: Any = torch.optim.Muon([theirs], LR, DECAY, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        theirs.grad = gradient
        muon.step()
    moved = (theirs - weight).norm()
    difference = (muon_steps(weight, gradients) - theirs).norm()
    assert difference < 0.02 * moved  # torch's computes in bf16


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 1.27), (torch.bfloat16, 1.4)])
def test_singular_values_become_nearly_one(dtype: torch.dtype, largest: float) -> None:
    torch.manual_seed(1)
    u, _, v = torch.linalg.svd(torch.randn(2, 40, 90), full_matrices=False)
    # Almost rank one, and values between 1 and 0.03. The smallest are just over 0.01 of the norm.
    values = torch.stack([torch.full((40,), 0.011), torch.logspace(0, -1.5, 40)])
    values[0, 0] = 1
    orthogonal = optimizer.orthogonalize((u * values[:, None] @ v).to(dtype))
    found = (u.mT @ orthogonal.float() @ v.mT).diagonal(dim1=1, dim2=2)
    assert found.min() > 0.7
    assert found.max() < largest


def test_stacked_matrices_are_orthogonalized_one_by_one() -> None:
    torch.manual_seed(1)
    # Of three matrices, four steps each.
    weights = torch.randn(3, 8, 8)
    gradients = torch.randn(3, 4, 8, 8)
    one_by_one = [muon_steps(weights[i], gradients[i]) for i in range(3)]
    # All of them as rows of one matrix.
    stacked = gradients.transpose(0, 1).flatten(1, 2)
    found = muon_steps(weights.flatten(0, 1), stacked, n_stacked=3)
    torch.testing.assert_close(found, torch.cat(one_by_one))


def test_a_matrix_without_a_gradient_stays() -> None:
    used = nn.Parameter(torch.ones(4, 4))
    unused = nn.Parameter(torch.ones(4, 4))
    muon = Muon([(used, 1), (unused, 1)], LR, DECAY)
    used.grad = torch.eye(4)
    muon.step()
    assert torch.equal(unused, torch.ones(4, 4))
    assert not torch.equal(used, torch.ones(4, 4))


def test_a_gradient_of_zero_moves_nothing() -> None:
    # Orthogonalizing must not divide by a norm of zero.
    zeros = torch.zeros(4, 4)
    assert torch.equal(muon_steps(zeros, zeros[None]), zeros)


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_weight_decay_spares_biases_and_norms(name: str) -> None:
    settings = TrainSettings.model_validate({"optimizer": name, "weight_decay": DECAY})
    for each in make_optimizers(fresh(), settings):
        for group in each.param_groups:
            for parameter in group["params"]:
                decay = DECAY if parameter.dim() >= 2 else 0.0
                assert group["weight_decay"] == decay


@pytest.mark.parametrize("tied", ["all", "none"])
def test_muon_has_the_linear_layers_and_adamw_the_rest(tied: str) -> None:
    model = fresh(n_encoder_layers=1, n_decoder_layers=1, tied_embeddings=tied)
    model.freeze(["encoder"])
    adamw, muon = make_optimizers(model, TrainSettings())
    by_muon = parameters_of(muon)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    # The encoder is frozen: neither has it.
    for name, parameter in trained.items():
        is_matrix = name.endswith(".weight") and "norm" not in name
        is_linear = is_matrix and name.startswith("decoder.0.")
        assert (parameter in by_muon) == is_linear, name
    assert by_muon | parameters_of(adamw) == set(trained.values())
    assert not by_muon & parameters_of(adamw)


def parameters_of(optimizer: torch.optim.Optimizer) -> set[Tensor]:
    groups = [set(group["params"]) for group in optimizer.param_groups]
    return set.union(*groups)


def test_adamw_alone_has_all_parameters() -> None:
    model = fresh()
    (adamw,) = make_optimizers(model, TrainSettings(optimizer="adamw"))
    result = parameters_of(adamw)
    assert result == set(model.parameters())
