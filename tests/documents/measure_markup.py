"""Compare where tags go with gold alignments, and with a proportional placement.

    python tests/documents/measure_markup.py RUN tests/decode/alignments/de-en.tsv [--long N]

Every span of one to four words of a gold source is tagged in turn. The right words of the target are those that its
words are surely linked to; F1 compares them with the words between the tags, summed over all spans.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from measure_alignments import GoldPair, natural_text, read_gold

from nmt.config import base_language, language
from nmt.decode.segments import UNSPACED
from nmt.decode.translator import Translator, load
from nmt.documents.html import HTML
from nmt.documents.markup import MarkupTranslator

MAX_WORDS = 4


def spans(pair: GoldPair) -> Iterator[tuple[range, set[int]]]:
    """Yield spans of source words, and the target words that they are surely linked to."""
    for start in range(len(pair.source)):
        for stop in range(start + 1, min(start + MAX_WORDS, len(pair.source)) + 1):
            words = {t for s, t in pair.sure if start <= s < stop}
            if words and stop - start < len(pair.source):
                yield range(start, stop), words


def f1(found: list[tuple[set[int], set[int]]]) -> float:
    """F1 of found and right words, summed over all spans."""
    n_good = sum(len(own & right) for own, right in found)
    return 2 * n_good / sum(len(own) + len(right) for own, right in found)


def tagged_words(marked: str, spans_of_words: list[tuple[int, int]]) -> set[int]:
    """The words between the tags <b> and </b>."""
    before, inside, _ = re.split("</?b>", marked)
    start, stop = len(before), len(before) + len(inside)
    return {i for i, (first, last) in enumerate(spans_of_words) if first < stop and start < last}


def measured(translator: Translator, pairs: list[GoldPair]) -> dict[str, float]:
    """F1 of our tags, and of proportional ones."""
    codes = [language(translator.config.data, side) for side in ("source", "target")]
    spaced = [base_language(code) not in UNSPACED for code in codes]
    documents, translations, gold = [], [], []
    for pair in pairs:
        source, target = natural_text(pair.source, spaced=spaced[0]), natural_text(pair.target, spaced=spaced[1])
        for span, right in spans(pair):
            start, stop = source.spans[span.start][0], source.spans[span.stop - 1][1]
            text = f"{source.text[:start]}<b>{source.text[start:stop]}</b>{source.text[stop:]}"
            documents.append(HTML.parse(text))
            translations.append(target.text)
            gold.append((pair, span, target.spans, right))
    written = MarkupTranslator(translator, HTML).written(documents, translations)
    ours = [(tagged_words(text, words), right) for text, (_, _, words, right) in zip(written, gold, strict=True)]
    proportional = []
    for pair, span, _, right in gold:
        ratio = len(pair.target) / len(pair.source)
        first = round(span.start * ratio)
        proportional.append((set(range(first, max(round(span.stop * ratio), first + 1))), right))
    return {"by alignment": f1(ours), "proportional": f1(proportional), "spans": len(gold)}


def main() -> None:
    parser = argparse.ArgumentParser(description="F1 of the words between tags.")
    parser.add_argument("run", type=Path, help="a run or model file")
    parser.add_argument("gold", type=Path, help="a gold file")
    parser.add_argument("--engine", choices=["auto", "torch"], default="auto")
    given = parser.parse_args()
    for name, value in measured(load(given.run, "cpu", engine=given.engine), read_gold(given.gold)).items():
        print(f"{name:<20}{value:8.3f}")


if __name__ == "__main__":
    main()
