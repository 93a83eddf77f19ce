"""The recurrent encoder-decoder that preceded the Transformer, with LSTM or GRU layers.

The encoder is bidirectional (Bahdanau et al. 2015). Its final state initializes the decoder (Sutskever et al. 2014).
Attention comes after the recurrent layers of the decoder (Luong et al. 2015, section 3). There is no input feeding, so
training runs each layer over all target positions in one fused call.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nmt.config import ModelSettings
from nmt.model.attention import additive_scores, uniform, weighted_sum
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.kernels import Dropout, Linear
from nmt.text import PAD

Sequence = TypeVar("Sequence", Tensor, PackedSequence)


@dataclass(frozen=True)
class RecurrentState:
    """The state of a search over B sentences with K beams each."""

    layers: Tensor  # (L, G, B*K, D), the recurrent state of each layer; G is 2 for an LSTM, 1 for a GRU
    memory: Tensor  # (B, S, D), the encoder output
    keys: Tensor  # (B, S, D), the keys of attention, computed from the memory
    mask: Tensor  # (B, 1, S) bool, False for source padding


class RecurrentLayer(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014), with its state in one tensor.

    In a bidirectional layer, each direction has width D/2. Biases start at 0. The bias of an LSTM's forget gate starts
    at 1 (Gers et al. 2000).
    """

    def __init__(self, settings: ModelSettings, *, bidirectional: bool = False) -> None:
        super().__init__()
        d_model, self.is_lstm = settings.d_model, settings.cell == "lstm"
        width = d_model // 2 if bidirectional else d_model
        kind = nn.LSTM if self.is_lstm else nn.GRU
        self.cell = kind(d_model, width, batch_first=True, bidirectional=bidirectional)
        for name, parameter in self.cell.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            if name.startswith("bias_ih") and self.is_lstm:
                _, forget_gate, _, _ = parameter.detach().chunk(4)
                forget_gate.fill_(1.0)

    def forward(self, x: Sequence, state: Tensor | None = None) -> tuple[Sequence, Tensor]:
        """Run the layer.

        Args:
            x: (B, T, D), or a packed sequence.
            state: the initial state (G, B, D). None means zeros.
        Returns:
            the output, which has the shape of x, and the final state (G, B, D). Both directions are concatenated.
        """
        if torch.is_autocast_enabled("cpu") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            # In inference, torch uses oneDNN's LSTM. Its bf16 needs a CPU with AVX-512.
            dtype = next(self.parameters()).dtype
            with torch.autocast("cpu", enabled=False):
                state = None if state is None else state.to(dtype)
                return self.forward(x.to(dtype), state)
        # torch's states have the shape (n_directions, B, width). An LSTM has two of them, a GRU one.
        initial: Any = state
        if state is not None and self.is_lstm:
            hidden, cell = state
            initial = hidden[None], cell[None]
        out, last = self.cell(x, initial)
        parts = last if self.is_lstm else (last,)
        final = [part.transpose(0, 1).flatten(1) for part in parts]  # each (B, D)
        return out, torch.stack(final)


class GlobalAttention(nn.Module):
    """Attention from each target position to the whole source (Luong et al. 2015, section 3.1).

    The scores are Luong's `dot` or `general`, Bahdanau's `additive`, or the Transformer's `scaled_dot`.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        d_model = settings.d_model
        self.scoring = settings.attention
        self.dropout = Dropout(settings.attention_dropout)
        self.query = self.key = cast(nn.Module, nn.Identity())
        if self.scoring in ("general", "additive"):
            self.query = Linear(d_model, d_model, bias=False)
        if self.scoring == "additive":
            self.key = Linear(d_model, d_model)
            self.v = nn.Parameter(uniform(d_model))
        self.output = Linear(2 * d_model, d_model, bias=False)

    def forward(self, hidden: Tensor, keys: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Compute equation 5 of Luong et al.: tanh(W [context; hidden]).

        Args:
            hidden: (B, T, D), the states of the decoder.
            keys: (B, S, D), `self.key(memory)`.
            memory: (B, S, D), the encoder output.
            mask: (B, 1, S) bool.
        Returns:
            the result of the equation (B, T, D), and the attention weights (B, T, S).
        """
        query = self.query(hidden)
        is_additive = self.scoring == "additive"
        scores = additive_scores(query, keys, self.v) if is_additive else query @ keys.mT  # (B, T, S)
        if self.scoring == "scaled_dot":
            d_model = query.size(-1)
            scores = scores / math.sqrt(d_model)
        context, weights = weighted_sum(scores, memory, mask, self.dropout)
        both = torch.cat([context, hidden], -1)  # (B, T, 2D)
        return torch.tanh(self.output(both)), weights


