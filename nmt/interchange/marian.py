"""Marian's own files: the names of its arrays, the order of its pieces, and the export.

An export has these files:

    model.npz      weights, and the settings as special:model.yml
    vocab.spm      the tokenizer; source.spm and target.spm if the sides differ
    decoder.yml    which of these files belong together, and the search

`nmt.interchange.marian_import` reads them. In Marian, a matrix has the shape (inputs, outputs).
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from nmt.decode.engines.ctranslate2_engine import SUPPORTED
from nmt.errors import InputError, ModelError
from nmt.files import atomic_directory
from nmt.interchange import export
from nmt.interchange.huggingface import weights
from nmt.interchange.huggingface_import import HINT, Side, in_our_order
from nmt.model.transformer import Transformer
from nmt.text import UNK
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import vocabulary_of, without_vocabulary
from nmt.translate.translator import Translator

log = logging.getLogger("nmt")

SETTINGS_ARRAY = "special:model.yml"
# Arrays, and their names in transformers. Those of a layer are named without the layer, as in encoder_l1_self_Wq.
NAMES = """
Wemb                     model.shared.weight
encoder_Wemb             model.encoder.embed_tokens.weight
decoder_Wemb             model.decoder.embed_tokens.weight
decoder_ff_logit_out_Wt  lm_head.weight
decoder_ff_logit_out_b   final_logits_bias
encoder_top_ln_scale     model.encoder.layer_norm.weight
encoder_top_ln_bias      model.encoder.layer_norm.bias
decoder_top_ln_scale     model.decoder.layer_norm.weight
decoder_top_ln_bias      model.decoder.layer_norm.bias
self_Wq                  self_attn.q_proj.weight
self_bq                  self_attn.q_proj.bias
self_Wk                  self_attn.k_proj.weight
self_bk                  self_attn.k_proj.bias
self_Wv                  self_attn.v_proj.weight
self_bv                  self_attn.v_proj.bias
self_Wo                  self_attn.out_proj.weight
self_bo                  self_attn.out_proj.bias
self_Wo_ln_scale         self_attn_layer_norm.weight
self_Wo_ln_bias          self_attn_layer_norm.bias
context_Wq               encoder_attn.q_proj.weight
context_bq               encoder_attn.q_proj.bias
context_Wk               encoder_attn.k_proj.weight
context_bk               encoder_attn.k_proj.bias
context_Wv               encoder_attn.v_proj.weight
context_bv               encoder_attn.v_proj.bias
context_Wo               encoder_attn.out_proj.weight
context_bo               encoder_attn.out_proj.bias
context_Wo_ln_scale      encoder_attn_layer_norm.weight
context_Wo_ln_bias       encoder_attn_layer_norm.bias
ffn_W1                   fc1.weight
ffn_b1                   fc1.bias
ffn_W2                   fc2.weight
ffn_b2                   fc2.bias
ffn_ffn_ln_scale         final_layer_norm.weight
ffn_ffn_ln_bias          final_layer_norm.bias
"""
ARRAYS = dict(line.split() for line in NAMES.strip().split("\n"))
NAMES_OF = {theirs: name for name, theirs in ARRAYS.items()}
EMBEDDINGS = ("Wemb", "out_Wt")  # ends of the names of arrays with a row for each piece
MODEL_YML = """\
type: transformer
dim-emb: {d_model}
dim-vocabs: [{n_source}, {n_target}]
enc-depth: {n_encoder_layers}
dec-depth: {n_decoder_layers}
transformer-heads: {n_heads}
transformer-dim-ffn: {d_ff}
transformer-ffn-activation: {activation}
transformer-preprocess: ""
transformer-postprocess: dan
tied-embeddings: {ties_output}
tied-embeddings-all: {ties_all}
\0"""
DECODER_YML = """\
relative-paths: true
models: [model.npz]
vocabs: [{source}.spm, {target}.spm]
beam-size: {beam}
normalize: {alpha}
"""
FILES = {"decoder.yml", "model.npz", "vocab.spm", "source.spm", "target.spm"}  # that an export may contain
# The supported settings. Marian decodes a pre-norm model in another way than it trains it.
SUPPORTED_BY_MARIAN: dict[str, Sequence[object]] = {
    **SUPPORTED,
    "norm": ("post",),
    "positions": ("marian",),
    "start": ("zero",),
    "norm_epsilon": (1e-6,),
}
UNSET = ("nfkc_source", "target_tag", "directions")


def side_of(path: Path, pieces: list[str], unk: int = 1, eos: int = 0) -> Side:
    """Return a vocabulary of Marian in our order. PAD and BOS get a row after the last one, because Marian has none."""
    pieces = ["" if piece in ("<pad>", "<s>") else piece for piece in pieces]
    pieces[unk], pieces[eos] = "<unk>", "</s>"
    return in_our_order(path, [*pieces, "<pad>"], len(pieces))


def side_of_spm(path: Path, model: bytes) -> Side:
    """Return the vocabulary of a SentencePiece model in our order."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    if processor.eos_id() < 0:
        raise ModelError(f"{path} has no </s>", hint=HINT)
    pieces = processor.id_to_piece(list(range(len(processor))))
    return side_of(path, pieces, processor.unk_id(), processor.eos_id())


