"""Small models of every architecture, with each of its choices, and batches for them."""

import itertools
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelSettings
from nmt.decode.search import IncrementalDecoder
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS, PAD

V = 23
SIZES = {
    "d_model": 16,
    "d_ff": 24,
    "n_heads": 4,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "max_positions": 32,
}

TRANSFORMERS: list[dict[str, Any]] = [
    {"norm": norm, "activation": activation, "positions": positions, "tied_embeddings": tied}
    for norm, activation, positions, tied in itertools.product(
        ("pre", "post"), ("relu", "gelu"), ("sinusoidal", "learned"), ("all", "decoder", "none")
    )
]
RNNS: list[dict[str, Any]] = [
    {"architecture": "rnn", "cell": cell, "attention": attention, "tied_embeddings": tied}
    for cell, attention, tied in [
        ("lstm", "none", "all"),
        ("gru", "none", "decoder"),
        ("gru", "dot", "all"),
        ("lstm", "additive", "none"),
        ("lstm", "general", "all"),
        ("gru", "additive", "decoder"),
        ("gru", "scaled_dot", "all"),
    ]
]
RUNGS: list[dict[str, Any]] = [
    {"attention": "additive"},
    {"attention": "dot"},
    {"positions": "rotary"},
    {"positions": "none"},
    {"attention_window": 2},
    {"attention_window": 1, "positions": "rotary"},
    {"attention_window": 3, "positions": "learned", "norm": "post"},
]
FAMILY = [TRANSFORMERS[0], TRANSFORMERS[-1], *RUNGS, *RNNS]


def name(choices: dict[str, Any]) -> str:
    """For pytest's `ids`."""
    return " ".join(f"{value}" for value in choices.values())


def make(
    seed: int = 1, n_target_vocab: int = V, n_source_vocab: int = V, scale: float = 1.0, **choices: Any
) -> Seq2Seq:
    """A small model with random weights, biases and norms, in float64, where any leak shows.

    Args:
        seed: of the weights.
        n_target_vocab, n_source_vocab: pieces of each side.
        scale: what weights are multiplied with; more makes sentences differ more.
        choices: of the model's settings.
    """
    torch.manual_seed(seed)
    model = fresh(n_target_vocab, n_source_vocab, **choices).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter)).mul_(scale)
    return model


def fresh(n_target_vocab: int = V, n_source_vocab: int = V, **choices: Any) -> Seq2Seq:
    """A small model as training would begin with it, in eval mode."""
    settings = ModelSettings(**SIZES | {"dropout": 0.0} | choices)
    kind = RecurrentModel if settings.architecture == "rnn" else Transformer
    return kind(settings, n_source_vocab, n_target_vocab).eval()


def batch(*lengths: tuple[int, int], seed: int = 2) -> tuple[Tensor, Tensor]:
    """Random source and target ids of the given lengths, padded."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.full((len(lengths), max(s for s, _ in lengths)), PAD)
    tgt = torch.full((len(lengths), max(t for _, t in lengths)), PAD)
    for row, (s, t) in enumerate(lengths):
        src[row, : s - 1] = torch.randint(4, V, (s - 1,), generator=generator)
        src[row, s - 1] = EOS
        tgt[row, 1:t] = torch.randint(4, V, (t - 1,), generator=generator)
        tgt[row, 0] = BOS
    return src, tgt


def logits_of_steps(decoder: IncrementalDecoder[Any], src: Tensor, tgt: Tensor, n_beams: int) -> list[Tensor]:
    """Logits (B, K, V) of each step, where all beams of a sentence read the same tokens."""
    state = decoder.select(decoder.start(src), torch.arange(len(src))[:, None].expand(-1, n_beams))
    found = []
    for t in range(tgt.size(1)):
        logits, state = decoder.step(tgt[:, t : t + 1].expand(-1, n_beams), state)
        found.append(logits)
    return found
