"""Do fifty float64 steps without dropout on random pairs; the first rank prints the losses. Run by a test.

In every other step the decoder reads its own prediction instead of a true token with probability 0.5.
"""

import json

import torch

from nmt.config import ModelSettings, TrainSettings
from nmt.distributed import gather_items, mine, parallel, rank, ranks_joined, summed
from nmt.model.transformer import Transformer
from nmt.text.batches import Batch, collate
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step


def made_up_batch(step: int, n_pairs: int) -> Batch:
    """Pairs of random ids and lengths, the same for all ranks."""
    random = torch.Generator().manual_seed(step)
    sides = [
        torch.randint(4, 40, (int(torch.randint(1, 9, (), generator=random)),), generator=random).tolist()
        for _ in range(2 * n_pairs)
    ]
    return collate(sides[:n_pairs], sides[n_pairs:], list(range(n_pairs)))


def main() -> None:
    settings = TrainSettings(lr=3e-3, decoder_input="scheduled_sampling")
    torch.manual_seed(1)
    sizes = ModelSettings(d_model=16, d_ff=32, n_encoder_layers=1, n_decoder_layers=1, dropout=0.0)
    model = Transformer(sizes, 40, 40).double().train()
    optimizers = make_optimizers(model, settings)
    losses: list[float] = []
    texts = ["", "über", "漢" * 999, "a\n", "b"]
    with ranks_joined():
        assert gather_items(mine(texts)) == texts
        replicas = Replicas(parallel(model))
        for step in range(50):
            batches = [made_up_batch(step, 7), made_up_batch(1000 + step, 1), made_up_batch(2000 + step, 3)]
            batches = batches[: 1 + step % 3]  # the second has fewer rows than there are ranks
            prediction_rate = step % 2 / 2
            figures = train_step(
                replicas,
                optimizers,
                batches,
                StepOptions(settings, lr=3e-3, seed=step, bf16=False, prediction_rate=prediction_rate),
            )
            losses += summed(figures.loss)
        if rank() == 0:
            print(json.dumps(losses))


if __name__ == "__main__":
    main()