def to_marian(translator: Translator, path: Path) -> None:
    """Export a model, which must be on the CPU, to a directory for Marian. An earlier export is replaced.

    Raises InputError if Marian does not support the model, or if `path` exists and is not an export.
    """
    export.check_replaceable(path, FILES, ["decoder.yml", "model.npz"], "model.npz")
    model = export.exportable_model(translator, "Marian", SUPPORTED_BY_MARIAN, unset=UNSET)
    decode = translator.config.decode
    with atomic_directory(path, kept=export.KEPT) as directory:
        (source, target), tokens = write_tokenizers(translator.tokenizers, directory)
        np.savez(directory / "model.npz", **arrays(model, *tokens))  # type: ignore[arg-type]
        search = DECODER_YML.format(source=source, target=target, beam=decode.beam, alpha=decode.alpha)
        (directory / "decoder.yml").write_text(search)
    log.info("not compared: nmt does not run Marian")


def write_tokenizers(tokenizers: Tokenizers, directory: Path) -> tuple[list[str], list[list[int]]]:
    """Write NAME.spm for each side. Return the two names, and of each side our token ids in Marian's order."""
    source, target = tokenizers
    names = ["vocab", "vocab"] if source.model == target.model else ["source", "target"]
    tokens = []
    for name, tokenizer in zip(names, tokenizers, strict=True):
        (directory / f"{name}.spm").write_bytes(without_vocabulary(tokenizer.model))
        tokens.append(marian_tokens(directory / f"{name}.spm", tokenizer))
    return names, tokens


def marian_tokens(spm: Path, tokenizer: Tokenizer) -> list[int]:
    """Return our token ids in the order of the SentencePiece model `spm`, whose ids are those of Marian.

    Raises InputError if the model has other pieces than its tokenizer, as models of OPUS-MT.
    """
    n = len(tokenizer)
    pieces = vocabulary_of(tokenizer.model)
    # 1. The ids of our own tokenizers become those of Marian.
    if pieces is None:
        return list(range(n))
    # 2. An imported model has PAD and BOS, which Marian lacks.
    side = side_of_spm(spm, spm.read_bytes())
    if side.pieces != pieces:
        reason = "Marian does not support a vocabulary that differs from the tokenizer's pieces"
        raise InputError(reason, hint="translate with nmt itself")
    token_of = {row: token for token, row in enumerate(side.rows)}
    return [token_of[row] for row in range(n - 2)]


def array_name(name: str) -> str:
    """Return Marian's name of an array of a layer, such as encoder_l1_self_Wq. `name` is that in transformers."""
    _, stack, _, layer, part = name.split(".", 4)
    number = int(layer) + 1
    return f"{stack}_l{number}_{NAMES_OF[part]}"


def arrays(model: Transformer, source_tokens: list[int], target_tokens: list[int]) -> dict[str, NDArray[Any]]:
    """Return the arrays of model.npz. Rows are in the order of the given token ids."""
    settings = model.settings
    tensors = {}
    # 1. Convert the weights.
    for name, x in weights(model).items():
        if NAMES_OF.get(name, "").endswith(EMBEDDINGS):
            tokens = source_tokens if "encoder" in name else target_tokens
            tensors[NAMES_OF[name]] = x[tokens]
        elif "layers" in name:
            tensors[array_name(name)] = x.T if x.dim() == 2 else x[None]
    # 2. Convert the bias, in which PAD and BOS are banned. Marian bans UNK itself.
    bias = export.logits_bias(model)
    if settings.projection_bias:
        bias[UNK] = model.projection.bias[UNK].detach()
    tensors["decoder_ff_logit_out_b"] = bias[None, target_tokens]
    # 3. Add the settings.
    values = settings.model_dump()
    values["activation"] = settings.activation.replace("silu", "swish")
    tied = settings.tied_embeddings
    sizes = {"n_source": len(source_tokens), "n_target": len(target_tokens)}
    yml = MODEL_YML.format(**values, **sizes, ties_output=tied == "decoder", ties_all=tied == "all")
    found = {name: x.contiguous().numpy() for name, x in tensors.items()}
    return {SETTINGS_ARRAY: np.frombuffer(yml.encode(), np.int8), **found}
