"""The recurrent encoder-decoder, which the Transformer grew out of.

One LSTM reads the source, another, started in the state in which the first one ended, writes the target
(Sutskever et al. 2014): with `attention` none that state is all that is known of the source, however long it is.
Bahdanau et al. 2015 free it: an encoder that reads both ways, and at every target position a look at all it read.

Attention looks once the decoder's layers have read the target so far (Luong et al. 2015, section 3). So training
runs each layer over all target positions in one fused call, then attention over all of them at once. Luong's input
feeding, and Bahdanau's attention in the midst of the recurrence, would do both a position at a time.
"""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nmt.config import ModelSettings
from nmt.model.attention import additive_scores, uniform, weighted_sum
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.dropout import Dropout
from nmt.text import PAD

Sequence = TypeVar("Sequence", Tensor, PackedSequence)


@dataclass(frozen=True)
class RecurrentState:
    """All that search carries from one step to the next, for B sentences of K beams.

    Attributes:
        layers: (L, G, B*K, D), where each layer stands; G is 2 for an LSTM, 1 for a GRU.
        memory: (B, S, D), what the encoder read.
        keys: (B, S, D), what scores are taken with.
        mask: (B, 1, S) bool.
    """

    layers: Tensor
    memory: Tensor
    keys: Tensor
    mask: Tensor


