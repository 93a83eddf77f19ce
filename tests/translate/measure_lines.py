"""BLEU on lines that differ from the training text: headlines, lines with stray signs, lines with placeholders.

    python tests/translate/measure_lines.py RUN test.de.gz test.en.gz

What was put into a line between two words, with spaces around it, is taken out of its translation, each time with one
space before it. BLEU of headlines is without regard to case. Words that are replaced are one to three of a line whose
translation in the reference is sure, by the run's training text; the reference has the same placeholders.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from measure_glossary import bleu_of, change_data, links_of

from nmt.text.lines import Pair, iter_pairs
from nmt.text.spans import Span, replaced
from nmt.translate.loading import load
from nmt.translate.translator import Translator

KINDS = ["{{name{}}}", "{{{}}}", "%{}$s", "${{x{}}}", '<x id="{}"/>', "https://a.de/b{}?x=1", "a{}@b-c.de", "{}"]


class Changed(NamedTuple):
    """A line, and what was put into it."""

    text: str
    spans: Sequence[str] = ()


Change = Callable[[str, Random], Changed]


def capitalizing(pattern: str) -> Change:
    """A change that capitalizes what a pattern matches."""
    return lambda line, _: Changed(re.sub(pattern, lambda letters: letters[0].capitalize(), line))


def inserting(span: str, *, at_end: bool = False) -> Change:
    """A change that puts a span into a line, between two words at random or at the end."""

    def change(line: str, random: Random) -> Changed:
        if at_end:
            return Changed(f"{' '.join(line.split())} {span}", [span])
        return inserted(line, random, [span])

    return change


def inserted(line: str, random: Random, spans: list[str]) -> Changed:
    words = line.split()
    for span in spans:
        index = random.randrange(len(words) + 1)
        words.insert(index, span)
    return Changed(" ".join(words), spans)


def with_placeholders(line: str, random: Random) -> Changed:
    n = random.randint(1, 6)
    spans = []
    for value in random.sample(range(1000, 10_000), n):
        emoji = chr(0x1F300 + value % 300)
        kind = random.choice([*KINDS, emoji])
        spans.append(kind.format(value))
    return inserted(line, random, spans)


PLACEHOLDERS = "1 to 6 placeholders"
CHANGES: dict[str, Change] = {
    "as it is": lambda line, _: Changed(line),
    "IN CAPITALS": lambda line, _: Changed(line.upper()),
    "In Title Case": capitalizing(r"(?<![\w'])\w"),
    "In Title Case, over three letters": capitalizing(r"\b\w{4}"),
    "a stray [": inserting("["),
    "a stray (": inserting("("),
    "😀 at the end": inserting("😀", at_end=True),
    "😀 between words": inserting("😀"),
    PLACEHOLDERS: with_placeholders,
}
WITH_SYMBOLS = "words replaced"  # by the model's symbols, if it has any
REPLACED = [WITH_SYMBOLS, "words replaced, taken out"]


def with_words_replaced(translator: Translator, pairs: list[Pair]) -> list[tuple[str, str]]:
    """Source and target of each pair, with placeholders in place of words and of their translations."""
    random = Random(1)
    links = links_of(translator, [pair.source for pair in pairs], [pair.target for pair in pairs])
    texts = []
    for pair, links_of_pair in zip(pairs, links, strict=True):
        n_most = random.randint(1, 3)
        n_chosen = min(len(links_of_pair), n_most)
        chosen = random.sample(links_of_pair, n_chosen)
        source = with_names(pair.source, [span for span, _ in chosen])
        target = with_names(pair.target, [span for _, span in chosen])
        texts.append((source, target))
    return texts


def with_names(text: str, words: list[Span]) -> str:
    """Replace each word by a placeholder that has the word's index."""
    names = [(word, f"{{name{i}}}") for i, word in enumerate(words)]
    return replaced(text, sorted(names))


def measure_replaced(name: str, run: str, texts: list[tuple[str, str]]) -> None:
    translator = load(run, "cpu")
    translator.options = translator.with_options(protect_placeholders=True)
    change_data(translator, placeholders=name == WITH_SYMBOLS)
    translations = translator.translate([source for source, _ in texts])
    references = [target for _, target in texts]
    print(f"{name:<36}BLEU {bleu_of(translator, translations, references):.2f}", flush=True)


def measure_changed(name: str, translator: Translator, pairs: list[Pair]) -> None:
    # 1. Change the lines, so often that there are 5,000 with placeholders.
    random = Random(1)
    n_drawn = 1
    if name == PLACEHOLDERS:
        n_drawn = max(5_000 // len(pairs), 1)
    drawn = pairs * n_drawn
    changed = [CHANGES[name](pair.source, random) for pair in drawn]
    references = [pair.target for pair in drawn]
    # 2. Translate them.
    texts = [line.text for line in changed]
    translations = translator.translate(texts, protect_placeholders=name == PLACEHOLDERS)
    # 3. Count what was put in, and take it out.
    n_once = n_spans = 0
    for i, line in enumerate(changed):
        n_spans += len(line.spans)
        for span in line.spans:
            n_once += translations[i].count(span) == line.spans.count(span)
        for span in line.spans:
            without = re.sub(rf" ?{re.escape(span)}", "", translations[i])
            translations[i] = without.strip()
    # 4. Score the words.
    if name.startswith(("IN", "In")):
        translations = [text.lower() for text in translations]
        references = [text.lower() for text in references]
    row = f"{name:<36}BLEU {bleu_of(translator, translations, references):.2f}"
    if n_spans:
        row += f"  {n_once / n_spans:.2%} of {n_spans} once"
    print(row, flush=True)


def main(run: str, source_file: str, target_file: str, *names: str) -> None:
    pairs = list(iter_pairs([Path(source_file)], [Path(target_file)]))
    translator = load(run, "cpu")
    for name in names or [*CHANGES, *REPLACED]:
        if name in REPLACED:
            measure_replaced(name, run, with_words_replaced(translator, pairs))
        else:
            measure_changed(name, translator, pairs)


if __name__ == "__main__":
    main(*sys.argv[1:])
