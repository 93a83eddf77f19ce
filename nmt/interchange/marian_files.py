"""Read a directory with a Marian model in Hugging Face's format; every file in it is untrusted.

    config.json, model.safetensors      of MarianMTModel, or PegasusForConditionalGeneration (the same, but pre-norm)
    vocab.json, source.spm, target.spm  of MarianTokenizer; target_vocab.json if the vocabularies are separate
    generation_config.json, tokenizer_config.json       may be missing

Types, ranges, names and shapes are checked. Nothing is unpickled.
"""

import os
from pathlib import Path
from typing import Any, Literal, Self

import safetensors
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from nmt.errors import ModelError
from nmt.files import parse_json, read_capped
from nmt.interchange.huggingface import layer_names
from nmt.run.header import check_header_size

MAX_JSON_BYTES = 50_000_000  # enough for a vocabulary of a million pieces
LARGEST_VOCABULARY = 1_000_000
HINT = "get the files again, or another model"
PICKLES = ("pytorch_model.bin", "pytorch_model.pt", "tf_model.h5")
CONVERT = (
    'convert it to safetensors: python -c "from transformers import AutoTokenizer as T, MarianMTModel as M; '
    "M.from_pretrained('IN').save_pretrained('OUT'); T.from_pretrained('IN').save_pretrained('OUT')\""
)
FLOATS = ("F32", "F16", "BF16")


class MarianSettings(BaseModel):
    """The keys of config.json and generation_config.json that nmt reads; other keys have no effect on logits."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())  # for model_type

    model_type: Literal["marian", "pegasus"]
    d_model: int = Field(ge=4, le=16_384)
    encoder_layers: int = Field(ge=1, le=100)
    decoder_layers: int = Field(ge=1, le=100)
    encoder_attention_heads: int = Field(ge=1, le=256)
    decoder_attention_heads: int = Field(ge=1, le=256)
    encoder_ffn_dim: int = Field(ge=4, le=65_536)
    decoder_ffn_dim: int = Field(ge=4, le=65_536)
    max_position_embeddings: int = Field(1024, ge=8, le=100_000)
    activation_function: Literal["relu", "gelu", "silu", "swish"] = "gelu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation_dropout: float = Field(0.0, ge=0, lt=1)
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    vocab_size: int = Field(ge=8, le=LARGEST_VOCABULARY)
    decoder_vocab_size: int | None = Field(None, ge=8, le=LARGEST_VOCABULARY)
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    num_beams: int = Field(5, ge=1, le=1000)
    length_penalty: float = Field(1.0, ge=0, le=10)

    @model_validator(mode="after")
    def check_agreement(self) -> Self:
        for name in ("attention_heads", "ffn_dim"):
            if (of := [getattr(self, f"{side}_{name}") for side in ("encoder", "decoder")])[0] != of[1]:
                raise ValueError(f"encoder_{name} is {of[0]} and decoder_{name} {of[1]}; nmt has one for both")
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size not in (None, self.vocab_size):
            raise ValueError("decoder_vocab_size is not vocab_size, but both sides share their embeddings")
        if self.d_model % self.encoder_attention_heads:
            raise ValueError("d_model is not a multiple of encoder_attention_heads")
        for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
            if getattr(self, name) >= min(self.vocab_size, self.n_target):
                raise ValueError(f"{name} is not in the vocabulary")
        return self

    @property
    def norm(self) -> Literal["pre", "post"]:
        """Whether layers normalize their input or their output."""
        return "pre" if self.model_type == "pegasus" else "post"

    @property
    def n_target(self) -> int:
        """Rows of the target's embedding and of the projection."""
        return self.vocab_size if self.share_encoder_decoder_embeddings else self.decoder_vocab_size or self.vocab_size


def read_settings(directory: Path) -> MarianSettings:
    """Read config.json and the search settings of generation_config.json. Raises ModelError for unsupported models."""
    path = directory / "config.json"
    config = read_json(path)
    search = read_json(directory / "generation_config.json", may_be_missing=True)
    for key in ("num_beams", "length_penalty"):
        config[key] = search.get(key, config.get(key))
    if isinstance(eos := config.get("eos_token_id"), list) and len(eos) == 1:
        config["eos_token_id"] = eos[0]
    if config.get("model_type") not in ("marian", "pegasus"):
        reason = f"{path}: its model_type is {config.get('model_type')!r:.50}, not 'marian'"
        raise ModelError(reason, hint="nmt imports Marian models, such as those of OPUS-MT")
    try:
        given = {key: value for key, value in config.items() if value is not None}
        return MarianSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        got = f", got {first['input']!r:.50}" if where and first["type"] != "missing" else ""
        raise ModelError(f"{path}: {where}{': ' * bool(where)}{reason}{got}", hint=HINT) from error


def read_json(path: Path, *, may_be_missing: bool = False) -> dict[str, Any]:
    """Read a file that contains a JSON object; empty if the file may be missing and is. A broken link is an error."""
    if may_be_missing and not os.path.lexists(path):
        return {}
    try:
        found = parse_json(read_capped(path, MAX_JSON_BYTES))
    except OSError as error:
        hint = "give the directory of a model in Hugging Face's format"
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=hint) from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON", hint=HINT) from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} is not a JSON object", hint=HINT)
    return found


