"""Count the terms that translations have, and compare BLEU, without a glossary and with three ways to use one.

    python tests/decode/measure_glossary.py RUN test.de.gz test.en.gz

The glossary is a random third of the words of the test set whose translation in the reference is sure, by the run's
training text, and always the same. RUN was trained with data.glossary.
"""

import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

from nmt.corpus import alignment
from nmt.decode.align import WordText, align
from nmt.decode.translator import Translator, load
from nmt.evaluate import bleu_tokenizer, score
from nmt.text.glossary import find_terms
from nmt.text.lines import iter_pairs
from nmt.train.preparation import corpus_paths

Texts = list[str]


def glossary_of(translator: Translator, source: Texts, target: Texts) -> dict[str, str]:
    assert translator.run
    config = translator.run.read_config()
    pairs = [*iter_pairs(*corpus_paths(config, config.data.train))]
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    lexicon = alignment.learn(*map(alignment.words_of, sides))
    found: dict[str, Texts] = defaultdict(list)
    for one, other, links in zip(source, target, alignment.sure_links(source, target, lexicon), strict=True):
        for s, t in links:
            found[one[slice(*s)]].append(other[slice(*t)])
    uses = Counter(word for text in source for _, word in find_terms(text, {word: word for word in found}))
    random = Random(1)
    always = {word: same[0] for word, same in sorted(found.items()) if same == same[:1] * uses[word]}
    return {word: term for word, term in always.items() if random.random() < 1 / 3}


def has(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def with_replaced(translator: Translator, source: Texts, plain: Texts, glossary: dict[str, str]) -> Texts:
    """The translations with a term that is missing in place of the first word that its source term became."""
    pairs = [(WordText.split(one), WordText.split(other)) for one, other in zip(source, plain, strict=True)]
    replaced = []
    for (text, translation), links in zip(pairs, align(translator, pairs), strict=True):
        words = translation.words
        for (start, end), term in find_terms(text.text, glossary):
            linked = [t for s, t in links if text.spans[s][0] < end and start < text.spans[s][1]]
            if linked and not has(translation.text, term):
                words[linked[0]] = re.sub(r"\w[\w'-]*", term, words[linked[0]], count=1)
        replaced.append(" ".join(words))
    return replaced


def main(run: str, source_file: str, target_file: str) -> None:
    translator = load(run, "cpu", engine="torch")
    pairs = list(iter_pairs([Path(source_file)], [Path(target_file)]))
    source, target = [pair.source for pair in pairs], [pair.target for pair in pairs]
    glossary = glossary_of(translator, source, target)
    wanted = [(i, term) for i, text in enumerate(source) for _, term in find_terms(text, glossary)]
    print(f"{len(glossary)} terms, {len(wanted)} uses in {len(pairs)} lines")
    plain: Texts = []
    for name in ("without", "find and replace", "hard", "soft"):
        data = translator.config.data.model_copy(update={"glossary": name == "soft"})
        translator.config, started = translator.config.model_copy(update={"data": data}), time.monotonic()
        if name == "find and replace":
            found = with_replaced(translator, source, plain, glossary)
        else:
            found = translator.translate(source, glossary=glossary if plain else {})
        plain = plain or found
        missed = [(i, term) for i, term in wanted if not has(plain[i], term)]
        shares = [sum(has(found[i], term) for i, term in some) / len(some) for some in (wanted, missed)]
        bleu = score(found, [target], tokenize=bleu_tokenizer(translator.target_language))[0].value
        print(
            f"{name:<20}{shares[0]:7.1%} {shares[1]:7.1%} BLEU {bleu:.2f} {time.monotonic() - started:4.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
