"""Decoding one token at a time, for search: the Transformer's KV cache, and `start`, `step` and `select`.

`step` returns the logits that a full forward pass computes at the last position. `incremental_decoder` returns the
decoder of any model; code outside this package uses only the interface `IncrementalDecoder`.
"""

import functools
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
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import DecoderLayer, Transformer


class IncrementalDecoder(Protocol):
    """The interface that search uses, with a state of any type; documented in `nmt.decode.search`."""

    def start(self, src: Tensor, /) -> Any: ...
    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...
    def select(self, state: Any, beam_indices: Tensor, /) -> Any: ...


def incremental_decoder(
    model: Seq2Seq, *, cache_dtype: torch.dtype | None = None, trace: bool = False
) -> IncrementalDecoder:
    """Return the decoder of a model in eval mode. For the options see `TransformerDecoder`; RNNs ignore them."""
    if isinstance(model, Transformer):
        return TransformerDecoder(model, cache_dtype=cache_dtype, trace=trace)
    assert isinstance(model, RecurrentModel)
    return model


@dataclass(frozen=True)
class KVCache:
    """Keys and values of B sentences with K beams each.

    Self-attention has one cache per sentence, with R slots. Beams share slots; reordering beams updates `ancestry`
    instead of copying the cache. A slot that is in no beam's `ancestry` is reused. Attention treats the beams of a
    sentence as query positions. As long as there is one beam per sentence and no local window, `ancestry` is None and
    slot t holds position t.
    """

    self_kv: list[Tensor]  # per layer (2, N, H, R, D/H), keys and values; N >= B: finished sentences stay allocated
    ancestry: Tensor | None  # (B, K, R) bool, whether the slot holds a token that the beam may attend to
    n_read: int  # tokens read by each beam
    cross_kv: list[tuple[Tensor, ...]]  # per layer, keys and values of the encoder output, each (B, H, S, D/H)
    cross_mask: Tensor | None  # (B, 1, 1, S), additive; None if there is no padding
    batched: bool  # whether the search began with several sentences; then attention lengths are padded (`CACHE_SLOTS`)
    slot_positions: Tensor | None  # (B, R), the position last written to each slot; only for a local window


class TransformerDecoder:
    """The `IncrementalDecoder` of a Transformer in eval mode.

    Args:
        cache_dtype: dtype of the cache when several sentences are decoded together, which is memory-bound: a bf16 cache
            halves the traffic. None: the dtype of the activations.
        trace: whether to trace the layers; see `kernels.Traced`.
    """

    def __init__(self, model: Transformer, *, cache_dtype: torch.dtype | None = None, trace: bool = False) -> None:
        self.model = model
        self.cache_dtype = cache_dtype
        layers = [*model.decoder, model.decoder_norm, model.projection]
        self.traced = kernels.Traced(self.step_layers, layers) if trace else None

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
        cache, vectors, bool_mask = reserve_slots(cache, tokens, model.settings.attention_window)
        now = slice(cache.n_read, cache.n_read + 1)
        x, rotation = model.embed(tokens, model.target_embedding, model.target_positions, now)  # (B, K, D)
        n_slots = cache.n_read + 1 if bool_mask is None else bool_mask.size(-1)
        # With many beams Python overhead is negligible, and a trace would use the kernel chosen for few beams.
        step_layers = self.traced if self.traced and n_beams < kernels.FEW_QUERIES else self.step_layers
        logits = step_layers(
            x=x,
            # Sliced here: tracing would freeze n_slots.
            kv=[
                (*cross_kv, self_kv, self_kv[:, : len(tokens), :, :n_slots])
                for cross_kv, self_kv in zip(cache.cross_kv, cache.self_kv, strict=True)
            ],
            vectors=vectors,
            cross_mask=cache.cross_mask,
            self_mask=None if bool_mask is None else additive_mask(bool_mask, x.dtype),
            rotation=rotation,
        )
        return logits, replace(cache, n_read=cache.n_read + 1)

    def step_layers(self, x: Tensor, kv: Sequence[tuple[Tensor, ...]], **shared: Any) -> Tensor:
        """Run all decoder layers for one position of each beam: x (B, K, D) to logits (B, K, V).

        `kv` contains the argument `kv` of `step_layer` for each layer; `shared` are its other arguments.
        """
        for layer, of_layer in zip(self.model.decoder, kv, strict=True):
            x = step_layer(layer, x, of_layer, **shared)
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
        moved = (sentences != torch.arange(n, device=sentences.device)).nonzero()[:, 0]  # few rows: copied in place
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
    cross_mask: Tensor | None = None,
    self_mask: Tensor | None = None,
    rotation: Tensor | None = None,
) -> Tensor:
    """Compute `DecoderLayer.forward` for one position of each beam, and write its keys and values to the cache.

    Args:
        x: (B, K, D).
        kv: cross-attention's keys and values, each (B, H, S, D/H); self-attention's cache (2, N, H, R, D/H); and the
            slice of this cache to attend to, (2, B, H, R', D/H).
        vectors: (2*B*K*H,), the indices to write keys and values to, see `reserve_slots`.
        cross_mask: see `KVCache`.
        self_mask: additive, broadcastable to (B, H, K, R'); None to attend to all R' slots.
        rotation: the rotary position, the same for all beams; see `SelfAttention.project`.
    """
    self_kv, used_kv = kv[2:]
    attend_memory = functools.partial(layer.cross_attention, cross_kv=kv[:2], mask=cross_mask)

    def attend_self(y: Tensor) -> Tensor:
        new = layer.self_attention.project(y, rotation).to(self_kv.dtype)  # (B, K, 3, H, D/H)
        new_kv = new[:, :, 1:].permute(2, 0, 1, 3, 4).flatten(0, 3)  # (2*B*K*H, D/H)
        self_kv.flatten(0, 3).index_copy_(0, vectors, new_kv)  # also changes used_kv, a view of self_kv
        key, value = used_kv.unbind()
        return layer.self_attention.attend(new[:, :, 0].transpose(1, 2), key, value, mask=self_mask)

    x = layer.self_attention_residual(x, attend_self)
    x = layer.cross_attention_residual(x, attend_memory)
    x = layer.feed_forward_residual(x, layer.feed_forward)
    return x


