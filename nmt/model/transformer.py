"""The Transformer (Vaswani et al. 2017), figure 1: encoder and decoder layers, embeddings, encode and decode.

`decode` computes all target positions at once, as in training. `incremental.py` computes one position at a time, with
a KV cache.
"""

import functools
from collections.abc import Callable, Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.kernels import Dropout, Linear  # like the classes of torch.nn, but faster on a CPU
from nmt.model.positions import marian_positions, rotary_positions, sinusoidal_positions
from nmt.text import PAD

SINUSOIDS = {"sinusoidal": sinusoidal_positions, "marian": marian_positions}

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "gelu": F.gelu, "silu": F.silu}


class Residual(nn.Module):
    """The connection around a sub-layer f: LayerNorm(x + f(x)) (section 3.1), or x + f(LayerNorm(x)) (pre-norm)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.d_model, settings.norm_epsilon)
        self.dropout = Dropout(settings.dropout)
        self.pre_norm = settings.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Map x (B, T, D) to (B, T, D). The output of `sublayer` has the shape of its input."""
        y = self.dropout(sublayer(self.norm(x) if self.pre_norm else x))
        x = x + y.to(x.dtype)  # casting y first is faster than adding bf16 to fp32
        return x if self.pre_norm else self.norm(x)


class FeedForward(nn.Module):
    """The feed-forward network (equation 2): FFN(x) = max(0, x W_1 + b_1) W_2 + b_2. GELU or SiLU can replace max."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.inner = Linear(settings.d_model, settings.d_ff)
        self.activation = ACTIVATIONS[settings.activation]
        self.outer = Linear(settings.d_ff, settings.d_model)
        self.dropout = Dropout(settings.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D)."""
        hidden = self.activation(self.inner(x))  # (B, T, F)
        y: Tensor = self.outer(self.dropout(hidden))
        return y


