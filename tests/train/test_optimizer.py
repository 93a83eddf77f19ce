"""Muon and AdamW, and which parameters each of them updates."""

from typing import Any

import pytest
import torch
from models import fresh
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.train.optimizer import Muon, make_optimizers

LR, DECAY = 0.01, 0.1


def muon_steps(weight: Tensor, gradients: Tensor, n_stacked: int = 1) -> Tensor:
    """Return the weight after one step for each gradient: (steps, rows, columns)."""
    parameter = nn.Parameter(weight.clone())
    optimizer = Muon([(parameter, n_stacked)], LR, DECAY)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(16, 16), (32, 8), (8, 32)])
def test_muon_equals_that_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    weight = torch.randn(shape)
    gradients = torch.randn(4, *shape)
    theirs = nn.Parameter(weight.clone())
    optimizer: Any = torch.optim.Muon([theirs], LR, DECAY, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        theirs.grad = gradient
        optimizer.step()
    moved = (theirs - weight).norm()
    difference = (muon_steps(weight, gradients) - theirs).norm()
    assert difference < 0.02 * moved  # torch's computes in bf16


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
    optimizer = Muon([(used, 1), (unused, 1)], LR, DECAY)
    used.grad = torch.eye(4)
    optimizer.step()
    assert torch.equal(unused, torch.ones(4, 4))
    assert not torch.equal(used, torch.ones(4, 4))


def test_a_gradient_of_zero_moves_nothing() -> None:
    # Orthogonalizing must not divide by a norm of zero.
    zeros = torch.zeros(4, 4)
    assert torch.equal(muon_steps(zeros, zeros[None]), zeros)


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_weight_decay_spares_biases_and_norms(name: str) -> None:
    settings = TrainSettings.model_validate({"optimizer": name, "weight_decay": DECAY})
    for optimizer in make_optimizers(fresh(), settings):
        for group in optimizer.param_groups:
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
