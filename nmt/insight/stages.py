"""The stages of a model: its intermediate tensors for one sentence pair, in the order of computation.

Hooks record the tensors during a forward pass. Sections, equations and figure 1 are those of Vaswani et al. 2017. The
stages of a recurrent model are only the logits and the probabilities.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt.model.attention import (
    CrossAttention,
    MultiHeadAttention,
    SelfAttention,
    causal_mask,
    heads_first,
    scaled_dot_product_attention,
    window_mask,
)
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.model.recurrent import GlobalAttention, RecurrentLayer
from nmt.model.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual, Transformer

N_COLUMNS = 48  # the logits and the probabilities keep this many of their V columns
# Key: name of a stage up to the first comma; value: section of the paper, and description of the stage.
STAGES = {
    "Embedding": ("3.4", "Each token id selects a row of a learned table: a vector of D numbers."),
    "Embedding + position": ("3.5", ""),  # `POSITIONS` has the description
    "Scaled embedding": ("3.5", ""),
    "Queries": (
        "3.2.2",
        "What each position looks for. Linear layers make queries, keys and values with d = D/H numbers a head.",
    ),
    "Keys": ("3.2.2", "What each position can be found by."),
    "Values": ("3.2.2", "What each position hands over when attended to."),
    "Mask": ("3.2.3", ""),  # `MASKS` or `WINDOWED_MASKS` has the description
    "Scores QKᵀ/√d": (
        "3.2.1, equation 1",
        "How well each query fits each key: their dot product. Hidden positions have -inf, shown gray.",
    ),
    "Attention weights": (
        "3.2.1, equation 1",
        "Softmax turns the scores of each query into weights that sum to 1.",
    ),
    "Heads merged": (
        "3.2.2",
        "Each head sums the values by its weights. The results of the H heads stand side by side again.",
    ),
    "Feed-forward": ("3.3, equation 2", ""),  # `feed_forward_stages` makes the description
    "Layer norm": (
        "3.1",
        "Each vector gets mean 0 and variance 1, then a learned scale and shift. The sub-layer reads the result.",
    ),
    "Add": ("3.1, 5.4", "The sub-layer's output, projected to D numbers, is added to its input."),
    "Add and norm": (
        "3.1, 5.4",
        "The sub-layer's output, projected to D numbers, is added to its input; the sum is normalized.",
    ),
    "Memory": ("3.1", "The encoder's output: a vector per source token, which depends on the whole sentence."),
    "Decoder output": ("3.1", "A vector per target position, from which the next token is predicted."),
    "Logits": ("3.4", "One number per token of the vocabulary: how well it fits as the next token."),
    "Probabilities": ("3.4", "Softmax turns the logits of each position into numbers that sum to 1."),
}
POSITIONS = {
    "sinusoidal": "Times sqrt(D), plus sines and cosines of the position. Without them word order would be lost.",
    "marian": "Times sqrt(D), plus sines and cosines of the position, of Marian's wavelengths.",
    "learned": "Times sqrt(D), plus a learned vector of each position. Without it word order would be lost.",
    "rotary": "Times sqrt(D). Positions come in later: queries and keys are rotated by their position.",
    "none": "Times sqrt(D). This model knows nothing of positions.",
}
MASKS = {
    "encoder": "Every source position may attend to every other; only padding would be hidden.",
    "decoder": "The causal mask hides later positions: each token is predicted from those before it.",
    "cross": "Every target position may attend to the whole source; only padding would be hidden.",
}
WINDOWED_MASKS = {
    "encoder": "The local window: a position may attend to at most {n} positions before it and {n} after it.",
    "decoder": "The causal mask and the local window: a position may attend to itself and at most {n} before it.",
}

ACTIVATIONS: dict[object, str] = {
    torch.relu: "ReLU sets the negative ones to 0",
    F.gelu: "GELU brings the negative ones close to 0",
    F.silu: "SiLU brings the negative ones close to 0",
}
DOCSTRING = re.compile(r'\n +""".*?"""', re.DOTALL)

CODE: list[Callable[..., Any]] = [  # the page shows the source code of these functions beside the boxes of figure 1
    Seq2Seq.scaled_embedding,
    Transformer.embed,
    SelfAttention.project,
    scaled_dot_product_attention,
    causal_mask,
    window_mask,
    MultiHeadAttention.merge_heads,
    FeedForward.forward,
    Residual.forward,
    Transformer.encode,
    Transformer.decode,
    RecurrentLayer.forward,
    GlobalAttention.forward,
    Seq2Seq.forward,
]


@dataclass(frozen=True)
class Stage:
    """A tensor that a model computes on the way from source tokens to target probabilities."""

    part: str  # encoder, decoder or output
    name: str
    section: str  # section of the paper; empty for recurrent models
    text: str  # description of what the model computes here
    axes: str  # a letter for each dimension: B, H, S, T, D, d (which is D/H), F (feed-forward width), V
    shape: tuple[int, ...]  # shape of the whole tensor
    values: Tensor  # the matrix of the last two dimensions, for the first sentence and the first head
    columns: list[str] | None = None  # piece of each column, if the columns are tokens of the vocabulary
    box: str = ""  # the box of figure 1 that computes this stage


def stage(part: str, name: str, x: Tensor, axes: str, box: str = "", text: str = "") -> Stage:
    """Return a stage. Its section and, if `text` is empty, its text come from `STAGES`."""
    section, usual_text = STAGES[name.partition(",")[0]]
    values = x[(0,) * (x.dim() - 2)]  # the matrix of the first sentence and the first head
    return Stage(part, name, section, text or usual_text, axes, tuple(x.shape), values, box=box)


Calls = defaultdict[nn.Module, list[Any]]  # key: module; value: a list with one item per call of the module


class Recorder(TorchFunctionMode):
    """A context manager that records all calls of a model's modules, and the inputs of softmax."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.inputs: Calls = defaultdict(list)  # the first argument of each call
        self.outputs: Calls = defaultdict(list)
        self.scores: list[Tensor] = []  # the inputs of softmax, in the order of the calls

    def __enter__(self) -> "Recorder":
        def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self.inputs[module].append(inputs[0])
            self.outputs[module].append(output)

        self.hooks = [module.register_forward_hook(record) for module in self.model.modules()]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self.hooks:
            hook.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.softmax:
            self.scores.append(args[0])
        return func(*args, **(kwargs or {}))


