"""The intermediate tensors of a model for one sentence pair, in the order of computation.

Module hooks and a torch function mode record the values during a forward pass; the logits come from a second pass with
the same input. Sections, equations and the order (figure 1) are those of Vaswani et al. 2017. Recurrent models have the
last two stages only.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Any

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

N_COLUMNS = 48  # columns shown of a stage that has one per token of the vocabulary
POSITIONS = {
    "sinusoidal": "Times sqrt(D), plus sines and cosines of the position. Without them word order would be lost.",
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

CODE: list[Callable[..., Any]] = [  # the functions whose source the boxes of figure 1 show
    *(Seq2Seq.scaled_embedding, Transformer.embed, SelfAttention.project, scaled_dot_product_attention),
    *(causal_mask, window_mask),
    *(MultiHeadAttention.merge_heads, FeedForward.forward, Residual.forward, Transformer.encode, Transformer.decode),
    *(RecurrentLayer.forward, GlobalAttention.forward, Seq2Seq.forward),
]


@dataclass(frozen=True)
class Stage:
    """One tensor on the way from the source tokens to the probabilities of the next target token."""

    part: str  # encoder, decoder or output
    name: str
    section: str  # of the paper; empty for recurrent models
    text: str  # what happens here
    axes: str  # a letter per dimension: B, H, S, T, D, d (D/H), F (feed-forward), V
    shape: tuple[int, ...]
    values: Tensor  # the last two dimensions, for the first sentence and the first head
    columns: list[str] | None = None  # names of the columns of `values`, if these are tokens of the vocabulary
    box: str = ""  # the box of figure 1 that computes it


def stage(
    part: str, name: str, section: str, x: Tensor, axes: str, text: str, columns: list[str] | None = None, box: str = ""
) -> Stage:
    return Stage(part, name, section, text, axes, tuple(x.shape), x[(0,) * (x.dim() - 2)], columns, box)


class Recorder(TorchFunctionMode):
    """Records the calls of all modules of a model, and the inputs of all softmaxes, for the duration of a block."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.inputs: defaultdict[nn.Module, list[Any]] = defaultdict(list)  # the first argument of each call
        self.outputs: defaultdict[nn.Module, list[Any]] = defaultdict(list)
        self.scores: list[Tensor] = []

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
    """Run a teacher-forced pass of `src` (1, S) and `tgt_in` (1, T); return its stages and attention weights.

    The last two stages have a column for each of the most probable tokens; `pieces` names these.
    """
    with torch.inference_mode():
        with Recorder(model) as seen:
            attention = model.attention(src, tgt_in)
        logits = model(src, tgt_in).float()  # (1, T, V)
        stages, section = list[Stage](), ""
        if isinstance(model, Transformer):
            stages, section = [*transformer_stages(model, seen, attention)], "3.4"
        probabilities = logits.softmax(-1)
        likely = probabilities[0].amax(0).topk(min(N_COLUMNS, logits.size(-1))).indices
        for name, x, text in (
            ("Logits", logits, "One number per token of the vocabulary: how well it fits as the next token."),
            ("Probabilities", probabilities, "Softmax turns the logits of each position into numbers that sum to 1."),
        ):
            full = stage("output", name, section, x, "BTV", text, pieces(likely.tolist()), name.lower())
            stages.append(replace(full, values=full.values[:, likely]))
    return stages, attention


