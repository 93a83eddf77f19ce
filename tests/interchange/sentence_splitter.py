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
    "lower": "".join(filter(str.islower, map(chr, range(0x530)))),  # Latin, Greek and Cyrillic
}
UNITS = ["<PAD>", "<UNK>", *"".join(CLASSES.values())]  # by their ids
WINDOW = 5  # positions that the convolution covers: -2 to 2, relative to the character
# Class -> weight of a character of this class at each position of the window.
WEIGHTS: dict[str, list[float]] = {
    "final": [0, 0, 12, -50, 0],  # ends a sentence if a space is at 1 and text at -2
    "wide": [0, 10.5, 50, -50, 0],
    "closing": [0, 0, 10.5, -50, 0],  # ends a sentence if `wide` is at -1
    "space": [0, 0, 0, 4.5, 0],
    "lower": [0, 0, 0, 0, -20],
    "text": [4.5, 0, 0, 0, 0],  # any character but white space
}
N_CLASSES = len(WEIGHTS)
THRESHOLD = 20.0  # a sentence ends where the sum is greater
N_LABELS, END = 3, 2
NEVER = -1e6

# Enum values of onnx.proto
FLOAT, INT64 = 1, 7
INTS = 7  # type of an attribute that is a list of integers


def sentence_splitter() -> bytes:
    """Return the content of the ONNX file."""
    units = {unit: i for i, unit in enumerate(UNITS)}
    vocabulary = {"lang": "", "idx": 0, "cutoff": 0, "lower": False, "_unit2id": units, "_id2unit": UNITS}
    config = {"batch_size": 32, "max_seqlen": 1000, "feat_funcs": [], "skip_newline": False}
    metadata = [
        _entry("lang_code", ""),
        _entry("config", json.dumps(config)),
        _entry("vocab", json.dumps(vocabulary)),
        _entry("lexicon", "null"),
    ]
    # A ModelProto: IR version, producer, graph, opset, metadata.
    opset = _message({2: 13})
    return _message({1: 8, 2: "nmt", 7: _graph(), 8: opset, 14: metadata})


def _graph() -> bytes:
    table: list[float] = []
    for unit in UNITS:
        table += classes(unit)
    # The label "inside" always has the sum 0; END has the sum of the weights.
    kernel = [0.0] * END * N_CLASSES * WINDOW
    for weights in WEIGHTS.values():
        kernel += weights
    look_up = _node("Gather", ["table", "units"], "classes")  # (B, L, C)
    channels_first = _node("Transpose", ["classes"], "channels", perm=[0, 2, 1])  # (B, C, L)
    add_up = _node("Conv", ["channels", "kernel", "bias"], "sums", pads=[2, 2])  # (B, 3, L)
    channels_last = _node("Transpose", ["sums"], "labels", perm=[0, 2, 1])  # (B, L, 3)
    nodes = [look_up, channels_first, add_up, channels_last]
    table_tensor = _tensor("table", [len(UNITS), N_CLASSES], table)
    kernel_tensor = _tensor("kernel", [N_LABELS, N_CLASSES, WINDOW], kernel)
    bias_tensor = _tensor("bias", [N_LABELS], [0.0, NEVER, -THRESHOLD])
    tensors = [table_tensor, kernel_tensor, bias_tensor]
    units = _value("units", INT64, ["B", "L"])
    features = _value("features", FLOAT, ["B", "L", "F"])
    labels = _value("labels", FLOAT, ["B", "L", N_LABELS])
    return _message({1: nodes, 2: "sentences", 5: tensors, 11: [units, features], 12: [labels]})


def classes(unit: str) -> list[float]:
    """Return an indicator, 0 or 1, for each of `CLASSES`, and one for text (not white space or padding)."""
    indicators = [float(unit in members) for members in CLASSES.values()]
    is_text = unit not in ("<PAD>", " ")
    return [*indicators, float(is_text)]


def _entry(key: str, value: str) -> bytes:
    return _message({1: key, 2: value})


def _node(kind: str, inputs: list[str], output: str, **attributes: list[int]) -> bytes:
    encoded = []
    for name, ints in attributes.items():
        encoded.append(_message({1: name, 8: ints, 20: INTS}))
    return _message({1: inputs, 2: output, 4: kind, 5: encoded})


def _tensor(name: str, shape: list[int], values: list[float]) -> bytes:
    content = struct.pack(f"<{len(values)}f", *values)
    return _message({1: shape, 2: FLOAT, 8: name, 9: content})


def _value(name: str, kind: int, shape: list[str | int]) -> bytes:
    """A ValueInfoProto, which describes an input or output. A string in `shape` names a dimension of variable size."""
    dimensions = []
    for size in shape:
        field = 2 if isinstance(size, str) else 1
        dimensions.append(_message({field: size}))
    tensor = _message({1: kind, 2: _message({1: dimensions})})
    return _message({1: name, 2: _message({1: tensor})})


def _message(fields: dict[int, Any]) -> bytes:
    """Encode a protobuf message from field numbers and their values; a list is a repeated field."""
    encoded = b""
    for number, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            encoded += _field(number, value)
    return encoded


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    length = varint(len(content))
    return varint(number << 3 | 2) + length + content


if __name__ == "__main__":
    FILE.write_bytes(sentence_splitter())
