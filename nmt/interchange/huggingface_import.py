"""Import of a directory with a Marian model in Hugging Face's format: code that finds it, and reads its files.

    config.json, model.safetensors                  the files of MarianMTModel
    vocab.json, source.spm, target.spm              the files of MarianTokenizer
    target_vocab.json                               exists only if each side has its own vocabulary
    generation_config.json, tokenizer_config.json   may be missing

No file is trusted: types, ranges, names and shapes are checked, and nothing is unpickled.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

import safetensors
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator
from torch import Tensor

from nmt.config import described
from nmt.errors import DownloadError, InputError, ModelError, os_errors_as
from nmt.files import parse_json, read_capped
from nmt.interchange.huggingface import layer_names
from nmt.run.header import check_header_size

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
HUB_FILES = ["*config.json", "*vocab.json", "*.spm", "model.safetensors"]
MAX_JSON_BYTES = 50_000_000  # maximum size of a JSON file: enough for a vocabulary of a million pieces
LARGEST_VOCABULARY = 1_000_000  # maximum number of pieces of a vocabulary
# Names of the embeddings and of the projection in the file.
SHARED_MATRIX, OUTPUT_MATRIX = "model.shared.weight", "lm_head.weight"
SOURCE_MATRIX, TARGET_MATRIX = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
# Bias of BOS. It excludes BOS from the softmax: exp(-100) is 4e-44. A lower bias would raise the loss in fine-tuning,
# because label smoothing includes the log-probability of BOS.
BAN = -100.0
SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]  # pieces of PAD, UNK, BOS and EOS
HINT = "get the files again, or another model; nmt imports Marian models, such as those of OPUS-MT"
CONVERT = (
    "other files with weights are not read, because a pickle can run any code when it is loaded; convert it to "
    'safetensors: python -c "from transformers import AutoTokenizer as T, MarianMTModel as M; '
    "M.from_pretrained('IN').save_pretrained('OUT'); T.from_pretrained('IN').save_pretrained('OUT')\"; "
    "on the Hub, a pull request of the model may have it: --revision"
)


def model_directory(model: str, revision: str | None = None) -> Path:
    """Return the directory of a model.

    Args:
        model: a directory, or the id of a model on the Hugging Face Hub, which is then downloaded.
        revision: a branch, tag, commit or pull request (refs/pr/5) on the Hub.
    Raises:
        InputError: `model` is neither a directory nor an id, `revision` is given for a directory, or huggingface_hub is
            not installed.
        DownloadError: the download fails.
    """
    # 1. If `model` is a directory, return its path.
    path = Path(model)
    if path.is_dir():
        if revision is not None:
            raise InputError(f"--revision does not apply to the directory {path}", hint="leave it out")
        return path
    if os.path.lexists(path) or not HUB_ID.fullmatch(model):
        hint = "give a directory, or an id on the Hugging Face Hub, such as Helsinki-NLP/opus-mt-de-en"
        raise InputError(f"{path} is not a directory", hint=hint)
    # 2. Download a model from the Hub.
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        hint = "pip install 'nmt-trainer[huggingface]', or give the directory of a downloaded model"
        raise InputError(f"no directory {path}, and huggingface_hub is not installed", hint=hint) from error
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=HUB_FILES))
    # Catch all exceptions: their classes differ between versions of huggingface_hub.
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        hint = "check the id and the network, or download the model elsewhere and give its directory"
        raise DownloadError(f"cannot get {model}: {lines[0]:.300}", hint=hint) from error


VocabularySize = Annotated[int, Field(ge=8, le=LARGEST_VOCABULARY)]


class Side(NamedTuple):
    """The vocabulary of one side in the order of nmt's token ids, which differs from Marian's."""

    rows: list[int]  # row of Marian's embedding for each of our token ids
    pieces: list[str]  # piece of each of our token ids


class HuggingFaceSettings(BaseModel):
    """The settings that nmt reads from config.json and generation_config.json. No other setting affects the logits.

    `nmt.interchange.marian_import` gives the same names to the settings in Marian's own files. Most ranges are not
    checked here, but when these settings become a `Config`.
    """

    # pydantic would warn about the field model_type, whose prefix it protects by default.
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())

    model_type: Literal["marian"]
    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    max_position_embeddings: int = 1024
    activation_function: Literal["relu", "gelu", "silu", "swish"] = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    scale_embedding: Literal[True]  # embeddings are multiplied by sqrt(D), as in nmt
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    vocab_size: VocabularySize
    decoder_vocab_size: VocabularySize | None = None
    decoder_start_token_id: NonNegativeInt
    num_beams: int = 5
    length_penalty: float = 1.0
    norm: Literal["post", "pre"] = "post"  # always post in Hugging Face's format

    @model_validator(mode="after")
    def check_agreement(self) -> Self:
        for name in ("attention_heads", "ffn_dim"):
            if getattr(self, f"encoder_{name}") != getattr(self, f"decoder_{name}"):
                raise ValueError(f"encoder_{name} is not decoder_{name}; nmt has one for both")
        return self

    @property
    def n_target(self) -> int:
        """The number of rows of the target embedding and of the projection."""
        if self.share_encoder_decoder_embeddings:
            return self.vocab_size
        return self.decoder_vocab_size or self.vocab_size


class ModelFiles(NamedTuple):
    """The files of a model, in which everything but the weights was checked."""

    file: Path  # the weights
    settings: HuggingFaceSettings
    source: Side
    target: Side
    spm: tuple[Path, Path]  # SentencePiece models of source and target
    read_weights: Callable[[], dict[str, Tensor]]  # see `read_weights`
    about: Mapping[str, Any] = MappingProxyType({})  # content of tokenizer_config.json


def read_huggingface(directory: Path) -> ModelFiles:
    """Read the files in a directory. Raises ModelError if one is missing or damaged, or nmt does not support it."""
    settings = read_settings(directory)
    about = read_json(directory / "tokenizer_config.json", may_be_missing=True)
    source, target = read_sides(directory, settings, about)
    spm = directory / "source.spm", directory / "target.spm"
    read = partial(read_weights, directory, settings)
    return ModelFiles(directory / "model.safetensors", settings, source, target, spm, read, about)


def read_settings(directory: Path) -> HuggingFaceSettings:
    """Read config.json, and the search settings in generation_config.json.

    Raises ModelError if a file is missing or damaged, or if nmt does not support the model.
    """
    path = directory / "config.json"
    config = read_json(path)
    search = read_json(directory / "generation_config.json", may_be_missing=True)
    # Prefer the search settings in generation_config.json. In older models, only config.json has search settings.
    config |= {key: search[key] for key in ("num_beams", "length_penalty") if key in search}
    # Leave out keys whose value is null: transformers writes null where the default applies.
    known = {key: value for key, value in config.items() if value is not None and key != "norm"}
    return checked_settings(known, path)


def checked_settings(values: Mapping[str, object], path: Path, *, strict: bool = True) -> HuggingFaceSettings:
    """Return the settings in a file. Raises ModelError with the first fault. If not `strict`, texts become numbers."""
    try:
        return HuggingFaceSettings.model_validate(values, strict=strict)
    except ValidationError as error:
        first = error.errors()[0]  # report one error only: a model of another kind can cause many errors
        reason = ": ".join([*map(str, first["loc"]), described(first)])
        raise ModelError(f"{path}: {reason:.200}", hint=HINT) from error


def read_json(path: Path, *, may_be_missing: bool = False) -> dict[str, Any]:
    """Read a JSON object from a file. Raises ModelError if the file is missing, or does not contain a JSON object.

    With `may_be_missing`, a missing file counts as an empty object.
    """
    if may_be_missing and not os.path.lexists(path):
        return {}
    content: Any = None
    reading = os_errors_as(ModelError, f"read {path}", hint="give the directory of a model in Hugging Face's format")
    with reading, contextlib.suppress(ValueError):
        content = parse_json(read_capped(path, MAX_JSON_BYTES))
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object", hint=HINT)
    return content


def read_vocabulary(path: Path, n: int) -> list[str]:
    """Return the pieces of the ids 0 to n - 1 in a vocabulary file. The piece of a missing id is an empty string."""
    pieces = [""] * n
    for piece, i in read_json(path).items():
        # JSON's `true` must not count as an id, but isinstance(True, int) is True.
        if type(i) is not int or not 0 <= i < n:
            raise ModelError(f"{path}: the id of {piece!r:.50} is {i!r:.50}, the model has 0 to {n - 1}", hint=HINT)
        if pieces[i]:
            raise ModelError(f"{path}: {pieces[i]!r:.50} and {piece!r:.50} have the same id {i}", hint=HINT)
        # Replace lone surrogates, which JSON can contain.
        pieces[i] = piece.encode(errors="replace").decode()
    return pieces


def read_sides(directory: Path, settings: HuggingFaceSettings, tokenizer_config: dict[str, Any]) -> tuple[Side, Side]:
    """Read the vocabularies of both sides, in our order. If there is only one, return it for both sides."""
    file = directory / "vocab.json"
    source = read_vocabulary(file, settings.vocab_size)
    start = settings.decoder_start_token_id
    # 1. If there is one vocabulary for both sides, return it.
    is_separate = tokenizer_config.get("separate_vocabs") is True
    if not is_separate or settings.share_encoder_decoder_embeddings:
        if len(source) != settings.n_target:
            reason = f"{file}: config.json has another number of pieces of the target, {settings.n_target}"
            raise ModelError(reason, hint="are config.json and tokenizer_config.json of one model?")
        side = in_our_order(file, source, start)
        return side, side

    # 2. Otherwise read the vocabulary of the target side, too.
    target_file = directory / "target_vocab.json"
    target = read_vocabulary(target_file, settings.n_target)
    # The encoder never reads BOS, so BOS of the source can have any row.
    source_start = source.index("<s>") if "<s>" in source else None
    return in_our_order(file, source, source_start), in_our_order(target_file, target, start)


def in_our_order(path: Path, pieces: list[str], start: int | None) -> Side:
    """Return a vocabulary in our order: PAD, UNK, BOS and EOS, then the rest in the order of `pieces`.

    BOS gets the row of the token `start`, or of PAD if `start` is None. A `start` token that is a piece of text occurs
    in the rest as well. The rest has made-up names for ids that have no piece or a special piece.
    """
    for piece in ("<pad>", "<unk>", "</s>"):
        if piece not in pieces:
            raise ModelError(f"{path} has no {piece}", hint=HINT)
    pad = pieces.index("<pad>")
    if start is None:
        start = pad
    if start >= len(pieces):
        raise ModelError(f"{path} has no id {start}, the decoder_start_token_id of config.json", hint=HINT)
    # Collect the rows and names of PAD, UNK, BOS and EOS, then the rows and names of the rest.
    special_rows = [pad, pieces.index("<unk>"), start, pieces.index("</s>")]
    rows = list(special_rows)
    names = list(SPECIAL_PIECES)
    for row, piece in enumerate(pieces):
        is_special = piece in SPECIAL_PIECES
        if not (is_special and row in special_rows):
            rows.append(row)
            names.append(f"<{row}>" if is_special or not piece else piece)
    return Side(rows, names)


def read_weights(directory: Path, settings: HuggingFaceSettings) -> dict[str, Tensor]:
    """Read all weights as float32. Raises ModelError if names or shapes are not those of a model with these settings.

    The keys are the names in MarianMTModel. A tied matrix is under all of its names.
    """
    path = directory / "model.safetensors"
    if not os.path.lexists(path):
        raise ModelError(f"{directory} has no model.safetensors", hint=CONVERT)
    expected = expected_shapes(settings)
    weights: dict[str, Tensor] = {}
    try:
        with os_errors_as(ModelError, f"read {path}", hint=HINT):
            check_header_size(path)
            with safetensors.safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - the file is no dict
                    # Check the shape first: a tensor of a wrong shape may be too large for the memory.
                    check_shape(path, name, tuple(file.get_slice(name).get_shape()), expected)
                    weights[name] = file.get_tensor(name).float()
    except safetensors.SafetensorError as error:
        raise ModelError(f"{path} is not a safetensors file, or damaged", hint=HINT) from error
    if "final_logits_bias" in weights:
        weights["final_logits_bias"].clamp_(min=BAN)
    return completed(path, weights, settings)


def check_shape(path: Path, name: str, shape: tuple[int, ...], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ModelError if a weight is unknown, which means that nmt does not compute its part, or has another shape."""
    if shape != expected.get(name):
        reason = f"{path}: {name!r:.80} is {shape}, by its settings {expected.get(name, 'absent')}"
        raise ModelError(f"{reason:.400}", hint="are weights and settings of one model?")


