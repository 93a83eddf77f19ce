"""The Transformer (Vaswani et al. 2017): encoder, decoder, embeddings, and its step-wise use in search.

Owns the masks: they are made here from `src != PAD`. Knows nothing of losses, batches or text.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.attention import (
    FEW,
    CrossAttention,
    SelfAttention,
    added,
    rotary_positions,
    sinusoidal_positions,
)
from nmt.model.base import ActivatedLinear, AttentionWeights, Seq2Seq
from nmt.model.dropout import Dropout
from nmt.model.traced import Traced
from nmt.text import PAD

FIRST_POSITIONS = 1024  # rows of a table of positions before a longer sequence is met
ROOM = 16  # keys come in multiples of it: products with 16 of them take half the time that they take with 15


@dataclass(frozen=True)
class DecoderState:
    """All that search carries from one step to the next, for B sentences of K beams.

    Keys and values of all beams of a sentence lie in slots, where they stay as long as some beam descends from
    them; then a slot is free for others. `ancestry` says what belongs to whom: beams that change places move a
    mask, not their keys and values. In cross-attention too the beams are query positions of one sentence.

    Attributes:
        past: one per layer, self-attention's keys and values in R slots, (2, N, H, R, D/H); the first B of N
            sentences, for those that have left leave their room behind.
        ancestry: (B, K, R) bool: whether a beam descends from what is there; None while there has been but one
            beam a sentence, whose positions are the slots.
        n_read: tokens that each beam has read, t.
        memory: one per layer, cross-attention's keys and values, made once a sentence: each (B, H, S, D/H).
        memory_mask: (B, 1, 1, S), `added`; None for one sentence, begun alone and without padding.
        written: (B, R) the position read last into each slot; only kept for a local window.
    """

    past: list[Tensor]
    ancestry: Tensor | None
    n_read: int
    memory: list[tuple[Tensor, ...]]
    memory_mask: Tensor | None
    written: Tensor | None


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
        activation = torch.relu if settings.activation == "relu" else F.gelu
        self.inner = ActivatedLinear(settings.d_model, settings.d_ff, activation)
        self.outer = nn.Linear(settings.d_ff, settings.d_model)
        self.dropout = Dropout(settings.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.outer(self.dropout(self.inner(x)))
        return y


def self_attention_of(settings: ModelSettings) -> SelfAttention:
    """Of these sizes and choices, with fresh weights."""
    return SelfAttention(
        settings.d_model,
        settings.n_heads,
        settings.attention_dropout,
        settings.attention,
        settings.attention_window,
    )


class EncoderLayer(nn.Module):
    """Self-attention over the source, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = self_attention_of(settings)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self, x: Tensor, mask: Tensor, rotation: Tensor | None = None, weights: list[Tensor] | None = None
    ) -> Tensor:
        """(B, S, D) to (B, S, D)."""

        def attend(y: Tensor) -> Tensor:
            out: Tensor = self.self_attention(y, mask, rotation=rotation, weights=weights)
            return out

        x = self.self_attention_residual(x, attend)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Causal self-attention over the target so far, cross-attention to the memory, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = self_attention_of(settings)
        self.cross_attention = CrossAttention(
            settings.d_model, settings.n_heads, settings.attention_dropout, settings.attention
        )
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.cross_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        memory: Sequence[Tensor],
        memory_mask: Tensor | None,
        rotation: Tensor | None = None,
        self_weights: list[Tensor] | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """All target positions at once: x (B, T, D) to (B, T, D)."""

        def attend_self(y: Tensor) -> Tensor:
            out: Tensor = self.self_attention(y, causal=True, rotation=rotation, weights=self_weights)
            return out

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, cross_weights)

    def step(
        self,
        x: Tensor,
        memory: Sequence[Tensor],
        memory_mask: Tensor | None,
        past: Tensor,
        seen: Tensor,
        rows: Tensor,
        mask: Tensor | None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """One more position of each beam, which is written into its slot: x (B, K, D) to (B, K, D).

        Args:
            x: (B, K, D).
            memory, memory_mask: see `DecoderState`; here of this layer.
            past: (2, N, H, R, D/H), see `DecoderState`.
            seen: (2, B, H, n, D/H), the part of it to look at, cut by the caller: a trace would keep n as it was.
            rows: (2*B*K*H,) which of its 2*N*H*R vectors to write.
            mask: what to attend to among the seen, broadcastable to (B, H, K, n), bool or `added`; None is all.
            rotation: of the position at which all stand, see `SelfAttention.project`.
        """

        def attend_self(y: Tensor) -> Tensor:
            now = self.self_attention.project(y, rotation).to(past.dtype)  # (B, K, 3, H, D/H)
            past.flatten(0, 3).index_copy_(0, rows, now[:, :, 1:].permute(2, 0, 1, 3, 4).flatten(0, 3))
            key, value = seen.unbind()
            return self.self_attention.attend(now[:, :, 0].transpose(1, 2), key, value, mask=mask)

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, None)

    def _rest(
        self, x: Tensor, memory: Sequence[Tensor], mask: Tensor | None, weights: list[Tensor] | None
    ) -> Tensor:
        def attend_memory(y: Tensor) -> Tensor:
            out: Tensor = self.cross_attention(y, memory, mask, weights)
            return out

        x = self.cross_attention_residual(x, attend_memory)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class Transformer(Seq2Seq):
    """Encoder and decoder with their embeddings."""

    traced: Traced | None = None  # `step_layers`, once that is asked for

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__(settings, n_source_vocab, n_target_vocab)
        d_model, n = settings.d_model, settings.max_positions
        self.n_positions = 0  # rows of the tables below
        self.source_positions: Tensor | None  # (P, D), added to the embeddings
        self.target_positions: Tensor | None
        self.rotations: Tensor | None  # (P, D/H/2), for self-attention: positions of two sides do not compare
        if settings.positions == "learned":
            self.source_positions = nn.Parameter(torch.empty(n, d_model))
            self.target_positions = nn.Parameter(torch.empty(n, d_model))
        else:
            self.register_buffer("source_positions", None, persistent=False)
            self.register_buffer("target_positions", None, persistent=False)
        self.register_buffer("rotations", None, persistent=False)
        self.hold_positions(FIRST_POSITIONS)
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

    def hold_positions(self, n: int) -> None:
        """Make sure that tables of sinusoidal or rotary positions have at least n rows.

        They grow with the sequences, by doubling: `max_positions` may be far more than any sequence has.
        """
        if n <= self.n_positions:
            return
        settings = self.settings
        n = min(max(n, 2 * self.n_positions), settings.max_positions)
        with torch.inference_mode(False):  # the tables may be used in training later
            if settings.positions == "sinusoidal":
                table, old = sinusoidal_positions(n, settings.d_model), self.source_positions
                self.source_positions = self.target_positions = table if old is None else table.to(old)
            elif settings.positions == "rotary":
                table, old = rotary_positions(n, settings.d_model // settings.n_heads), self.rotations
                self.rotations = table if old is None else table.to(old)
        self.n_positions = n

    def _embed(self, ids: Tensor, side: Literal["source", "target"], at: slice) -> tuple[Tensor, Tensor | None]:
        """(B, T) ids at T positions, or all at one, to (B, T, D); and the rotation of those positions, if any."""
        self.hold_positions(at.stop)
        source = side == "source"
        x = self.scaled(ids, self.source_embedding if source else self.target_embedding)
        positions = self.source_positions if source else self.target_positions
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
        x, rotation = self._embed(src, "source", slice(src.size(1)))
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
        x, rotation = self._embed(tgt_in, "target", slice(tgt_in.size(1)))
        for layer in self.decoder:
            keys_values = layer.cross_attention.keys_values(memory)
            x = layer(x, keys_values, mask, rotation, of_decoder, of_cross)
        out: Tensor = self.decoder_norm(x)
        return out

    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """See `Seq2Seq`."""
        weights: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
        self.hidden(src, tgt_in, weights)
        return AttentionWeights(*map(torch.stack, weights))

    # --- what search uses: start, step, select ------------------------------------------------------------

    def start(self, src: Tensor) -> DecoderState:
        """See `Seq2Seq`."""
        memory, mask = self.encode(src)
        several = len(src) > 1
        if several:
            more = -src.size(1) % ROOM
            memory, mask = F.pad(memory, (0, 0, 0, more)), F.pad(mask, (0, more))
        memories = [layer.cross_attention.keys_values(memory) for layer in self.decoder]
        if several and self.cache_dtype is not None:
            memories = [tuple(x.to(self.cache_dtype).contiguous() for x in layer) for layer in memories]
        return DecoderState(
            past=[torch.stack([x[:, :, :0] for x in of_layer]) for of_layer in memories],
            ancestry=mask.new_empty(len(src), 1, 0) if self.settings.attention_window else None,
            n_read=0,
            memory=memories,
            memory_mask=added(mask, memory.dtype) if several or not mask.all() else None,
            written=src.new_empty(len(src), 0) if self.settings.attention_window else None,
        )

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """See `Seq2Seq`; what is read is written into the state's slots."""
        ancestry, written = state.ancestry, state.written
        attended: Tensor | None = None  # all
        if ancestry is None:
            n_slots, slots = state.n_read + 1, ids.new_full((1, 1), state.n_read)
            if state.memory_mask is not None:  # of several, what is alike from step to step suits the products
                n_slots += -n_slots % ROOM
                attended = torch.arange(n_slots, device=ids.device)[None] <= state.n_read
        else:
            slots, n_slots = free_slots(ancestry, ids.size(1))
            ancestry = F.pad(ancestry, (0, n_slots - ancestry.size(2))).scatter(2, slots[..., None], True)
            if written is not None:  # what the window has left behind is forgotten: its slots are free
                written = F.pad(written, (0, n_slots - written.size(1))).scatter(1, slots, state.n_read)
                ancestry = ancestry & (written >= state.n_read - self.settings.attention_window)[:, None]
            attended = ancestry[:, None]
        past = with_room(state.past, len(ids), n_slots)
        _, n, n_heads, room, _ = past[0].shape
        first = torch.arange(0, 2 * n * n_heads * room, room, device=ids.device).view(2, n, 1, n_heads)
        rows = (first[:, : len(ids)] + slots[..., None]).flatten()  # (2*B*K*H,)
        now = slice(state.n_read, state.n_read + 1)
        x, rotation = self._embed(ids, "target", now)
        # beside many beams Python costs little, and attention computes them by another way
        layers = self.traced if self.traced and ids.size(1) < FEW else self.step_layers
        logits = layers(
            x=x,
            memory=state.memory,
            memory_mask=state.memory_mask,
            past=past,
            seen=[of_layer[:, : len(ids), :, :n_slots] for of_layer in past],
            rows=rows,
            mask=None if attended is None else added(attended, x.dtype),
            rotation=rotation,
        )
        after = replace(state, past=past, ancestry=ancestry, n_read=state.n_read + 1, written=written)
        return logits, after

    def step_layers(
        self,
        x: Tensor,
        memory: Sequence[Sequence[Tensor]],
        past: Sequence[Tensor],
        seen: Sequence[Tensor],
        rows: Tensor,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """All layers of a step, x (B, K, D) to logits (B, K, V); see `DecoderLayer.step`, here of every layer."""
        for layer, of_memory, of_past, of_seen in zip(self.decoder, memory, past, seen, strict=True):
            x = layer.step(x, of_memory, memory_mask, of_past, of_seen, rows, mask, rotation)  # (B, K, D)
        logits: Tensor = self.projection(self.decoder_norm(x))
        return logits

    def trace_steps(self) -> None:
        """See `Seq2Seq`."""
        self.traced = Traced(self.step_layers, [*self.decoder, self.decoder_norm, self.projection])

    def select(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """See `Seq2Seq`."""
        n, n_before = len(rows), len(state.memory[0][0])
        n_beams, ancestry = 1, state.ancestry
        if ancestry is not None:
            n_beams, ancestry = ancestry.size(1), ancestry.flatten(0, 1)[rows]
        elif rows.size(1) > 1:
            read = torch.arange(state.past[0].size(3), device=rows.device) < state.n_read
            ancestry = read.expand(*rows.shape, -1)
        if n == n_before:
            return replace(state, ancestry=ancestry)
        sentences = rows[:, 0] // n_beams
        places = (sentences != torch.arange(n, device=rows.device)).nonzero()[:, 0]  # few
        for x in (*chain(*map(torch.unbind, state.past), *state.memory), state.memory_mask, state.written):
            if x is not None:
                x[places] = x[sentences[places]]
        return DecoderState(
            past=state.past,
            ancestry=ancestry,
            n_read=state.n_read,
            memory=[tuple(x[:n] for x in layer) for layer in state.memory],
            memory_mask=None if state.memory_mask is None else state.memory_mask[:n],
            written=None if state.written is None else state.written[:n],
        )


def free_slots(ancestry: Tensor, n_beams: int) -> tuple[Tensor, int]:
    """The lowest slots (B, K) that nobody descends from, and how many slots there are then to be."""
    used = ancestry.any(1)  # (B, R)
    n_slots = ancestry.size(2)
    if int(used.sum(1).max()) + n_beams > n_slots:
        n_slots += n_beams + -n_beams % ROOM
        used = F.pad(used, (0, n_slots - used.size(1)))
    return used.byte().argsort(dim=1, stable=True)[:, :n_beams], n_slots


def with_room(past: list[Tensor], n_sentences: int, n_slots: int) -> list[Tensor]:
    """Keys and values with room for so many at least."""
    more = n_slots - past[0].size(3)
    return past if more <= 0 else [F.pad(x[:, :n_sentences], (0, 0, 0, more + -more % ROOM)) for x in past]
