"""Print how well `nmt translate --format html` places tags, on gold alignments.

    python tests/translate/measure_markup.py RUN tests/translate/alignments/de-en.tsv [LANGUAGES [ENGINE]]

Every one to four words of a source that have a sure link are an element. The figure is the mean F1 of the target words
between its tags, against those with sure links to its words; then that of tags at the same share of the sentence, and
that of tags around the same words.
"""

import sys
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
    same: Words  # spelled as in the source


def main(translator: Translator, gold: Path) -> None:
    # 1. Make an element of every one to four words.
    all_tagged: list[TaggedWords] = []
    for gold_pair, (source, target) in spaced_texts(translator, read_gold(gold)):
        share = len(target.spans) / len(source.spans)
        n_words = len(gold_pair.source)
        for start, end in combinations(range(n_words + 1), 2):
            expected = {t for s, t in gold_pair.sure if start <= s < end}
            if end - start > 4 or not expected:
                continue
            element = Element("<b>", "</b>", source.spans[start][0], source.spans[end - 1][1])
            root = Element("", "", 0, len(source.text), [element])
            hypothesis = TextHypothesis([], [], 0.0, [], target.text, sentences=[(0, len(target.text))])
            translation = Translation(source.text, [hypothesis], sentences=[(0, len(source.text))])
            pair = TaggedPair(Markup(root, str), translation, hypothesis)
            first = round(start * share)
            at_share = {*range(first, max(first + 1, round(end * share)))}
            same = {t for t, word in enumerate(gold_pair.target) if word in gold_pair.source[start:end]}
            all_tagged.append(TaggedWords(pair, target.spans, expected, at_share, same))
    # 2. Place their tags.
    align_words(translator.engine, translator.tokenizers, [tagged.pair for tagged in all_tagged])
    placed: list[Words] = []
    for tagged in all_tagged:
        pair = tagged.pair
        whole = PlacedElement(pair.markup.root, range(len(pair.target_words)), 0, len(pair.target))
        (tags,) = Placement(pair).place_children(whole)
        placed.append({t for t, (a, b) in enumerate(tagged.target_spans) if a < tags.end and tags.start < b})
    # 3. Compare.
    answers = {
        "tags": placed,
        "share": [tagged.at_share for tagged in all_tagged],
        "same": [tagged.same for tagged in all_tagged],
    }
    for name, words in answers.items():
        f1 = [f1_of(answer, tagged.expected) for answer, tagged in zip(words, all_tagged, strict=True)]
        print(f"{name:<6}F1 {sum(f1) / len(f1):.3f} of {len(f1)} spans")


def f1_of(words: Words, expected: Words) -> float:
    return 2 * len(words & expected) / (len(words) + len(expected))


if __name__ == "__main__":
    run, gold_file, languages, engine = [*sys.argv[1:], "", "auto"][:4]
    main(load(run, "cpu", engine=engine).to(languages), Path(gold_file))  # type: ignore[arg-type]