class EncoderLayer(nn.Module):
    """A layer of the encoder: self-attention, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(self, x: Tensor, mask: Tensor, rotation: Tensor | None, weights: list[Tensor] | None) -> Tensor:
        """Map x (B, S, D) to (B, S, D). `mask` is (B, 1, 1, S). For `rotation` and `weights` see `SelfAttention`."""
        attend = functools.partial(self.self_attention, mask=mask, rotation=rotation, weights=weights)
        x = self.self_attention_residual(x, attend)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """A layer of the decoder: causal self-attention, cross-attention to the encoder output, then feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings)
        self.cross_attention = CrossAttention(settings)
        self.feed_forward = FeedForward(settings)
        self.self_attention_residual = Residual(settings)
        self.cross_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        rotation: Tensor | None,
        self_weights: list[Tensor] | None,
        cross_weights: list[Tensor] | None,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D). `memory` (B, S, D) is the encoder output, `memory_mask` is (B, 1, 1, S)."""
        attend_self = functools.partial(self.self_attention, causal=True, rotation=rotation, weights=self_weights)
        attend_memory = functools.partial(
            self.cross_attention,
            cross_kv=self.cross_attention.keys_values(memory),
            mask=memory_mask,
            weights=cross_weights,
        )
        x = self.self_attention_residual(x, attend_self)
        x = self.cross_attention_residual(x, attend_memory)
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class Transformer(Seq2Seq):
    """The model of figure 1: embeddings and positions, N encoder layers, N decoder layers, projection to logits."""

    sinusoids: Tensor | None  # (P, D), added to the embeddings; P is max_positions
    rotations: Tensor | None  # (P, D/H/2), rotate the queries and keys of self-attention

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__(settings, n_source_vocab, n_target_vocab)
        d_model, positions, n_positions = settings.d_model, settings.positions, settings.max_positions
        sinusoids = SINUSOIDS[positions](n_positions, d_model) if positions in SINUSOIDS else None
        self.register_buffer("sinusoids", sinusoids, persistent=False)
        rotations = rotary_positions(n_positions, d_model // settings.n_heads) if positions == "rotary" else None
        self.register_buffer("rotations", rotations, persistent=False)
        self.source_positions: nn.Parameter | None = None  # (P, D), added to the embeddings
        self.target_positions: nn.Parameter | None = None
        if positions == "learned":
            self.source_positions = nn.Parameter(torch.empty(n_positions, d_model))
            self.target_positions = nn.Parameter(torch.empty(n_positions, d_model))
        encoder = [EncoderLayer(settings) for _ in range(settings.n_encoder_layers)]
        decoder = [DecoderLayer(settings) for _ in range(settings.n_decoder_layers)]
        self.encoder = cast(Iterable[EncoderLayer], nn.ModuleList(encoder))  # mypy does not know the item type
        self.decoder = cast(Iterable[DecoderLayer], nn.ModuleList(decoder))
        pre_norm = settings.norm == "pre"  # pre-norm layers do not normalize their output
        self.encoder_norm = nn.LayerNorm(d_model, settings.norm_epsilon) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model, settings.norm_epsilon) if pre_norm else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters, see `Seq2Seq.reset_parameters`. Learned positions are treated like embeddings."""
        super().reset_parameters()
        for positions in (self.source_positions, self.target_positions):
            if positions is not None:
                nn.init.normal_(positions, std=self.settings.d_model**-0.5)

    def embed(
        self, tokens: Tensor, embedding: nn.Module, learned: Tensor | None, positions: slice
    ) -> tuple[Tensor, Tensor | None]:
        """Return the sum of embeddings and positional encodings (sections 3.4 and 3.5).

        Args:
            tokens: (B, T) ids of source or target tokens.
            embedding: the source or the target embedding.
            learned: learned source or target positions, (P, D), or None if the model has none.
            positions: the positions of the tokens. A slice of length 1 gives all tokens the same position.
        Returns:
            the embeddings (B, T, D), and the rotary positions (T, D/H/2) for self-attention, or None.
        """
        x = self.scaled_embedding(tokens, embedding)
        table = self.sinusoids if learned is None else learned  # (P, D)
        if table is not None:
            x = x + table[positions]
        rotation = None if self.rotations is None else self.rotations[positions]
        return self.dropout(x), rotation

    def encode(self, src: Tensor, weights: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Run the encoder.

        Args:
            src: (B, S) source ids; PAD is masked.
            weights: if not None, each layer's attention weights (B, H, S, S) are appended to this list.
        Returns:
            the memory (B, S, D), which is the encoder output, and its mask (B, 1, 1, S) bool.
        """
        mask = (src != PAD)[:, None, None]  # (B, 1, 1, S)
        if not self.settings.padding_mask:
            mask = torch.ones_like(mask)
        x, rotation = self.embed(src, self.source_embedding, self.source_positions, slice(src.size(1)))
        for layer in self.encoder:
            x = layer(x, mask, rotation, weights)
        return self.encoder_norm(x), mask

    def decode(
        self,
        tgt_in: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        self_weights: list[Tensor] | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Run the decoder, given the true previous tokens (teacher forcing).

        Args:
            tgt_in: (B, T) target ids, BOS first.
            memory, memory_mask: the results of `encode`.
            self_weights, cross_weights: if not None, each layer's attention weights (B, H, T, T) and (B, H, T, S) are
                appended to these lists.
        Returns:
            the decoder output (B, T, D), which `projection` maps to logits.
        """
        x, rotation = self.embed(tgt_in, self.target_embedding, self.target_positions, slice(tgt_in.size(1)))
        for layer in self.decoder:
            x = layer(x, memory, memory_mask, rotation, self_weights, cross_weights)
        out: Tensor = self.decoder_norm(x)
        return out

    def hidden(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        return self.decode(tgt_in, *self.encode(src))

    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Return the attention weights of all layers and heads for src (B, S) and tgt_in (B, T)."""
        encoder: list[Tensor] = []
        decoder: list[Tensor] = []
        cross: list[Tensor] = []
        memory, mask = self.encode(src, encoder)
        self.decode(tgt_in, memory, mask, decoder, cross)
        return AttentionWeights(torch.stack(encoder), torch.stack(decoder), torch.stack(cross))
