"""Decoding one token at a time, for search: the Transformer's KV cache, and `start`, `step` and `select`.

`step` computes what `Transformer.decode` does at its last position. `incremental_decoder` gives the decoder of any
model; nothing outside this package knows which one it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.model import kernels
from nmt.model.attention import additive_mask
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentDecoder, RecurrentModel
from nmt.model.tracing import Traced
from nmt.model.transformer import DecoderLayer, Transformer


class IncrementalDecoder(Protocol):
    """What search uses; a state is good for one call, which may overwrite it."""

    def start(self, src: Tensor, /) -> Any:
        """Encode src (B, S): the state of one beam per sentence, before the first target token."""

    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]:
        """Read one more token per beam, (B, K): logits (B, K, V) of the next one, which the caller may overwrite."""

    def select(self, state: Any, beam_indices: Tensor, /) -> Any:
        """Keep the beams (B', K'), indices into the B*K beams; the beams of a row come from one sentence.

        If B' < B, gaps are filled from the end of the batch: row i is sentence i, or one from beyond row B'.
        """


def incremental_decoder(
    model: Seq2Seq, *, cache_dtype: torch.dtype | None = None, trace: bool = False
) -> IncrementalDecoder:
    """The decoder of a model in eval mode; see `TransformerDecoder`. A recurrent model has no cache to convert."""
    if isinstance(model, Transformer):
        return TransformerDecoder(model, cache_dtype=cache_dtype, trace=trace)
    assert isinstance(model, RecurrentModel)
    return RecurrentDecoder(model)


@dataclass(frozen=True)
class KVCache:
    """Keys and values of B sentences with K beams each.

    Self-attention has one cache per sentence, with R slots. Beams share slots; reordering beams updates `ancestry`
    instead of copying the cache. A slot that no beam descends from is used again. In cross-attention, too, the
    beams are query positions of one sentence.

    Attributes:
        self_kv: per layer (2, N, H, R, D/H), keys and values; N >= B, because rows of finished sentences stay
            allocated.
        ancestry: (B, K, R) bool, whether the beam descends from the token in the slot. None while there is one
            beam per sentence: then slot t holds position t.
        n_read: tokens read by each beam.
        cross_kv: per layer, keys and values of the encoder output, each (B, H, S, D/H).
        cross_mask: (B, 1, 1, S), additive; None if there is no padding.
        batched: whether the search began with several sentences; then R is rounded up to `kernels.CACHE_SLOTS`.
        slot_positions: (B, R), the position last written to each slot; only for a local window.
    """

    self_kv: list[Tensor]
    ancestry: Tensor | None
    n_read: int
    cross_kv: list[tuple[Tensor, ...]]
    cross_mask: Tensor | None
    batched: bool
    slot_positions: Tensor | None


class TransformerDecoder:
    """See `IncrementalDecoder`.

    Args:
        model: in eval mode.
        cache_dtype: of keys and values where several sentences are decoded: that is memory-bound, and a bf16 cache
            halves the traffic. None: that of the activations.
        trace: whether to trace the layers; see `Traced`.
    """

    def __init__(self, model: Transformer, *, cache_dtype: torch.dtype | None = None, trace: bool = False) -> None:
        self.model = model
        self.cache_dtype = cache_dtype
        layers = [*model.decoder, model.decoder_norm, model.projection]
        self.traced = Traced(self.step_layers, layers) if trace else None

    def start(self, src: Tensor) -> KVCache:
        """See `IncrementalDecoder`."""
        model, batched = self.model, len(src) > 1
        memory, mask = model.encode(src)
        if batched:
            padding = -src.size(1) % kernels.CACHE_SLOTS
            memory, mask = F.pad(memory, (0, 0, 0, padding)), F.pad(mask, (0, padding))
        cross_kv = [layer.cross_attention.keys_values(memory) for layer in model.decoder]
        if batched and self.cache_dtype is not None:
            cross_kv = [tuple(x.to(self.cache_dtype).contiguous() for x in of_layer) for of_layer in cross_kv]
        windowed = bool(model.settings.attention_window)
        return KVCache(
            self_kv=[torch.stack([x[:, :, :0] for x in of_layer]) for of_layer in cross_kv],
            ancestry=mask.new_empty(len(src), 1, 0) if windowed else None,
            n_read=0,
            cross_kv=cross_kv,
            cross_mask=additive_mask(mask, memory.dtype) if batched or not mask.all() else None,
            batched=batched,
            slot_positions=src.new_empty(len(src), 0) if windowed else None,
        )

    def step(self, tokens: Tensor, cache: KVCache) -> tuple[Tensor, KVCache]:
        """See `IncrementalDecoder`."""
        model, n_beams = self.model, tokens.size(1)
        cache, slots, bool_mask = reserve_slots(cache, tokens, model.settings.attention_window)
        now = slice(cache.n_read, cache.n_read + 1)
        x, rotation = model.embed(tokens, model.target_embedding, model.target_positions, now)  # (B, K, D)
        n_slots = cache.n_read + 1 if bool_mask is None else bool_mask.size(-1)
        # With many beams Python overhead is negligible, and a trace would keep the kernel chosen for few.
        step_layers = self.traced if self.traced and n_beams < kernels.FEW_QUERIES else self.step_layers
        logits = step_layers(
            x=x,
            # Sliced here: tracing would freeze n_slots.
            kv=[
                (*cross_kv, self_kv, self_kv[:, : len(tokens), :, :n_slots])
                for cross_kv, self_kv in zip(cache.cross_kv, cache.self_kv, strict=True)
            ],
            vectors=cache_vectors(cache.self_kv[0], slots, len(tokens)),
            cross_mask=cache.cross_mask,
            self_mask=None if bool_mask is None else additive_mask(bool_mask, x.dtype),
            rotation=rotation,
        )
        return logits, replace(cache, n_read=cache.n_read + 1)

    def step_layers(
        self,
        x: Tensor,
        kv: Sequence[tuple[Tensor, ...]],
        vectors: Tensor,
        cross_mask: Tensor | None = None,
        self_mask: Tensor | None = None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """All decoder layers for one position of each beam: x (B, K, D) to logits (B, K, V); see `step_layer`."""
        for layer, of_layer in zip(self.model.decoder, kv, strict=True):
            x = step_layer(layer, x, of_layer, vectors, cross_mask, self_mask, rotation)
        logits: Tensor = self.model.projection(self.model.decoder_norm(x))
        return logits

    def select(self, cache: KVCache, beam_indices: Tensor) -> KVCache:
        """See `IncrementalDecoder`."""
        n, n_before = len(beam_indices), len(cache.cross_kv[0][0])
        n_beams, ancestry = 1, cache.ancestry
        if ancestry is not None:
            n_beams, ancestry = ancestry.size(1), ancestry.flatten(0, 1)[beam_indices]  # (B', K', R)
        elif beam_indices.size(1) > 1:  # from one beam to several
            is_read = torch.arange(cache.self_kv[0].size(3), device=beam_indices.device) < cache.n_read
            ancestry = is_read.expand(*beam_indices.shape, -1)
        if n == n_before:
            return replace(cache, ancestry=ancestry)
        sentences = beam_indices[:, 0] // n_beams  # (B',)
        moved = (sentences != torch.arange(n, device=sentences.device)).nonzero()[:, 0]  # few: copied in place
        caches = chain(*map(torch.unbind, cache.self_kv), *cache.cross_kv)
        for x in (*caches, cache.cross_mask, cache.slot_positions):
            if x is not None:
                x[moved] = x[sentences[moved]]
        return replace(
            cache,
            ancestry=ancestry,
            cross_kv=[tuple(x[:n] for x in of_layer) for of_layer in cache.cross_kv],
            cross_mask=None if cache.cross_mask is None else cache.cross_mask[:n],
            slot_positions=None if cache.slot_positions is None else cache.slot_positions[:n],
        )


def step_layer(
    layer: DecoderLayer,
    x: Tensor,
    kv: tuple[Tensor, ...],
    vectors: Tensor,
    cross_mask: Tensor | None,
    self_mask: Tensor | None,
    rotation: Tensor | None,
) -> Tensor:
    """`DecoderLayer.forward` for one position of each beam, whose keys and values are written to the cache.

    Args:
        layer: in eval mode.
        x: (B, K, D).
        kv: cross-attention's keys and values, each (B, H, S, D/H), self-attention's cache (2, N, H, R, D/H), and the
            part of it to attend to, (2, B, H, R', D/H).
        vectors: (2*B*K*H,), see `cache_vectors`.
        cross_mask: see `KVCache`.
        self_mask: additive, broadcastable to (B, H, K, R'); None to attend to all R' slots.
        rotation: rotary position that all beams have, see `SelfAttention.project`.
    """
    cross_key, cross_value, self_kv, used_kv = kv

    def attend_self(y: Tensor) -> Tensor:
        new = layer.self_attention.project(y, rotation).to(self_kv.dtype)  # (B, K, 3, H, D/H)
        new_kv = new[:, :, 1:].permute(2, 0, 1, 3, 4).flatten(0, 3)  # (2*B*K*H, D/H)
        self_kv.flatten(0, 3).index_copy_(0, vectors, new_kv)  # written here, seen through used_kv
        key, value = used_kv.unbind()
        return layer.self_attention.attend(new[:, :, 0].transpose(1, 2), key, value, mask=self_mask)

    def attend_memory(y: Tensor) -> Tensor:
        out: Tensor = layer.cross_attention(y, (cross_key, cross_value), cross_mask)
        return out

    x = layer.self_attention_residual(x, attend_self)
    x = layer.cross_attention_residual(x, attend_memory)
    x = layer.feed_forward_residual(x, layer.feed_forward)
    return x


def reserve_slots(cache: KVCache, tokens: Tensor, window: int) -> tuple[KVCache, Tensor, Tensor | None]:
    """Find a slot for the next token of each beam, and make room for it.

    Args:
        cache: as before this token.
        tokens: (B, K).
        window: of self-attention, 0 for none.
    Returns:
        the cache, the slots, (B, K) or (1, 1) where all are the same, and the mask of slots to attend to, (B, 1, K, R)
        or (1, R) bool, None for all.
    """
    if cache.ancestry is None:  # one beam per sentence
        n_slots, slots, bool_mask = cache.n_read + 1, tokens.new_full((1, 1), cache.n_read), None
        if cache.batched:  # rounded up, so that matmul shapes rarely change
            n_slots = kernels.round_up(n_slots, kernels.CACHE_SLOTS)
            bool_mask = torch.arange(n_slots, device=tokens.device)[None] <= cache.n_read  # (1, R)
        return replace(cache, self_kv=with_slots(cache.self_kv, len(tokens), n_slots)), slots, bool_mask
    slots, n_slots = free_slots(cache.ancestry, tokens.size(1))
    ancestry = F.pad(cache.ancestry, (0, n_slots - cache.ancestry.size(2))).scatter(2, slots[..., None], True)
    positions = cache.slot_positions
    if positions is not None:  # tokens that have left the window free their slots
        positions = F.pad(positions, (0, n_slots - positions.size(1))).scatter(1, slots, cache.n_read)
        ancestry = ancestry & (positions >= cache.n_read - window)[:, None]
    self_kv = with_slots(cache.self_kv, len(tokens), n_slots)
    cache = replace(cache, self_kv=self_kv, ancestry=ancestry, slot_positions=positions)
    return cache, slots, ancestry[:, None]


def free_slots(ancestry: Tensor, n_beams: int) -> tuple[Tensor, int]:
    """The lowest slots that no beam descends from, (B, K), and the number of slots that the cache then needs.

    Args:
        ancestry: (B, K', R), see `KVCache`.
        n_beams: K.
    """
    used = ancestry.any(1)  # (B, R)
    n_slots = ancestry.size(2)
    if int(used.sum(1).max()) + n_beams > n_slots:
        n_slots += kernels.round_up(n_beams, kernels.CACHE_SLOTS)
        used = F.pad(used, (0, n_slots - used.size(1)))
    return used.byte().argsort(dim=1, stable=True)[:, :n_beams], n_slots


def with_slots(self_kv: list[Tensor], n_sentences: int, n_slots: int) -> list[Tensor]:
    """The cache with at least so many slots; a copy, of the first sentences alone, if it has to grow."""
    missing = n_slots - self_kv[0].size(3)
    if missing <= 0:
        return self_kv
    padding = kernels.round_up(missing, kernels.CACHE_SLOTS)
    return [F.pad(x[:, :n_sentences], (0, 0, 0, padding)) for x in self_kv]


def cache_vectors(self_kv: Tensor, slots: Tensor, n_sentences: int) -> Tensor:
    """Where the keys and values of one token per beam go: (2*B*K*H,) indices into the cache's 2*N*H*R vectors."""
    _, n, n_heads, n_slots, _ = self_kv.shape
    first = torch.arange(0, 2 * n * n_heads * n_slots, n_slots, device=slots.device).view(2, n, 1, n_heads)
    return (first[:, :n_sentences] + slots[..., None]).flatten()  # (2, B, K, H)
