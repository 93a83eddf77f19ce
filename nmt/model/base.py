"""The interface of all models, and the embeddings and projection that they share.

Training calls `forward`; search calls the model's decoder, see `incremental.py`.
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

PART_OF = {  # first component of a parameter's name -> name of the model part in train.freeze
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
    """Attention weights of all L layers and H heads; rows sum to 1. L is 0 for a kind of attention the model lacks."""

    encoder: Tensor  # (L, B, H, S, S)
    decoder: Tensor  # (L, B, H, T, T)
    cross: Tensor  # (L, B, H, T, S)


def n_stacked(layer: str) -> int:
    """Return the number of matrices that are stacked in the weight of a linear layer, by its name."""
    if layer.endswith("query_key_value"):
        return 3
    return 2 if layer.endswith("key_value") else 1


class Seq2Seq(nn.Module, abc.ABC):
    """A model of the next target token, given the source and the target so far.

    Masks are computed inside from `src != PAD`. Target padding is at the end, where no real position attends to it.
    Both vocabularies have the same size if the embeddings of both sides are tied.
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
        """Initialize: Xavier for matrices, 0 for biases, variance 1/D for embeddings. Then tie the projection."""
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
        """Freeze parts of the model (values of `PART_OF`). A matrix shared by two parts is frozen with either of them.

        Raises ConfigError if no parameter is left to train.
        """
        for name, parameter in self.named_parameters(remove_duplicate=False):
            first, _, _ = name.partition(".")
            if PART_OF[first] in parts:
                parameter.requires_grad_(False)
        if not self.n_trainable:
            raise ConfigError("train.freeze leaves nothing to train", hint="leave out one of its parts")

    @property
    def max_length(self) -> int:
        """Return the maximum number of tokens of a source or target sequence."""
        return self.settings.max_positions

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def n_parameters(self) -> int:
        """Return the number of weights; tied weights count once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def n_trainable(self) -> int:
        """Return the number of weights that are not frozen."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def scaled_embedding(self, tokens: Tensor, embedding: nn.Module) -> Tensor:
        """Embed ids (B, T) and multiply by sqrt(D) (Vaswani et al. 2017, section 3.4): (B, T, D)."""
        out: Tensor = embedding(tokens) * math.sqrt(self.settings.d_model)
        return out

    def forward(self, src: Tensor, tgt_in: Tensor, is_token: Tensor | None = None) -> Tensor:
        """Return next-token logits (B, T, V) at every target position for src (B, S) and tgt_in (B, T), BOS first.

        With `is_token` (B, T) bool, return only its N True positions, (N, V): the projection is the largest matmul.
        """
        hidden = self.hidden(src, tgt_in)
        if is_token is not None:
            hidden = hidden[is_token]  # (N, D)
        logits: Tensor = self.projection(hidden)
        return logits

    @abc.abstractmethod
    def hidden(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the input of the projection (B, T, D) at every target position, given the true previous tokens."""

    @abc.abstractmethod
    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Return the attention weights of one teacher-forced pass in eval mode."""