def record_stages(
    model: Seq2Seq, src: Tensor, tgt_in: Tensor, pieces: Callable[[list[int]], list[str]]
) -> tuple[list[Stage], AttentionWeights]:
    """Run the model on `src` (1, S) and `tgt_in` (1, T) by teacher forcing. Return its stages and attention weights.

    The logits and the probabilities keep only the columns of the most probable tokens. `pieces` maps token ids to
    pieces.
    """
    with torch.inference_mode():
        with Recorder(model) as seen:
            attention = model.attention(src, tgt_in)
        stages = []
        if isinstance(model, Transformer):
            stages = list(transformer_stages(model, seen, attention))

        # Add the logits and the probabilities, in the columns of the most probable tokens.
        logits = model(src, tgt_in).float()  # (1, T, V)
        probabilities = logits.softmax(-1)
        highest = probabilities[0].amax(0)  # (V,)
        likely = highest.topk(min(N_COLUMNS, len(highest))).indices
        columns = pieces(likely.tolist())
        for name, x in (("Logits", logits), ("Probabilities", probabilities)):
            full = stage("output", name, x, "BTV", name.lower())
            section = full.section if isinstance(model, Transformer) else ""
            values = full.values[:, likely]
            stages.append(replace(full, section=section, values=values, columns=columns))
    return stages, attention


