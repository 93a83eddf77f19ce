"""BLEU on lines that differ from the training text: headlines, lines with stray signs, lines with placeholders.

    python tests/translate/measure_lines.py RUN test.de.gz test.en.gz

What was put into a line between two words, with spaces around it, is taken out of its translation, each time with one
space before it. BLEU of headlines is without regard to case. Words that are replaced are one to three of a line whose
translation in the reference is sure, by the run's training text; the reference has the same placeholders.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from measure_glossary import links_of

from nmt.evaluate import bleu_tokenizer, score
from nmt.text.lines import Pair, iter_pairs
from nmt.text.spans import replaced
from nmt.translate.loading import load
from nmt.translate.translator import Translator

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
REPLACED = ["words replaced", "words replaced, taken out"]  # with the model's symbols, if it has any, and without


def with_words_replaced(translator: Translator, pairs: list[Pair]) -> Iterator[list[str]]:
    """Source and target of each pair, with placeholders in place of words and of their translations."""
    random, links = Random(1), links_of(translator, [pair.source for pair in pairs], [pair.target for pair in pairs])
    for pair, of_pair in zip(pairs, links, strict=True):
        chosen = random.sample(of_pair, min(len(of_pair), random.randint(1, 3)))
        texts = list[str]()
        for side, text in enumerate((pair.source, pair.target)):
            spans = sorted((link[side], f"{{name{i}}}") for i, link in enumerate(chosen))
            texts.append(replaced(text, [span for span, _ in spans], [name for _, name in spans]))
        yield texts


def main(run: str, source_file: str, target_file: str, *names: str) -> None:
    pairs, translator = list(iter_pairs([Path(source_file)], [Path(target_file)])), load(run, "cpu")
    for name in names or [*CHANGES, *REPLACED]:
        if name in REPLACED:
            source, target = zip(*with_words_replaced(translator, pairs), strict=True)
            model, update = load(run, "cpu"), {"placeholders": name == REPLACED[0]}
            model.options = model.with_options(protect_placeholders=True)
            model.config = model.config.model_copy(update={"data": model.config.data.model_copy(update=update)})
            scores = score(model.translate(source), [target], tokenize=bleu_tokenizer(model.target_language))
            print(f"{name:<36}BLEU {scores[0].value:.2f}", flush=True)
            continue
        random, n_drawn = Random(1), 1
        has_placeholders = name == "1 to 6 placeholders"
        if has_placeholders:
            n_drawn = max(5_000 // len(pairs), 1)
        changed = [CHANGES[name](pair.source, random) for pair in pairs * n_drawn]
        found, n_once, n_spans = (
            translator.translate([text for text, _ in changed], protect_placeholders=has_placeholders),
            0,
            0,
        )
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
