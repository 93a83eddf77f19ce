"""The header of a model file or checkpoint: settings and progress as JSON.

A safetensors file begins with the length of its header (8 bytes, little-endian) and the header in JSON. The
`__metadata__` of the header has an entry "nmt", which is JSON text:

    format_version      version of the file format
    config              settings
    progress            progress of the training
    header_sha256       see `hash_of`
    tensors_sha256      hash of each part of the tensors
    learned_characters  see `Tokenizer.learned_in_bytes`; missing in imported and old models
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors

from nmt.config import Config, check_config
from nmt.errors import ConfigError, ModelError
from nmt.files import open_file, parse_json, sha256

FORMAT_VERSION = 2
HINT = "give a run's directory or its model.safetensors"
# A model with 100 layers per side has 4,200 weights. Each has up to five tensors in a checkpoint.
MAX_TENSORS = 25_000
MAX_HEADER_BYTES = 10_000_000
# The required keys of the "nmt" entry, and the types of their values.
TYPES = {"format_version": object, "config": dict, "progress": dict, "header_sha256": str, "tensors_sha256": dict}


def read_header(path: Path) -> tuple[Config, dict[str, Any]]:
    """Return the settings and the progress of a model file. The settings have file names instead of paths.

    Raises ModelError if the file is no model file, or if the header is damaged.
    """
    with errors_as_model_error(path):
        check_header_size(path)
        with safetensors.safe_open(path, framework="np") as file:
            header, config = checked_header(file.metadata())
        return config, header["progress"]


@contextlib.contextmanager
def errors_as_model_error(path: Path) -> Iterator[None]:
    """Convert errors in this block to ModelError, with the path of the model file in the message."""
    try:
        yield
    except safetensors.SafetensorError as error:
        raise ModelError(f"{path}: not a model file, or damaged", hint=HINT) from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=HINT) from error
    except ConfigError as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{path}: not a model file of this version: {reason}", hint="train it again") from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}", hint=error.hint) from error


def check_header_size(path: Path) -> None:
    """Raise SafetensorError if parsing the header would take too much memory. Raises OSError if `path` is no file."""
    with open_file(path) as file:
        # One byte more than allowed shows that the header is too large.
        n_bytes = int.from_bytes(file.read(8), "little")
        header = file.read(min(n_bytes, MAX_HEADER_BYTES + 1))
    n_braces = header.count(b"{")  # in a valid header, each tensor has one brace and a few commas
    max_commas = 50 * n_braces + 10_000
    if len(header) > MAX_HEADER_BYTES or n_braces > MAX_TENSORS or header.count(b",") > max_commas:
        raise safetensors.SafetensorError("the header is too large")


def checked_header(metadata: Mapping[str, str] | None) -> tuple[dict[str, Any], Config]:
    """Return the parsed entry "nmt" and its settings. `metadata` is None if the file has no metadata.

    Raises:
        ModelError: the entry is missing, damaged, or of another format version.
        ConfigError: the settings are invalid.
    """
    # 1. Check that nmt wrote the entry.
    header: Any = None
    with contextlib.suppress(ValueError, TypeError, KeyError):
        header = parse_json((metadata or {})["nmt"])
    if not isinstance(header, dict) or not header.keys() >= TYPES.keys():
        raise ModelError("not written by nmt", hint=HINT)
    for key, kind in TYPES.items() | {("learned_characters", str)}:
        if not isinstance(header.get(key, ""), kind):
            raise ModelError("not written by nmt", hint=HINT)
    # 2. Check that this version of nmt can read the entry, and that the entry is not damaged.
    version = header["format_version"]
    if version != FORMAT_VERSION:
        raise ModelError(f"format version {version}, this nmt reads {FORMAT_VERSION}", hint="update nmt")
    if header["header_sha256"] != hash_of(header):
        raise ModelError("damaged: its settings are not those that were written", hint="use another")
    return header, check_config(header["config"], {}, "its settings")


def hash_of(header: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the header without its hashes."""
    keys = ("format_version", "config", "progress", "learned_characters")
    covered = {key: header[key] for key in keys if key in header}  # learned_characters may be missing
    return sha256(json.dumps(covered, sort_keys=True).encode())
