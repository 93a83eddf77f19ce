"""The optimizers: Muon for the matrices of the layers, AdamW for embeddings, biases and norms.

A few directions, which most tokens share, dominate the gradient of a layer's matrix. Muon (Jordan et al. 2024) replaces
the update M = U S V^T by U V^T. So rare directions are learned as fast as frequent directions.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.model.base import Seq2Seq, n_stacked

# The coefficients (a, b, c) of each iteration of `orthogonalize`, which maps a singular value s to a·s + b·s³ + c·s⁵.
# Each polynomial brings the singular values that reach it as close to 1 as possible, if they are between 0.01 and 1
# before the first iteration (Amsel et al. 2025). Jordan et al. (2024) repeat one polynomial five times.
COEFFICIENTS = (8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526)
MOMENTUM = 0.95
# Root mean square of an update at learning rate 1. AdamW has about the same, so both can share a learning rate.
UPDATE_RMS = 0.2


def orthogonalize(x: Tensor) -> Tensor:
    """Return an approximation of U V^T for each matrix U S V^T, by Newton-Schulz iterations.

    Args:
        x: (matrices, rows, columns), with rows <= columns.
    Returns:
        Matrices of the same shape. Singular values are 0.7 to 1.3 instead of 1, and less if they are below 0.01 of the
        norm of the matrix. A matrix of zeros stays zero.
    """
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)  # singular values are now at most 1
    # Each iteration computes x = a·x + (b·G + c·G²)·x, where G = x·x^T.
    for a, b, c in COEFFICIENTS:
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum and orthogonalized updates.

    The update rule is that of `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`. Matrices of the same shape are
    orthogonalized together.

    Args:
        params: weights, each with the number of matrices that are stacked in its rows (see `n_stacked`).
        lr: learning rate, on the scale of AdamW (Liu et al. 2025, section 2.2).
        weight_decay: coefficient of decoupled weight decay, as in AdamW.
    """

    def __init__(self, params: Iterable[tuple[Tensor, int]], lr: float, weight_decay: float) -> None:
        self.n_stacked = dict(params)
        super().__init__([*self.n_stacked], {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002 - torch may pass it
        (group,) = self.param_groups
        lr = group["lr"]
        weights = [p for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in weights]

        # 1. Update the momentum, and decay the weights.
        for p in weights:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momentum = [self.state[p]["momentum"] for p in weights]
        torch._foreach_lerp_(momentum, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momentum, MOMENTUM)  # Nesterov momentum
        torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])

        # 2. Group matrices and their updates by shape. Transpose matrices with more rows than columns.
        matrices = defaultdict[torch.Size, list[Tensor]](list)
        updates_of = defaultdict[torch.Size, list[Tensor]](list)
        for weight, update in zip(weights, updates, strict=True):
            n = self.n_stacked[weight]
            for matrix, x in zip(weight.chunk(n), update.chunk(n), strict=True):
                if len(matrix) > matrix.size(1):
                    matrix, x = matrix.mT, x.mT
                matrices[matrix.shape].append(matrix)
                updates_of[matrix.shape].append(x)

        # 3. Update the weights. The elements of an orthogonal matrix with D columns have the root mean square 1 / √D.
        for shape, alike in matrices.items():
            directions = orthogonalize(torch.stack(updates_of[shape])).float()
            scale = UPDATE_RMS * shape[1] ** 0.5
            torch._foreach_add_(alike, directions.unbind(), alpha=-lr * scale)


# Names of the tensors that each optimizer keeps for a parameter.
STATE: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}


def make_optimizers(model: Seq2Seq, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Return the optimizers of the trained parameters of a model.

    With `train.optimizer=muon`, Muon updates the weights of the linear layers, and AdamW updates all other parameters.
    Embeddings and projection belong to AdamW, because each of their rows stands for one piece. Weight decay applies to
    matrices only.
    """
    # 1. Collect the weights for Muon, each with the number of matrices that are stacked in it.
    by_muon: dict[Tensor, int] = {}
    if settings.optimizer == "muon":
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and name != "projection" and module.weight.requires_grad:
                by_muon[module.weight] = n_stacked(name)

    # 2. Collect the parameters that AdamW updates.
    by_adamw = [p for p in model.parameters() if p.requires_grad and p not in by_muon]
    matrices = {"params": [p for p in by_adamw if p.dim() >= 2], "weight_decay": settings.weight_decay}
    vectors = {"params": [p for p in by_adamw if p.dim() < 2], "weight_decay": 0.0}
    betas = settings.adam_beta1, settings.adam_beta2
    adamw = torch.optim.AdamW([matrices, vectors], settings.lr, betas, eps=1e-9, fused=True)
    if not by_muon:
        return [adamw]
    return [adamw, Muon(by_muon.items(), settings.lr, settings.weight_decay)]
