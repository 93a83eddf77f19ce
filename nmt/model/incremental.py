"""The decoders for the search, which decode one token at a time, and the Transformer's KV cache.

A decoder has three methods:

    start   encodes the source, and caches its keys and values for cross-attention
    step    reads one token per beam, and adds its keys and values to the cache
    select  copies the cache of the beams that the search continues

`step` returns the logits that a full forward pass computes at the last position. The search uses decoders through the
interface `nmt.decode.search.IncrementalDecoder`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.model.attention import SelfAttention
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer


def incremental_decoder(model: Seq2Seq) -> Any:
    """Return the `IncrementalDecoder` of a model in eval mode."""
    if isinstance(model, Transformer):
        return TransformerDecoder(model)
    assert isinstance(model, RecurrentModel)
    return model


@dataclass(frozen=True)
class KVCache:
    """The cached keys and values of B sentences with K beams each.

    `self_kv` is for the target tokens of each beam. `cross_kv` is for the source, and all beams of a sentence share it.
    """

    self_kv: list[Tensor]  # for each layer (2, B*K, H, t, D/H); t is n_read, or less with a window
    cross_kv: list[Tensor]  # for each layer (2, B, H, S, D/H)
    cross_mask: Tensor  # (B, 1, 1, S) bool
    n_read: int  # number of tokens that each beam has read


class TransformerDecoder:
    """The `IncrementalDecoder` of a Transformer in eval mode."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def start(self, src: Tensor) -> KVCache:
        memory, mask = self.model.encode(src)
        cross_kv = [layer.cross_attention.keys_values(memory) for layer in self.model.decoder]
        self_kv = [kv[:, :, :, :0] for kv in cross_kv]  # K = 1, t = 0
        return KVCache(self_kv, cross_kv, cross_mask=mask, n_read=0)

    def step(self, tokens: Tensor, cache: KVCache) -> tuple[Tensor, KVCache]:
        """Decode one position of each beam. Each layer computes the same as in `DecoderLayer.forward`."""
        model = self.model
        position = slice(cache.n_read, cache.n_read + 1)
        x, rotation = model.embed(tokens, model.target_embedding, model.target_positions, position)  # (B, K, D)
        self_kv: list[Tensor] = []
        for layer, old_kv, cross_kv in zip(model.decoder, cache.self_kv, cache.cross_kv, strict=True):
            attend_self = partial(
                cached_self_attention, attention=layer.self_attention, rotation=rotation, old_kv=old_kv, new_kv=self_kv
            )  # each call appends to self_kv
            # In cross-attention, the K beams of a sentence are K queries to the same memory.
            attend_memory = partial(layer.cross_attention, cross_kv=cross_kv, mask=cache.cross_mask)
            x = layer.self_attention_residual(x, attend_self)
            x = layer.cross_attention_residual(x, attend_memory)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        logits: Tensor = model.projection(model.decoder_norm(x))
        return logits, replace(cache, self_kv=self_kv, n_read=cache.n_read + 1)

    def select(self, cache: KVCache, beam_indices: Tensor) -> KVCache:
        """Return the cache of the selected beams. `beam_indices` (B', K') are indices into the B*K beams."""
        order = beam_indices.flatten()
        self_kv = [kv.index_select(1, order) for kv in cache.self_kv]
        n_sentences = len(cache.cross_mask)
        if len(beam_indices) == n_sentences:  # no sentence has left the batch
            return replace(cache, self_kv=self_kv)
        n_beams = cache.self_kv[0].size(1) // n_sentences
        sentences = beam_indices[:, 0] // n_beams  # (B',)
        cross_kv = [kv[:, sentences] for kv in cache.cross_kv]
        return KVCache(self_kv, cross_kv, cache.cross_mask[sentences], cache.n_read)


def cached_self_attention(
    x: Tensor, attention: SelfAttention, rotation: Tensor | None, old_kv: Tensor, new_kv: list[Tensor]
) -> Tensor:
    """Compute self-attention from the new token of each beam to all tokens of the beam.

    Args:
        x: (B, K, D), the new tokens. The result has the same shape.
        old_kv: the layer's cache without the new tokens.
        new_kv: a list, to which the cache with the new tokens is appended.
    """
    projected = attention.project(x, rotation).flatten(0, 1)  # (B*K, 3, H, D/H)
    query, key, value = projected.unsqueeze(3).unbind(1)  # each (B*K, H, 1, D/H)
    kv = torch.cat([old_kv, torch.stack([key, value])], 3)
    if attention.window is not None:
        kv = kv[:, :, :, -attention.window - 1 :]  # drop the tokens that have left the window
    new_kv.append(kv)
    attended = attention.attend(query, *kv)  # (B*K, 1, D)
    return attended.view(x.shape)
