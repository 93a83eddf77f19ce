"""The loss, compared with its formula and with torch's cross entropy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nmt.train import loss
from nmt.train.loss import smoothed_cross_entropy


def example(n: int = 6, vocab: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(n, vocab, dtype=torch.float64, generator=generator, requires_grad=True)
    return logits, torch.randint(0, vocab, (n,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk", [1, 22, 10_000])
def test_equals_torch_and_the_formula_by_hand(smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk)  # chunks of one row, of two rows, and of all rows
    logits, targets = example()
    found = smoothed_cross_entropy(logits, targets, smoothing=smoothing)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(found.loss, theirs)
    z = logits.detach().numpy()
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    wanted = np.full_like(z, smoothing / z.shape[1])
    wanted[np.arange(len(z)), targets] += 1 - smoothing
    assert float(found.loss.detach()) == pytest.approx(-(wanted * log_p).sum())
    assert float(found.nll) == pytest.approx(-log_p[np.arange(len(z)), targets].sum())
    assert found.n_tokens == 6
    (ours,) = torch.autograd.grad(found.loss / 3, logits)
    torch.testing.assert_close(ours, torch.autograd.grad(theirs / 3, logits)[0])


def test_half_precision_logits_are_reduced_in_float32() -> None:
    logits, targets = example(200, 1000)
    exact = smoothed_cross_entropy(logits.bfloat16().double(), targets, smoothing=0.1)
    found = smoothed_cross_entropy(logits.bfloat16(), targets, smoothing=0.1)
    assert found.loss.dtype == torch.float32
    torch.testing.assert_close(found.loss.double(), exact.loss, rtol=1e-5, atol=0)


def test_no_targets_have_no_loss_and_no_gradient() -> None:
    """The share of a rank may be empty, but the rank still takes part in the backward pass."""
    logits, targets = example()
    found = smoothed_cross_entropy(logits[:0], targets[:0], smoothing=0.1)
    assert float(found.loss.detach()) == float(found.nll) == 0
    (gradient,) = torch.autograd.grad(found.loss, logits)
    assert (gradient == 0).all()


def test_shapes_that_disagree_are_refused() -> None:
    logits, targets = example()
    with pytest.raises(ValueError, match=r"\(6, 11\) logits for \(5,\) targets"):
        smoothed_cross_entropy(logits, targets[:5], smoothing=0.1)
