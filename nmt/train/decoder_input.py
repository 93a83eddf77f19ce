"""The decoder's input in training: the true tokens (teacher forcing), or some predictions among them.

With teacher forcing, the decoder never reads the model's mistakes; in translation, it does. Scheduled sampling
(Bengio et al. 2015) replaces some true tokens by the predictions of a first pass over the true tokens (Mihaylova and
Martins 2019).
"""

import torch
from torch import Tensor

from nmt.model.base import Seq2Seq
from nmt.seeds import seed_of
from nmt.text import EOS, PAD
from nmt.text.batches import Batch


@torch.no_grad()
def decoder_input(model: Seq2Seq, batch: Batch, prediction_rate: float, seed: int) -> Tensor:
    """Return a batch's `tgt_in` with some tokens replaced by the model's predictions.

    Predictions are the most probable tokens that are not special, without dropout, as in decoding. The only random
    choice is which tokens are replaced, each with probability `prediction_rate`. It is seeded per sentence, so it does
    not depend on ranks or micro-batches.
    """
    if prediction_rate == 0 or not batch.lines:  # a rank or replica without sentences contributes no loss
        return batch.tgt_in

    # 1. Which tokens are replaced: (B, T), one generator per sentence.
    n_tokens = batch.tgt_in.size(1)
    draws = []
    for line in batch.lines:
        generator = torch.Generator().manual_seed(seed_of(seed, line))
        draws.append(torch.rand(n_tokens, generator=generator))
    probabilities = torch.stack(draws).to(batch.tgt_in.device)
    replaced = probabilities < prediction_rate
    replaced &= batch.tgt_in != PAD
    replaced[:, 0] = False  # BOS

    # 2. What the model predicts.
    was_training = model.training
    model.eval()
    try:
        logits = model(batch.src, batch.tgt_in)  # (B, T, V)
    finally:  # also after an out-of-memory error: the step is then repeated
        model.train(was_training)
    first_word = EOS + 1  # special tokens come before
    predicted = logits[..., first_word:].argmax(-1) + first_word  # (B, T), of the next position
    return torch.where(replaced, predicted.roll(1, 1), batch.tgt_in)
