"""The Transformer (Vaswani et al. 2017): encoder, decoder, embeddings, and its step-wise use in search.

Owns the masks: they are made here from `src != PAD`. Knows nothing of losses, batches or text.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.attention import CrossAttention, SelfAttention, sinusoidal_positions, unbound
from nmt.model.dropout import Dropout
from nmt.text import PAD

ROOM = 16  # keys come in multiples of it: products with 16 of them take half the time that they take with 15


class AttentionWeights(NamedTuple):
    """Who looked at what, for every layer L and head H; rows sum to 1."""

    encoder: Tensor  # (L, B, H, S, S)
    decoder: Tensor  # (L, B, H, T, T)
    cross: Tensor  # (L, B, H, T, S)


@dataclass(frozen=True)
class DecoderState:
    """All that search carries from one step to the next, for B sentences of K beams.

    Keys and values of all beams of a sentence lie in slots, where they stay as long as some beam descends from
    them; then a slot is free for others. `ancestry` says what belongs to whom: beams that change places move a
    mask, not their keys and values. In cross-attention too the beams are query positions of one sentence.

    Attributes:
        past: one per layer, self-attention's keys and values in R slots: (B, R, 2, H, D/H).
        ancestry: (B, K, R) bool: whether a beam descends from what is there.
        n_read: tokens that each beam has read, t.
        memory: one per layer, cross-attention's keys and values, made once a sentence: each (B, H, S, D/H).
        memory_mask: (B, 1, 1, S) bool, or None where nothing is padding.
    """

    past: list[Tensor]
    ancestry: Tensor
    n_read: int
    memory: list[tuple[Tensor, ...]]
    memory_mask: Tensor | None


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
        self.self_attention = SelfAttention(settings.d_model, settings.n_heads, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(self, x: Tensor, mask: Tensor, weights: list[Tensor] | None) -> Tensor:
        """(B, S, D) to (B, S, D)."""

        def attend(y: Tensor) -> Tensor:
            out: Tensor = self.self_attention(y, mask, weights=weights)
            return out

        x = self.self_attention_residual(x, attend)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Causal self-attention over the target so far, cross-attention to the memory, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings.d_model, settings.n_heads, settings.attention_dropout)
        self.cross_attention = CrossAttention(settings.d_model, settings.n_heads, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.cross_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        memory: Sequence[Tensor],
        memory_mask: Tensor | None,
        self_weights: list[Tensor] | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """All target positions at once: x (B, T, D) to (B, T, D)."""

        def attend_self(y: Tensor) -> Tensor:
            out: Tensor = self.self_attention(y, causal=True, weights=self_weights)
            return out

        return self._rest(self.self_attention_residual(x, attend_self), memory, memory_mask, cross_weights)

    def step(
        self,
        x: Tensor,
        memory: Sequence[Tensor],
        memory_mask: Tensor | None,
        past: Tensor,
        rows: Tensor,
        n_slots: int,
        mask: Tensor | None,
    ) -> Tensor:
        """One more position of each beam, which is written into its slot: x (B, K, D) to (B, K, D).

        Args:
            x: (B, K, D).
            memory, memory_mask: see `DecoderState`; here of this layer.
            past: (B, R, 2, H, D/H).
            rows: (B*K,) which of its B*R slots to write.
            n_slots: how many of a sentence's slots to look at, n.
            mask: (B, 1, K, n) what to attend to among them; None is all.
        """

        def attend_self(y: Tensor) -> Tensor:
            now = self.self_attention.project(y)  # (B, K, 3, H, D/H)
            past.flatten(0, 1).index_copy_(0, rows, now[:, :, 1:].flatten(0, 1))
            (query,), (key, value) = unbound(now[:, :, :1]), unbound(past[:, :n_slots])
            return self.self_attention.attend(query, key, value, mask=mask)

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
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                n_matrices = {"key_value": 2, "query_key_value": 3}.get(name.rpartition(".")[2], 1)
                for matrix in module.weight.chunk(n_matrices):
                    nn.init.xavier_uniform_(matrix)
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
            x = layer(x, layer.cross_attention.keys_values(memory), mask, of_decoder, of_cross)
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

    def start(self, src: Tensor) -> DecoderState:
        """Read the source: (B, S) ids to the state of one beam a sentence, before the first target token."""
        memory, mask = self.encode(src)
        if len(src) > 1:
            memory, mask = F.pad(memory, (0, 0, 0, -src.size(1) % ROOM)), F.pad(mask, (0, -src.size(1) % ROOM))
        memories = [layer.cross_attention.keys_values(memory) for layer in self.decoder]
        n_heads = self.settings.n_heads
        past = [memory.new_empty(len(src), 0, 2, n_heads, memory.size(2) // n_heads) for _ in memories]
        return DecoderState(past, mask.new_empty(len(src), 1, 0), 0, memories, None if mask.all() else mask)

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one more token of each beam: ids (B, K) to logits (B, K, V) of the next.

        What it reads is written into the state's slots: a state is good for one step.
        """
        past, ancestry, slots = self._slots(state, ids.size(1))
        n_slots = ancestry.size(2)
        ancestry = ancestry.scatter(2, slots[..., None], True)
        rows = slots.flatten()
        if len(ids) > 1:
            rows = (slots + torch.arange(0, len(ids) * n_slots, n_slots, device=ids.device)[:, None]).flatten()
        mask = ancestry[:, None] if ids.size(1) > 1 else None  # one beam descends from all that it has read
        n_slots = n_slots if mask is not None else state.n_read + 1
        x = self.target_embedding(ids) * math.sqrt(self.settings.d_model) + self.target_positions[state.n_read]
        for layer, memory, room in zip(self.decoder, state.memory, past, strict=True):
            x = layer.step(x, memory, state.memory_mask, room, rows, n_slots, mask)  # (B, K, D)
        after = replace(state, past=past, ancestry=ancestry, n_read=state.n_read + 1)
        return self.projection(self.decoder_norm(x)), after

    @staticmethod
    def _slots(state: DecoderState, n_beams: int) -> tuple[list[Tensor], Tensor, Tensor]:
        """The lowest free slots (B, K) for what comes now, and `past` and `ancestry` with room for it."""
        past, ancestry = state.past, state.ancestry
        used = ancestry.any(1)  # (B, R)
        if int(used.sum(1).max()) + n_beams > used.size(1):
            more = n_beams + -n_beams % ROOM
            past = [F.pad(x, (0, 0) * 3 + (0, more)) for x in past]
            ancestry, used = F.pad(ancestry, (0, more)), F.pad(used, (0, more))
        return past, ancestry, used.byte().argsort(dim=1, stable=True)[:, :n_beams]

    def select(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """The state of the beams that live on; of as many sentences, or of fewer, whose places the last ones take.

        Args:
            state: of B sentences and K beams; not to be used any more.
            rows: (B', K') indices into its B*K beams; a row's indices come from one sentence.
        """
        ancestry = state.ancestry.flatten(0, 1)[rows]
        n_before, n_beams = state.ancestry.shape[:2]
        n = len(rows)
        if n == n_before:
            return replace(state, ancestry=ancestry)
        sentences = rows[:, 0] // n_beams
        places = (sentences != torch.arange(n, device=rows.device)).nonzero()[:, 0]  # few
        for x in (*state.past, *(x for layer in state.memory for x in layer), state.memory_mask):
            if x is not None:
                x[places] = x[sentences[places]]
        return DecoderState(
            past=[x[:n] for x in state.past],
            ancestry=ancestry,
            n_read=state.n_read,
            memory=[tuple(x[:n] for x in layer) for layer in state.memory],
            memory_mask=None if state.memory_mask is None else state.memory_mask[:n],
        )
