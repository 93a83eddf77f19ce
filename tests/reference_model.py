"""Models by their definition: the reference for scores.

One pair and one head at a time, in float64, without batches, padding, caches or the layers of `nmt.model`, of which
only weights and settings are used. LSTM and GRU are torch's.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model.base import Seq2Seq
from nmt.text import BOS, EOS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class ReferenceModel:
    """A model's weights and settings."""

    def __init__(self, model: Seq2Seq) -> None:
        named = model.named_parameters(remove_duplicate=False)
        self.weights = {name: x.detach().double() for name, x in named}
        self.settings = model.settings

    def log_probs(self, source: list[int], target: list[int]) -> list[float]:
        """The log-probability of each token of a target, and of EOS after it, given the true previous ones."""
        run = self.recurrent if self.settings.architecture == "rnn" else self.transformer
        hidden = run([*source, EOS], [BOS, *target])
        rows = self.linear("projection", hidden, bias=self.settings.projection_bias).log_softmax(-1)  # (T, V)
        return [float(row[token]) for row, token in zip(rows, [*target, EOS], strict=True)]

    def linear(self, name: str, x: Tensor, *, bias: bool = True) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"] if bias else None)

    def embed(self, side: str, tokens: list[int]) -> Tensor:
        return math.sqrt(self.settings.d_model) * self.weights[f"{side}_embedding.weight"][tokens]

    # --- Transformer ---

    def transformer(self, src: list[int], tgt_in: list[int]) -> Tensor:
        """The input of the projection (T, D)."""
        is_pre = self.settings.norm == "pre"
        x = self.with_positions("source", src)
        for i in range(self.settings.n_encoder_layers):
            x = self.residual(f"encoder.{i}.self_attention", x, partial(self.attend_self, causal=False))
            x = self.residual(f"encoder.{i}.feed_forward", x, self.feed_forward)
        memory = self.norm("encoder_norm", x) if is_pre else x
        x = self.with_positions("target", tgt_in)
        for i in range(self.settings.n_decoder_layers):
            x = self.residual(f"decoder.{i}.self_attention", x, partial(self.attend_self, causal=True))
            x = self.residual(f"decoder.{i}.cross_attention", x, partial(self.attend_memory, memory=memory))
            x = self.residual(f"decoder.{i}.feed_forward", x, self.feed_forward)
        return self.norm("decoder_norm", x) if is_pre else x

    def with_positions(self, side: str, tokens: list[int]) -> Tensor:
        x = self.embed(side, tokens)
        if self.settings.positions == "learned":
            return x + self.weights[f"{side}_positions"][: len(x)]
        return x + torch.stack(sines_and_cosines(x), -1).flatten(1) if self.settings.positions == "sinusoidal" else x

    def residual(self, name: str, x: Tensor, sublayer: Callable[[str, Tensor], Tensor]) -> Tensor:
        norm = partial(self.norm, f"{name}_residual.norm")
        return x + sublayer(name, norm(x)) if self.settings.norm == "pre" else norm(x + sublayer(name, x))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.outer", ACTIVATIONS[self.settings.activation](self.linear(f"{name}.inner", x)))

    def attend_self(self, name: str, x: Tensor, *, causal: bool) -> Tensor:
        query, key, value = self.linear(f"{name}.query_key_value", x).chunk(3, 1)
        seen = torch.ones(len(x), len(x), dtype=torch.bool)
        return self.attend(name, query, key, value, seen.tril() if causal else seen)

    def attend_memory(self, name: str, x: Tensor, *, memory: Tensor) -> Tensor:
        key, value = self.linear(f"{name}.key_value", memory).chunk(2, 1)
        seen = torch.ones(len(x), len(memory), dtype=torch.bool)
        return self.attend(name, self.linear(f"{name}.query", x), key, value, seen)

    def attend(self, name: str, query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        """The output of all heads (T, D); position t attends to those at which `seen` (T, S) is true."""
        turn = self.settings.positions == "rotary" and name.endswith("self_attention")
        width, heads = self.settings.d_model // self.settings.n_heads, []
        for head, (q, k, v) in enumerate(
            zip(*(x.view(len(x), -1, width).unbind(1) for x in (query, key, value)), strict=True)
        ):
            if self.settings.attention == "additive":
                scores = (q[:, None] + k).tanh() @ self.weights[f"{name}.v"][head, 0]
            else:
                scores = turned(q) @ turned(k).T if turn else q @ k.T
                scores = scores / math.sqrt(width) if self.settings.attention == "scaled_dot" else scores
            heads.append(scores.masked_fill(~seen, -math.inf).softmax(-1) @ v)
        return self.linear(f"{name}.output", torch.cat(heads, 1))

    # --- recurrent ---

    def recurrent(self, src: list[int], tgt_in: list[int]) -> Tensor:
        """The input of the projection (T, D)."""
        memory, states = self.embed("source", src), []
        for i in range(self.settings.n_encoder_layers):
            memory, state = self.layer(f"encoder.{i}.cell", memory, None)
            states.append(state)
        x = self.embed("target", tgt_in)
        for i, state in enumerate(states):
            x, _ = self.layer(f"decoder.{i}.cell", x, state)
        if self.settings.attention == "none":
            return x
        projected = self.settings.attention in ("general", "additive")
        query = self.linear("look.query", x, bias=False) if projected else x
        if self.settings.attention == "additive":
            scores = (query[:, None] + self.linear("look.key", memory)).tanh() @ self.weights["look.v"]
        else:
            scores = query @ memory.T  # (T, S)
        if self.settings.attention == "scaled_dot":
            scores = scores / math.sqrt(self.settings.d_model)
        return self.linear("look.output", torch.cat([scores.softmax(-1) @ memory, x], 1), bias=False).tanh()

    def layer(self, name: str, x: Tensor, state: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """Run a layer of the encoder, in both directions, or of the decoder: outputs (T, D) and its last state."""
        is_lstm, n_directions = self.settings.cell == "lstm", 1 if state else 2
        kind, width = nn.LSTM if is_lstm else nn.GRU, self.settings.d_model // n_directions
        cell = kind(self.settings.d_model, width, bidirectional=n_directions == 2).double()
        cell.load_state_dict({part: self.weights[f"{name}.{part}"] for part in cell.state_dict()})
        first = [one[None] for one in state or []]
        with torch.no_grad():
            out, last = cell(x, (tuple(first) if is_lstm else first[0]) if state else None)
        return out, [part.flatten() for part in (last if is_lstm else [last])]


def turned(x: Tensor) -> Tensor:
    """Rotary positions: each pair of neighbors in x (T, d) turned by the position times its frequency."""
    (sine, cosine), even, odd = sines_and_cosines(x), x[:, ::2], x[:, 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(1)


def sines_and_cosines(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of the angles position / 10000^(2i/d) for x (T, d), each (T, d/2), in float32 as the models store them."""
    d = x.size(1)
    angles = [[position / 10_000 ** (i / d) for i in range(0, d, 2)] for position in range(len(x))]
    sine, cosine = (torch.tensor([[f(angle) for angle in row] for row in angles]) for f in (math.sin, math.cos))
    return sine.double(), cosine.double()
