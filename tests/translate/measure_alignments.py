"""Print the error rate of `nmt align`: python tests/translate/measure_alignments.py RUN GOLD.tsv

A line of a gold file has source words, target words and links, separated by TABs; s-t is a sure link, s?t a
possible link. The pairs of `de-en-tatoeba.tsv` are from Tatoeba (CC BY 2.0 FR); the others were written for this
project.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config import language
from nmt.languages import script_of
from nmt.text.words import WordText
from nmt.translate.align import WordPair, align
from nmt.translate.loading import load
from nmt.translate.translator import Translator

UNSPACED = ("Hans", "Hant", "Jpan")  # scripts without spaces between words
LinkSet = set[tuple[int, int]]
CLOSING = (".", ",", "?", "!", "'s")  # written without a space before them


@dataclass(frozen=True)
class GoldPair:
    """Words of both sides and their links; `possible` contains the sure ones."""

    source: list[str]
    target: list[str]
    sure: LinkSet
    possible: LinkSet


def read_gold(file: Path) -> list[GoldPair]:
    pairs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        source, target, links = line.split("\t")
        sure: LinkSet = set()
        possible: LinkSet = set()
        for s, kind, t in re.findall(r"(\d+)([-?])(\d+)", links):
            possible.add((int(s), int(t)))
            if kind == "-":
                sure.add((int(s), int(t)))
        pairs.append(GoldPair(source.split(" "), target.split(" "), sure, possible))
    return pairs


def natural_text(words: Iterable[str], *, spaced: bool) -> WordText:
    """Join words to a text with natural spacing."""
    text = ""
    spans = []
    for word in words:
        if text and spaced and word not in CLOSING:
            text += " "
        start = len(text)
        text += word
        spans.append((start, len(text)))
    return WordText(text, spans)


def alignment_error_rate(alignments: Iterable[Iterable[tuple[int, int]]], gold: Iterable[GoldPair]) -> float:
    """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all pairs (Och and Ney 2003): links A, sure and possible ones."""
    n_good = n_all = 0
    for alignment, pair in zip(alignments, gold, strict=True):
        links = set(alignment)
        n_good += len(links & pair.sure) + len(links & pair.possible)
        n_all += len(links) + len(pair.sure)
    return 1 - n_good / n_all


def spaced_texts(translator: Translator, gold: Sequence[GoldPair]) -> list[tuple[GoldPair, WordPair]]:
    """Gold pairs with their texts."""
    data = translator.config.data
    source_spaced = script_of(language(data, "source")) not in UNSPACED
    target_spaced = script_of(language(data, "target")) not in UNSPACED
    pairs = []
    for pair in gold:
        source = natural_text(pair.source, spaced=source_spaced)
        target = natural_text(pair.target, spaced=target_spaced)
        pairs.append((pair, (source, target)))
    return pairs


if __name__ == "__main__":
    model = load(sys.argv[1], "cpu")
    pairs = read_gold(Path(sys.argv[2]))
    texts = [texts for _, texts in spaced_texts(model, pairs)]
    alignments = align(model.engine, model.tokenizers, texts)
    print(f"{100 * alignment_error_rate(alignments, pairs):.1f} %")
