"""What every model offers to training, search and evaluation, and the embeddings that all of them have.

    training     forward(src, tgt_in, real) -> logits
    search       start(src) -> state, step(ids, state) -> logits, state, select(state, rows) -> state
    figures      attention(src, tgt_in) -> who looked at what

Nothing outside this room knows which model it has.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.dropout import Dropout


class AttentionWeights(NamedTuple):
    """Who looked at what, for every layer L and head H; rows sum to 1.

    Where a model has no such attention there are no layers: L is 0.
    """

    encoder: Tensor  # (L, B, H, S, S)
    decoder: Tensor  # (L, B, H, T, T)
    cross: Tensor  # (L, B, H, T, S)


class ActivatedLinear(nn.Linear):
    """A linear layer and the non-linearity that follows it, which some products do along."""

    def __init__(self, n_in: int, n_out: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__(n_in, n_out)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(super().forward(x))


class Seq2Seq(nn.Module, abc.ABC):
    """A model of the target's next token, given the source and the target so far.

    Masks are made inside, from `src != PAD`. Padding of the target stands on the right, where no real position
    looks. The state of a search is the model's own affair, hence Any.

    Args:
        settings: sizes and choices.
        n_source_vocab, n_target_vocab: pieces a side; equal where the embeddings of both sides are tied.

    Attributes:
        cache_dtype: in which a search of several sentences may keep keys and values, whose way from memory is
            what attention waits for; for linear layers that read any precision. None is that of activations.
    """

    cache_dtype: torch.dtype | None = None

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__()
        self.settings = settings
        d_model, tied = settings.d_model, settings.tied_embeddings
        self.source_embedding = nn.Embedding(n_source_vocab, d_model)
        self.target_embedding = self.source_embedding if tied == "all" else nn.Embedding(n_target_vocab, d_model)
        self.projection = nn.Linear(d_model, n_target_vocab, bias=False)
        self.dropout = Dropout(settings.dropout)

    def reset_parameters(self) -> None:
        """Xavier for matrices, zero for biases; embeddings such that, scaled by sqrt(D), they are of unit size.

        Called once all layers are there; then the projection is tied.
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                n_matrices = {"key_value": 2, "query_key_value": 3}.get(name.rpartition(".")[2], 1)
                for matrix in module.weight.chunk(n_matrices):
                    nn.init.xavier_uniform_(matrix)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.settings.d_model**-0.5)
        if self.settings.tied_embeddings != "none":
            self.projection.weight = self.target_embedding.weight

    @property
    def max_length(self) -> int:
        """The longest sequence of either side that the model can hold."""
        return self.settings.max_positions

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def scaled(self, ids: Tensor, embedding: nn.Module) -> Tensor:
        """(B, T) ids to (B, T, D) of unit size."""
        out: Tensor = embedding(ids) * math.sqrt(self.settings.d_model)
        return out

    def forward(self, src: Tensor, tgt_in: Tensor, real: Tensor | None = None) -> Tensor:
        """Logits of the next token at every target position.

        Args:
            src: (B, S) ids.
            tgt_in: (B, T) ids, BOS first.
            real: (B, T) bool; where given, only these positions are projected, since the projection is the
                largest product there is.
        Returns:
            (B, T, V); with `real`, (N, V) for its N true positions.
        """
        hidden = self.hidden(src, tgt_in)
        logits: Tensor = self.projection(hidden if real is None else hidden[real])
        return logits

    @abc.abstractmethod
    def hidden(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """What the projection reads at every target position, from the true words before it: (B, T, D)."""

    @abc.abstractmethod
    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Every layer's and head's weights in one teacher-forced pass; call it in eval mode."""

    @abc.abstractmethod
    def start(self, src: Tensor) -> Any:
        """Read the source: (B, S) ids to the state of one beam a sentence, before the first target token."""

    @abc.abstractmethod
    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one more token of each beam: ids (B, K) to logits (B, K, V) of the next, the caller's to overwrite.

        What it reads may be written into the state's room: a state is good for one step.
        """

    def trace_steps(self) -> None:
        """From now on take the quickest way through a step, if there is one; no more training."""

    @abc.abstractmethod
    def select(self, state: Any, rows: Tensor) -> Any:
        """The state of the beams that live on; of as many sentences, or of fewer, whose places the last ones take.

        Args:
            state: of B sentences and K beams; not to be used any more.
            rows: (B', K') indices into its B*K beams; a row's indices come from one sentence.
        """
