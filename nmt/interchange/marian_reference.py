"""A reference implementation of transformers' MarianMTModel, with its weights and token ids, to check imports.

With pre-norm it is PegasusForConditionalGeneration. It handles one sentence, without padding or cache, in float64: with
random weights, rounding in float32 can change the logits as much as a wrong import would.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.interchange.marian_files import MarianSettings

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swish": F.silu}


def sinusoids_in_halves(n_positions: int, d_model: int) -> Tensor:
    """(P, D): sines in the first half of the features, cosines of the same angles in the second."""
    frequencies = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(n_positions, dtype=torch.float64)[:, None] * frequencies  # (P, D/2)
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :d_model].float()


class Reference:
    """The model. `weights` has the parameter names of MarianMTModel."""

    def __init__(self, weights: dict[str, Tensor], settings: MarianSettings) -> None:
        self.weights = weights
        self.settings = settings

    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (T, V) for a source (S,) that ends in EOS and decoder inputs (T,) that begin with the start token."""
        memory = self.embed("encoder", src)
        for i in range(self.settings.encoder_layers):
            memory = self.attend(f"model.encoder.layers.{i}.self_attn", memory)
            memory = self.feed_forward(f"model.encoder.layers.{i}", memory)
        memory = self.norm("model.encoder.layer_norm", memory) if self.settings.pre_norm else memory
        x = self.embed("decoder", tgt_in)
        for i in range(self.settings.decoder_layers):
            x = self.attend(f"model.decoder.layers.{i}.self_attn", x, causal=True)
            x = self.attend(f"model.decoder.layers.{i}.encoder_attn", x, memory)
            x = self.feed_forward(f"model.decoder.layers.{i}", x)
        x = self.norm("model.decoder.layer_norm", x) if self.settings.pre_norm else x
        logits = x @ self.weights["lm_head.weight"].double().T
        return logits + self.weights["final_logits_bias"][0] if "final_logits_bias" in self.weights else logits

    def embed(self, side: str, tokens: Tensor) -> Tensor:
        """The sum of token and position embeddings, (T, D)."""
        x = self.weights[f"model.{side}.embed_tokens.weight"][tokens].double()
        x = x * math.sqrt(self.settings.d_model) if self.settings.scale_embedding else x
        positions = self.weights.get(f"model.{side}.embed_positions.weight")
        return x + (sinusoids_in_halves(*x.shape) if positions is None else positions[: len(x)])

    def attend(self, name: str, x: Tensor, memory: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Self-attention of x (T, D), or cross-attention to `memory` (S, D), with residual connection and norm."""
        normed = self.norm(f"{name}_layer_norm", x) if self.settings.pre_norm else x
        read = normed if memory is None else memory
        query, key, value = (
            self.linear(f"{name}.{part}_proj", y)
            .view(len(y), self.settings.encoder_attention_heads, -1)
            .transpose(0, 1)
            for part, y in (("q", normed), ("k", read), ("v", read))
        )  # (H, T, D/H)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=causal).transpose(0, 1).flatten(1)
        x = x + self.linear(f"{name}.out_proj", attended)
        return x if self.settings.pre_norm else self.norm(f"{name}_layer_norm", x)

    def feed_forward(self, layer: str, x: Tensor) -> Tensor:
        """Feed-forward layer with residual connection and norm, (T, D) to (T, D)."""
        normed = self.norm(f"{layer}.final_layer_norm", x) if self.settings.pre_norm else x
        inner = ACTIVATIONS[self.settings.activation_function](self.linear(f"{layer}.fc1", normed))
        x = x + self.linear(f"{layer}.fc2", inner)
        return x if self.settings.pre_norm else self.norm(f"{layer}.final_layer_norm", x)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"].double(), self.weights[f"{name}.bias"].double())

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"].double(), self.weights[f"{name}.bias"].double()
        return F.layer_norm(x, x.shape[-1:], weight, bias)