def completed(path: Path, weights: dict[str, Tensor], settings: HuggingFaceSettings) -> dict[str, Tensor]:
    """Check that no weight is missing, unknown or of another shape. Add the other names of tied matrices.

    A file has a tied matrix under one name.
    """
    # 1. Check names and shapes.
    expected = expected_shapes(settings)
    for name, x in weights.items():
        check_shape(path, name, tuple(x.shape), expected)
    # 2. Add names.
    for name, names in ({name: [name] for name in shapes_of_layers(settings)} | names_of_matrices(settings)).items():
        present = [one for one in names if one in weights]
        if not present:
            raise ModelError(f"{path}: {names[0]} is missing", hint=HINT)
        weights[name] = weights[present[0]]
    return weights


def names_of_matrices(settings: HuggingFaceSettings) -> dict[str, list[str]]:
    """Return the possible names in the file of the source embedding, the target embedding and the projection.

    The name of a tied matrix depends on the version of transformers.
    """
    source_names, target_names, output_names = (
        [SOURCE_MATRIX, SHARED_MATRIX],
        [TARGET_MATRIX, SHARED_MATRIX],
        [OUTPUT_MATRIX],
    )
    if settings.tie_word_embeddings:
        target_names = output_names = [TARGET_MATRIX, OUTPUT_MATRIX]
        if settings.share_encoder_decoder_embeddings:
            source_names = target_names = output_names = [SHARED_MATRIX, SOURCE_MATRIX, TARGET_MATRIX, OUTPUT_MATRIX]
    return {SOURCE_MATRIX: source_names, TARGET_MATRIX: target_names, OUTPUT_MATRIX: output_names}


