"""Print the error rate of `nmt align`: python tests/translate/measure_alignments.py RUN GOLD.tsv

A line of a gold file has source words, target words and links, separated by TABs; s-t is a sure link, s?t a
possible link.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config import base_language, language
from nmt.text.words import WordText
from nmt.translate.align import WordPair, align
from nmt.translate.loading import load
from nmt.translate.translator import UNSPACED, Translator

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
        source, target, told = line.split("\t")
        kinds: dict[str, LinkSet] = {"-": set(), "?": set()}
        for s, kind, t in re.findall(r"(\d+)([-?])(\d+)", told):
            kinds[kind].add((int(s), int(t)))
        pairs.append(GoldPair(source.split(" "), target.split(" "), kinds["-"], kinds["-"] | kinds["?"]))
    return pairs


def natural_text(words: Iterable[str], *, spaced: bool) -> WordText:
    """Join words to a text with natural spacing."""
    text, spans = "", []
    for word in words:
        text += " " if text and spaced and word not in CLOSING else ""
        spans.append((len(text), len(text) + len(word)))
        text += word
    return WordText(text, spans)


def alignment_error_rate(found: Iterable[Iterable[tuple[int, int]]], gold: Iterable[GoldPair]) -> float:
    """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all pairs (Och and Ney 2003): found, sure and possible links."""
    n_good = n_all = 0
    for links, pair in zip(map(set, found), gold, strict=True):
        n_good += len(links & pair.sure) + len(links & pair.possible)
        n_all += len(links) + len(pair.sure)
    return 1 - n_good / n_all


def spaced_texts(translator: Translator, gold: Sequence[GoldPair]) -> list[tuple[GoldPair, WordPair]]:
    """Gold pairs with their texts."""
    languages = [language(translator.config.data, side) for side in ("source", "target")]
    spaced = [base_language(code) not in UNSPACED for code in languages]
    return [
        (one, (natural_text(one.source, spaced=spaced[0]), natural_text(one.target, spaced=spaced[1]))) for one in gold
    ]


if __name__ == "__main__":
    model, pairs = load(sys.argv[1], "cpu"), read_gold(Path(sys.argv[2]))
    found = align(model.engine, model.tokenizers, [texts for _, texts in spaced_texts(model, pairs)])
    print(f"{100 * alignment_error_rate(found, pairs):.1f} %")
