"""Print how well `nmt translate --format html` places tags, on gold alignments.

    python tests/translate/measure_markup.py RUN tests/translate/alignments/de-en.tsv [LANGUAGES [ENGINE]]

Every one to four words of a source that have a sure link are an element. The figure is the mean F1 of the target words
between its tags, against those with sure links to its words; then that of tags at the same share of the sentence, and
that of the best places for one pair of tags.
"""

import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from measure_alignments import read_gold, spaced_texts

from nmt.documents.markup import Element
from nmt.text.spans import Span
from nmt.translate.loading import load
from nmt.translate.placement import PlacedElement, Placement, TaggedPair
from nmt.translate.tags import align_words
from nmt.translate.translator import Translator
from nmt.translate.units import Markup, TextHypothesis, Translation

Words = set[int]  # indices of target words


class TaggedWords(NamedTuple):
    """One element of a gold pair, and the target words that belong between its tags."""

    pair: TaggedPair
    target_spans: list[Span]
    expected: Words
    at_share: Words  # at the same share of the sentence


Rule = Callable[[TaggedWords], Words]


def tagged_words(translator: Translator, gold: Path) -> list[TaggedWords]:
    """Return an element for every one to four words that have a sure link."""
    all_tagged = []
    for gold_pair, (source, target) in spaced_texts(translator, read_gold(gold)):
        n_words = len(gold_pair.source)
        for start, end in combinations(range(n_words + 1), 2):
            expected = {t for s, t in gold_pair.sure if start <= s < end}
            if end - start > 4 or not expected:
                continue
            # 1. The pair with the element.
            first_character, _ = source.spans[start]
            _, end_character = source.spans[end - 1]
            element = Element("<b>", "</b>", first_character, end_character)
            root = Element("", "", 0, len(source.text), [element])
            hypothesis = TextHypothesis([], [], 0.0, [], target.text)
            hypothesis.sentences = [(0, len(target.text))]
            translation = Translation(source.text, [hypothesis])
            translation.sentences = [(0, len(source.text))]
            pair = TaggedPair(Markup(root, str), translation, hypothesis)
            # 2. The answers of simpler rules.
            share = len(target.spans) / n_words
            first = round(start * share)
            stop = max(first + 1, round(end * share))
            at_share = set(range(first, stop))
            all_tagged.append(TaggedWords(pair, target.spans, expected, at_share))
    return all_tagged


def placed_words(tagged: TaggedWords) -> Words:
    """Return the target words between the tags, as they are placed for aligned words."""
    pair = tagged.pair
    all_words = range(len(pair.target_words))
    whole = PlacedElement(pair.markup.root, all_words, 0, len(pair.target))
    (tags,) = Placement(pair).place_children(whole)
    words = set()
    for t, (start, end) in enumerate(tagged.target_spans):
        if start < tags.end and tags.start < end:
            words.add(t)
    return words


def best_words(tagged: TaggedWords) -> Words:
    """Return the adjacent target words with the best F1."""
    edges = range(len(tagged.target_spans) + 1)
    intervals = [set(range(start, end)) for start, end in combinations(edges, 2)]
    return max(intervals, key=lambda words: f1_of(words, tagged.expected))


def main(translator: Translator, gold: Path) -> None:
    all_tagged = tagged_words(translator, gold)
    align_words(translator.engine, translator.tokenizers, [tagged.pair for tagged in all_tagged])
    # The rules to compare, by the names of their rows.
    rules: dict[str, Rule] = {
        "tags": placed_words,
        "share": lambda tagged: tagged.at_share,
        "best": best_words,
    }
    for name, words_of in rules.items():
        f1 = [f1_of(words_of(tagged), tagged.expected) for tagged in all_tagged]
        mean = sum(f1) / len(f1)
        print(f"{name:<6}F1 {mean:.3f} of {len(f1)} spans")


def f1_of(words: Words, expected: Words) -> float:
    n_right = len(words & expected)
    return 2 * n_right / (len(words) + len(expected))


if __name__ == "__main__":
    run, gold_file, languages, engine = [*sys.argv[1:], "", "auto"][:4]
    model = load(run, "cpu", engine=engine).to(languages)  # type: ignore[arg-type]
    main(model, Path(gold_file))
