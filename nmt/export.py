"""A trained model in another engine's format: a directory for CTranslate2, which translates without torch.

    config.json, model.bin, shared_vocabulary.json (or source_, target_)    CTranslate2's
    config.yaml, tokenizer.model (or tokenizer.src.model, .tgt.model)       as in a run: limits, languages, pieces

Where that engine's search is not ours: PAD, UNK and BOS, and EOS before a minimum length, are banned before its
softmax, so that what is left shares out their probability (of a trained model, next to nothing). It stops when K
hypotheses have finished, whatever the live ones promise. It counts EOS in a hypothesis' length, as we do, only if
asked to `return_end_token`. At `max_decoding_length` it cuts, where we force EOS: our L pieces are L - 1 there.
"""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.decode.ctranslate2_engine import import_ctranslate2
from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translator
from nmt.errors import InputError, NmtError
from nmt.files import atomic_directory
from nmt.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.batches import pad_source

log = logging.getLogger("nmt")

# How weights are stored, and by how many nats a piece the engine's scores may then differ from our float32: where
# nothing is amiss, by a millionth; int8, which is asked for, by what it costs.
QUANTIZATIONS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 1.0, "int8": 1.0}
# what that engine has, of the choices of which it has not all
KNOWN: dict[str, tuple[object, ...]] = {
    "architecture": ("transformer",),
    "attention": ("scaled_dot",),
    "attention_window": (0,),
    "padding_mask": (True,),
    "positions": ("sinusoidal", "learned"),
}
BANNED = -1e4  # the bias of what is never generated: float16 holds it, and e to it is 0
CHECKED_LENGTHS = (1, 5, 20)  # of the sentences that both engines translate, pieces
CHECKED_BEAMS = (1, 5)


def to_ctranslate2(translator: Translator, path: Path, quantization: str = "float32") -> None:
    """Write a directory that CTranslate2 loads, once both engines agree on it.

    Args:
        translator: the model, on the CPU, with its tokenizers and settings.
        path: the directory; an earlier export is replaced.
        quantization: one of `QUANTIZATIONS`.
    Raises:
        InputError: there is no such quantization, CTranslate2 is not installed or has no such model, or something
            else lies at `path`.
        NmtError: the engine's scores are not the model's.
        OutputError: the directory cannot be written.
    """
    if quantization not in QUANTIZATIONS:
        raise InputError(f"no quantization '{quantization}'", hint=f"there are {', '.join(QUANTIZATIONS)}")
    ctranslate2 = import_ctranslate2()
    if path.resolve() == Path.cwd() or path.is_mount():
        raise InputError(f"{path} cannot be replaced as a whole", hint="name a directory in it")
    if not _is_free(path):
        raise InputError(f"{path} is there already and is no export", hint="name another directory, or delete it")
    if not isinstance(translator.engine, TorchEngine):
        raise InputError("the model is an export already", hint="give the run that it was made from")
    if len(translator.engine.models) > 1:
        raise InputError("several models cannot be exported as one", hint="export each by itself")
    config, tokenizers, model = translator.config, translator.tokenizers, translator.engine.models[0]
    for key, known in KNOWN.items():
        if (value := getattr(config.model, key)) not in known:
            raise InputError(
                f"an export to CTranslate2 has no model.{key}={str(value).lower()}",
                hint="translate with nmt itself",
            )
    assert isinstance(model, Transformer)
    if config.decode.length_penalty == "gnmt":
        log.warning("CTranslate2 has no decode.length_penalty=gnmt: it divides by L^alpha, choose alpha anew")
    with atomic_directory(path) as directory:
        run = RunDirectory(directory)
        run.write_config(config)
        run.write_tokenizers(tokenizers, config.tokenizer.joint)
        differences = []
        for kind in dict.fromkeys(["float32", quantization]):  # whether all is in its place, float32 shows best
            spec = _spec(model)
            spec.register_source_vocabulary(tokenizers.source.pieces(range(len(tokenizers.source))))
            spec.register_target_vocabulary(tokenizers.target.pieces(range(len(tokenizers.target))))
            spec.validate()
            spec.optimize(kind)
            spec.save(str(directory))
            engine = ctranslate2.Translator(str(directory), compute_type="default" if kind == "int8" else "float32")
            differences.append(f"{_check(engine, model, translator, kind):.1g} ({kind})")
    log.info(
        "checked: %d sentences, greedily and with beam %d: scores differ from ours by %s nats a piece",
        len(CHECKED_LENGTHS),
        CHECKED_BEAMS[-1],
        ", ".join(differences),
    )


def _is_free(path: Path) -> bool:
    """Whether there is nothing at `path`, or an empty directory, or no more than an earlier export."""
    if not path.is_dir():
        return not path.exists()
    names = {entry.name for entry in path.iterdir()}
    vocabularies = {f"{side}_vocabulary.json" for side in ("shared", "source", "target")}
    tokenizers = {file.name for joint in (True, False) for file in RunDirectory(path).tokenizer_files(joint)}
    ours = {"config.yaml", "config.json", "model.bin", *vocabularies, *tokenizers}
    return not names or ("model.bin" in names and names <= ours)


