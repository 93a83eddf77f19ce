"""A vocabulary that replaces the token ids of a SentencePiece model. Imports no torch.

Marian models have one vocabulary for both sides, but a SentencePiece model for each side. The vocabulary is stored in
the file of the SentencePiece model, in a protobuf field at its beginning. SentencePiece does not know this field and
skips it. So one file is a whole tokenizer.
"""

import json
import re
from collections.abc import Sequence

from nmt.errors import ModelError
from nmt.files import parse_json

FIELD = 1001 << 3 | 2  # protobuf key: a field number that SentencePiece leaves to extensions, and the type "bytes"
TAG = re.compile(">>.*?<<", re.DOTALL)  # target language at the start of a source text: `>>fra<< The cat sleeps.`


def with_vocabulary(model: bytes, pieces: Sequence[str]) -> bytes:
    """Add a vocabulary to a serialized SentencePiece model. It may lack pieces of the model, and have others."""
    content = json.dumps(pieces, ensure_ascii=False).encode()
    return varint(FIELD) + varint(len(content)) + content + without_vocabulary(model)


def without_vocabulary(model: bytes) -> bytes:
    """Return the SentencePiece model without the vocabulary."""
    return _split(model)[1]


def vocabulary_of(model: bytes) -> list[str] | None:
    """Return the vocabulary's pieces in order, or None without a vocabulary. Raises ModelError if it is damaged."""
    content, _ = _split(model)
    if content is None:
        return None
    try:
        pieces = parse_json(content)
        if isinstance(pieces, list) and {*map(type, pieces)} <= {str} and len({*pieces}) == len(pieces):
            "".join(pieces).encode()  # raises ValueError for a lone surrogate
            return pieces
    except ValueError:
        pass
    raise ModelError("the tokenizer's vocabulary is damaged", hint="import the model again")


def tag_of(language: str) -> str:
    """The tag of a target language."""
    return f">>{language}<<"


def split_tag(text: str) -> tuple[str, str]:
    """The tag that a text begins with, or an empty string, and the rest."""
    found = TAG.match(text)
    return (found[0], text[found.end() :]) if found else ("", text)


def _split(model: bytes) -> tuple[bytes | None, bytes]:
    """Return the content of the vocabulary field at the beginning, or None if there is no such field, and the rest."""
    key = varint(FIELD)
    if not model.startswith(key):
        return None, model
    length, position = 0, len(key)
    for shift in range(0, 35, 7):
        byte = model[position] if position < len(model) else 0
        length |= (byte & 127) << shift
        position += 1
        if byte < 128:
            break
    return model[position : position + length], model[position + length :]


def varint(n: int) -> bytes:
    """Protobuf's encoding of a number: 7 bits per byte, the lowest first; the eighth bit is set if more follow."""
    groups = [n >> shift & 127 for shift in range(0, max(n.bit_length(), 1), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])