def read_vocabulary(path: Path, n: int) -> list[str]:
    """Return the pieces of the ids 0 to n - 1; an empty string if no piece has the id."""
    pieces = [""] * n
    for piece, i in read_json(path).items():
        if type(i) is not int or not 0 <= i < n:
            raise ModelError(f"{path}: the id of {piece!r:.50} is {i!r:.50}, the model has 0 to {n - 1}", hint=HINT)
        if pieces[i]:
            raise ModelError(f"{path}: {pieces[i]!r:.50} and {piece!r:.50} have the same id {i}", hint=HINT)
        if any("\ud800" <= character <= "\udfff" for character in piece):
            raise ModelError(f"{path}: {piece!r:.50} is not Unicode text", hint=HINT)
        pieces[i] = piece
    return pieces


def read_weights(directory: Path, settings: MarianSettings) -> dict[str, Tensor]:
    """Read all weights in float32, by MarianMTModel's names; tied ones under every name. Raises ModelError."""
    path = directory / "model.safetensors"
    if not os.path.lexists(path):
        if pickled := [name for name in PICKLES if (directory / name).exists()]:
            reason = f"{directory / pickled[0]} is not read: loading such a file can run any code"
            raise ModelError(reason, hint=CONVERT)
        hint = f"if there are other weights, {CONVERT}; on the Hub, a pull request of the model may have it: --revision"
        raise ModelError(f"{directory} has no model.safetensors", hint=hint)
    try:
        check_header_size(path)
        with safetensors.safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            shapes = {name: tuple(x.get_shape()) for name, x in slices.items()}
            dtypes = {x.get_dtype() for x in slices.values()}
            _check_shapes(path, shapes, settings)
            if others := sorted(dtypes - {*FLOATS}):
                raise ModelError(f"{path}: weights are {others[0]}, not {', '.join(FLOATS)}", hint=HINT)
            weights = {name: file.get_tensor(name).float() for name in slices}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=HINT) from error
    except safetensors.SafetensorError as error:
        raise ModelError(f"{path} is not a safetensors file, or damaged", hint=HINT) from error
    for name, x in weights.items():
        if not x.isfinite().all():
            raise ModelError(f"{path}: {name} has numbers that are not finite", hint=HINT)
    for name, names in matrices_of(settings).items():
        one, *others = (other for other in names if other in weights)
        differing = (other for other in others if not torch.equal(weights[one], weights[other]))
        if settings.tie_word_embeddings and (other := next(differing, None)):
            raise ModelError(f"{path}: by config.json {one} and {other} are one matrix, but they differ", hint=HINT)
        weights[name] = weights[one]
    return weights


def matrices_of(settings: MarianSettings) -> dict[str, list[str]]:
    """Return the names of source embedding, target embedding and projection, each with its possible names in the file.

    If embeddings are tied, the possible names belong to one matrix. Otherwise, transformers 5 writes every matrix, and
    earlier versions write only model.shared.weight for source and target if they share it.
    """
    shared, source, target, output = (
        *("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
        "lm_head.weight",
    )
    if not settings.tie_word_embeddings:
        also = [shared] if settings.share_encoder_decoder_embeddings else []
        return {source: [source, *also], target: [target, *also], output: [output]}
    if settings.share_encoder_decoder_embeddings:
        return {name: [shared, source, target, output] for name in (source, target, output)}
    return {source: [source], target: [target, output], output: [target, output]}


def _check_shapes(path: Path, shapes: dict[str, tuple[int, ...]], settings: MarianSettings) -> None:
    """Raise ModelError if names or shapes are not those of a model with these settings."""
    d, n_source, n_target = settings.d_model, settings.vocab_size, settings.n_target
    required = shapes_of_layers(settings)
    optional: dict[str, tuple[int, ...]] = {"final_logits_bias": (1, n_target)}
    for side in ("encoder", "decoder"):
        optional[f"model.{side}.embed_positions.weight"] = (settings.max_position_embeddings, d)
    for (_, names), n in zip(matrices_of(settings).items(), (n_source, n_target, n_target), strict=True):
        optional |= dict.fromkeys(names, (n, d))
        if not any(name in shapes for name in names):
            raise ModelError(f"{path}: {names[0]} is missing", hint=HINT)
    if missing := next((name for name in required if name not in shapes), None):
        raise ModelError(f"{path}: {missing} is missing", hint=HINT)
    expected = optional | required
    for name, shape in shapes.items():
        if shape != expected.get(name):
            reason = f"{path}: {name!r:.80} is {shape}, by config.json {expected.get(name, 'absent')}"
            raise ModelError(f"{reason:.400}", hint="are weights and config.json of one model?")


def shapes_of_layers(settings: MarianSettings) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights of encoder and decoder except embeddings, by name."""
    d, d_ff = settings.d_model, settings.encoder_ffn_dim
    feed_forward = {"fc1": (d_ff, d), "fc2": (d, d_ff)}
    shapes: dict[str, tuple[int, ...]] = {}
    for names in layer_names(settings.encoder_layers, settings.decoder_layers, settings.norm).values():
        for name in names:
            shape = (d,) if name.endswith("norm") else feed_forward.get(name.rpartition(".")[2], (d, d))
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes
