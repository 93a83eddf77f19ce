"""BLEU on lines that differ from the training text: headlines, lines with stray signs, lines with placeholders.

    python tests/decode/measure_lines.py RUN test.de.gz test.en.gz

What was put into a line between two words, with spaces around it, is taken out of its translation, each time with one
space before it. BLEU of headlines is without regard to case.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from nmt.decode.translator import load
from nmt.evaluate import bleu_tokenizer, score
from nmt.text.lines import iter_pairs
from nmt.text.placeholders import patterns_of

KINDS = ["{{name{}}}", "{{{}}}", "%{}$s", "${{x{}}}", '<x id="{}"/>', "https://a.de/b{}?x=1", "a{}@b-c.de", "{}"]
Change = Callable[[str, Random], tuple[str, list[str]]]  # the changed line, and what was put into it


def put(line: str, random: Random, spans: list[str], at: int | None = None) -> tuple[str, list[str]]:
    words = line.split()
    for span in spans:
        words.insert(random.randrange(len(words) + 1) if at is None else at, span)
    return " ".join(words), spans


def placeholders(line: str, random: Random) -> tuple[str, list[str]]:
    values = random.sample(range(1000, 10_000), random.randint(1, 6))
    return put(line, random, [random.choice([*KINDS, chr(0x1F300 + i % 300)]).format(i) for i in values])


CHANGES: dict[str, Change] = {
    "as it is": lambda line, _: (line, []),
    "IN CAPITALS": lambda line, _: (line.upper(), []),
    "In Title Case": lambda line, _: (re.sub(r"(?<![\w'])\w", lambda m: m[0].upper(), line), []),
    "In Title Case, over three letters": lambda line, _: (re.sub(r"\b\w{4}", lambda m: m[0].capitalize(), line), []),
    "a stray [": lambda line, random: put(line, random, ["["]),
    "a stray (": lambda line, random: put(line, random, ["("]),
    "😀 at the end": lambda line, random: put(line, random, ["😀"], len(line.split())),
    "😀 between words": lambda line, random: put(line, random, ["😀"]),
    "1 to 6 placeholders": placeholders,
}


def main(run: str, source_file: str, target_file: str, *names: str) -> None:
    pairs, translator = list(iter_pairs([Path(source_file)], [Path(target_file)])), load(run, "cpu")
    for name in names or CHANGES:
        translator.protected, random, n_drawn = translator.protected, Random(1), 1
        if name == "1 to 6 placeholders":
            translator.protected, n_drawn = patterns_of([]), max(5_000 // len(pairs), 1)
        changed = [CHANGES[name](pair.source, random) for pair in pairs * n_drawn]
        found, n_once, n_spans = translator.translate([text for text, _ in changed]), 0, 0
        for i, (_, spans) in enumerate(changed):
            n_spans += len(spans)
            n_once += sum(found[i].count(span) == spans.count(span) for span in spans)
            for span in spans:
                found[i] = re.sub(rf" ?{re.escape(span)}", "", found[i]).strip()
        references, tokenize = [pair.target for pair in pairs * n_drawn], bleu_tokenizer(translator.target_language)
        if name.startswith(("IN", "In")):
            found, references = [*map(str.lower, found)], [*map(str.lower, references)]
        bleu = score(found, [references], tokenize=tokenize, metrics=("bleu",))[0].value
        print(
            f"{name:<36}BLEU {bleu:.2f}" + f"  {n_once / max(n_spans, 1):.2%} of {n_spans} once" * bool(n_spans),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
