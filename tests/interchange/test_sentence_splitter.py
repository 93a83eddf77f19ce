"""The sentence splitter of Argos packages. The ONNX file is decoded, and torch computes the labels."""

import io
import json
from itertools import pairwise
from typing import Any

import pytest
import torch
from sentence_splitter import END, FILE, sentence_splitter
from torch.nn import functional as F

CASES = [
    ["Ein Hund rennt.", "Eine Katze schläft!", "Wirklich?", "Ja"],
    ["z. B. Hunde.", "Das kostet 3.50 Euro.", "Gut … weiter.", "Äpfel"],
    ["Er sagte: „Geh.“ Dann ging er."],
    ["Das war z. B. gut, ca. drei.", "Ja."],
    ["Кто там?", "Это я."],
]
UNSPACED = [["你好。", "“我走了。”", "他说！！", "真的？", "是"], ["「行く？」", "はい。"]]


def test_the_package_has_what_the_program_writes() -> None:
    assert FILE.read_bytes() == sentence_splitter()


def fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message by number: bytes and integers."""
    stream = io.BytesIO(message)

    def varint() -> int:
        n, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            (byte,) = stream.read(1)
            n |= (byte & 0x7F) << shift
            shift += 7
        return n

    found: dict[int, list[Any]] = {}
    while stream.tell() < len(message):
        number, wire_type = divmod(varint(), 8)
        assert wire_type in (0, 2)
        value = varint()
        found.setdefault(number, []).append(stream.read(value) if wire_type else value)
    return found


def split(text: str) -> list[str]:
    """Split a text with the file's tensors and the steps of MiniSBD."""
    model = fields(sentence_splitter())
    properties = {key: value for (key,), (value,) in (fields(item).values() for item in model[14])}
    tensors = {}
    for tensor in map(fields, fields(model[7][0])[5]):
        tensors[tensor[8][0]] = torch.frombuffer(bytearray(tensor[9][0]), dtype=torch.float32).reshape(tensor[1])
    ids = json.loads(properties[b"vocab"])["_unit2id"]
    units = torch.tensor([ids.get(character, ids["<UNK>"]) for character in text])
    classes = F.embedding(units, tensors[b"table"]).T
    labels = F.conv1d(classes[None], tensors[b"kernel"], tensors[b"bias"], padding=2)[0].argmax(0)
    ends = [*((labels == END).nonzero()[:, 0] + 1).tolist(), len(text)]
    return [part for start, end in pairwise([0, *ends]) if (part := text[start:end].strip())]


@pytest.mark.parametrize("sentences", CASES, ids=lambda sentences: sentences[0])
def test_sentences_end_at_punctuation_before_a_space(sentences: list[str]) -> None:
    assert split(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", UNSPACED, ids=lambda sentences: sentences[0])
def test_wide_punctuation_needs_no_space(sentences: list[str]) -> None:
    assert split("".join(sentences)) == sentences
