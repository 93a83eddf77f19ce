"""Import of Marian's own files: from a directory, or from a ZIP file as those of OPUS-MT.

    *.npz                            weights, and the settings as special:model.yml
    *.spm                            a vocabulary: a SentencePiece model whose ids are those of the model
    *vocab.yml                       or a vocabulary without a tokenizer, which is then source.spm or target.spm
    decoder.yml or *.decoder.yml     which of these files belong together, and the search; may be missing

No file is trusted: types, ranges, names, sizes and shapes are checked, and nothing is unpickled.
"""

import contextlib
import logging
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from nmt.config.yaml_file import YAML_ERRORS
from nmt.errors import ModelError, os_errors_as
from nmt.files import ZIP_ERRORS, check_deflated, open_file, read_capped
from nmt.interchange.huggingface_import import BAN, HINT, ModelFiles, Side, checked_settings, completed
from nmt.interchange.marian import ARRAYS, EMBEDDINGS, SETTINGS_ARRAY, side_of, side_of_spm
from nmt.sandbox import check_loadable
from nmt.text import BOS
from nmt.text.tokenizer import MAX_MODEL_BYTES

log = logging.getLogger("nmt")

MAX_YAML_BYTES = 50_000_000  # enough for a vocabulary of a million pieces
MAX_RATIO = 10  # a ZIP file of a model is about as large as the model
LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # a loader for which every scalar is a text
# The header of an array, without the bytes before it. All arrays of Marian have two dimensions.
ARRAY_HEADER = re.compile(
    r"\{'descr': '(<f[24])', 'fortran_order': False, 'shape': \(([0-9]{1,9}), ([0-9]{1,9})\), \} *", re.ASCII
)
LAYER_ARRAY = re.compile(r"(encoder|decoder)_l([0-9]{1,3})_(.+)", re.ASCII)
SETTING_NAMES = {  # key: name of a setting in transformers; value: its name in Marian
    "d_model": "dim-emb",
    "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
    "encoder_attention_heads": "transformer-heads",
    "decoder_attention_heads": "transformer-heads",
    "encoder_ffn_dim": "transformer-dim-ffn",
    "decoder_ffn_dim": "transformer-dim-ffn",
    "activation_function": "transformer-ffn-activation",
}
TRUE = ("true", "True")
SUFFIXES = (".npz", ".spm", ".yml")  # of the files that are unpacked
NORMS = {"dan": "post", "da": "pre"}  # key: transformer-postprocess, steps after a sub-layer; value: our model.norm
# Settings that change what is computed, but not the arrays, and the values that nmt supports.
SUPPORTED_VALUES = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-disable-position-embeddings": "false",
    "transformer-alibi-shift": "false",
    "transformer-attention-mask": "default",
    "transformer-pool": "false",
    "right-left": "false",
}


def read_marian(directory: Path) -> ModelFiles:
    """Read the files in a directory. Raises ModelError if one is missing or damaged, or nmt does not support it."""
    # 1. Read the vocabularies and the arrays.
    search = {}
    for path in sorted(directory.glob("*decoder.yml"))[:1]:
        with damages_as_model_error(path):
            search = parse_yaml(read_capped(path, MAX_YAML_BYTES))
    file, _ = chosen_files(directory, search.get("models"), "*.npz")
    source_file, target_file = chosen_files(directory, search.get("vocabs"), "*vocab.yml", "*.spm")
    source, source_spm = read_side(source_file, directory / "source.spm")
    target, target_spm = read_side(target_file, directory / "target.spm")
    with damages_as_model_error(file):
        yml, weights = read_arrays(file)
        for key, supported in SUPPORTED_VALUES.items():
            if yml.get(key, supported) != supported:
                raise ValueError(f"nmt does not support {key}={yml[key]!r:.50}")

    # 2. Give the settings the names of transformers.
    values = {name: yml[key] for name, key in SETTING_NAMES.items() if key in yml}
    ties_all = yml.get("tied-embeddings-all") in TRUE
    values |= {"model_type": "marian", "scale_embedding": True}
    steps = yml.get("transformer-postprocess", "dan")
    values["norm"] = NORMS.get(str(steps))
    values["share_encoder_decoder_embeddings"] = ties_all
    values["tie_word_embeddings"] = ties_all or yml.get("tied-embeddings") in TRUE
    values["decoder_start_token_id"] = target.rows[BOS]
    # The sides have one row more than Marian, for PAD and BOS, and two more pieces.
    values["vocab_size"] = len(source.pieces) - 1
    values["decoder_vocab_size"] = len(target.pieces) - 1
    values["num_beams"] = search.get("beam-size", 12)
    values["length_penalty"] = search.get("normalize", 0)
    settings = checked_settings(values, file, strict=False)
    if settings.norm == "pre":
        log.warning("Marian decodes pre-norm models in another way than it trains them: its translations will differ")

    weights_of = partial(completed, file, weights, settings)
    return ModelFiles(file, settings, source, target, (source_spm, target_spm), weights_of)


def chosen_files(directory: Path, listed: Sequence[str] | None, *patterns: str) -> tuple[Path, Path]:
    """Return the first and the last file that decoder.yml lists, or twice the only file that matches a pattern."""
    names = [name.rpartition("/")[2] for name in listed or ()]  # without the directories of another machine
    for pattern in patterns:
        names = names or [path.name for path in directory.glob(pattern)]
    present = {path.name for path in directory.iterdir()}
    largest = len(patterns) if listed else 1  # a model has one file with weights, and up to two vocabularies
    n_files = len({*names})
    if not 0 < n_files <= largest or not present.issuperset(names):
        hint = "decoder.yml lists the files of a model under models and vocabs"
        raise ModelError(f"{directory} has no such file, or several: {names or patterns!r:.200}", hint=hint)
    return directory / names[0], directory / names[-1]


