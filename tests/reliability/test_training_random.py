"""The gradient of a step is that of its sentences, each alone, on random models and settings."""

import copy
import random
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from conftest import soak
from models import FAMILY, RNNS, TRANSFORMERS, make
from torch import Tensor

from nmt.config import TrainSettings
from nmt.model.base import PART_OF, Seq2Seq
from nmt.text import BOS, EOS
from nmt.text.batches import Batch, collate, pad_source
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepFigures, StepOptions, train_step

LR = 0.01


class TokenPair(NamedTuple):
    source: list[int]
    target: list[int]


def random_model(seed: int, rng: random.Random) -> Seq2Seq:
    """A model of any kind, in part frozen."""
    common = FAMILY[seed % len(FAMILY)]
    choices = dict(rng.choice([common, *TRANSFORMERS, *RNNS]))
    choices["n_encoder_layers"] = choices["n_decoder_layers"] = rng.choice([1, 2])
    if "cell" not in choices:  # a Transformer
        choices["n_decoder_layers"] = rng.choice([1, 2])
        choices["projection_bias"] = rng.random() < 0.3
    n_target = rng.choice([7, 23, 150])
    is_shared = choices.get("tied_embeddings", "all") == "all"
    n_source = n_target if is_shared else rng.choice([9, 23])
    model = make(seed, n_target, n_source, **choices)
    parts = sorted(set(PART_OF.values()) - {"decoder"})
    n_frozen = rng.choice([0, 0, 1, 2])
    model.freeze(rng.sample(parts, n_frozen))
    return model.train()


def random_pairs(model: Seq2Seq, rng: random.Random) -> list[TokenPair]:
    def sentence(embedding: torch.nn.Embedding) -> list[int]:
        length = rng.choice([0, 1, 2, 5, 9])
        return rng.choices(range(EOS + 1, embedding.num_embeddings), k=length)

    pairs = []
    for _ in range(rng.randint(1, 9)):
        source = sentence(model.source_embedding)
        target = sentence(model.target_embedding)
        pairs.append(TokenPair(source, target))
    return pairs


def micro_batches(pairs: list[TokenPair], size: int) -> list[Batch]:
    batches = []
    for start in range(0, len(pairs), size):
        sources, targets = zip(*pairs[start : start + size], strict=True)
        batches.append(collate(sources, targets, range(len(sources))))
    return batches


def random_settings(rng: random.Random) -> TrainSettings:
    loss = {"label_smoothing": rng.choice([0.0, 0.1, 0.5]), "clip_norm": rng.choice([0, 0.01, 1.0])}
    loss["softmax_share"] = rng.choice([1.0, 0.999])  # 0.999 of so few pieces are all pieces
    update = {"optimizer": rng.choice(["muon", "adamw"]), "weight_decay": rng.choice([0, 0.1])}
    return TrainSettings.model_validate(loss | update)


def loss_alone(model: Seq2Seq, pair: TokenPair, smoothing: float) -> Tensor:
    """The loss of a sentence without padding, summed over its target tokens."""
    tgt_in = torch.tensor([BOS, *pair.target])
    tgt_out = torch.tensor([*pair.target, EOS])
    logits = model(pad_source([pair.source]), tgt_in[None])[0]  # (T, V)
    return F.cross_entropy(logits, tgt_out, label_smoothing=smoothing, reduction="sum")


def gradient_alone(model: Seq2Seq, pairs: list[TokenPair], smoothing: float) -> dict[str, Tensor]:
    """The gradient of the mean loss per target token, one sentence after the other; frozen parameters have none."""
    losses = [loss_alone(model, pair, smoothing) for pair in pairs]
    n_tokens = sum(len(pair.target) + 1 for pair in pairs)  # EOS counted
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    mean = torch.stack(losses).sum() / n_tokens
    gradients = torch.autograd.grad(mean, [*parameters.values()], materialize_grads=True)
    return dict(zip(parameters, gradients, strict=True))


def step_on(model: Seq2Seq, batches: list[Batch], settings: TrainSettings, n_replicas: int) -> StepFigures:
    replicas = Replicas(model, n_replicas)
    optimizers = make_optimizers(model, settings)
    figures = train_step(replicas, optimizers, batches, StepOptions(settings, lr=LR, seed=1))
    replicas.close()
    return figures


def update_by_gradients(model: Seq2Seq, gradients: list[Tensor | None], settings: TrainSettings) -> None:
    """Update a model whose parameters have these gradients; tests/train/test_optimizer.py tests the optimizers."""
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    for optimizer in make_optimizers(model, settings):
        for group in optimizer.param_groups:
            group["lr"] = LR
        optimizer.step()


@pytest.mark.parametrize("seed", range(soak(6, 300)))
def test_a_step_has_the_gradient_of_its_sentences(seed: int) -> None:
    # 1. A model, sentences, and their gradient, clipped.
    rng = random.Random(seed)
    model = random_model(seed, rng)
    settings = random_settings(rng)
    pairs = random_pairs(model, rng)
    expected = gradient_alone(model, pairs, settings.label_smoothing)
    norm = float(torch.nn.utils.get_total_norm(expected.values()))
    factor = 1.0
    if settings.clip_norm:
        factor = min(settings.clip_norm / (norm + 1e-6), 1.0)

    # 2. A step.
    updated = copy.deepcopy(model)
    batches = micro_batches(pairs, size=rng.randint(1, len(pairs)))
    figures = step_on(model, batches, settings, n_replicas=rng.choice([1, 2, 3]))

    # 3. Its norm, its gradient, its update.
    assert figures.grad_norm == pytest.approx(norm, rel=1e-7)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(gradient, expected[name] * factor, rtol=1e-6, atol=1e-10, msg=name)
        else:
            assert parameter.grad is None, name
    gradients = [parameter.grad for parameter in model.parameters()]
    update_by_gradients(updated, gradients, settings)
    for name, weights in updated.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weights, msg=name)
