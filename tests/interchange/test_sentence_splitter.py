"""The sentence splitter of Argos packages: the file is up to date, and its weights end sentences where they should."""

import pytest
import torch
from sentence_splitter import FILE, THRESHOLD, UNITS, WEIGHTS, classes, sentence_splitter
from torch.nn import functional as F


def test_the_package_has_what_the_program_writes() -> None:
    assert FILE.read_bytes() == sentence_splitter()


def split(text: str) -> str:
    """Write a text with | at the ends of sentences, as the model's convolution finds them."""
    units = [character if character in UNITS else "<UNK>" for character in text]
    channels = torch.tensor(list(map(classes, units))).T  # (C, L)
    kernel = torch.tensor(list(WEIGHTS.values()))  # (C, 5)
    (sums,) = F.conv1d(channels, kernel[None], padding=2)  # (L,)
    written = ""
    for character, total in zip(text, sums.tolist(), strict=True):
        written += character
        if total > THRESHOLD:
            written += "|"
    return written


@pytest.mark.parametrize(
    "text",
    [
        "Ein Hund rennt.| Eine Katze schläft!| Wirklich?| Ja",
        "z. B. Hunde.| Das kostet 3.50 Euro.| Gut … weiter.| Äpfel",
        "Er sagte: „Geh.“ Dann ging er.",
        "Das war z. B. gut, ca. drei.| Ja.",
        "Кто там?| Это я.",
    ],
)
def test_sentences_end_at_punctuation_before_a_space(text: str) -> None:
    result = split(text.replace("|", ""))
    assert result == text


@pytest.mark.parametrize("text", ["你好。|“我走了。”|他说！！|真的？|是", "「行く？」|はい。|"])
def test_wide_punctuation_needs_no_space(text: str) -> None:
    result = split(text.replace("|", ""))
    assert result == text
