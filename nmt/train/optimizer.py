"""The optimizers: Muon for the matrices of the layers, AdamW for embeddings, biases and norms.

AdamW scales each element of an update by itself. A layer's matrix is a linear map, and its gradient is dominated by few
directions, which most tokens share. Muon (Jordan et al. 2024) replaces the update M = U S V^T by U V^T, so that
rare directions are learned as fast as frequent ones.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.model.base import Seq2Seq, n_stacked

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # Jordan et al. 2024: they maximize the slope at 0
N_ITERATIONS = 5
MOMENTUM = 0.95
UPDATE_RMS = 0.2  # root mean square of an AdamW update in units of the learning rate, so that both share one rate


def orthogonalize(x: Tensor) -> Tensor:
    """Approximate U V^T of matrices U S V^T, whose singular values become 0.7 to 1.2 (Newton-Schulz iteration).

    x is (n, rows, columns), rows <= columns. A matrix of zeros stays as it is.
    """
    a, b, c = COEFFICIENTS
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)  # singular values are at most 1
    for _ in range(N_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalized. As `torch.optim.Muon`, but matrices of equal shape are one batch.

    Args:
        params: matrices, each with the number of matrices that are stacked in its rows.
        lr: learning rate; as large as AdamW's (Liu et al. 2025, section 2.2).
        weight_decay: decoupled, as AdamW's.
    """

    def __init__(self, params: Iterable[tuple[Tensor, int]], lr: float, weight_decay: float) -> None:
        self.n_stacked = dict(params)
        super().__init__([*self.n_stacked], {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002 - torch passes one
        (group,) = self.param_groups
        weights = [p for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in weights]
        for p in weights:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momentum = [self.state[p]["momentum"] for p in weights]
        torch._foreach_lerp_(momentum, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momentum, MOMENTUM)  # Nesterov's
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])

        # shape -> weights and updates, transposed if there are more rows than columns
        alike: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight, update in zip(weights, updates, strict=True):
            n = self.n_stacked[weight]
            for w, x in zip(weight.chunk(n), update.chunk(n), strict=True):
                w, x = (w, x) if len(w) <= w.size(1) else (w.mT, x.mT)
                alike[w.shape].append((w, x))
        for shape, pairs in alike.items():
            matrices, of_matrices = zip(*pairs, strict=True)
            directions = orthogonalize(torch.stack(of_matrices)).float()  # root mean square: columns ** -0.5
            torch._foreach_add_(matrices, directions.unbind(), alpha=-group["lr"] * UPDATE_RMS * shape[1] ** 0.5)


# The state that each optimizer keeps of a parameter.
STATE: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}


def make_optimizers(model: Seq2Seq, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a model. Each parameter belongs to one of them; frozen ones to none.

    With `train.optimizer=muon`, Muon updates the weights of the linear layers, and AdamW everything else: embeddings
    and the projection have a row for each piece, which is no direction of a linear map. Weight decay is on matrices
    only.
    """
    linear = {name: module.weight for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    del linear["projection"]
    by_muon = {p: n_stacked(name) for name, p in linear.items() if p.requires_grad and settings.optimizer == "muon"}
    others = [p for p in model.parameters() if p.requires_grad and p not in by_muon]
    adamw = torch.optim.AdamW(
        [
            {"params": [p for p in others if p.dim() >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=settings.lr,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=1e-9,
        fused=True,
    )
    return [adamw, Muon(by_muon.items(), settings.lr, settings.weight_decay)] if by_muon else [adamw]
