"""Ablation of attention heads (Michel et al. 2019, "Are sixteen heads really better than one?")."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.translator import Translator
from nmt.errors import InputError
from nmt.evaluate import bleu_tokenizer, score
from nmt.insight.heads import single_model
from nmt.model.attention import MultiHeadAttention
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer


def head_names(model: Seq2Seq) -> list[str]:
    """All attention heads of a model, as PART.LAYER.HEAD: encoder.1.1, ..., cross.6.8."""
    return list(_outputs(model))


@contextlib.contextmanager
def ablated(model: Seq2Seq, heads: Sequence[str]) -> Iterator[None]:
    """Set the output of some heads to 0 for the duration of the block.

    A decoder whose layers were traced before (`kernels.Traced`) is not affected.

    Args:
        heads: PART.LAYER.HEAD, counted from 1; part is encoder, decoder or cross.
    Raises:
        InputError: the model has no such head.
    """
    outputs = _outputs(model)
    for head in heads:
        if head not in outputs:
            hint = f"its heads are {', '.join(outputs)}" if outputs else "it has no attention"
            raise InputError(f"the model has no attention head '{head}'", hint=hint)
    with contextlib.ExitStack() as hooks:
        for head in heads:
            module, columns = outputs[head]

            def remove(_: nn.Module, inputs: tuple[Tensor, ...], columns: slice = columns) -> tuple[Tensor]:
                x = inputs[0].clone()
                x[..., columns] = 0
                return (x,)

            hooks.callback(module.register_forward_pre_hook(remove).remove)
        yield


def bleu_without_each(
    translator: Translator, sources: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return BLEU of a test set without each head, 0-100, by head name; the key "none" has BLEU with all heads.

    By greedy search, which is fast; the differences in BLEU are similar with a larger beam.
    """
    model = single_model(translator)
    untraced = Translator(TorchEngine(model), translator.tokenizers, translator.config)
    choices: dict[str, list[str]] = {"none": [], **{head: [head] for head in head_names(model)}}
    found = {}
    for name, heads in choices.items():
        with ablated(model, heads):
            hypotheses = untraced.translate(sources, beam=1)
        (bleu,) = score(hypotheses, references, ("bleu",), tokenize=bleu_tokenizer(translator.target_language))
        found[name] = bleu.value
    return found


def table(bleu: Mapping[str, float]) -> list[str]:
    """Format the result of `bleu_without_each` as lines of text, the most important head first."""
    whole = bleu["none"]
    ranked = sorted((value, head) for head, value in bleu.items() if head != "none")
    lines = [f"{head:<14}{value:6.2f}  {value - whole:+.2f}" for value, head in ranked]
    return [f"BLEU of greedy search {whole:.2f}; without a head, the most important one first:", *lines]


def _outputs(model: Seq2Seq) -> dict[str, tuple[nn.Module, slice]]:
    """Return for each head name the output projection (W^O) and the columns of its input that the head fills."""
    if isinstance(model, RecurrentModel):
        return {"cross.1.1": (model.look.output, slice(model.settings.d_model))} if model.look is not None else {}
    assert isinstance(model, Transformer)
    layers: dict[str, list[MultiHeadAttention]] = {
        "encoder": [layer.self_attention for layer in model.encoder],
        "decoder": [layer.self_attention for layer in model.decoder],
        "cross": [layer.cross_attention for layer in model.decoder],
    }
    width = model.settings.d_model // model.settings.n_heads
    return {
        f"{part}.{i}.{h + 1}": (attention.output, slice(h * width, (h + 1) * width))
        for part, attentions in layers.items()
        for i, attention in enumerate(attentions, 1)
        for h in range(attention.n_heads)
    }