def reserve_slots(cache: KVCache, tokens: Tensor, window: int) -> tuple[KVCache, Tensor, Tensor | None]:
    """Assign each beam the lowest free slot of the cache for its next token; grow the cache if it is full.

    Args:
        cache: the cache before this token.
        tokens: (B, K).
        window: the local window of self-attention, 0 for none.
    Returns:
        the cache; the indices (2*B*K*H,) of the new keys and values among the 2*N*H*R vectors of a layer's `self_kv`;
        and the mask of slots to attend to, (B, 1, K, R) or (1, R) bool, None for all.
    """
    n_sentences, n_beams = tokens.shape
    self_kv, ancestry, positions = cache.self_kv, cache.ancestry, cache.slot_positions
    bool_mask: Tensor | None = None
    if ancestry is None:  # one beam per sentence
        n_slots = cache.n_read + 1
        slots = tokens.new_full((1, 1), cache.n_read)
        if cache.batched:  # rounded up, so that matmul shapes rarely change
            n_slots = kernels.round_up(n_slots, kernels.CACHE_SLOTS)
            bool_mask = torch.arange(n_slots, device=tokens.device)[None] <= cache.n_read  # (1, R)
    else:
        used = ancestry.any(1)  # (B, R)
        if int(used.sum(1).max()) + n_beams > used.size(1):  # a sync point
            used = F.pad(used, (0, kernels.round_up(n_beams, kernels.CACHE_SLOTS)))
        n_slots = used.size(1)
        slots = used.byte().argsort(dim=1, stable=True)[:, :n_beams]  # (B, K)
        ancestry = F.pad(ancestry, (0, n_slots - ancestry.size(2))).scatter(2, slots[..., None], True)
        if positions is not None:  # slots of tokens outside the window become free
            positions = F.pad(positions, (0, n_slots - positions.size(1))).scatter(1, slots, cache.n_read)
            ancestry = ancestry & (positions >= cache.n_read - window)[:, None]
        bool_mask = ancestry[:, None]
    missing = n_slots - self_kv[0].size(3)
    if missing > 0:  # grown by copying, without the rows of finished sentences
        padding = kernels.round_up(missing, kernels.CACHE_SLOTS)
        self_kv = [F.pad(x[:, :n_sentences], (0, 0, 0, padding)) for x in self_kv]
    _, n, n_heads, n_rows, _ = self_kv[0].shape
    first = torch.arange(0, 2 * n * n_heads * n_rows, n_rows, device=tokens.device).view(2, n, 1, n_heads)
    vectors = (first[:, :n_sentences] + slots[..., None]).flatten()  # (2, B, K, H)
    return replace(cache, self_kv=self_kv, ancestry=ancestry, slot_positions=positions), vectors, bool_mask
