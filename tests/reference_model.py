"""Models by their definition in NumPy float64: the reference for scores and attention weights.

One pair at a time, one position and one head at a time, without batches, padding, masks, caches or torch's layers. Only
the weights and settings come from `nmt.model`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.model.base import Seq2Seq
from nmt.text import BOS, EOS

Array = NDArray[np.float64]


def softmax(scores: Array) -> Array:
    exps = np.exp(scores - scores.max())
    out: Array = exps / exps.sum()
    return out


def sigmoid(x: Array) -> Array:
    out: Array = 1 / (1 + np.exp(-x))
    return out


def gelu(x: Array) -> Array:
    return np.array([[v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in x])


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
}


class ReferenceModel:
    """A model's weights and settings. `logits` (T, V) and `cross` (L, H, T, S) are those of the last pair."""

    logits: Array
    cross: Array

    def __init__(self, model: Seq2Seq) -> None:
        named = model.named_parameters(remove_duplicate=False)
        self.weights: dict[str, Array] = {name: x.detach().double().numpy() for name, x in named}
        self.settings = model.settings

    def log_probs(self, source: list[int], target: list[int]) -> list[float]:
        """The log-probability of each token of a target, and of EOS after it, given the true previous ones."""
        self.run([*source, EOS], [BOS, *target])
        rows = [row - row.max() - math.log(np.exp(row - row.max()).sum()) for row in self.logits]
        return [float(row[token]) for row, token in zip(rows, [*target, EOS], strict=True)]

    def run(self, src: list[int], tgt_in: list[int]) -> None:
        """Run a teacher-forced pass over a source, with EOS, and decoder inputs, with BOS."""
        if self.settings.architecture == "rnn":
            hidden, weights = self.recurrent(src, tgt_in)
            self.cross = np.array([[weights]]) if len(weights) else np.empty((0, 1, len(tgt_in), len(src)))
        else:
            hidden, self.cross = self.transformer(src, tgt_in)
        self.logits = self.linear("projection", hidden)

    def linear(self, name: str, x: Array) -> Array:
        y: Array = x @ self.weights[f"{name}.weight"].T
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def embed(self, side: str, tokens: list[int]) -> Array:
        return math.sqrt(self.settings.d_model) * self.weights[f"{side}_embedding.weight"][tokens]

    # --- Transformer ---

    def transformer(self, src: list[int], tgt_in: list[int]) -> tuple[Array, Array]:
        """The input of the projection (T, D), and the weights of cross-attention (L, H, T, S)."""
        x = self.with_positions("source", src)
        for i in range(self.settings.n_encoder_layers):
            x = self.residual(f"encoder.{i}.self_attention", x, lambda n, y: self.attend_self(n, y, causal=False))
            x = self.residual(f"encoder.{i}.feed_forward", x, self.feed_forward)
        memory = self.norm("encoder_norm", x) if self.settings.norm == "pre" else x
        x = self.with_positions("target", tgt_in)
        cross: list[Array] = []
        for i in range(self.settings.n_decoder_layers):
            x = self.residual(f"decoder.{i}.self_attention", x, lambda n, y: self.attend_self(n, y, causal=True))
            x = self.residual(
                f"decoder.{i}.cross_attention", x, lambda n, y: self.attend_memory(n, y, memory, cross.append)
            )
            x = self.residual(f"decoder.{i}.feed_forward", x, self.feed_forward)
        return self.norm("decoder_norm", x) if self.settings.norm == "pre" else x, np.array(cross)

    def with_positions(self, side: str, tokens: list[int]) -> Array:
        x, d = self.embed(side, tokens), self.settings.d_model
        for position in range(len(tokens)):
            if self.settings.positions == "learned":
                x[position] += self.weights[f"{side}_positions"][position]
            for i in range(0, d, 2) if self.settings.positions == "sinusoidal" else ():
                sine, cosine = sine_and_cosine(position, i / d)
                x[position, i] += sine
                x[position, i + 1] += cosine
        return x

    def residual(self, name: str, x: Array, sublayer: Any) -> Array:
        norm = f"{name}_residual.norm"
        out: Array = x + sublayer(name, self.norm(norm, x)) if self.settings.norm == "pre" else x + sublayer(name, x)
        return out if self.settings.norm == "pre" else self.norm(norm, out)

    def norm(self, name: str, x: Array) -> Array:
        rows = [(row - row.mean()) / math.sqrt(((row - row.mean()) ** 2).mean() + 1e-5) for row in x]
        return np.array(rows) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def feed_forward(self, name: str, x: Array) -> Array:
        return self.linear(f"{name}.outer", ACTIVATIONS[self.settings.activation](self.linear(f"{name}.inner", x)))

    def attend_self(self, name: str, x: Array, *, causal: bool) -> Array:
        query, key, value = np.split(self.linear(f"{name}.query_key_value", x), 3, axis=1)
        window = self.settings.attention_window or len(x)

        def may_see(t: int, s: int) -> bool:
            return abs(t - s) <= window and not (causal and s > t)

        turn = self.settings.positions == "rotary"
        heads, _ = self.attend(name, query, key, value, may_see, turn=turn)
        return self.linear(f"{name}.output", heads)

    def attend_memory(self, name: str, x: Array, memory: Array, keep: Any) -> Array:
        query, (key, value) = (
            self.linear(f"{name}.query", x),
            np.split(self.linear(f"{name}.key_value", memory), 2, axis=1),
        )
        heads, weights = self.attend(name, query, key, value, lambda _t, _s: True)
        keep(weights)
        return self.linear(f"{name}.output", heads)

    def attend(
        self, name: str, query: Array, key: Array, value: Array, may_see: Any, *, turn: bool = False
    ) -> tuple[Array, Array]:
        """The heads side by side (T, D), and their weights (H, T, S), which are 0 where `may_see(t, s)` is false."""
        width = self.settings.d_model // self.settings.n_heads
        out, weights = np.zeros(query.shape), np.zeros((self.settings.n_heads, len(query), len(key)))
        for head in range(self.settings.n_heads):
            part = slice(head * width, (head + 1) * width)
            for t in range(len(query)):
                seen = [s for s in range(len(key)) if may_see(t, s)]
                q = turned(query[t, part], t) if turn else query[t, part]
                keys = [turned(key[s, part], s) if turn else key[s, part] for s in seen]
                scores = np.array([self.score(q, k, self.weights.get(f"{name}.v"), head) for k in keys])
                weights[head, t, seen] = softmax(scores)
                out[t, part] = weights[head, t] @ value[:, part]
        return out, weights

    def score(self, query: Array, key: Array, v: Array | None, head: int) -> float:
        if v is not None:
            return float(v[head, 0] @ np.tanh(query + key))
        return float(query @ key) / (math.sqrt(len(query)) if self.settings.attention == "scaled_dot" else 1)

    # --- recurrent ---

    def recurrent(self, src: list[int], tgt_in: list[int]) -> tuple[Array, Array]:
        """The input of the projection (T, D), and the attention weights (T, S), empty if there is no attention."""
        x, states = self.embed("source", src), []
        for i in range(self.settings.n_encoder_layers):
            ahead, last = self.cells(f"encoder.{i}.cell", "l0", x, None)
            back, first = self.cells(f"encoder.{i}.cell", "l0_reverse", x[::-1], None)
            x = np.concatenate([ahead, back[::-1]], axis=1)
            states.append([np.concatenate(pair) for pair in zip(last, first, strict=True)])
        memory, x = x, self.embed("target", tgt_in)
        for i in range(self.settings.n_decoder_layers):
            x, _ = self.cells(f"decoder.{i}.cell", "l0", x, states[i])
        if self.settings.attention == "none":
            return x, np.empty(0)
        weights = np.array([softmax(np.array([self.global_score(h, m) for m in memory])) for h in x])
        mixed = np.concatenate([weights @ memory, x], axis=1)
        return np.tanh(self.linear("look.output", mixed)), weights

    def global_score(self, hidden: Array, memory: Array) -> float:
        kind = self.settings.attention
        query = self.linear("look.query", hidden) if kind in ("general", "additive") else hidden
        if kind == "additive":
            return float(self.weights["look.v"] @ np.tanh(query + self.linear("look.key", memory)))
        return float(query @ memory) / (math.sqrt(len(memory)) if kind == "scaled_dot" else 1)

    def cells(self, name: str, which: str, x: Array, state: list[Array] | None) -> tuple[Array, list[Array]]:
        """Run one direction of a layer: outputs (T, D), and the last state: h, and for an LSTM c."""
        w_in, w_own, b_in, b_own = (
            self.weights[f"{name}.{part}_{which}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        width, is_lstm = w_own.shape[1], self.settings.cell == "lstm"
        h, c = (np.zeros(width), np.zeros(width)) if state is None else (state[0], state[-1])
        outputs = []
        for row in x:
            given, own = w_in @ row + b_in, w_own @ h + b_own
            if is_lstm:
                i, f, g, o = np.split(given + own, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            else:
                (r_in, z_in, n_in), (r_own, z_own, n_own) = np.split(given, 3), np.split(own, 3)
                z = sigmoid(z_in + z_own)
                h = (1 - z) * np.tanh(n_in + sigmoid(r_in + r_own) * n_own) + z * h
            outputs.append(h)
        return np.array(outputs), [h, c] if is_lstm else [h]


def turned(x: Array, position: int) -> Array:
    """Rotary position: each pair of neighbors turned by the position times its frequency."""
    out = x.copy()
    for i in range(0, len(x), 2):
        sine, cosine = sine_and_cosine(position, i / len(x))
        out[i] = x[i] * cosine - x[i + 1] * sine
        out[i + 1] = x[i] * sine + x[i + 1] * cosine
    return out


def sine_and_cosine(position: int, share: float) -> tuple[float, float]:
    """Of the angle position / 10000^share, in float32, as the models store them."""
    angle = position / 10_000**share
    return float(np.float32(math.sin(angle))), float(np.float32(math.cos(angle)))