def transformer_stages(model: Transformer, seen: Recorder, attention: AttentionWeights) -> Iterator[Stage]:
    """Yield all stages of layer 1 and the output of the last layer, for the encoder and then the decoder."""
    encoder, decoder = list(model.encoder), list(model.decoder)
    positions = model.settings.positions
    name = "Scaled embedding" if positions in ("rotary", "none") else "Embedding + position"
    text = POSITIONS[positions]

    yield embedding_stage("encoder", "S", seen.outputs[model.source_embedding][0])
    yield stage("encoder", name, "3.5", seen.inputs[encoder[0]][0], "BSD", text, box="positions")
    yield from self_attention_stages("encoder", "S", encoder[0], seen, seen.scores[0], attention.encoder[0])
    yield from feed_forward_stages("encoder", "S", encoder[0], seen)
    memory, n = seen.outputs[model.encoder_norm][0], len(encoder)
    outcome = "The encoder's output: a vector per source token, which depends on the whole sentence."
    yield stage("encoder", f"Memory, after all {n} layers", "3.1", memory, "BSD", outcome, box="memory")

    yield embedding_stage("decoder", "T", seen.outputs[model.target_embedding][-1])
    yield stage("decoder", name, "3.5", seen.inputs[decoder[0]][0], "BTD", text, box="positions")
    self_scores, cross_scores = seen.scores[n : n + 2]
    yield from self_attention_stages("decoder", "T", decoder[0], seen, self_scores, attention.decoder[0])
    yield from cross_attention_stages(decoder[0], seen, cross_scores, attention.cross[0])
    yield from feed_forward_stages("decoder", "T", decoder[0], seen)
    out, n = seen.outputs[model.decoder_norm][0], len(decoder)
    outcome = "A vector per target position, from which the next token is predicted."
    yield stage("decoder", f"Decoder output, after all {n} layers", "3.1", out, "BTD", outcome, box="decoder output")


def decoder_cache(model: Seq2Seq, src: Tensor, tgt_in: Tensor) -> tuple[list[tuple[int, ...]], Tensor]:
    """Read tgt_in (1, T) token by token, as search does; return what the decoder keeps after each step.

    Returns:
        the shape of layer 1's KV cache after each step, (2, 1, H, t, D/H), or of the last layer's recurrent state,
        (G, 1, D); and what each token added: keys and values of head 1 (2, T, D/H), or the new state (G, T, D).
    """
    decoder, shapes, added = incremental_decoder(model), [], []
    with torch.inference_mode():
        state = decoder.start(src)
        for token in tgt_in[0]:
            _, state = decoder.step(token[None, None], state)
            kept = state.self_kv[0] if isinstance(model, Transformer) else state.layers[-1]
            shapes.append(tuple(kept.shape))
            added.append(kept[:, 0, 0, -1] if isinstance(model, Transformer) else kept[:, 0])
    return shapes, torch.stack(added, 1)


def excerpts() -> dict[str, tuple[str, str]]:
    """Map the name of each function of `CODE` to its file and its source without the docstring."""
    found = {}
    for function in CODE:
        source = re.sub(r'\n +""".*?"""', "", dedent(inspect.getsource(function)), count=1, flags=re.DOTALL)
        found[function.__qualname__] = f"{function.__module__.replace('.', '/')}.py", source
    return found


def embedding_stage(part: str, length: str, x: Tensor) -> Stage:
    text = "Each token id selects a row of a learned table: a vector of D numbers."
    return stage(part, "Embedding", "3.4", x, f"B{length}D", text, box="embedding")


def self_attention_stages(
    part: str, length: str, layer: EncoderLayer | DecoderLayer, seen: Recorder, scores: Tensor, weights: Tensor
) -> Iterator[Stage]:
    """Yield the stages of self-attention; the scores (B, H, T, S') may have padded keys."""
    attention: SelfAttention = layer.self_attention
    projected = heads_first(attention.split_heads(seen.outputs[attention.query_key_value][0], 3))
    mask_text = MASKS[part]
    if attention.window is not None:
        mask_text = WINDOWED_MASKS[part].format(n=attention.window)
    inner = [*attention_stages(part, mask_text, length * 2, (*projected, scores, weights))]
    inner.append(merging_stage(part, length, attention.output, seen))
    yield from sublayer_stages("self-attention", inner, layer.self_attention_residual, seen)


