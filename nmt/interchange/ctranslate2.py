"""Export of a model to a directory for CTranslate2, which translates without torch.

CTranslate2 reads these files:

    config.json, model.bin     the model
    shared_vocabulary.json     the pieces; source_vocabulary.json and target_vocabulary.json if the sides differ
    vmap.txt                   the shortlist, if there is one

nmt reads these files:

    config.yaml                the config, as in a run
    tokenizer.model            the tokenizer, as in a run; tokenizer.src.model, tokenizer.tgt.model if the sides differ
    characters.txt             the characters that the model has learned from byte pieces

`nmt.decode.engines.ctranslate2_engine` translates with an export.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.decode.engines.ctranslate2_engine import CHARACTERS, SHORTLIST, SUPPORTED, import_ctranslate2
from nmt.errors import InputError
from nmt.files import atomic_directory
from nmt.interchange import export
from nmt.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS
from nmt.text.tokenizer import Tokenizers
from nmt.translate.translator import Translator

log = logging.getLogger("nmt")

# Key: type of the stored weights; value: largest accepted difference from our log-probabilities, in nats. A correct
# float32 export differs by about 1e-6. The other types round the weights, so their limits are higher.
QUANTIZATIONS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 1.0, "int8": 1.0}
FILES = {  # names of all files that an export may contain
    "config.yaml",
    "config.json",
    "model.bin",
    CHARACTERS,
    "tokenizer.model",
    "tokenizer.src.model",
    "tokenizer.tgt.model",
    "shared_vocabulary.json",
    "source_vocabulary.json",
    "target_vocabulary.json",
    SHORTLIST,
}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}  # key: our name; value: CTranslate2's name


def to_ctranslate2(
    translator: Translator, path: Path, quantization: str = "float32", *, shortlist: Sequence[str] = ()
) -> None:
    """Export a model to a directory for CTranslate2. An earlier export is replaced.

    The model must be on the CPU. `shortlist` has the lines of a vocabulary map, see `vocabulary_map`.

    Raises:
        InputError: CTranslate2 is not installed, the model is not supported, or `path` exists and is not an export.
        NmtError: the log-probabilities of CTranslate2 differ from ours by more than the limit in `QUANTIZATIONS`.
    """
    if quantization not in QUANTIZATIONS:
        raise InputError(f"unknown quantization '{quantization}'", hint=f"choose one of {', '.join(QUANTIZATIONS)}")
    import_ctranslate2()
    export.check_replaceable(path, FILES, ["config.yaml", "model.bin"], "tokenizer:")
    model = export.exportable_model(translator, "CTranslate2", SUPPORTED)
    tokenizers = translator.tokenizers
    with atomic_directory(path, kept=export.KEPT) as directory:
        # 1. Write the files that nmt reads.
        run = RunDirectory(directory)
        run.write_config(translator.config)
        run.write_tokenizers(tokenizers, translator.config.tokenizer.joint)
        if tokenizers.source.learned is not None:
            (directory / CHARACTERS).write_bytes(tokenizers.source.learned.encode())
        # 2. Write the files that CTranslate2 reads. The strict limit of float32 reveals the most faults, so check it
        # first.
        difference = _write_weights(directory, "float32", model, tokenizers)
        differences = f"{difference:.1g} (float32)"
        if quantization != "float32":
            difference = _write_weights(directory, quantization, model, tokenizers)
            differences += f", {difference:.1g} ({quantization})"
        if shortlist:
            lines = "".join(f"{line}\n" for line in shortlist)
            (directory / SHORTLIST).write_text(lines, encoding="utf-8")
    log.info("checked: log-probabilities differ from the model's by at most %s nats", differences)


def _write_weights(directory: Path, quantization: str, model: Transformer, tokenizers: Tokenizers) -> float:
    """Write CTranslate2's files. Return the largest difference between CTranslate2's log-probabilities and ours."""
    spec = _model_spec(model)
    source, target = tokenizers
    spec.register_source_vocabulary(source.pieces(range(len(source))))
    spec.register_target_vocabulary(target.pieces(range(len(target))))
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(directory))
    compute_type = "default" if quantization == "int8" else "float32"
    engine = import_ctranslate2().Translator(str(directory), compute_type=compute_type)
    differences = _score_differences(engine, model, tokenizers)
    return export.check_difference(differences, QUANTIZATIONS[quantization], f"CTranslate2's {quantization}")


def _model_spec(model: Transformer) -> Any:
    """Return CTranslate2's model spec. Its weights are copies, because CTranslate2 quantizes weights in place."""
    # 1. Make an empty spec of this architecture.
    specs = import_ctranslate2().specs.transformer_spec
    settings = model.settings
    activation = specs.common_spec.Activation[ACTIVATIONS[settings.activation]]
    rotary_dim = None if model.rotations is None else 0  # 0 stands for all dimensions of a head
    shared: dict[str, Any] = {
        "num_heads": settings.n_heads,
        "pre_norm": settings.norm == "pre",
        "activation": activation,
        "rotary_dim": rotary_dim,
    }
    encoder = specs.TransformerEncoderSpec(settings.n_encoder_layers, **shared)
    decoder = specs.TransformerDecoderSpec(settings.n_decoder_layers, alignment_heads=settings.n_heads, **shared)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.layer_norm_epsilon = settings.norm_epsilon
    if model.rotations is not None:
        del encoder.position_encodings  # rotary positions need no table; the decoder's spec has none anyway

    # 2. Copy the weights into the spec.
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    if settings.start == "zero":
        decoder.embeddings.weight[BOS] = 0
    decoder.projection.weight = _array(model.projection.weight)
    decoder.projection.bias = _array(export.logits_bias(model))
    _copy_stack(model, model.encoder, model.source_positions, model.encoder_norm, encoder)
    _copy_stack(model, model.decoder, model.target_positions, model.decoder_norm, decoder)
    return spec


