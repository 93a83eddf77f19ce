"""The decoder's input in training: the true tokens (teacher forcing), or a mixture of true and predicted tokens.

In translation, the decoder reads its own predictions, which may be wrong. Scheduled sampling (Bengio et al. 2015)
prepares the decoder for this: predictions replace some true tokens in training. One pass over the true tokens computes
all predictions (Mihaylova and Martins 2019).
"""

import torch
from torch import Tensor

from nmt.model.base import Seq2Seq
from nmt.seeds import seed_of
from nmt.text import EOS, PAD
from nmt.text.batches import Batch


@torch.no_grad()
def decoder_input(model: Seq2Seq, batch: Batch, prediction_rate: float, seed: int) -> Tensor:
    """Return the `tgt_in` of a batch, with some tokens replaced by predictions of the model.

    Each token is replaced with probability `prediction_rate`. A prediction is the most probable token that is not
    special. The model predicts without dropout. The choice is seeded per sentence, so it does not depend on ranks and
    micro-batches.
    """
    if prediction_rate == 0 or not batch.lines:  # a dummy batch has no lines
        return batch.tgt_in

    # 1. Choose the tokens that are replaced, with one random generator per sentence.
    draws = []
    for line in batch.lines:
        generator = torch.Generator().manual_seed(seed_of(seed, line))
        draws.append(torch.rand(batch.tgt_in.size(1), generator=generator))
    replaced = torch.stack(draws).to(batch.tgt_in.device) < prediction_rate  # (B, T)
    replaced &= batch.tgt_in != PAD
    replaced[:, 0] = False  # BOS is never replaced

    # 2. Predict all tokens, and replace the chosen tokens by predictions.
    was_training = model.training
    model.eval()
    try:
        logits = model(batch.src, batch.tgt_in)  # (B, T, V)
    finally:  # needed if memory runs out and the step is repeated
        model.train(was_training)
    first_word = EOS + 1  # special tokens have the ids up to EOS
    # `predicted` is (B, T). The prediction at position t is for position t + 1 of `tgt_in`.
    predicted = logits[..., first_word:].argmax(-1) + first_word
    return torch.where(replaced, predicted.roll(1, 1), batch.tgt_in)
