"""The Transformer (Vaswani et al. 2017): encoder, decoder, embeddings, and its step-wise use in search.

Owns the masks: they are made here from `src != PAD`. Knows nothing of losses, batches or text.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.attention import MultiHeadAttention, rotary_positions, sinusoidal_positions
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.dropout import Dropout
from nmt.text import PAD

ROOM = 16  # positions by which the room for keys and values grows


class KeysValues(NamedTuple):
    """Keys and values of one attention layer, each (N, H, length, D/H)."""

    keys: Tensor
    values: Tensor


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


def attention_of(settings: ModelSettings) -> MultiHeadAttention:
    """An attention of these sizes and choices, with fresh weights."""
    return MultiHeadAttention(settings.d_model, settings.n_heads, settings.attention_dropout, settings.attention)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.window = settings.attention_window
        self.self_attention = attention_of(settings)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self, x: Tensor, mask: Tensor, rotation: Tensor | None = None, weights: list[Tensor] | None = None
    ) -> Tensor:
        """(B, S, D) to (B, S, D)."""

        def attend(y: Tensor) -> Tensor:
            keys_values = self.self_attention.keys_values(y, rotation)
            out: Tensor = self.self_attention(
                y, *keys_values, mask=mask, window=self.window, rotation=rotation, weights=weights
            )
            return out

        x = self.self_attention_residual(x, attend)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Causal self-attention over the target so far, cross-attention to the memory, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.window = settings.attention_window
        self.self_attention = attention_of(settings)
        self.cross_attention = attention_of(settings)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.cross_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        memory_mask: Tensor,
        rotation: Tensor | None = None,
        self_weights: list[Tensor] | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """All target positions at once: x (B, T, D) to (B, T, D)."""

        def attend_self(y: Tensor) -> Tensor:
            keys_values = self.self_attention.keys_values(y, rotation)
            out: Tensor = self.self_attention(
                y, *keys_values, causal=True, window=self.window, rotation=rotation, weights=self_weights
            )
            return out

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, cross_weights)

    def step(
        self,
        x: Tensor,
        memory: KeysValues,
        memory_mask: Tensor,
        past: KeysValues,
        ancestry: Tensor | None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """One more position of each beam, which is written at the end of `past`: x (B, K, D) to (B, K, D)."""

        def attend_self(y: Tensor) -> Tensor:
            for written, now in zip(past, self.self_attention.keys_values(y, rotation), strict=True):
                written[:, :, -now.size(2) :] = now
            out: Tensor = self.self_attention(y, *past, mask=ancestry, rotation=rotation)
            return out

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, None)

    def _rest(self, x: Tensor, memory: KeysValues, mask: Tensor, weights: list[Tensor] | None) -> Tensor:
        def attend_memory(y: Tensor) -> Tensor:
            out: Tensor = self.cross_attention(y, *memory, mask=mask, weights=weights)
            return out

        x = self.cross_attention_residual(x, attend_memory)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class Transformer(Seq2Seq):
    """Encoder and decoder with their embeddings."""

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__(settings, n_source_vocab, n_target_vocab)
        d_model = settings.d_model
        n = settings.max_positions
        self.source_positions: Tensor | None  # (P, D), added to the embeddings
        self.target_positions: Tensor | None
        if settings.positions == "learned":
            self.source_positions = nn.Parameter(torch.empty(n, d_model))
            self.target_positions = nn.Parameter(torch.empty(n, d_model))
        else:
            table = sinusoidal_positions(n, d_model) if settings.positions == "sinusoidal" else None
            self.register_buffer("source_positions", table, persistent=False)
            self.register_buffer("target_positions", table, persistent=False)
        rotations = rotary_positions(n, d_model // settings.n_heads) if settings.positions == "rotary" else None
        self.rotations: Tensor | None  # (P, D/H/2), for self-attention: the sides' positions are not comparable
        self.register_buffer("rotations", rotations, persistent=False)
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

    def reset_parameters(self) -> None:
        """As everywhere; learned positions like embeddings."""
        super().reset_parameters()
        for positions in (self.source_positions, self.target_positions):
            if isinstance(positions, nn.Parameter):
                nn.init.normal_(positions, std=self.settings.d_model**-0.5)

    def _embed(
        self, ids: Tensor, embedding: nn.Module, positions: Tensor | None, at: slice
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T) ids at T positions, or all at one, to (B, T, D); and the rotation of those positions, if any."""
        x = self.scaled(ids, embedding)
        if positions is not None:
            x = x + positions[at]
        return self.dropout(x), None if self.rotations is None else self.rotations[at]

    def encode(self, src: Tensor, weights: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The source's memory.

        Args:
            src: (B, S) ids; PAD is masked.
            weights: where given, every layer's (B, H, S, S) is appended.
        Returns:
            memory (B, S, D) and its mask (B, 1, 1, S).
        """
        mask = (src != PAD)[:, None, None, :]
        if not self.settings.padding_mask:
            mask = torch.ones_like(mask)
        x, rotation = self._embed(src, self.source_embedding, self.source_positions, slice(src.size(1)))
        for layer in self.encoder:
            x = layer(x, mask, rotation, weights)
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
        x, rotation = self._embed(tgt_in, self.target_embedding, self.target_positions, slice(tgt_in.size(1)))
        for layer in self.decoder:
            memories = KeysValues(*layer.cross_attention.keys_values(memory))
            x = layer(x, memories, mask, rotation, of_decoder, of_cross)
        out: Tensor = self.decoder_norm(x)
        return out

    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """See `Seq2Seq`."""
        weights: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
        self.hidden(src, tgt_in, weights)
        return AttentionWeights(*map(torch.stack, weights))

    # --- what search uses: start, step, select ------------------------------------------------------------

    def start(self, src: Tensor, n_beams: int) -> DecoderState:
        """See `Seq2Seq`."""
        memory, mask = self.encode(src)
        memories = [KeysValues(*layer.cross_attention.keys_values(memory)) for layer in self.decoder]
        room = [KeysValues(*(x[:, :, :0] for x in layer)) for layer in memories]
        return DecoderState(room, memories, mask, mask.new_empty(len(src), n_beams, 0))

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """See `Seq2Seq`; what is read is written into the state's room."""
        n_sentences, n_beams = ids.shape
        itself = torch.eye(n_beams, dtype=torch.bool, device=ids.device).expand(n_sentences, -1, -1)
        ancestry = torch.cat([state.ancestry, itself], 2)  # (B, K, (t+1)*K)
        n_read = ancestry.size(2)
        past = state.past
        if n_read > past[0].keys.size(2):
            past = [KeysValues(*(F.pad(x, (0, 0, 0, ROOM * n_beams)) for x in layer)) for layer in past]
        mask = ancestry[:, None] if n_beams > 1 else None  # (B, 1, K, (t+1)*K)
        window = self.settings.attention_window
        first = max(0, n_read - (window + 1) * n_beams) if window else 0
        if mask is not None and first:
            mask = mask[..., first:]
        now = slice(n_read // n_beams - 1, n_read // n_beams)
        x, rotation = self._embed(ids, self.target_embedding, self.target_positions, now)
        for layer, memory, room in zip(self.decoder, state.memory, past, strict=True):
            so_far = KeysValues(room.keys[:, :, first:n_read], room.values[:, :, first:n_read])
            x = layer.step(x, memory, state.memory_mask, so_far, mask, rotation)  # (B, K, D)
        return self.projection(self.decoder_norm(x)), replace(state, past=past, ancestry=ancestry)

    def select(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """See `Seq2Seq`."""
        ancestry = state.ancestry.flatten(0, 1)[rows]
        if len(rows) == len(state.memory_mask):
            return replace(state, ancestry=ancestry)
        sentences = rows[:, 0] // rows.size(1)
        past, memory = (
            [KeysValues(*(x.index_select(0, sentences) for x in layer)) for layer in layers]
            for layers in (state.past, state.memory)
        )
        return DecoderState(past, memory, state.memory_mask.index_select(0, sentences), ancestry)