def _copy_stack(
    model: Transformer,
    layers: Iterable[EncoderLayer | DecoderLayer],
    positions: Tensor | None,
    norm: nn.Module,
    into: Any,
) -> None:
    """Copy the positions, layers and last norm of our encoder or decoder into CTranslate2's spec `into`."""
    into.scale_embeddings = True  # multiply embeddings by sqrt(D)
    # A model with rotary positions has no table of positions: CTranslate2 computes the rotations.
    if model.rotations is None:
        into.position_encodings.encodings = _array(export.position_table(model, positions))
    # Only pre-norm models have a norm after the last layer.
    if isinstance(norm, nn.LayerNorm):
        _copy_norm(norm, into.layer_norm)
    for layer, layer_spec in zip(layers, into.layer, strict=True):
        _copy_layer(layer, layer_spec)


def _copy_layer(layer: EncoderLayer | DecoderLayer, into: Any) -> None:
    _copy_linear(layer.self_attention.query_key_value, into.self_attention.linear[0])
    _copy_linear(layer.self_attention.output, into.self_attention.linear[1])
    _copy_norm(layer.self_attention_residual.norm, into.self_attention.layer_norm)
    if isinstance(layer, DecoderLayer):
        _copy_linear(layer.cross_attention.query, into.attention.linear[0])
        _copy_linear(layer.cross_attention.key_value, into.attention.linear[1])
        _copy_linear(layer.cross_attention.output, into.attention.linear[2])
        _copy_norm(layer.cross_attention_residual.norm, into.attention.layer_norm)
    _copy_linear(layer.feed_forward.inner, into.ffn.linear_0)
    _copy_linear(layer.feed_forward.outer, into.ffn.linear_1)
    _copy_norm(layer.feed_forward_residual.norm, into.ffn.layer_norm)


def _copy_linear(layer: nn.Linear, into: Any) -> None:
    into.weight = _array(layer.weight)
    into.bias = _array(layer.bias)


def _copy_norm(norm: nn.LayerNorm, into: Any) -> None:
    into.gamma = _array(norm.weight)
    into.beta = _array(norm.bias)


def _array(x: Tensor) -> Any:
    return x.detach().numpy().copy()


def _score_differences(engine: Any, model: Transformer, tokenizers: Tokenizers) -> Iterator[Tensor]:
    """Yield our log-probabilities of the target tokens minus CTranslate2's, for each random sentence pair."""
    source, target = tokenizers
    for src, tgt in export.random_pairs(model.max_length, len(source), len(target)):
        (theirs,) = engine.score_batch([source.pieces(src)], [target.pieces(tgt)])
        log_probs = export.log_probs_of(model, src, tgt)  # (T + 1, V)
        tgt_out = torch.tensor([*tgt, EOS])
        ours = log_probs.gather(-1, tgt_out[:, None])[:, 0]  # (T + 1,)
        yield ours - torch.tensor(theirs.log_probs)
