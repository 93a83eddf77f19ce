"""The gradient of a step is that of its sentences, each alone, on random models, cuts, replicas and settings."""

import math
import random
from typing import Any

import pytest
import torch
from conftest import soak
from models import FAMILY, RNNS, TRANSFORMERS, make
from torch import Tensor

from nmt.config import TrainSettings
from nmt.model.base import PART_OF, Seq2Seq, n_stacked
from nmt.text import BOS, EOS
from nmt.text.batches import collate, pad_source
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

Pair = tuple[list[int], list[int]]


def gradient_alone(model: Seq2Seq, pairs: list[Pair], smoothing: float) -> dict[str, Tensor]:
    """The gradient of the mean loss per target token, one sentence after the other, without padding."""
    total = torch.zeros(())
    for source, target in pairs:
        log_probs = model(pad_source([source]), torch.tensor([[BOS, *target]]))[0].log_softmax(-1)  # (T + 1, V)
        of_target = log_probs[range(len(target) + 1), [*target, EOS]].sum()
        total = total - (1 - smoothing) * of_target - smoothing * log_probs.mean(-1).sum()
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    mean = total / sum(len(target) + 1 for _, target in pairs)
    return dict(zip(names, torch.autograd.grad(mean, [*names.values()], materialize_grads=True), strict=True))


def random_model(seed: int, rng: random.Random) -> Seq2Seq:
    choices: dict[str, Any] = dict(
        FAMILY[seed % len(FAMILY)] if rng.random() < 0.5 else rng.choice(TRANSFORMERS + RNNS)
    )
    layers = rng.choice([1, 2])
    choices |= {"n_encoder_layers": layers, "n_decoder_layers": layers if "cell" in choices else rng.choice([1, 2])}
    choices |= {"projection_bias": rng.random() < 0.3} if "cell" not in choices else {}
    n_target = rng.choice([7, 23, 150])
    n_source = n_target if choices.get("tied_embeddings", "all") == "all" else rng.choice([9, 23])
    model = make(seed, n_target, n_source, **choices).train()
    model.freeze(rng.choice([[], rng.sample(sorted({*PART_OF.values()} - {"decoder"}), rng.choice([1, 2]))]))
    return model


@pytest.mark.parametrize("seed", range(soak(6, 300)))
def test_a_step_has_the_gradient_of_its_sentences(seed: int) -> None:
    rng = random.Random(seed)
    model = random_model(seed, rng)
    sizes = model.source_embedding.num_embeddings, model.target_embedding.num_embeddings

    def sentence(n: int) -> list[int]:
        return rng.choices(range(EOS + 1, n), k=rng.choice([0, 1, 2, 5, 9]))

    pairs: list[Pair] = [(sentence(sizes[0]), sentence(sizes[1])) for _ in range(rng.randint(1, 9))]
    cuts = sorted(rng.choices(range(1, len(pairs)), k=rng.choice([0, 1, 3]))) if len(pairs) > 1 else []
    parts = [pairs[a:b] for a, b in zip([0, *cuts], [*cuts, len(pairs)], strict=True) if a < b]
    batches = [collate([one for one, _ in part], [two for _, two in part], range(len(part))) for part in parts]
    smoothing, clip = rng.choice([0.0, 0.1, 0.5]), rng.choice([0, 0.01, 1.0])
    kinds: dict[str, Any] = {"optimizer": rng.choice(["muon", "adamw"]), "weight_decay": rng.choice([0, 0.1])}
    settings = TrainSettings(label_smoothing=smoothing, clip_norm=clip, **kinds)
    expected = gradient_alone(model, pairs, smoothing)
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected.values()))
    factor = min(clip / (norm + 1e-6), 1.0) if clip else 1.0
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    replicas, optimizers = Replicas(model.train(), rng.choice([1, 2, 3])), make_optimizers(model, settings)
    figures = train_step(replicas, optimizers, batches, StepOptions(settings, lr=0.01, seed=1))
    replicas.close()

    assert figures.grad_norm == pytest.approx(norm, rel=1e-7)
    by_adamw = {id(p) for group in optimizers[0].param_groups for p in group["params"]}
    for name, p in model.named_parameters():
        if not p.requires_grad:
            assert p.grad is None, name
            assert torch.equal(p, before[name]), name
            continue
        gradient = expected[name] * factor
        found = torch.zeros_like(p) if p.grad is None else p.grad
        assert torch.allclose(found, gradient, rtol=1e-6, atol=1e-10), name
        if id(p) in by_adamw and p.grad is not None:  # the first step of AdamW moves each weight by the rate
            decay = settings.weight_decay if p.dim() > 1 else 0.0
            moved = before[name] * (1 - 0.01 * decay) - 0.01 * found / (found.abs() + 1e-9)
            torch.testing.assert_close(p.detach(), moved, rtol=1e-6, atol=1e-9)
        elif p.grad is not None:  # Muon's update is U f(S) V^T of the gradient U S V^T, which has the same directions
            step = before[name] * (1 - 0.01 * settings.weight_decay) - p.detach()
            n = n_stacked(name.removesuffix(".weight"))
            for update, of in zip(step.chunk(n), found.chunk(n), strict=True):
                product = update @ of.mT
                torch.testing.assert_close(product, product.mT, rtol=1e-4, atol=1e-5 * float(product.abs().max()))
