"""Count the terms that translations have, and compare BLEU, without a glossary and with four ways to use one.

    python tests/translate/measure_glossary.py RUN test.de.gz test.en.gz

The glossary is a random third of the words of the test set whose translation in the reference is sure, by the run's
training text, and always the same. The wrong terms are another third, with the translations of other words, at random.
The shares are of the terms, of those that are missing without a glossary, and of the wrong terms. RUN was trained with
data.glossary.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from nmt.corpus import alignment
from nmt.evaluate import bleu_tokenizer, score
from nmt.text.glossary import find_terms
from nmt.text.lines import iter_pairs
from nmt.text.spans import Span
from nmt.text.words import WordText
from nmt.train.corpora import corpus_paths
from nmt.translate.align import align
from nmt.translate.loading import load
from nmt.translate.translator import Translator


def links_of(translator: Translator, source: list[str], target: list[str]) -> list[list[tuple[Span, Span]]]:
    """The sure links of each pair, by the run's training text."""
    assert translator.run
    config = translator.run.read_config()
    pairs = [*iter_pairs(*corpus_paths(config, config.data.train[0]))]
    known = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return [*alignment.sure_links(source, target, alignment.learn_lexicon(*map(alignment.hash_words, known)))]


def glossaries_of(translator: Translator, source: list[str], target: list[str]) -> list[dict[str, str]]:
    links, random = links_of(translator, source, target), Random(1)
    found: dict[str, list[str]] = defaultdict(list)
    for one, other, of_pair in zip(source, target, links, strict=True):
        for s, t in of_pair:
            found[one[slice(*s)]].append(other[slice(*t)])
    uses = Counter(word for text in source for _, word in find_terms(text, {word: word for word in found}))
    always = {word: same[0] for word, same in sorted(found.items()) if same == same[:1] * uses[word]}
    part = {word: int(3 * random.random()) for word in always}
    misleading = {word: random.choice(sorted({*always.values()} - {term})) for word, term in always.items()}
    return [{word: terms[word] for word in always if part[word] == i} for i, terms in enumerate((always, misleading))]


def has(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def replaced(model: Translator, source: list[str], plain: list[str], glossary: dict[str, str]) -> Iterator[str]:
    """Translations with each term that is missing in place of the first word that its source term became."""
    pairs = [(WordText.split(one), WordText.split(other)) for one, other in zip(source, plain, strict=True)]
    for (text, translation), links in zip(pairs, align(model.engine, model.tokenizers, pairs), strict=True):
        words = translation.words
        for (start, end), term in find_terms(text.text, glossary):
            linked = [t for s, t in links if text.spans[s][0] < end and start < text.spans[s][1]]
            if linked and not has(translation.text, term):
                words[linked[0]] = re.sub(r"\w[\w'-]*", term, words[linked[0]], count=1)
        yield " ".join(words)


def main(run: str, source_file: str, target_file: str) -> None:
    pairs = list(iter_pairs([Path(source_file)], [Path(target_file)]))
    source, target = [pair.source for pair in pairs], [pair.target for pair in pairs]
    plain, soft, both = (load(run, "cpu", engine=name) for name in ("torch", "ctranslate2", "torch"))
    plain.config = plain.config.model_copy(update={"data": plain.config.data.model_copy(update={"glossary": False})})
    glossary, wrong = glossaries_of(plain, source, target)
    uses = [[(i, t) for i, text in enumerate(source) for _, t in find_terms(text, some)] for some in (glossary, wrong)]
    wanted, mixed = uses[0], glossary | wrong
    without = plain.translate(source)
    missed = [(i, term) for i, term in wanted if not has(without[i], term)]
    print(f"{len(glossary)} terms, {len(wanted)} uses in {len(pairs)} lines; {len(wrong)} wrong, {len(uses[1])} uses")
    rows = {
        "without": without,
        "find and replace": list(replaced(plain, source, without, glossary)),
        "hard": plain.translate(source, glossary=glossary),
        "soft": soft.translate(source, glossary=glossary),
        "both": both.translate(source, glossary=glossary),
        "hard, wrong too": plain.translate(source, glossary=mixed),
        "soft, wrong too": soft.translate(source, glossary=mixed),
        "both, wrong too": both.translate(source, glossary=mixed),
    }
    for name, found in rows.items():
        shares = [sum(has(found[i], term) for i, term in some) / len(some) for some in (wanted, missed, uses[1])]
        bleu = score(found, [target], tokenize=bleu_tokenizer(plain.target_language))[0].value
        print(f"{name:<20}{shares[0]:7.1%} {shares[1]:7.1%} {shares[2]:7.1%} BLEU {bleu:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
