"""Decoding one token at a time, for search: the Transformer's KV cache, and `start`, `step` and `select`.

`step` returns the logits that a full forward pass computes at the last position. `incremental_decoder` returns the
decoder of any model; code outside this package uses only the interface `IncrementalDecoder`.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import DecoderLayer, Transformer


class IncrementalDecoder(Protocol):
    """The interface that search uses, with a state of any type; documented in `nmt.decode.search`."""

    def start(self, src: Tensor, /) -> Any: ...
    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...
    def select(self, state: Any, beam_indices: Tensor, /) -> Any: ...


def incremental_decoder(model: Seq2Seq) -> IncrementalDecoder:
    """Return the decoder of a model in eval mode."""
    if isinstance(model, Transformer):
        return TransformerDecoder(model)
    assert isinstance(model, RecurrentModel)
    return model


@dataclass(frozen=True)
class KVCache:
    """What B sentences with K beams each have read so far, as keys and values of attention.

    A token's keys and values depend only on the tokens before it, so they are computed once. The memory does not change
    during a search, so its keys and values are computed once, too, and shared by the beams of a sentence.
    """

    self_kv: list[Tensor]  # per layer (2, B*K, H, t, D/H): keys and values of the t tokens read
    cross_kv: list[tuple[Tensor, ...]]  # per layer, keys and values of the memory, each (B, H, S, D/H)
    cross_mask: Tensor  # (B, 1, 1, S) bool
    n_read: int  # tokens read by each beam; t, except with a local window


class TransformerDecoder:
    """The `IncrementalDecoder` of a Transformer in eval mode."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def start(self, src: Tensor) -> KVCache:
        """See `IncrementalDecoder`."""
        memory, mask = self.model.encode(src)
        cross_kv = [layer.cross_attention.keys_values(memory) for layer in self.model.decoder]
        empty = [torch.stack([x[:, :, :0] for x in of_layer]) for of_layer in cross_kv]
        return KVCache(self_kv=empty, cross_kv=cross_kv, cross_mask=mask, n_read=0)

    def step(self, tokens: Tensor, cache: KVCache) -> tuple[Tensor, KVCache]:
        """See `IncrementalDecoder`."""
        model = self.model
        now = slice(cache.n_read, cache.n_read + 1)
        x, rotation = model.embed(tokens, model.target_embedding, model.target_positions, now)  # (B, K, D)
        self_kv = []
        for layer, of_self, of_cross in zip(model.decoder, cache.self_kv, cache.cross_kv, strict=True):
            x, of_self = step_layer(layer, x, of_self, of_cross, cache.cross_mask, rotation)
            self_kv.append(of_self)
        logits: Tensor = model.projection(model.decoder_norm(x))
        return logits, replace(cache, self_kv=self_kv, n_read=cache.n_read + 1)

    def select(self, cache: KVCache, beam_indices: Tensor) -> KVCache:
        """See `IncrementalDecoder`."""
        n_before, n_read_beams = len(cache.cross_mask), cache.self_kv[0].size(1)
        self_kv = [x.index_select(1, beam_indices.flatten()) for x in cache.self_kv]
        if len(beam_indices) == n_before:
            return replace(cache, self_kv=self_kv)
        sentences = beam_indices[:, 0] // (n_read_beams // n_before)  # (B',)
        cross_kv = [tuple(x[sentences] for x in of_layer) for of_layer in cache.cross_kv]
        return replace(cache, self_kv=self_kv, cross_kv=cross_kv, cross_mask=cache.cross_mask[sentences])


def step_layer(
    layer: DecoderLayer,
    x: Tensor,
    self_kv: Tensor,
    cross_kv: tuple[Tensor, ...],
    cross_mask: Tensor,
    rotation: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute `DecoderLayer.forward` for one new token of each beam: x (B, K, D) to (B, K, D), and the longer cache.

    In self-attention each beam attends to its own tokens. In cross-attention the K beams of a sentence are K queries.
    """
    n_sentences, n_beams = x.shape[:2]
    kv = self_kv

    def attend_self(y: Tensor) -> Tensor:
        nonlocal kv
        new = layer.self_attention.project(y, rotation).flatten(0, 1)  # (B*K, 3, H, D/H)
        query, *new_kv = new.unsqueeze(3).unbind(1)  # each (B*K, H, 1, D/H)
        kv = torch.cat([self_kv, torch.stack(new_kv)], 3)
        if window := layer.self_attention.window:
            kv = kv[:, :, :, -window - 1 :]
        key, value = kv
        return layer.self_attention.attend(query, key, value).view(n_sentences, n_beams, -1)

    attend_memory = functools.partial(layer.cross_attention, cross_kv=cross_kv, mask=cross_mask)
    x = layer.self_attention_residual(x, attend_self)
    x = layer.cross_attention_residual(x, attend_memory)
    x = layer.feed_forward_residual(x, layer.feed_forward)
    return x, kv
