"""A separate vocabulary, whose token ids replace the ids of a SentencePiece model.

Marian models have one vocabulary for both sides, but a SentencePiece model for each side. The vocabulary is stored at
the beginning of the SentencePiece model, in a protobuf field that SentencePiece skips.
"""

import json
import re
from collections.abc import Sequence

from nmt.errors import ModelError
from nmt.files import parse_json

# Protobuf key of the vocabulary: a field number that SentencePiece reserves for extensions, and the type "bytes".
FIELD = 1001 << 3 | 2
# The tag of the target language at the beginning of a source text: `>>fra<< The cat sleeps.`
TAG = re.compile(">>.*?<<", re.DOTALL)


def with_vocabulary(model: bytes, pieces: Sequence[str]) -> bytes:
    """Return a serialized SentencePiece model with these pieces as its vocabulary. An old vocabulary is replaced.

    The vocabulary and the model may have different pieces.
    """
    content = json.dumps(pieces, ensure_ascii=False).encode()
    return varint(FIELD) + varint(len(content)) + content + without_vocabulary(model)


def without_vocabulary(model: bytes) -> bytes:
    """Return a serialized SentencePiece model without its vocabulary."""
    return _split(model)[1]


def vocabulary_of(model: bytes) -> list[str] | None:
    """Return the pieces of a separate vocabulary in the order of their ids; None if the model has no vocabulary.

    Raises ModelError if the vocabulary is damaged.
    """
    content, _ = _split(model)
    if content is None:
        return None
    try:
        pieces = parse_json(content)
        "".join(pieces).encode()  # raises TypeError for other values than strings, ValueError for a lone surrogate
        if isinstance(pieces, list) and len(set(pieces)) == len(pieces):
            return pieces
    except (TypeError, ValueError):
        pass
    raise ModelError("the tokenizer's vocabulary is damaged", hint="import the model again")


def tag_of(language: str) -> str:
    """Return the tag of a target language."""
    return f">>{language}<<"


def split_tag(text: str) -> tuple[str, str]:
    """Split a text into the tag at its beginning and the rest. The tag is an empty string if the text has none."""
    match = TAG.match(text)
    tag = match[0] if match else ""
    return tag, text[len(tag) :]


def _split(model: bytes) -> tuple[bytes | None, bytes]:
    """Split a model into the content of the vocabulary field and the rest.

    The content is None if the model has no vocabulary field.
    """
    rest = model.removeprefix(varint(FIELD))
    if len(rest) == len(model):
        return None, model

    # The length of the content in bytes comes after the key, encoded as by `varint`.
    length = start = 0
    for start, byte in enumerate(rest[:5], 1):
        length |= (byte & 127) << 7 * (start - 1)
        if byte < 128:
            break
    end = start + length
    return rest[start:end], rest[end:]


def varint(n: int) -> bytes:
    """Encode a number as protobuf does: 7 bits per byte, beginning with the lowest bits.

    The eighth bit of a byte is set if another byte follows.
    """
    encoded = bytearray()
    while n > 127:
        encoded.append(n & 127 | 128)
        n >>= 7
    return bytes([*encoded, n])