def transformer_stages(model: Transformer, seen: Recorder, attention: AttentionWeights) -> Iterator[Stage]:
    """Yield the stages of the encoder, then of the decoder: the stages of layer 1, and the output of the last layer."""
    encoder = list(model.encoder)
    decoder = list(model.decoder)
    # The encoder calls softmax once per layer. After these calls, layer 1 of the decoder calls softmax twice.
    self_scores, cross_scores = seen.scores[len(encoder) :][:2]

    # Tied embeddings are one module. The first call of this module embeds the source, the last call the target.
    embedded = seen.outputs[model.source_embedding][0]
    yield stage("encoder", "Embedding", embedded, "BSD", "embedding")
    layer = encoder[0]
    yield positions_stage("encoder", seen.inputs[layer][0], "BSD", model)
    yield from self_attention_stages("encoder", "S", layer, seen, seen.scores[0], attention.encoder[0])
    yield from feed_forward_stages("encoder", "S", layer, seen)
    memory = seen.outputs[model.encoder_norm][0]
    yield stage("encoder", f"Memory, after all {len(encoder)} layers", memory, "BSD", "memory")

    embedded = seen.outputs[model.target_embedding][-1]
    yield stage("decoder", "Embedding", embedded, "BTD", "embedding")
    decoder_layer = decoder[0]
    yield positions_stage("decoder", seen.inputs[decoder_layer][0], "BTD", model)
    yield from self_attention_stages("decoder", "T", decoder_layer, seen, self_scores, attention.decoder[0])
    yield from cross_attention_stages(decoder_layer, seen, cross_scores, attention.cross[0])
    yield from feed_forward_stages("decoder", "T", decoder_layer, seen)
    out = seen.outputs[model.decoder_norm][0]
    yield stage("decoder", f"Decoder output, after all {len(decoder)} layers", out, "BTD", "decoder output")


def decoder_cache(model: Seq2Seq, src: Tensor, tgt_in: Tensor) -> tuple[list[tuple[int, ...]], Tensor]:
    """Decode `tgt_in` (1, T) token by token, as search does. Return what each token adds to the decoder's state.

    For a Transformer, the state is the KV cache of layer 1. For a recurrent model, it is the state of the last layer: G
    vectors, where G is 2 for an LSTM and 1 for a GRU.

    Returns:
        the shape of the state after each of the T tokens: (2, 1, H, t, D/H) after t tokens, or (G, 1, D).
        the values that each token adds: the key and value of head 1 (2, T, D/H), or the state (G, T, D).
    """
    decoder = incremental_decoder(model)
    shapes = []
    added = []
    with torch.inference_mode():
        state = decoder.start(src)
        for token in tgt_in[0]:
            _, state = decoder.step(token[None, None], state)
            if isinstance(model, Transformer):
                kept = state.self_kv[0]
                added.append(kept[:, 0, 0, -1])  # keys and values of head 1 at the last position
            else:
                kept = state.layers[-1]
                added.append(kept[:, 0])
            shapes.append(tuple(kept.shape))
    return shapes, torch.stack(added, 1)


def excerpts() -> dict[str, tuple[str, str]]:
    """Return the file and the source code of each function in `CODE`, by name. Docstrings are left out."""
    excerpts_by_name = {}
    for function in CODE:
        file = f"{function.__module__.replace('.', '/')}.py"
        source = dedent(inspect.getsource(function))
        excerpts_by_name[function.__qualname__] = file, DOCSTRING.sub("", source, count=1)
    return excerpts_by_name


def positions_stage(part: str, x: Tensor, axes: str, model: Transformer) -> Stage:
    """Return the stage of layer 1's input: scaled embeddings, plus positional encodings if the model adds any."""
    positions = model.settings.positions
    name = "Embedding + position" if positions in ("sinusoidal", "marian", "learned") else "Scaled embedding"
    return stage(part, name, x, axes, "positions", POSITIONS[positions])


class AttentionTensors(NamedTuple):
    """The tensors that one attention sub-layer computes. In self-attention, S equals T."""

    query: Tensor  # (B, H, T, D/H)
    key: Tensor  # (B, H, S, D/H)
    value: Tensor  # (B, H, S, D/H)
    scores: Tensor  # (B, H, T, S') with S' >= S: `kernels.softmax` may pad the scores
    weights: Tensor  # (B, H, T, S)
    merged: Tensor  # (B, T, D)


