"""The header of a model file or checkpoint: settings and progress as JSON.

A safetensors file begins with the length of its header (8 bytes, little-endian) and the header, which is JSON. Its
`__metadata__` has the entry "nmt", again JSON: format_version, config, progress, hashes of these and of the tensors.
If the model was trained since nmt counts characters, it also has learned_characters: see `Tokenizer.learned_in_bytes`.
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
MAX_TENSORS = 25_000  # 100 layers per side have 4,200 weights; a checkpoint has up to five tensors per weight
MAX_HEADER_BYTES = 10_000_000
# The keys that each header has; `check_config` checks the content of config.
TYPES = {"format_version": object, "config": object, "progress": dict, "header_sha256": str, "tensors_sha256": dict}


def read_header(path: Path) -> tuple[Config, dict[str, Any]]:
    """Return the settings, without paths, and the progress of a model file. Raises ModelError if it is damaged."""
    with errors_as_model_error(path):
        check_header_size(path)
        with safetensors.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
        header = checked_header(metadata.get("nmt"))
        config = check_config(header["config"], {}, "its settings")
        return config, header["progress"]


@contextlib.contextmanager
def errors_as_model_error(path: Path) -> Iterator[None]:
    """Raise errors of reading a model file as ModelError that names the file."""
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
    """Raise SafetensorError if the header would take too much memory, OSError if this is not a file."""
    with open_file(path) as file:
        # One byte more than allowed, to notice that there are more.
        n_bytes = int.from_bytes(file.read(8), "little")
        header = file.read(min(n_bytes, MAX_HEADER_BYTES + 1))
    n_braces = header.count(b"{")  # each tensor has one, and few commas
    max_commas = 50 * n_braces + 10_000
    if len(header) > MAX_HEADER_BYTES or n_braces > MAX_TENSORS or header.count(b",") > max_commas:
        raise safetensors.SafetensorError("the header is too large")


def checked_header(text: str | None) -> dict[str, Any]:
    """Parse and check the entry "nmt"; None if there is none."""
    # 1. Is it ours?
    header: Any = None
    with contextlib.suppress(ValueError, TypeError):
        header = parse_json(text or "")
    if not isinstance(header, dict) or not header.keys() >= TYPES.keys():
        raise ModelError("not written by nmt", hint=HINT)
    for key, kind in TYPES.items() | {("learned_characters", str)}:
        if not isinstance(header.get(key, ""), kind):
            raise ModelError("not written by nmt", hint=HINT)
    # 2. Can this version read it, and is it whole?
    version = header["format_version"]
    if version != FORMAT_VERSION:
        raise ModelError(f"format version {version}, this nmt reads {FORMAT_VERSION}", hint="update nmt")
    if header["header_sha256"] != hash_of(header):
        raise ModelError("damaged: its settings are not those that were written", hint="use another")
    return header


def hash_of(header: Mapping[str, Any]) -> str:
    keys = ("format_version", "config", "progress", "learned_characters")
    covered = {key: header[key] for key in keys if key in header}  # an imported model has no characters
    return sha256(json.dumps(covered, sort_keys=True).encode())
