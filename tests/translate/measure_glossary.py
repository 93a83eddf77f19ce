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
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from nmt.corpus import alignment
from nmt.evaluate import choose_settings, score
from nmt.text.glossary import find_terms
from nmt.text.lines import iter_pairs
from nmt.text.spans import Span
from nmt.text.words import WordText
from nmt.train.corpora import corpus_paths
from nmt.translate.align import align
from nmt.translate.loading import load
from nmt.translate.translator import Translator

Glossary = dict[str, str]


class Use(NamedTuple):
    """A use of a glossary's source term."""

    line: int  # index of the text
    term: str  # the target term

    def is_in(self, translations: list[str]) -> bool:
        return has(translations[self.line], self.term)


def links_of(translator: Translator, source: list[str], target: list[str]) -> list[list[tuple[Span, Span]]]:
    """The sure links of each pair, by the run's training text."""
    assert translator.run
    config = translator.run.read_config()
    paths = corpus_paths(config, config.data.train[0])
    pairs = list(iter_pairs(*paths))
    known_source = alignment.hash_words([pair.source for pair in pairs])
    known_target = alignment.hash_words([pair.target for pair in pairs])
    lexicon = alignment.learn_lexicon(known_source, known_target)
    return list(alignment.sure_links(source, target, lexicon))


def glossaries_of(translator: Translator, source: list[str], target: list[str]) -> tuple[Glossary, Glossary]:
    """A glossary of right terms and one of wrong terms."""
    random = Random(1)
    # 1. The translations of each word, and those words that always have the same.
    translations: dict[str, list[str]] = defaultdict(list)
    pairs = zip(source, target, links_of(translator, source, target), strict=True)
    for source_text, target_text, links_of_pair in pairs:
        for source_span, target_span in links_of_pair:
            word = source_text[slice(*source_span)]
            translations[word].append(target_text[slice(*target_span)])
    each_word = {word: word for word in translations}
    n_uses = Counter(use.term for use in uses_of(each_word, source))
    always: Glossary = {}
    for word, terms in sorted(translations.items()):
        if len(terms) == n_uses[word] and len(set(terms)) == 1:
            always[word] = terms[0]
    # 2. A third of them is for each glossary.
    part = {word: int(3 * random.random()) for word in always}
    all_terms = set(always.values())
    right, wrong = {}, {}
    for word, term in always.items():
        misleading = random.choice(sorted(all_terms - {term}))
        if part[word] == 0:
            right[word] = term
        if part[word] == 1:
            wrong[word] = misleading
    return right, wrong


def uses_of(glossary: Glossary, texts: list[str]) -> list[Use]:
    uses = []
    for line, text in enumerate(texts):
        uses += [Use(line, term) for _, term in find_terms(text, glossary)]
    return uses


def has(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def share(uses: Iterable[Use], translations: list[str]) -> float:
    """The share of uses whose target term is in the translation."""
    used = [use.is_in(translations) for use in uses]
    return sum(used) / len(used)


def replaced(model: Translator, source: list[str], plain: list[str], glossary: Glossary) -> list[str]:
    """Translations with each term that is missing in place of the first word that its source term became."""
    pairs = []
    for text, translation in zip(source, plain, strict=True):
        pairs.append((WordText.split(text), WordText.split(translation)))
    alignments = align(model.engine, model.tokenizers, pairs)
    texts = []
    for (source_words, target_words), links in zip(pairs, alignments, strict=True):
        words = target_words.words
        for (start, end), term in find_terms(source_words.text, glossary):
            if has(target_words.text, term):
                continue
            for s, t in links:
                word_start, word_end = source_words.spans[s]
                if word_start < end and start < word_end:
                    words[t] = re.sub(r"\w[\w'-]*", term, words[t], count=1)
                    break
        texts.append(" ".join(words))
    return texts


def bleu_of(translator: Translator, translations: list[str], references: list[str]) -> float:
    settings = choose_settings(translator.target_language, [references])
    scores = score(translations, [references], ("bleu",), settings)
    return scores[0].value


def change_data(translator: Translator, **settings: bool) -> None:
    """Change settings of a translator's data."""
    data = translator.config.data.model_copy(update=settings)
    translator.config = translator.config.model_copy(update={"data": data})


def main(run: str, source_file: str, target_file: str) -> None:
    pairs = list(iter_pairs([Path(source_file)], [Path(target_file)]))
    source = [pair.source for pair in pairs]
    target = [pair.target for pair in pairs]
    plain = load(run, "cpu", engine="torch")
    soft = load(run, "cpu", engine="ctranslate2")
    both = load(run, "cpu", engine="torch")
    change_data(plain, glossary=False)
    # 1. What is wanted, and what is missing without a glossary.
    right, wrong = glossaries_of(plain, source, target)
    mixed = right | wrong
    wanted = uses_of(right, source)
    unwanted = uses_of(wrong, source)
    without = plain.translate(source)
    missed = [use for use in wanted if not use.is_in(without)]
    print(f"{len(right)} terms, {len(wanted)} uses in {len(pairs)} lines; {len(wrong)} wrong, {len(unwanted)} uses")
    # 2. A row for each way to use a glossary.
    rows = {"without": without, "find and replace": replaced(plain, source, without, right)}
    models = {"hard": plain, "soft": soft, "both": both}
    for name, model in models.items():
        rows[name] = model.translate(source, glossary=right)
    for name, model in models.items():
        rows[f"{name}, wrong too"] = model.translate(source, glossary=mixed)
    for name, translations in rows.items():
        shares = [share(uses, translations) for uses in (wanted, missed, unwanted)]
        columns = " ".join(f"{value:7.1%}" for value in shares)
        print(f"{name:<20}{columns} BLEU {bleu_of(plain, translations, target):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
