"""Writes nmt/interchange/sentences.onnx, a sentence splitter for MiniSBD, so that an Argos package needs no download.

The model labels each character of a paragraph, 0 inside a sentence and 2 at its end, by one convolution of character
classes. A sentence ends at `.!?…` before a space, unless a lower-case letter follows or a single letter precedes, and
at `。！？；`. Run it after a change: python tests/interchange/sentence_splitter.py
"""

import json
import struct
from pathlib import Path
from typing import Any

import nmt
from nmt.text.vocabulary import varint

FILE = Path(nmt.__file__).parent / "interchange" / "sentences.onnx"
CLASSES = {  # class -> its characters; MiniSBD replaces all white space by spaces
    "final": ".!?…؟۔।",
    "wide": "。！？；",
    "closing": "”’」』）",
    "space": " ",
    "lower": "".join(chr(i) for i in range(0x530) if chr(i).islower()),  # Latin, Greek and Cyrillic
}
UNITS = ["<PAD>", "<UNK>", *"".join(CLASSES.values())]  # by their ids
WINDOW = range(-2, 3)  # positions that the convolution covers, relative to the character
WEIGHTS: dict[str, list[float]] = {  # class -> weight of a character of this class at each position of `WINDOW`
    "final": [0, 0, 12, -50, 0],  # ends a sentence if a space is at 1 and text at -2
    "wide": [0, 10.5, 50, -50, 0],
    "closing": [0, 0, 10.5, -50, 0],  # ends a sentence if `wide` is at -1
    "space": [0, 0, 0, 4.5, 0],
    "lower": [0, 0, 0, 0, -20],
    "text": [4.5, 0, 0, 0, 0],  # any character but white space
}
THRESHOLD = 20.0  # a sentence ends where the sum is greater
N_LABELS, END = 3, 2
NEVER = -1e6

# Enum values of onnx.proto
FLOAT, INT64 = 1, 7
INTS = 7  # type of an attribute that is a list of integers


def sentence_splitter() -> bytes:
    """Return the content of the ONNX file."""
    table = [x for unit in UNITS for x in classes(unit)]
    ending = [weight for weights in WEIGHTS.values() for weight in weights]
    kernel = [0.0] * len(ending) * END + ending
    bias = [0.0, NEVER, -THRESHOLD]
    graph = {
        1: [
            _node("Gather", ["table", "units"], "classes"),  # (B, L, C)
            _node("Transpose", ["classes"], "channels", perm=[0, 2, 1]),  # (B, C, L)
            _node("Conv", ["channels", "kernel", "bias"], "sums", pads=[-WINDOW[0], WINDOW[-1]]),  # (B, 3, L)
            _node("Transpose", ["sums"], "labels", perm=[0, 2, 1]),  # (B, L, 3)
        ],
        2: "sentences",
        5: [
            _tensor("table", [len(UNITS), len(WEIGHTS)], table),
            _tensor("kernel", [N_LABELS, len(WEIGHTS), len(WINDOW)], kernel),
            _tensor("bias", [N_LABELS], bias),
        ],
        11: [_value("units", INT64, ["B", "L"]), _value("features", FLOAT, ["B", "L", "F"])],
        12: [_value("labels", FLOAT, ["B", "L", N_LABELS])],
    }
    ids = {unit: i for i, unit in enumerate(UNITS)}
    vocabulary = {"lang": "", "idx": 0, "cutoff": 0, "lower": False, "_unit2id": ids, "_id2unit": UNITS}
    config = {"batch_size": 32, "max_seqlen": 1000, "feat_funcs": [], "skip_newline": False}
    about = {"lang_code": "", "config": json.dumps(config), "vocab": json.dumps(vocabulary), "lexicon": "null"}
    return _message(
        {
            1: 8,  # IR version
            2: "nmt",
            7: _message(graph),
            8: _message({2: 13}),  # opset
            14: [_message({1: key, 2: value}) for key, value in about.items()],
        }
    )


def classes(unit: str) -> list[float]:
    """Return an indicator, 0 or 1, for each of `CLASSES`, and one for text (not white space or padding)."""
    return [*(float(unit in members) for members in CLASSES.values()), float(unit not in ("<PAD>", " "))]


def _node(kind: str, inputs: list[str], output: str, **attributes: list[int]) -> bytes:
    found = [_message({1: name, 8: ints, 20: INTS}) for name, ints in attributes.items()]
    return _message({1: inputs, 2: output, 4: kind, 5: found})


def _tensor(name: str, shape: list[int], values: list[float]) -> bytes:
    return _message({1: shape, 2: FLOAT, 8: name, 9: struct.pack(f"<{len(values)}f", *values)})


def _value(name: str, kind: int, shape: list[str | int]) -> bytes:
    """A ValueInfoProto, which describes an input or output. A string in `shape` names a dimension of variable size."""
    sizes = [_message({2: size} if isinstance(size, str) else {1: size}) for size in shape]
    return _message({1: name, 2: _message({1: _message({1: kind, 2: _message({1: sizes})})})})


def _message(fields: dict[int, Any]) -> bytes:
    """Encode a protobuf message from field numbers and their values; a list is a repeated field."""
    encoded = b""
    for number, values in fields.items():
        for value in [values] if isinstance(values, bytes | str | int) else values:
            if isinstance(value, int):
                encoded += varint(number << 3) + varint(value)
            else:
                content = value.encode() if isinstance(value, str) else value
                encoded += varint(number << 3 | 2) + varint(len(content)) + content
    return encoded


if __name__ == "__main__":
    FILE.write_bytes(sentence_splitter())
