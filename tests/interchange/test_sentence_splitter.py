"""The sentence splitter of Argos packages: the file is up to date, and its weights end sentences where they should."""

from itertools import pairwise

import pytest
import torch
from sentence_splitter import FILE, THRESHOLD, UNITS, WEIGHTS, classes, sentence_splitter
from torch.nn import functional as F

SPACED = [
    ["Ein Hund rennt.", "Eine Katze schläft!", "Wirklich?", "Ja"],
    ["z. B. Hunde.", "Das kostet 3.50 Euro.", "Gut … weiter.", "Äpfel"],
    ["Er sagte: „Geh.“ Dann ging er."],
    ["Das war z. B. gut, ca. drei.", "Ja."],
    ["Кто там?", "Это я."],
]
UNSPACED = [["你好。", "“我走了。”", "他说！！", "真的？", "是"], ["「行く？」", "はい。"]]


def test_the_package_has_what_the_program_writes() -> None:
    assert FILE.read_bytes() == sentence_splitter()


def split(text: str) -> list[str]:
    """Split a text as the model's convolution does."""
    channels = torch.tensor([classes(character if character in UNITS else "<UNK>") for character in text]).T
    sums = F.conv1d(channels[None], torch.tensor([*WEIGHTS.values()])[None], padding=2)[0, 0]
    ends = [*((sums > THRESHOLD).nonzero()[:, 0] + 1).tolist(), len(text)]
    return [part for start, end in pairwise([0, *ends]) if (part := text[start:end].strip())]


@pytest.mark.parametrize("sentences", SPACED, ids=lambda sentences: sentences[0])
def test_sentences_end_at_punctuation_before_a_space(sentences: list[str]) -> None:
    assert split(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", UNSPACED, ids=lambda sentences: sentences[0])
def test_wide_punctuation_needs_no_space(sentences: list[str]) -> None:
    assert split("".join(sentences)) == sentences
