"""The decoder's input in training: the true tokens (teacher forcing), some predictions, or only predictions.

With teacher forcing, the decoder never reads the model's mistakes; in translation, it does. Scheduled sampling
(Bengio et al. 2015) replaces some true tokens by the predictions of a first pass over the true tokens (Mihaylova and
Martins 2019); free running replaces them by the model's greedy decoding, up to the length of the reference.
"""

import torch
from torch import Tensor

from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.seeds import seed_of
from nmt.text import EOS, PAD
from nmt.text.batches import Batch


@torch.no_grad()
def decoder_input(model: Seq2Seq, batch: Batch, *, prediction_rate: float, free: bool, seed: int) -> Tensor:
    """A batch's `tgt_in` with some tokens replaced by the model's predictions.

    Predictions are the most probable tokens that are not special, without dropout, as in decoding. The only random
    choice is which tokens are replaced. It is seeded per sentence, so it does not depend on ranks or micro-batches.

    Args:
        model: in any mode, which is restored at the end.
        prediction_rate: probability that a token is replaced, 0-1.
        free: whether predictions are conditioned on earlier predictions (free running) instead of the true tokens.
        seed: a function of the run's seed and the step.
    Returns:
        (B, T) int64: BOS first, PAD where `tgt_in` has it.
    """
    if prediction_rate == 0 or not batch.lines:  # a rank or thread without sentences contributes no loss
        return batch.tgt_in
    generators = [torch.Generator().manual_seed(seed_of(seed, line)) for line in batch.lines]
    draws = [torch.rand(batch.tgt_in.size(1), generator=generator) for generator in generators]
    replaced = torch.stack(draws).to(batch.tgt_in.device) < prediction_rate
    replaced &= batch.tgt_in != PAD
    replaced[:, 0] = False  # BOS
    was_training = model.training
    model.eval()
    try:
        predicted = free_running(model, batch) if free else _most_probable(model(batch.src, batch.tgt_in)).roll(1, 1)
    finally:  # also after an out-of-memory error: the step is then repeated
        model.train(was_training)
    return torch.where(replaced, predicted, batch.tgt_in)


def free_running(model: Seq2Seq, batch: Batch) -> Tensor:
    """(B, T), BOS first: greedy decoding to the length of the reference, in the weights' dtype as in translation."""
    tokens = [batch.tgt_in[:, :1]]
    decoder = incremental_decoder(model)
    with torch.autocast(batch.src.device.type, enabled=False):
        state = decoder.start(batch.src)
        while len(tokens) < batch.tgt_in.size(1):
            logits, state = decoder.step(tokens[-1], state)  # (B, 1, V)
            tokens.append(_most_probable(logits))
    return torch.cat(tokens, 1)


def _most_probable(logits: Tensor) -> Tensor:
    """(..., V) to (...): the most probable token that is not special; in decoding, special tokens are not fed back."""
    return logits[..., EOS + 1 :].argmax(-1) + EOS + 1
