"""The Transformer (Vaswani et al. 2017): encoder, decoder, embeddings, and its step-wise use in search.

Owns the masks: they are made here from `src != PAD`. Knows nothing of losses, batches or text.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.attention import MultiHeadAttention, sinusoidal_positions
from nmt.model.dropout import Dropout
from nmt.text import PAD

ROOM = 16  # positions by which the room for keys and values grows


class KeysValues(NamedTuple):
    """Keys and values of one attention layer, each (N, H, length, D/H)."""

    keys: Tensor
    values: Tensor


class AttentionWeights(NamedTuple):
    """Who looked at what, for every layer L and head H; rows sum to 1."""

    encoder: Tensor  # (L, B, H, S, S)
    decoder: Tensor  # (L, B, H, T, T)
    cross: Tensor  # (L, B, H, T, S)


@dataclass(frozen=True)
class DecoderState:
    """All that search carries from one step to the next, for B sentences of K beams.

    What all beams of a sentence have read stays where it was written, step after step, and `ancestry` says what of
    it a beam descends from: beams that change places move a mask, not their keys and values. In cross-attention
    too the beams are query positions of one sentence.

    Attributes:
        past: one per layer, self-attention's keys and values: (B, H, room, D/H), of which t*K are written.
        memory: one per layer, cross-attention's, made once a sentence: (B, H, S, D/H).
        memory_mask: (B, 1, 1, S) bool.
        ancestry: (B, K, t*K) bool: whether a beam descends from what was read there.
    """

    past: list[KeysValues]
    memory: list[KeysValues]
    memory_mask: Tensor
    ancestry: Tensor


class Residual(nn.Module):
    """x + f(norm(x)), or norm(x + f(x)): the connection around every sub-layer (section 3.1)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.d_model)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = self.dropout(sublayer(self.norm(x) if self.pre else x)).to(x.dtype)  # a mixed sum is slow
        y = x + y
        return y if self.pre else self.norm(y)


