"""A vocabulary that numbers the pieces of a SentencePiece model otherwise than the model itself. Imports no torch.

Marian's models have one vocabulary for both sides, each of which has a SentencePiece model of its own. The vocabulary
is stored in the file of the model: before the model stands a field that SentencePiece does not know and skips. So one
file is a whole tokenizer.
"""

import json
import re
from collections.abc import Sequence

from nmt.errors import ModelError

FIELD = 1001 << 3 | 2  # protobuf's key of the field: its number, which SentencePiece leaves to others, and "bytes"
TAG = re.compile(">>.*?<<", re.DOTALL)  # of the target language, before a source text: `>>fra<< The cat sleeps.`


def with_vocabulary(model: bytes, pieces: Sequence[str]) -> bytes:
    """A serialized SentencePiece model with a vocabulary, which may lack some of its pieces and have others."""
    content = json.dumps(pieces, ensure_ascii=False).encode()
    return varint(FIELD) + varint(len(content)) + content + without_vocabulary(model)


def without_vocabulary(model: bytes) -> bytes:
    """The SentencePiece model alone."""
    return _split(model)[1]


def vocabulary_of(model: bytes) -> list[str] | None:
    """The pieces in order; None if the model numbers them itself. Raises ModelError if the vocabulary is damaged."""
    content, _ = _split(model)
    if content is None:
        return None
    try:
        pieces = json.loads(content)
        if isinstance(pieces, list) and {*map(type, pieces)} <= {str} and len({*pieces}) == len(pieces):
            return pieces
    except (ValueError, RecursionError):
        pass
    raise ModelError("the tokenizer's vocabulary is damaged", hint="import the model again")


def split_tag(text: str) -> tuple[str, str]:
    """The tag that a text begins with, or an empty string, and the rest."""
    found = TAG.match(text)
    return (found[0], text[found.end() :]) if found else ("", text)


def _split(model: bytes) -> tuple[bytes | None, bytes]:
    """The content of the vocabulary field, or None without one, and the rest. The field comes first."""
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
    """Protobuf's encoding of a number: seven bits a byte, the lowest first; the eighth bit says that more follow."""
    groups = [n >> shift & 127 for shift in range(0, max(n.bit_length(), 1), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])
