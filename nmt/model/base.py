"""The base class of all models, with the embeddings and the output projection.

Training calls `forward`. The search calls the model's incremental decoder, see `incremental.py`.
"""

import abc
import math
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.errors import ConfigError
from nmt.model.kernels import Dropout, Linear
from nmt.text import BOS

PART_OF = {  # first component of a parameter's name -> its part of the model, as in train.freeze
    "source_embedding": "embeddings",
    "target_embedding": "embeddings",
    "source_positions": "embeddings",
    "target_positions": "embeddings",
    "encoder": "encoder",
    "encoder_norm": "encoder",
    "decoder": "decoder",
    "decoder_norm": "decoder",
    "look": "decoder",  # the attention of recurrent models
    "projection": "output",
}


class AttentionWeights(NamedTuple):
    """The attention weights of L layers and H heads. Each row sums to 1.

    L is 0 for a kind of attention that the model lacks.
    """

    encoder: Tensor  # (L, B, H, S, S)
    decoder: Tensor  # (L, B, H, T, T)
    cross: Tensor  # (L, B, H, T, S)


def n_stacked(layer: str) -> int:
    """Return how many matrices are stacked in the weight of a linear layer."""
    if layer.endswith("query_key_value"):
        return 3
    return 2 if layer.endswith("key_value") else 1


class Seq2Seq(nn.Module, abc.ABC):
    """A model that predicts the next target token from the source and the previous target tokens.

    The model masks source padding. Target padding needs no mask, because it is at the end. If the embeddings of both
    sides are tied, both vocabularies must have the same size.
    """

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__()
        self.settings = settings
        d_model = settings.d_model
        self.source_embedding = nn.Embedding(n_source_vocab, d_model)
        self.target_embedding = self.source_embedding
        if settings.tied_embeddings != "all":
            self.target_embedding = nn.Embedding(n_target_vocab, d_model)
        self.projection = Linear(d_model, n_target_vocab, bias=settings.projection_bias)
        self.dropout = Dropout(settings.dropout)

    def reset_parameters(self) -> None:
        """Initialize matrices with Xavier's method, biases with 0, and embeddings with variance 1/D.

        With tied embeddings, the projection shares the matrix of the target embedding.
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                matrices = module.weight.chunk(n_stacked(name))
                for matrix in matrices:
                    nn.init.xavier_uniform_(matrix)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.settings.d_model**-0.5)
        if self.settings.tied_embeddings != "none":
            self.projection.weight = self.target_embedding.weight

    def freeze(self, parts: Collection[str]) -> None:
        """Freeze the given parts of the model, see `PART_OF`. Raises ConfigError if nothing is left to train.

        If two parts share a matrix, freezing one part freezes the matrix.
        """
        for name, parameter in self.named_parameters(remove_duplicate=False):
            first, _, _ = name.partition(".")
            if PART_OF[first] in parts:
                parameter.requires_grad_(False)
        if not self.n_trainable:
            raise ConfigError("train.freeze leaves nothing to train", hint="leave out one of its parts")

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of a source or target sequence."""
        return self.settings.max_positions

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def n_parameters(self) -> int:
        """The number of weights. Tied weights count once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def n_trainable(self) -> int:
        """The number of weights that are not frozen."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def scaled_embedding(self, tokens: Tensor, embedding: nn.Module) -> Tensor:
        """Return the embeddings (B, T, D) of token ids (B, T), times sqrt(D) (Vaswani et al. 2017, section 3.4).

        With model.start=zero, the vector of BOS is 0.
        """
        out: Tensor = embedding(tokens) * math.sqrt(self.settings.d_model)
        if self.settings.start == "zero":
            is_start = (tokens == BOS)[..., None]  # (B, T, 1)
            out = out.masked_fill(is_start, 0)
        return out

    def forward(
        self, src: Tensor, tgt_in: Tensor, is_token: Tensor | None = None, pieces: Tensor | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) of the next token at every target position.

        Args:
            src: (B, S) source ids.
            tgt_in: (B, T) target ids, BOS first.
            is_token: (B, T) bool. If given, only its N True positions are projected, and the result is (N, V).
            pieces: (K,) target ids. If given, only their logits are computed, and K replaces V.
        """
        hidden = self.hidden(src, tgt_in)
        if is_token is not None:
            hidden = hidden[is_token]  # (N, D)
        logits: Tensor = self.projection(hidden, pieces)
        return logits

    @abc.abstractmethod
    def hidden(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Run the model with teacher forcing. Return the input of the projection, (B, T, D)."""

    @abc.abstractmethod
    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Return the attention weights of a teacher-forced pass. The model must be in eval mode."""