class RecurrentModel(Seq2Seq):
    """A recurrent encoder and decoder, with attention between them.

    Dropout is applied to the inputs of layers and of the projection, not to recurrent connections (Zaremba et al.
    2014). In eval mode, the model is its own `IncrementalDecoder`.
    """

    def __init__(self, settings: ModelSettings, n_source_vocab: int, n_target_vocab: int) -> None:
        super().__init__(settings, n_source_vocab, n_target_vocab)
        encoder = [RecurrentLayer(settings, bidirectional=True) for _ in range(settings.n_encoder_layers)]
        decoder = [RecurrentLayer(settings) for _ in range(settings.n_decoder_layers)]
        self.encoder = cast(Iterable[RecurrentLayer], nn.ModuleList(encoder))
        self.decoder = cast(Iterable[RecurrentLayer], nn.ModuleList(decoder))
        # The name "look" must stay, because model files contain it.
        self.look = None if settings.attention == "none" else GlobalAttention(settings)
        self.reset_parameters()

    def start(self, src: Tensor) -> RecurrentState:
        """Encode src (B, S). Return the state before the first target token, with one beam per sentence."""
        mask = src != PAD
        x = self.scaled_embedding(src, self.source_embedding)
        lengths = mask.sum(1).cpu()  # makes the CPU wait for a GPU
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states = []
        for layer in self.encoder:
            dropped = packed._replace(data=self.dropout(packed.data))
            packed, state = layer(dropped)
            states.append(state)
        memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.size(1))
        keys = memory if self.look is None else self.look.key(memory)
        return RecurrentState(torch.stack(states), memory, keys, mask[:, None])

    def decode(self, tgt: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Run the recurrent layers of the decoder over tgt (N, T). `states` (L, G, N, D) are the initial states.

        Returns the output of the last layer (N, T, D), and the final states (L, G, N, D).
        """
        x = self.scaled_embedding(tgt, self.target_embedding)
        final = []
        for layer, state in zip(self.decoder, states, strict=True):
            x, after = layer(self.dropout(x), state)
            final.append(after)
        return x, torch.stack(final)

    def attend(self, hidden: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor | None]:
        """Map the output of the recurrent layers (B, T, D) to the input of the projection (B, T, D).

        Also returns the attention weights (B, T, S), or None if the model has no attention.
        """
        weights = None
        if self.look is not None:
            hidden, weights = self.look(hidden, state.keys, state.memory, state.mask)
        return self.dropout(hidden), weights

    def hidden(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        state = self.start(src)
        x, _ = self.decode(tgt_in, state.layers)
        hidden, _ = self.attend(x, state)
        return hidden

    def attention(self, src: Tensor, tgt_in: Tensor) -> AttentionWeights:
        """Return the attention weights of a teacher-forced pass. Only cross-attention has weights, with one head."""
        state = self.start(src)
        hidden, _ = self.decode(tgt_in, state.layers)
        _, weights = self.attend(hidden, state)
        n, s = src.shape
        t = tgt_in.size(1)
        encoder = hidden.new_empty(0, n, 1, s, s)
        decoder = hidden.new_empty(0, n, 1, t, t)
        cross = hidden.new_empty(0, n, 1, t, s) if weights is None else weights[None, :, None]
        return AttentionWeights(encoder, decoder, cross)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Decode one position of each beam. Attention treats the beams of a sentence as target positions."""
        x, layers = self.decode(tokens.reshape(-1, 1), state.layers)  # (B*K, 1, D)
        beams = x.view(*tokens.shape, -1)  # (B, K, D)
        hidden, _ = self.attend(beams, state)
        return self.projection(hidden), replace(state, layers=layers)

    def select(self, state: RecurrentState, beam_indices: Tensor) -> RecurrentState:
        layers = state.layers.index_select(2, beam_indices.flatten())
        n_sentences = len(state.mask)
        if len(beam_indices) == n_sentences:  # no sentence has left the batch
            return replace(state, layers=layers)
        n_beams = state.layers.size(2) // n_sentences
        sentences = beam_indices[:, 0] // n_beams  # (B',)
        return RecurrentState(layers, state.memory[sentences], state.keys[sentences], state.mask[sentences])