# --- weights ----------------------------------------------------------------------------------------------


def _spec(model: Transformer) -> Any:
    """The model as CTranslate2 describes one, with a copy of the weights: quantising them works in place."""
    from ctranslate2 import specs

    settings = model.settings
    activations = specs.common_spec.Activation  # GELU is the exact one
    spec = specs.TransformerSpec.from_config(
        (settings.n_encoder_layers, settings.n_decoder_layers),
        settings.n_heads,
        pre_norm=settings.norm == "pre",
        activation=activations.RELU if settings.activation == "relu" else activations.GELU,
    )
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    decoder.projection.weight = _array(model.projection.weight)
    decoder.projection.bias = _array(_bans(model))
    for stack, learned, norm in (
        (encoder, model.source_positions, model.encoder_norm),
        (decoder, model.target_positions, model.decoder_norm),
    ):
        stack.scale_embeddings = True  # by sqrt(D)
        positions = model.sinusoids(slice(settings.max_positions)) if model.sinusoids else learned
        assert positions is not None
        stack.position_encodings.encodings = _array(positions)
        if isinstance(norm, nn.LayerNorm):
            _put_norm(stack.layer_norm, norm)
    for into, encoder_layer in zip(encoder.layer, model.encoder, strict=True):
        _put_layer(into, encoder_layer)
    for into, decoder_layer in zip(decoder.layer, model.decoder, strict=True):
        _put_layer(into, decoder_layer)
        cross = decoder_layer.cross_attention
        _put_linear(into.attention.linear[0], cross.query)
        _put_linear(into.attention.linear[1], cross.key_value)
        _put_linear(into.attention.linear[2], cross.output)
        _put_norm(into.attention.layer_norm, decoder_layer.cross_attention_residual.norm)
    return spec


def _bans(model: Transformer) -> Tensor:
    """What is added to the logits, (V,): pieces that are never generated get no probability."""
    bans = torch.zeros(model.projection.out_features)
    bans[[PAD, UNK, BOS]] = BANNED
    return bans


def _put_layer(into: Any, layer: EncoderLayer | DecoderLayer) -> None:
    """What both kinds of layer have: self-attention and feed-forward, each with its norm."""
    attention = layer.self_attention
    _put_linear(into.self_attention.linear[0], attention.query_key_value)
    _put_linear(into.self_attention.linear[1], attention.output)
    _put_norm(into.self_attention.layer_norm, layer.self_attention_residual.norm)
    _put_linear(into.ffn.linear_0, layer.feed_forward.inner)
    _put_linear(into.ffn.linear_1, layer.feed_forward.outer)
    _put_norm(into.ffn.layer_norm, layer.feed_forward_residual.norm)


def _put_linear(into: Any, layer: nn.Linear) -> None:
    into.weight, into.bias = _array(layer.weight), _array(layer.bias)


def _put_norm(into: Any, norm: nn.LayerNorm) -> None:
    into.gamma, into.beta = _array(norm.weight), _array(norm.bias)


def _array(x: Tensor) -> Any:
    return x.detach().numpy().copy()


# --- parity -----------------------------------------------------------------------------------------------


def _check(engine: Any, model: Transformer, translator: Translator, kind: str) -> float:
    """Let the engine translate sentences of random pieces, and score what it found with our model.

    Scores are compared, not texts: where two pieces are equally likely, rounding may take either. So for greedy
    search in float32, each piece must be the likeliest to our model too, but for that rounding.

    Returns:
        the largest difference of a hypothesis' two scores, nats a piece.
    Raises:
        NmtError: it is more than `QUANTIZATIONS` allows.
    """
    source, target = translator.tokenizers.source, translator.tokenizers.target
    generator = torch.Generator().manual_seed(1)
    differences = []
    for length in CHECKED_LENGTHS:
        ids = torch.randint(EOS + 1, len(source), (min(length, model.max_length - 1),), generator=generator).tolist()
        src = pad_source([ids])
        limit = translator.options.limit(src.size(1), most=model.max_length)
        for beam in CHECKED_BEAMS:
            (found,) = engine.translate_batch(
                [source.pieces(ids)],
                beam_size=beam,
                max_decoding_length=max(limit - 1, 1),
                min_decoding_length=0,
                return_end_token=True,
                return_scores=True,
            )
            tgt = torch.tensor([BOS, *target.ids(found.hypotheses[0])])
            with torch.inference_mode():
                log_probs = (model(src, tgt[None, :-1])[0] + _bans(model)).log_softmax(-1)  # (T, V)
            chosen = log_probs.gather(-1, tgt[1:, None])[:, 0]  # (T,)
            differences.append((chosen.mean() - found.scores[0]).abs())
            if beam == 1 and kind == "float32":
                differences.append((log_probs.amax(-1) - chosen).max())
    worst = float(torch.stack(differences).max())
    if not worst <= QUANTIZATIONS[kind]:  # nor may it be NaN
        raise NmtError(
            f"CTranslate2's {kind} scores are not the model's: they differ by {worst:.2g} nats a piece",
            hint="does `nmt translate` work with this model? else another version of ctranslate2 may",
        )
    return worst