def cross_attention_stages(layer: DecoderLayer, seen: Recorder, scores: Tensor, weights: Tensor) -> Iterator[Stage]:
    attention: CrossAttention = layer.cross_attention
    query = heads_first(attention.split_heads(seen.outputs[attention.query][0], 1))
    key_value = heads_first(attention.split_heads(seen.outputs[attention.key_value][0], 2))
    inner = [*attention_stages("decoder", MASKS["cross"], "TS", (*query, *key_value, scores, weights))]
    inner.append(merging_stage("decoder", "T", attention.output, seen))
    yield from sublayer_stages("cross-attention", inner, layer.cross_attention_residual, seen)


def attention_stages(part: str, mask_text: str, lengths: str, tensors: tuple[Tensor, ...]) -> Iterator[Stage]:
    """Yield the stages of one attention, given its queries, keys, values, scores and weights."""
    query, key, value, scores, weights = tensors
    text = "What each position looks for. Linear layers make queries, keys and values with d = D/H numbers a head."
    yield stage(part, "Queries, head 1", "3.2.2", query, f"BH{lengths[0]}d", text)
    yield stage(part, "Keys, head 1", "3.2.2", key, f"BH{lengths[1]}d", "What each position can be found by.")
    text = "What each position hands over when attended to."
    yield stage(part, "Values, head 1", "3.2.2", value, f"BH{lengths[1]}d", text)
    scores = scores[..., : weights.size(-1)].expand_as(weights)
    yield stage(part, "Mask", "3.2.3", (scores[0, 0] > -torch.inf).float(), lengths, mask_text)
    text = "How well each query fits each key: their dot product. Hidden positions have -inf, shown gray."
    yield stage(part, "Scores QKᵀ/√d, head 1", "3.2.1, equation 1", scores, f"BH{lengths}", text)
    text = "Softmax turns the scores of each query into weights that sum to 1."
    yield stage(part, "Attention weights, head 1", "3.2.1, equation 1", weights, f"BH{lengths}", text)


def merging_stage(part: str, length: str, output: nn.Module, seen: Recorder) -> Stage:
    text = "Each head sums the values by its weights. The results of the H heads stand side by side again."
    return stage(part, "Heads merged", "3.2.2", seen.inputs[output][0], f"B{length}D", text)


def feed_forward_stages(part: str, length: str, layer: EncoderLayer | DecoderLayer, seen: Recorder) -> Iterator[Stage]:
    inner = layer.feed_forward.activation(seen.outputs[layer.feed_forward.inner][0])
    activations: dict[object, str] = {
        torch.relu: "ReLU sets the negative ones to 0",
        F.gelu: "GELU brings the negative ones close to 0",
        F.silu: "SiLU brings the negative ones close to 0",
    }
    text = f"Each position by itself: F numbers, then {activations[layer.feed_forward.activation]}."
    inner_stage = stage(part, "Feed-forward, inner layer", "3.3, equation 2", inner, f"B{length}F", text)
    yield from sublayer_stages("feed-forward", [inner_stage], layer.feed_forward_residual, seen)


def sublayer_stages(box: str, inner: list[Stage], residual: Residual, seen: Recorder) -> Iterator[Stage]:
    """Yield the stages of a sub-layer and of its residual connection."""
    part, axes = inner[0].part, f"B{inner[0].axes[-2]}D"
    out = "The sub-layer's output, projected to D numbers, is added to its input"
    if residual.pre_norm:
        text = "Each vector gets mean 0 and variance 1, then a learned scale and shift. The sub-layer reads the result."
        yield stage(part, "Layer norm", "3.1", seen.outputs[residual.norm][0], axes, text, box=f"{box} norm")
    yield from (replace(one, box=box) for one in inner)
    name, text = ("Add", f"{out}.") if residual.pre_norm else ("Add and norm", f"{out}; the sum is normalized.")
    yield stage(part, name, "3.1, 5.4", seen.outputs[residual][0], axes, text, box=f"{box} add")
