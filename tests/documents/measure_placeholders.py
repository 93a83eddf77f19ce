"""Count the placeholders that come out exactly once, and compare the rest of the translation with a plain one.

    python tests/documents/measure_placeholders.py RUN test.de.gz test.en.gz [--lines 1000]

Two texts are made of a test set. In the first, one to six placeholders of all kinds are inserted between words at
random; BLEU is that of the translation without them. In the second, words and numbers that are the same in source and
reference are replaced by placeholders in both, so that BLEU also shows whether they are in the right place.
"""

import argparse
import re
from pathlib import Path
from random import Random

from nmt.decode.translator import load
from nmt.evaluate import bleu_tokenizer, score
from nmt.text.lines import Pair, iter_pairs
from nmt.text.placeholders import equal_spans, inserted, patterns_of, replaced

KINDS = ["{name}", "{0}", "%s", "%1$d", "${x}", '<x id="1"/>', "https://example.com/a?b=1", "info@example.org"]
KINDS += ["48", "12.50", "2031", "😀"]
PLACE = re.compile(r"(?<=\s)(?=\S)|^|$")


def with_inserted(text: str, random: Random) -> tuple[str, list[str]]:
    """The text with one to six placeholders between its words, and these."""
    spans = random.sample(KINDS, random.randint(1, 6))
    places = sorted((random.choice([match.start() for match in PLACE.finditer(text)]) for _ in spans), reverse=True)
    for at, span in zip(places, spans, strict=True):
        text = inserted(text, at, span)
    return text, spans


def with_replaced(pair: Pair, random: Random) -> tuple[Pair, list[str]]:
    """The pair with placeholders instead of what both sides have."""
    equal = equal_spans(pair.source, pair.target)[: len(KINDS)]
    new = random.sample(KINDS, len(equal))
    target = sorted((span, one) for (_, span), one in zip(equal, new, strict=True))
    source = replaced(pair.source, [span for span, _ in equal], new)
    return Pair(pair.line, source, replaced(pair.target, [span for span, _ in target], [one for _, one in target])), new


def n_once(translation: str, spans: list[str]) -> int:
    """How many of the spans are in a translation exactly once; 48 is not in 488."""
    around = [(r"(?<![\w.])", r"(?!\w|\.\d)") if span[0].isdigit() else ("", "") for span in spans]
    patterns = [before + re.escape(span) + after for span, (before, after) in zip(spans, around, strict=True)]
    return sum(len(re.findall(pattern, translation)) == 1 for pattern in patterns)


def without(text: str, spans: list[str]) -> str:
    for span in sorted(spans, key=len, reverse=True):
        text = text.replace(span, " ")
    return re.sub(r" +(?=[.,!?]|$)", "", re.sub(" +", " ", text)).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Placeholders that come out once, and BLEU.")
    parser.add_argument("run", type=Path, help="a run or model file")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    given = parser.parse_args()
    translator, random = load(given.run, "cpu"), Random(1)
    pairs = list(iter_pairs([given.source], [given.target]))[: given.lines]
    texts = [with_inserted(pair.source, random) for pair in pairs]
    changed = [one for one in (with_replaced(pair, random) for pair in pairs) if one[1]]

    def bleu(found: list[str], references: list[Pair]) -> float:
        targets = [pair.target for pair in references]
        return score(found, [targets], tokenize=bleu_tokenizer(translator.target_language))[0].value

    print(f"as it is: BLEU {bleu(translator.translate([pair.source for pair in pairs]), pairs):.2f}")
    for name, protected in (("protected", patterns_of([])), ("not protected", [])):
        translator.protected = protected
        found = translator.translate([text for text, _ in texts])
        share = sum(map(n_once, found, [spans for _, spans in texts])) / sum(len(spans) for _, spans in texts)
        rest = [without(text, spans) for text, (_, spans) in zip(found, texts, strict=True)]
        print(f"inserted, {name}: {share:.2%} once, BLEU of the rest {bleu(rest, pairs):.2f}")
        found = translator.translate([pair.source for pair, _ in changed])
        share = sum(map(n_once, found, [spans for _, spans in changed])) / sum(len(spans) for _, spans in changed)
        replaced_bleu = bleu(found, [pair for pair, _ in changed])
        print(f"replaced in {len(changed)} lines, {name}: {share:.2%} once, BLEU {replaced_bleu:.2f}")


if __name__ == "__main__":
    main()
