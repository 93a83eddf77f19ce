"""The loss, compared with torch's cross entropy."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.train import loss
from nmt.train.loss import sample_pieces, smoothed_cross_entropy


def example(n: int = 6, n_vocab: int = 11) -> tuple[Tensor, Tensor]:
    """Return logits and targets."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(n, n_vocab, dtype=torch.float64, generator=generator, requires_grad=True)
    return logits, torch.randint(0, n_vocab, (n,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk", [1, 22, 10_000])  # logits: one row, two rows, all rows
def test_it_equals_that_of_torch(smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch smooths by the same formula."""
    monkeypatch.setattr(loss, "CHUNK", chunk)
    logits, targets = example()
    found = smoothed_cross_entropy(logits, targets, smoothing=smoothing)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(found.loss, theirs)
    torch.testing.assert_close(found.nll, F.cross_entropy(logits, targets, reduction="sum"))
    assert found.n_tokens == 6
    # The gradient, too, if the loss is divided afterwards.
    (our_gradient,) = torch.autograd.grad(found.loss / 3, logits)
    (their_gradient,) = torch.autograd.grad(theirs / 3, logits)
    torch.testing.assert_close(our_gradient, their_gradient)


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
    assert found.loss.item() == found.nll.item() == 0
    (gradient,) = torch.autograd.grad(found.loss, logits)
    assert (gradient == 0).all()


def test_shapes_that_disagree_are_refused() -> None:
    logits, targets = example()
    with pytest.raises(ValueError, match=r"\(6, 11\) logits for \(5,\) targets"):
        smoothed_cross_entropy(logits, targets[:5], smoothing=0.1)


def test_a_sample_has_the_pieces_of_the_batch_and_stands_for_the_vocabulary() -> None:
    targets = torch.tensor([7, 3, 7, 90])
    pieces, weights, labels = sample_pieces(targets, 100, 0.2)
    assert pieces[:3].tolist() == [3, 7, 90]
    assert torch.equal(pieces[labels], targets)
    assert len(set(pieces.tolist())) == 20
    assert weights.tolist() == pytest.approx([1] * 3 + [97 / 17] * 17)


@pytest.mark.parametrize(("n_own", "share", "n_pieces"), [(8, 0.1, 12), (100, 0.5, 100), (0, 0.001, 1)])
def test_a_sample_has_other_pieces_too_if_there_are_any(n_own: int, share: float, n_pieces: int) -> None:
    assert len(sample_pieces(torch.arange(n_own), 100, share).pieces) == n_pieces


def test_the_loss_of_a_sample_has_the_gradient_that_autograd_finds() -> None:
    logits, targets = example()
    pieces, weights, labels = sample_pieces(targets, 11, 0.6)
    x = logits[:, pieces]
    log_probs = (x + weights.log()).log_softmax(1) - weights.log()  # of one of the pieces that each represents
    true = F.nll_loss(log_probs, labels, reduction="sum")
    uniform = -(log_probs @ weights.double()).sum() / 11
    losses = [smoothed_cross_entropy(x, labels, smoothing=0.1, weights=weights).loss, 0.9 * true + 0.1 * uniform]
    torch.testing.assert_close(*losses)
    gradients = [torch.autograd.grad(each, logits, retain_graph=True) for each in losses]
    torch.testing.assert_close(*gradients)


def test_the_sum_of_exponentials_is_estimated_without_bias() -> None:
    logits, targets = example(n_vocab=60)
    exponentials = logits[0].softmax(0).float()  # of logits shifted so that the sum is 1
    torch.manual_seed(1)
    total = 0.0
    for _ in range(3000):
        pieces, weights, _ = sample_pieces(targets, 60, 0.3)
        total += (weights @ exponentials[pieces]).item()
    assert total == pytest.approx(3000, rel=0.01)