def expected_shapes(settings: HuggingFaceSettings) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights, under all possible names."""
    positions = settings.max_position_embeddings, settings.d_model
    shapes = shapes_of_layers(settings) | {
        "final_logits_bias": (1, settings.n_target),
        "model.encoder.embed_positions.weight": positions,
        "model.decoder.embed_positions.weight": positions,
    }
    for matrix, names in names_of_matrices(settings).items():
        n_rows = settings.vocab_size if matrix == SOURCE_MATRIX else settings.n_target
        shapes |= dict.fromkeys(names, (n_rows, settings.d_model))
    return shapes


def shapes_of_layers(settings: HuggingFaceSettings) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights and biases of the encoder's and decoder's layers, by name."""
    d = settings.d_model
    d_ff = settings.encoder_ffn_dim
    feed_forward = {"fc1": (d_ff, d), "fc2": (d, d_ff)}  # all other matrices have the shape (D, D)
    shapes: dict[str, tuple[int, ...]] = {}
    for names in layer_names(settings.encoder_layers, settings.decoder_layers, settings.norm).values():
        for name in names:
            part = name.rpartition(".")[2]
            shape = (d,) if part.endswith("norm") else feed_forward.get(part, (d, d))
            shapes[f"{name}.weight"] = shape
            shapes[f"{name}.bias"] = shape[:1]
    return shapes