class RecurrentLayer(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014), whose state is one tensor.

    In both directions, each has half of the width. Matrices begin as torch has them, biases at 0; but an LSTM does
    not forget at first (Gers et al. 2000).
    """

    def __init__(self, settings: ModelSettings, *, bidirectional: bool = False) -> None:
        super().__init__()
        width = settings.d_model // (2 if bidirectional else 1)
        kind = nn.LSTM if settings.cell == "lstm" else nn.GRU
        self.cell = kind(settings.d_model, width, batch_first=True, bidirectional=bidirectional)
        for name, parameter in self.cell.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                if name.startswith("bias_ih") and isinstance(self.cell, nn.LSTM):
                    _, forget, _, _ = parameter.detach().chunk(4)
                    forget.fill_(1.0)

    def forward(self, x: Sequence, state: Tensor | None = None) -> tuple[Sequence, Tensor]:
        """Read a sequence.

        Args:
            x: (B, T, D), or packed.
            state: (G, B, D), to start in; else zeros.
        Returns:
            the output, like x, and the last state, both directions' side by side: (G, B, D).
        """
        precision: AbstractContextManager[None] = nullcontext()
        if torch.is_autocast_enabled("cpu") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            # Without a gradient, torch takes oneDNN's LSTM, which has no bf16 on CPUs without AVX-512.
            precision = torch.autocast("cpu", enabled=False)
            dtype = next(self.parameters()).dtype
            x, state = x.to(dtype), None if state is None else state.to(dtype)
        first: Any = None if state is None else state[:, None].unbind() if len(state) > 1 else state
        with precision:
            out, last = self.cell(x, first)
        parts = last if isinstance(last, tuple) else (last,)
        return out, torch.stack([part.transpose(0, 1).flatten(1) for part in parts])


class GlobalAttention(nn.Module):
    """A look from each target position at the whole source, and what comes of it (Luong et al. 2015, section 3.1).

    The scores are Luong's `dot` and `general`, Bahdanau's `additive`, or `dot` scaled as in the Transformer.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.scoring, d_model = settings.attention, settings.d_model
        self.dropout = Dropout(settings.attention_dropout)
        self.query = self.key = cast(nn.Module, nn.Identity())
        if self.scoring in ("general", "additive"):
            self.query = nn.Linear(d_model, d_model, bias=False)
        if self.scoring == "additive":
            self.key = nn.Linear(d_model, d_model)
            self.v = nn.Parameter(uniform(d_model))
        self.output = nn.Linear(2 * d_model, d_model, bias=False)

    def forward(self, hidden: Tensor, keys: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What the source adds to the decoder's states.

        Args:
            hidden: (B, T, D).
            keys: (B, S, D), `self.key` of the memory.
            memory: (B, S, D).
            mask: (B, 1, S) bool.
        Returns:
            tanh(W [context; hidden]), (B, T, D), and the weights (B, T, S).
        """
        query = self.query(hidden)
        if self.scoring == "additive":
            scores = additive_scores(query, keys, self.v)  # (B, T, S)
        else:
            scores = query @ keys.transpose(1, 2)
        if self.scoring == "scaled_dot":
            scores = scores / math.sqrt(query.size(-1))
        context, weights = weighted_sum(scores, memory, mask, self.dropout)
        return torch.tanh(self.output(torch.cat([context, hidden], -1))), weights


class RecurrentModel(Seq2Seq):
    """Encoder, decoder and the attention between them.

    Dropout is on what each layer and the projection read, not on what a layer tells itself (Zaremba et al. 2014).
    """

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__(settings, n_source_vocab, n_target_vocab)
        encoder = (RecurrentLayer(settings, bidirectional=True) for _ in range(settings.n_encoder_layers))
        decoder = (RecurrentLayer(settings) for _ in range(settings.n_decoder_layers))
        self.encoder = cast(Iterable[RecurrentLayer], nn.ModuleList(encoder))
        self.decoder = cast(Iterable[RecurrentLayer], nn.ModuleList(decoder))
        self.look = None if settings.attention == "none" else GlobalAttention(settings)
        self.reset_parameters()

    def encode(self, src: Tensor) -> RecurrentState:
        """Read the source, (B, S) ids, to the state of one beam a sentence."""
        mask = src != PAD
        x = self.scaled(src, self.source_embedding)
        lengths = mask.sum(1).cpu()  # a sync point
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states = []
        for layer in self.encoder:
            packed, state = layer(packed._replace(data=self.dropout(packed.data)))
            states.append(state)
        memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.size(1))
        keys = memory if self.look is None else self.look.key(memory)
        return RecurrentState(torch.stack(states), memory, keys, mask[:, None])

    def decode(self, tgt: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Run the decoder's layers.

        Args:
            tgt: (N, T) ids.
            states: (L, G, N, D), where the layers stand.
        Returns:
            the last layer's output, (N, T, D), and where the layers stand then.
        """
        x = self.scaled(tgt, self.target_embedding)
        after = []
        for layer, state in zip(self.decoder, states, strict=True):
            x, state = layer(self.dropout(x), state)
            after.append(state)
        return x, torch.stack(after)

    def attended(self, hidden: Tensor, state: RecurrentState, weights: list[Tensor] | None = None) -> Tensor:
        """What the projection reads at any T positions: (B, T, D) to (B, T, D); `weights` as in `hidden`."""
        if self.look is not None:
            hidden, found = self.look(hidden, state.keys, state.memory, state.mask)
            if weights is not None:
                weights.append(found)
        out: Tensor = self.dropout(hidden)
        return out

    def hidden(self, src: Tensor, tgt_in: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        """See `Seq2Seq`; where `weights` is given, attention's (B, T, S) is appended."""
        state = self.encode(src)
        x, _ = self.decode(tgt_in, state.layers)
        return self.attended(x, state, weights)

    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """See `Seq2Seq`: cross-attention alone, of one layer with one head."""
        found: list[Tensor] = []
        hidden = self.hidden(src, tgt_in, found)
        (n, s), t = src.shape, tgt_in.size(1)
        encoder, decoder, cross = (hidden.new_empty(0, n, 1, *size) for size in ((s, s), (t, t), (t, s)))
        return AttentionWeights(encoder, decoder, found[0][None, :, None] if found else cross)

    # --- what search uses: start, step, select ------------------------------------------------------------

    def start(self, src: Tensor) -> RecurrentState:
        """See `Seq2Seq`."""
        return self.encode(src)

    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """See `Seq2Seq`; the beams are target positions of one sentence to attention."""
        x, layers = self.decode(ids.reshape(-1, 1), state.layers)
        logits: Tensor = self.projection(self.attended(x.view(*ids.shape, -1), state))
        return logits, replace(state, layers=layers)

    def select(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """See `Seq2Seq`."""
        layers = state.layers.index_select(2, rows.flatten())
        if len(rows) == len(state.mask):
            return replace(state, layers=layers)
        n_beams = state.layers.size(2) // len(state.mask)
        sentences = rows[:, 0] // n_beams
        return RecurrentState(layers, *(x[sentences] for x in (state.memory, state.keys, state.mask)))
