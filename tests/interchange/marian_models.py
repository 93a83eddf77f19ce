"""Small models of Marian with random weights, written by numpy as Marian writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml
from conftest import SOURCE, TARGET
from huggingface_models import spm

D, D_FF = 32, 48
MARIAN_SPM = {"unk_id": 1, "eos_id": 0, "bos_id": -1, "pad_id": -1}
MODEL_YML = """\
type: transformer
dim-emb: 32
enc-depth: 1
dec-depth: 2
transformer-heads: 4
transformer-dim-ffn: 48
transformer-ffn-activation: swish
transformer-decoder-autoreg: self-attention
dim-vocabs: [{n_source}, {n_target}]
{norms}
{ties}
"""
Arrays = dict[str, Any]


def layer_arrays(draw: np.random.Generator, prefix: str, parts: list[str], norm: str) -> Arrays:
    """The arrays of a layer: attention for each of `parts`, and a feed-forward network."""
    arrays: Arrays = {}
    for part in parts:
        for letter in "qkvo":
            arrays[f"{prefix}_{part}_W{letter}"] = draw.normal(size=(D, D))
            arrays[f"{prefix}_{part}_b{letter}"] = draw.normal(size=(1, D))
    for number, shape in ((1, (D, D_FF)), (2, (D_FF, D))):
        arrays[f"{prefix}_ffn_W{number}"] = draw.normal(size=shape)
        arrays[f"{prefix}_ffn_b{number}"] = draw.normal(size=(1, shape[1]))
    suffix = "_pre" if norm == "pre" else ""
    for name in (*(f"{part}_Wo" for part in parts), "ffn_ffn"):
        arrays[f"{prefix}_{name}_ln_scale{suffix}"] = draw.normal(size=(1, D))
        arrays[f"{prefix}_{name}_ln_bias{suffix}"] = draw.normal(size=(1, D))
    return arrays


def random_arrays(n_source: int, n_target: int, tied: str = "all", norm: str = "post", layers: int = 2) -> Arrays:
    """The arrays of a model with one encoder layer, and with `layers` decoder layers."""
    draw = np.random.default_rng(1)
    arrays: Arrays = {"decoder_ff_logit_out_b": draw.normal(size=(1, n_target))}
    if tied == "all":
        arrays["Wemb"] = draw.normal(size=(n_target, D))
    else:
        arrays["encoder_Wemb"] = draw.normal(size=(n_source, D))
        arrays["decoder_Wemb"] = draw.normal(size=(n_target, D))
    if tied == "none":
        arrays["decoder_ff_logit_out_Wt"] = draw.normal(size=(n_target, D))
    arrays |= layer_arrays(draw, "encoder_l1", ["self"], norm)
    for i in range(layers):
        arrays |= layer_arrays(draw, f"decoder_l{i + 1}", ["self", "context"], norm)
    if norm == "pre":
        for stack in ("encoder", "decoder"):
            arrays[f"{stack}_top_ln_scale"] = draw.normal(size=(1, D))
            arrays[f"{stack}_top_ln_bias"] = draw.normal(size=(1, D))
    return {name: (x / D**0.5).astype(np.float32) for name, x in arrays.items()}


def model_yml(n_source: int, n_target: int, tied: str = "all", norm: str = "post") -> str:
    """The settings as in special:model.yml."""
    norms = "transformer-preprocess: n\ntransformer-postprocess: da\ntransformer-postprocess-top: n"
    if norm == "post":
        norms = 'transformer-preprocess: ""\ntransformer-postprocess: dan\ntransformer-postprocess-top: ""'
    ties = {"all": "tied-embeddings-all: true", "decoder": "tied-embeddings: true", "none": "tied-embeddings: false"}
    return MODEL_YML.format(n_source=n_source, n_target=n_target, norms=norms, ties=ties[tied])


def write_npz(path: Path, arrays: Arrays, yml: str) -> None:
    text = np.frombuffer(yml.encode() + b"\0" * 7, np.int8)
    np.savez(path, **arrays, **{"special:model.yml": text})  # type: ignore[arg-type]


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor))]


def write_marian(
    path: Path, *, tied: str = "all", norm: str = "post", separate: bool = False, yml: bool = False, **options: Any
) -> Path:
    """Write a directory as pymarian leaves it; with `yml` as in the ZIP files of OPUS-MT. `options` are of `spm`."""
    path.mkdir(parents=True)
    # 1. The tokenizers, and the pieces of both sides.
    source = spm(SOURCE + TARGET, **MARIAN_SPM | options)
    target = spm(TARGET, **MARIAN_SPM | options) if separate else source
    source_pieces, target_pieces = pieces_of(source), pieces_of(target)
    names = ["vocab.spm", "vocab.spm"]
    if separate or yml:
        names = ["source.spm", "target.spm"]
    (path / names[0]).write_bytes(source)
    (path / names[1]).write_bytes(target)
    if yml:  # pieces that YAML would read as values of other types
        rest = sorted({*source_pieces, *target_pieces} - {"</s>", "<unk>"})
        source_pieces = target_pieces = ["</s>", "<unk>", "1", "yes", "12:30", "<<", "~", "<pad>", *rest]
        text = yaml.dump({piece: i for i, piece in enumerate(target_pieces)}, allow_unicode=True, sort_keys=False)
        (path / "opus.vocab.yml").write_text(text.replace("'1'", "1").replace("'yes'", "yes"))  # as Marian writes them
        names = ["opus.vocab.yml"] * 2

    # 2. The model, and which files belong to it.
    sizes = len(source_pieces), len(target_pieces)
    name = "opus.npz.best-perplexity.npz" if yml else "model.npz"
    write_npz(path / name, random_arrays(*sizes, tied, norm), model_yml(*sizes, tied, norm))
    vocabularies = "".join(f"  - /home/other/{vocabulary}\n" for vocabulary in names)
    (path / "decoder.yml").write_text(f"models:\n  - {name}\nvocabs:\n{vocabularies}beam-size: 6\nnormalize: 0.6\n")
    return path