def self_attention_stages(
    part: str, length: str, layer: EncoderLayer | DecoderLayer, seen: Recorder, scores: Tensor, weights: Tensor
) -> Iterator[Stage]:
    attention: SelfAttention = layer.self_attention
    query, key, value = heads_first(attention.split_heads(seen.outputs[attention.query_key_value][0], 3))
    merged = seen.inputs[attention.output][0]
    tensors = AttentionTensors(query, key, value, scores, weights, merged)
    mask_text = MASKS[part]
    if attention.window is not None:
        mask_text = WINDOWED_MASKS[part].format(n=attention.window)
    inner = attention_stages(part, mask_text, length * 2, tensors)
    yield from sublayer_stages("self-attention", list(inner), layer.self_attention_residual, seen)


def cross_attention_stages(layer: DecoderLayer, seen: Recorder, scores: Tensor, weights: Tensor) -> Iterator[Stage]:
    attention: CrossAttention = layer.cross_attention
    (query,) = heads_first(attention.split_heads(seen.outputs[attention.query][0], 1))
    key, value = heads_first(attention.split_heads(seen.outputs[attention.key_value][0], 2))
    merged = seen.inputs[attention.output][0]
    tensors = AttentionTensors(query, key, value, scores, weights, merged)
    inner = attention_stages("decoder", MASKS["cross"], "TS", tensors)
    yield from sublayer_stages("cross-attention", list(inner), layer.cross_attention_residual, seen)


def attention_stages(part: str, mask_text: str, lengths: str, tensors: AttentionTensors) -> Iterator[Stage]:
    """Yield the stages of one attention sub-layer. `lengths` has two letters: the axes of queries and keys."""
    query_length = lengths[0]
    key_length = lengths[1]
    yield stage(part, "Queries, head 1", tensors.query, f"BH{query_length}d")
    yield stage(part, "Keys, head 1", tensors.key, f"BH{key_length}d")
    yield stage(part, "Values, head 1", tensors.value, f"BH{key_length}d")
    weights = tensors.weights
    scores = tensors.scores[..., : weights.size(-1)].expand_as(weights)
    allowed = (scores[0, 0] > -torch.inf).float()  # (T, S)
    yield stage(part, "Mask", allowed, lengths, text=mask_text)
    yield stage(part, "Scores QKᵀ/√d, head 1", scores, f"BH{lengths}")
    yield stage(part, "Attention weights, head 1", weights, f"BH{lengths}")
    yield stage(part, "Heads merged", tensors.merged, f"B{query_length}D")


def feed_forward_stages(part: str, length: str, layer: EncoderLayer | DecoderLayer, seen: Recorder) -> Iterator[Stage]:
    feed_forward = layer.feed_forward
    inner = feed_forward.activation(seen.outputs[feed_forward.inner][0])
    text = f"Each position by itself: F numbers, then {ACTIVATIONS[feed_forward.activation]}."
    inner_stage = stage(part, "Feed-forward, inner layer", inner, f"B{length}F", text=text)
    yield from sublayer_stages("feed-forward", [inner_stage], layer.feed_forward_residual, seen)


def sublayer_stages(box: str, inner: list[Stage], residual: Residual, seen: Recorder) -> Iterator[Stage]:
    """Yield the stages of a whole sub-layer: `inner`, the layer norm, and the residual addition."""
    part = inner[0].part
    axes = f"B{inner[0].axes[-2]}D"
    if residual.pre_norm:
        normed = seen.outputs[residual.norm][0]
        yield stage(part, "Layer norm", normed, axes, f"{box} norm")
    for inner_stage in inner:
        yield replace(inner_stage, box=box)
    name = "Add" if residual.pre_norm else "Add and norm"
    added = seen.outputs[residual][0]
    yield stage(part, name, added, axes, f"{box} add")
