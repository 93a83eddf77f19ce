"""A vocabulary that replaces the token ids of a SentencePiece model.

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
        is_list_of_strings = isinstance(pieces, list) and all(type(piece) is str for piece in pieces)
        if is_list_of_strings and len(set(pieces)) == len(pieces):
            "".join(pieces).encode()  # raises ValueError for a lone surrogate
            return list(pieces)
    except ValueError:
        pass
    raise ModelError("the tokenizer's vocabulary is damaged", hint="import the model again")


def tag_of(language: str) -> str:
    """Return the tag of a target language."""
    return f">>{language}<<"


def split_tag(text: str) -> tuple[str, str]:
    """Return the tag that a text begins with, or an empty string, and the rest."""
    match = TAG.match(text)
    tag = match[0] if match else ""
    return tag, text[len(tag) :]


def _split(model: bytes) -> tuple[bytes | None, bytes]:
    """Return the content of the vocabulary field at the beginning, or None if there is no such field, and the rest."""
    key = varint(FIELD)
    if not model.startswith(key):
        return None, model

    # The number of bytes of the content follows the key, encoded by `varint`. A cut file reads as if it ended in 0.
    length = 0
    start = len(key)  # of the content, after the number
    for shift in range(0, 35, 7):
        byte = model[start] if start < len(model) else 0
        length |= (byte & 127) << shift
        start += 1
        if byte < 128:
            break
    end = start + length
    return model[start:end], model[end:]


def varint(n: int) -> bytes:
    """Encode a number as protobuf does: 7 bits per byte, the lowest first; the eighth bit is set if more follow."""
    encoded = bytearray()
    while n > 127:
        encoded.append(n & 127 | 128)
        n >>= 7
    return bytes([*encoded, n])