class FeedForward(nn.Module):
    """Two linear layers with a non-linearity between them, at each position alike (section 3.3)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.inner = nn.Linear(settings.d_model, settings.d_ff)
        self.outer = nn.Linear(settings.d_ff, settings.d_model)
        self.dropout = Dropout(settings.activation_dropout)
        self.activation = F.relu if settings.activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return y


class EncoderLayer(nn.Module):
    """Self-attention over the source, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(settings.d_model, settings.n_heads, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(self, x: Tensor, mask: Tensor, weights: list[Tensor] | None) -> Tensor:
        """(B, S, D) to (B, S, D)."""

        def attend(y: Tensor) -> Tensor:
            out: Tensor = self.self_attention(y, *self.self_attention.keys_values(y), mask=mask, weights=weights)
            return out

        x = self.self_attention_residual(x, attend)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Causal self-attention over the target so far, cross-attention to the memory, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(settings.d_model, settings.n_heads, settings.attention_dropout)
        self.cross_attention = MultiHeadAttention(settings.d_model, settings.n_heads, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.cross_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        memory_mask: Tensor,
        self_weights: list[Tensor] | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """All target positions at once: x (B, T, D) to (B, T, D)."""

        def attend_self(y: Tensor) -> Tensor:
            out: Tensor = self.self_attention(
                y, *self.self_attention.keys_values(y), causal=True, weights=self_weights
            )
            return out

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, cross_weights)

    def step(
        self, x: Tensor, memory: KeysValues, memory_mask: Tensor, past: KeysValues, ancestry: Tensor | None
    ) -> Tensor:
        """One more position of each beam, which is written at the end of `past`: x (B, K, D) to (B, K, D)."""

        def attend_self(y: Tensor) -> Tensor:
            for written, now in zip(past, self.self_attention.keys_values(y), strict=True):
                written[:, :, -now.size(2) :] = now
            out: Tensor = self.self_attention(y, *past, mask=ancestry)
            return out

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, None)

    def _rest(self, x: Tensor, memory: KeysValues, mask: Tensor, weights: list[Tensor] | None) -> Tensor:
        def attend_memory(y: Tensor) -> Tensor:
            out: Tensor = self.cross_attention(y, *memory, mask=mask, weights=weights)
            return out

        x = self.cross_attention_residual(x, attend_memory)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class Transformer(nn.Module):
    """Encoder and decoder with their embeddings.

    Args:
        settings: sizes and choices.
        n_source_vocab, n_target_vocab: pieces a side; equal where the embeddings of both sides are tied.
    """

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__()
        self.settings = settings
        d_model = settings.d_model
        self.source_embedding = nn.Embedding(n_source_vocab, d_model)
        tied = settings.tied_embeddings
        self.target_embedding = self.source_embedding if tied == "all" else nn.Embedding(n_target_vocab, d_model)
        self.projection = nn.Linear(d_model, n_target_vocab, bias=False)
        self.dropout = Dropout(settings.dropout)
        if settings.positions == "learned":
            self.source_positions = nn.Parameter(torch.empty(settings.max_positions, d_model))
            self.target_positions = nn.Parameter(torch.empty(settings.max_positions, d_model))
        else:
            table = sinusoidal_positions(settings.max_positions, d_model)
            self.register_buffer("source_positions", table, persistent=False)
            self.register_buffer("target_positions", table, persistent=False)
        encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.n_encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.n_decoder_layers))
        self.encoder = cast(
            Iterable[EncoderLayer], encoder
        )  # for mypy, which takes a ModuleList's items for anything
        self.decoder = cast(Iterable[DecoderLayer], decoder)
        pre = settings.norm == "pre"  # the residual stream of pre-norm layers has not been normalised yet
        self.encoder_norm = nn.LayerNorm(d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if pre else nn.Identity()
        self.reset_parameters()
        if tied != "none":
            self.projection.weight = self.target_embedding.weight

    def reset_parameters(self) -> None:
        """Xavier for matrices, zero for biases; embeddings such that, scaled by sqrt(D), they are of unit size."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.settings.d_model**-0.5)
        if self.settings.positions == "learned":
            nn.init.normal_(self.source_positions, std=self.settings.d_model**-0.5)
            nn.init.normal_(self.target_positions, std=self.settings.d_model**-0.5)

    @property
    def max_length(self) -> int:
        """The longest sequence of either side that the model can hold."""
        return self.settings.max_positions

    def _embed(self, ids: Tensor, embedding: nn.Module, positions: Tensor, start: int = 0) -> Tensor:
        """(B, T) ids at positions start..start+T to (B, T, D)."""
        scaled = embedding(ids) * math.sqrt(self.settings.d_model)
        out: Tensor = self.dropout(scaled + positions[start : start + ids.size(1)])
        return out

    def encode(self, src: Tensor, weights: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The source's memory.

        Args:
            src: (B, S) ids; PAD is masked.
            weights: where given, every layer's (B, H, S, S) is appended.
        Returns:
            memory (B, S, D) and its mask (B, 1, 1, S).
        """
        mask = (src != PAD)[:, None, None, :]
        x = self._embed(src, self.source_embedding, self.source_positions)
        for layer in self.encoder:
            x = layer(x, mask, weights)
        return self.encoder_norm(x), mask

    def hidden(
        self,
        src: Tensor,
        tgt_in: Tensor,
        weights: tuple[list[Tensor], list[Tensor], list[Tensor]] | None = None,
    ) -> Tensor:
        """The decoder's output at every target position, from the true words before it (teacher forcing).

        Padding of `tgt_in` needs no mask: it stands on the right, where causality hides it from real positions.

        Args:
            src: (B, S) ids.
            tgt_in: (B, T) ids, BOS first.
            weights: where given, encoder's, decoder's and cross-attention's are appended to its three lists.
        Returns:
            (B, T, D)
        """
        of_encoder, of_decoder, of_cross = weights or (None, None, None)
        memory, mask = self.encode(src, of_encoder)
        x = self._embed(tgt_in, self.target_embedding, self.target_positions)
        for layer in self.decoder:
            x = layer(x, KeysValues(*layer.cross_attention.keys_values(memory)), mask, of_decoder, of_cross)
        out: Tensor = self.decoder_norm(x)
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

    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Every layer's and head's weights in one teacher-forced pass; call it in eval mode."""
        weights: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
        self.hidden(src, tgt_in, weights)
        return AttentionWeights(*map(torch.stack, weights))

    # --- what search uses: start, step, select ------------------------------------------------------------

    def start(self, src: Tensor, n_beams: int) -> DecoderState:
        """Read the source: (B, S) ids to the state before the first target token."""
        memory, mask = self.encode(src)
        memories = [KeysValues(*layer.cross_attention.keys_values(memory)) for layer in self.decoder]
        room = [KeysValues(*(x[:, :, :0] for x in layer)) for layer in memories]
        return DecoderState(room, memories, mask, mask.new_empty(len(src), n_beams, 0))

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one more token of each beam: ids (B, K) to logits (B, K, V) of the next.

        What it reads is written into the state's room: a state is good for one step.
        """
        n_sentences, n_beams = ids.shape
        itself = torch.eye(n_beams, dtype=torch.bool, device=ids.device).expand(n_sentences, -1, -1)
        ancestry = torch.cat([state.ancestry, itself], 2)  # (B, K, (t+1)*K)
        n_read = ancestry.size(2)
        past = state.past
        if n_read > past[0].keys.size(2):
            past = [KeysValues(*(F.pad(x, (0, 0, 0, ROOM * n_beams)) for x in layer)) for layer in past]
        mask = ancestry[:, None] if n_beams > 1 else None  # (B, 1, K, (t+1)*K)
        position = n_read // n_beams - 1
        x = self.target_embedding(ids) * math.sqrt(self.settings.d_model) + self.target_positions[position]
        for layer, memory, room in zip(self.decoder, state.memory, past, strict=True):
            so_far = KeysValues(room.keys[:, :, :n_read], room.values[:, :, :n_read])
            x = layer.step(x, memory, state.memory_mask, so_far, mask)  # (B, K, D)
        return self.projection(self.decoder_norm(x)), replace(state, past=past, ancestry=ancestry)

    def select(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """The state of the beams that live on.

        Args:
            state: of B sentences and K beams.
            rows: (B', K) indices into its B*K beams; a row's indices come from one sentence.
        """
        ancestry = state.ancestry.flatten(0, 1)[rows]
        if len(rows) == len(state.memory_mask):
            return replace(state, ancestry=ancestry)
        sentences = rows[:, 0] // rows.size(1)
        past, memory = (
            [KeysValues(*(x.index_select(0, sentences) for x in layer)) for layer in layers]
            for layers in (state.past, state.memory)
        )
        return DecoderState(past, memory, state.memory_mask.index_select(0, sentences), ancestry)