def read_side(path: Path, spm: Path) -> tuple[Side, Path]:
    """Return a vocabulary in our order, and the path of its tokenizer: of itself, or `spm` if it is a YAML file."""
    with damages_as_model_error(path):
        if path.suffix == ".spm":
            model = read_capped(path, MAX_MODEL_BYTES)
            check_loadable("sentencepiece", str(path), model)
            return side_of_spm(path, model), path
        ids = parse_yaml(read_capped(path, MAX_YAML_BYTES))
        piece_of = {int(str(i)): piece for piece, i in ids.items()}
        pieces = [piece_of.get(i, "") for i in range(len(ids))]
        if "" in pieces or pieces[:2] != ["</s>", "<unk>"]:
            raise ValueError("its ids are not those from 0, or do not begin with </s> and <unk>")
    return side_of(path, pieces), spm


def parse_yaml(content: bytes) -> dict[str, Any]:
    """Parse a YAML mapping from texts to texts or lists of texts. Raises ValueError if it is anything else.

    YAML would read pieces such as `1` and `yes` as values of other types, so every scalar is a text.
    """
    depth = 0
    try:
        # 1. Refuse what could crash the parser, or become a huge tree.
        for event in yaml.parse(content, LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > 2 or isinstance(event, yaml.AliasEvent):
                raise ValueError("it has aliases, or is nested")
        # 2. Make the tree.
        tree = yaml.load(content, LOADER)  # noqa: S506 - a loader of texts only
    except YAML_ERRORS as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"no valid YAML: {reason!r:.150}") from error
    if not isinstance(tree, dict):
        raise ValueError("no YAML mapping")
    return tree


@contextlib.contextmanager
def damages_as_model_error(path: Path) -> Iterator[None]:
    """Convert errors of reading a file to ModelError."""
    try:
        with os_errors_as(ModelError, f"read {path}", hint=HINT):
            yield
    except ZIP_ERRORS as error:
        raise ModelError(f"{path} is damaged: {error!s:.300}", hint=HINT) from error


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings in an .npz file, and its arrays with the names and shapes that they have in transformers.

    An .npz file is a ZIP file of arrays. Raises one of `ZIP_ERRORS` if it is damaged.
    """
    yml: dict[str, Any] = {}
    weights = {}
    with open_file(path) as file, zipfile.ZipFile(file) as npz:
        # 1. If arrays are neither compressed nor overlap, all of them together are not larger than the file.
        infos = npz.infolist()
        n_bytes = sum(info.file_size for info in infos)
        size = os.fstat(file.fileno()).st_size
        if any(info.compress_type for info in infos) or n_bytes > size:
            raise ValueError("its arrays are compressed, which Marian does not read, or overlap")
        # 2. Read the arrays. Each has a header, which is a Python dict as text, after ten bytes with its size.
        for info in infos:
            name = info.filename.removesuffix(".npy")
            content = npz.read(info)[10:]
            header, _, elements = content.partition(b"\n")
            if name == SETTINGS_ARRAY:
                yml = parse_yaml(elements.rstrip(b"\0"))
                continue
            match = ARRAY_HEADER.fullmatch(header.decode("latin-1"))
            if not match:
                raise ValueError(f"{name!r:.80} has the header {header!r:.150}, not that of a matrix <f4 in C order")
            dtype, n_rows, n_columns = match.groups()
            array = np.frombuffer(elements, dtype).astype(np.float32)
            x = torch.from_numpy(array).view(int(n_rows), int(n_columns))
            theirs = transformers_name(name)
            if theirs in weights:  # such as norms before and after the same sub-layer
                raise ValueError(f"nmt does not support {name!r:.80} beside the other array of {theirs!r:.80}")
            weights[theirs] = as_in_transformers(name, x)
    return yml, weights


def transformers_name(name: str) -> str:
    """Return transformers' name of an array, such as model.encoder.layers.0.fc1.weight for encoder_l1_ffn_W1."""
    match = LAYER_ARRAY.fullmatch(name)
    if not match:
        return ARRAYS.get(name, name)
    stack, layer, part = match.groups()
    part = part.removesuffix("_pre")
    i = int(layer) - 1
    return f"model.{stack}.layers.{i}.{ARRAYS.get(part, part)}"


def as_in_transformers(name: str, x: Tensor) -> Tensor:
    """Return an array in the shape that it has in transformers.

    PAD and BOS have no row in Marian. They get a row of zeros, and a bias that bans them.
    """
    if name == "decoder_ff_logit_out_b":
        return F.pad(x, (0, 1), value=BAN)
    if name.endswith(EMBEDDINGS):
        return F.pad(x, (0, 0, 0, 1))
    return x[0] if len(x) == 1 else x.T


@contextlib.contextmanager
def unzipped_model(path: Path) -> Iterator[Path]:
    """Unpack a model's files in a ZIP file to a temporary directory, without the directories of the ZIP file."""
    with tempfile.TemporaryDirectory() as temp:
        with damages_as_model_error(path), open_file(path) as file, zipfile.ZipFile(file) as archive:
            check_deflated(archive)
            infos = [info for info in archive.infolist() if info.filename.endswith(SUFFIXES)]
            n_bytes = sum(info.file_size for info in infos)
            if n_bytes > MAX_RATIO * os.fstat(file.fileno()).st_size:
                raise ValueError(f"it is over {MAX_RATIO} times as large unpacked")
            for info in infos:
                # Another file of the same name is an error.
                copy = Path(temp, Path(info.filename).name)
                with archive.open(info) as member, copy.open("xb") as copied:
                    shutil.copyfileobj(member, copied)
        yield Path(temp)
