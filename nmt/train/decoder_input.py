"""What the decoder reads in training: the true words (teacher forcing), some of its own, or its own alone.

In translation a model reads its own words, mistakes among them, which teacher forcing never shows it. Scheduled
sampling (Bengio et al. 2015) shows it some, here in two parallel passes (Mihaylova and Martins 2019): what a first
pass over the true words takes for the next one stands in their place in the second, which learns. Free running
shows it what it writes by itself, to the length of the reference.

Knows a model's `forward`, `start` and `step`, no architecture.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nmt.model.base import Seq2Seq
from nmt.seeds import seed_of
from nmt.text import EOS, PAD
from nmt.text.batches import Batch


@torch.no_grad()
def decoder_input(model: Seq2Seq, batch: Batch, *, own_words: float, free: bool, seed: int) -> Tensor:
    """A batch's `tgt_in` with some of its words replaced by those that the model would write there.

    These are the words of decoding: without dropout, the likeliest, none of them special. So nothing is drawn but
    which are replaced, and dropout is that of teacher forcing with the same seed. That is drawn for each sentence
    by itself: however the batch is cut among ranks and micro-batches, the same words are.

    Args:
        model: in any mode.
        batch: on the model's device.
        own_words: how likely a word is replaced, 0-1.
        free: own words follow own words; else each follows the true ones.
        seed: a function of the run's seed and the step.
    Returns:
        (B, T) int64: BOS first, and PAD where it was.
    """
    if own_words == 0 or not batch.lines:  # of a part without a sentence nothing is learnt
        return batch.tgt_in
    n_words = batch.tgt_in.size(1)
    draws = [torch.rand(n_words, generator=_generator(seed_of(seed, line))) for line in batch.lines]
    replaced = torch.stack(draws).to(batch.tgt_in.device) < own_words
    replaced &= batch.tgt_in != PAD
    replaced[:, 0] = False  # BOS
    with _evaluating(model):
        own = _written(model, batch) if free else _predicted(model, batch)
    return torch.where(replaced, own, batch.tgt_in)


def _predicted(model: Seq2Seq, batch: Batch) -> Tensor:
    """For each position the word that the model takes for the next one after the true ones before it: (B, T)."""
    real = batch.tgt_out != PAD
    words = torch.zeros_like(batch.tgt_out)
    words[real] = _likeliest(model(batch.src, batch.tgt_in, real))  # those of tgt_out, one to the left of tgt_in
    return torch.cat([batch.tgt_in[:, :1], words[:, :-1]], 1)


def _written(model: Seq2Seq, batch: Batch) -> Tensor:
    """What the model writes greedily, as many words as the reference has: (B, T), BOS first.

    In the weights' own precision, as in translation.
    """
    words = [batch.tgt_in[:, :1]]
    with torch.autocast(batch.src.device.type, enabled=False):
        state = model.start(batch.src)
        while len(words) < batch.tgt_in.size(1):
            logits, state = model.step(words[-1], state)  # (B, 1, V)
            words.append(_likeliest(logits))
    return torch.cat(words, 1)


def _likeliest(logits: Tensor) -> Tensor:
    """(…, V) to (…): the likeliest word; special ids are none, for decoding never reads them."""
    return logits[..., EOS + 1 :].argmax(-1) + EOS + 1


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; then as it was, also where memory does not hold the pass and the step begins again."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
