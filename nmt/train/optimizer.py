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
    norm = torch.linalg.matrix_norm(x, keepdim=True)
    x = x / norm.clamp(min=1e-7)  # singular values are at most 1
    # Each iteration is x = a·x + (b·G + c·G²)·x, with G = x·x^T.
    for _ in range(N_ITERATIONS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
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
        lr = group["lr"]
        weights = [p for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in weights]

        # 1. Momentum, and weight decay.
        for p in weights:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momentum = [self.state[p]["momentum"] for p in weights]
        torch._foreach_lerp_(momentum, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momentum, MOMENTUM)  # Nesterov's
        torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])

        # 2. Matrices of equal shape, and their updates; transposed if there are more rows than columns.
        matrices = defaultdict[torch.Size, list[Tensor]](list)
        updates_of = defaultdict[torch.Size, list[Tensor]](list)
        for weight, update in zip(weights, updates, strict=True):
            n = self.n_stacked[weight]
            for matrix, x in zip(weight.chunk(n), update.chunk(n), strict=True):
                if len(matrix) > matrix.size(1):
                    matrix, x = matrix.mT, x.mT
                matrices[matrix.shape].append(matrix)
                updates_of[matrix.shape].append(x)

        # 3. The update. The root mean square of an orthogonalized matrix is columns ** -0.5.
        for shape, alike in matrices.items():
            directions = orthogonalize(torch.stack(updates_of[shape])).float()
            scale = UPDATE_RMS * shape[1] ** 0.5
            torch._foreach_add_(alike, directions.unbind(), alpha=-lr * scale)


# The state that each optimizer keeps of a parameter.
Moments = tuple[str, ...]
STATE: dict[type[torch.optim.Optimizer], Moments] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}


def make_optimizers(model: Seq2Seq, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a model. Each parameter belongs to one of them; frozen ones to none.

    With `train.optimizer=muon`, Muon updates the weights of the linear layers, and AdamW everything else: embeddings
    and the projection have a row for each piece, which is no direction of a linear map. Weight decay is on matrices
    only.
    """
    # 1. Muon's weights, each with the number of matrices that are stacked in it.
    by_muon: dict[Tensor, int] = {}
    if settings.optimizer == "muon":
        for name, module in model.named_modules():
            is_linear = isinstance(module, nn.Linear) and name != "projection"
            if is_linear and module.weight.requires_grad:
                by_muon[module.weight] = n_stacked(name)

    # 2. AdamW's.
    by_adamw = [p for p in model.parameters() if p.requires_grad and p not in by_muon]
    matrices = {"params": [p for p in by_adamw if p.dim() >= 2], "weight_decay": settings.weight_decay}
    vectors = {"params": [p for p in by_adamw if p.dim() < 2], "weight_decay": 0.0}
    betas = settings.adam_beta1, settings.adam_beta2
    adamw = torch.optim.AdamW([matrices, vectors], settings.lr, betas, eps=1e-9, fused=True)
    if not by_muon:
        return [adamw]
    return [adamw, Muon(by_muon.items(), settings.lr, settings.weight_decay)]
