"""Print how well `nmt translate --format html` places tags, on gold alignments.

    python tests/translate/measure_markup.py RUN tests/translate/alignments/de-en.tsv [LANGUAGES [ENGINE]]

Every one to four words of a source that have a sure link are an element. The figure is the mean F1 of the target words
between its tags, against those with sure links to its words; then that of tags at the same share of the sentence, and
that of tags around the same words.
"""

import sys
from pathlib import Path

from measure_alignments import read_gold, spaced_texts

from nmt.documents.markup import Element, Segment
from nmt.translate.tags import Pair, Placed, Placement, align_words
from nmt.translate.translator import Translator, load

Words = set[int]  # indices of target words


def main(translator: Translator, gold: Path) -> None:
    pairs, spans, expected, at_share, same = list[Pair](), [], list[Words](), list[Words](), list[Words]()
    for one, (source, target) in spaced_texts(translator, read_gold(gold)):
        share = len(target.spans) / len(source.spans)
        for start, end in ((i, i + n) for n in range(1, 5) for i in range(len(one.source) - n + 1)):
            if words := {t for s, t in one.sure if start <= s < end}:
                element = Element("<b>", "</b>", source.spans[start][0], source.spans[end - 1][1])
                root = Element("", "", 0, len(source.text), [element])
                pairs.append(Pair.made(Segment(source.text, root), [target.text], " "))
                spans.append(target.spans)
                expected.append(words)
                same.append({t for t, word in enumerate(one.target) if word in one.source[start:end]})
                first = round(start * share)
                at_share.append({*range(first, max(first + 1, round(end * share)))})
    align_words(translator, pairs)
    found = []
    for pair, of_pair in zip(pairs, spans, strict=True):
        (tags,) = Placement(pair, str).place(Placed(pair.segment.root, range(len(pair.target)), 0, len(pair.text)))
        found.append({t for t, (first, last) in enumerate(of_pair) if first < tags.end and tags.start < last})
    for name, of_name in (("tags", found), ("share", at_share), ("same", same)):
        f1 = (2 * len(a & b) / (len(a) + len(b)) for a, b in zip(of_name, expected, strict=True))
        print(f"{name:<6}F1 {sum(f1) / len(pairs):.3f} of {len(pairs)} spans")


if __name__ == "__main__":
    run, gold_file, languages, engine = [*sys.argv[1:], "", "auto"][:4]
    main(load(run, "cpu", engine=engine).to(languages), Path(gold_file))  # type: ignore[arg-type]
