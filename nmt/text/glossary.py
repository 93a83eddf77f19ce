"""Glossaries: source terms and the translations that they must get.

    Ein Hund rennt.  ->  Ein Hund⟦=⟧ hound⟦/⟧ rennt.

A model trained with `data.glossary` reads this (Dinu et al. 2019, "Training neural machine translation to apply
terminology constraints"). With any model, the torch engine can constrain its search: `nmt.decode.constraints`.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from nmt.errors import InputError
from nmt.text import UNK
from nmt.text.lines import UNSPACED_SCRIPTS, Span, iter_lines, replaced
from nmt.text.tokenizer import Tokenizer

log = logging.getLogger("nmt")

Terms = Mapping[str, str]  # source terms and their translations
SYMBOLS = TERM, END = ["⟦=⟧", "⟦/⟧"]  # around a target term; pieces of the vocabulary
ANNOTATED, MAX_TERMS = 0.5, 3  # share of the training pairs with terms, and the most terms of a pair
EXCHANGED = 0.25  # fraction of the annotated terms whose translation is replaced by that of another word
MAX_WORDS = 20  # of a source term
UNSPACED = re.compile(f"[{UNSPACED_SCRIPTS}]")
WORD = re.compile(rf"{UNSPACED.pattern}|[^\W{UNSPACED_SCRIPTS}]+|[^\w\s]")
ANNOTATION = re.compile(f"{TERM}(?:(?!{TERM}).)*?{END}")
BEFORE_SENTENCE = re.compile(r"(?:^|[.!?…:]\s)[^\w]*\Z")


def read_glossary(path: Path) -> dict[str, str]:
    """Return the terms of a file. Raises InputError, which names the line, if one is not as the hint says."""
    terms: dict[str, str] = {}
    for number, line in enumerate(iter_lines([path]), 1):
        if not line.strip() or line.startswith("#"):
            continue
        source, target = [*map(str.strip, line.split("\t")), ""][:2]
        if not source or not target or line.count("\t") > 1 or len(WORD.findall(source)) > MAX_WORDS:
            hint = f"write: source term of at most {MAX_WORDS} words, TAB, target term"
            raise InputError(f"{path}, line {number}, is no pair of terms: {line!r:.60}", hint=hint)
        if terms.setdefault(source, target) != target:
            raise InputError(f"{path}, line {number}, translates '{source}' again", hint="keep one translation")
    return terms


def find_terms(text: str, glossary: Terms) -> list[tuple[Span, str]]:
    """The source terms in a text, with their translations: whole words, from left to right, the longest term first.

    At the beginning of a sentence, a term that is listed in lower case is found with a capital, too.
    """
    words = [match.span() for match in WORD.finditer(text)]
    found: list[tuple[Span, str]] = []
    for i, (start, _) in enumerate(words):
        for _, stop in reversed(words[i : i + MAX_WORDS]):
            term = text[start:stop]
            if term not in glossary and BEFORE_SENTENCE.search(text, max(start - 10, 0), start):
                term = term[0].lower() + term[1:]
            if term in glossary and (not found or found[-1][0][1] <= start):
                found.append(((start, stop), glossary[term]))
    return found


def required_tokens(text: str, glossary: Terms, tokenizer: Tokenizer, room: int, line: int) -> list[list[int]]:
    """The target tokens of the terms in a text, at most `room` in all; warns of terms that are left out."""
    found: list[list[int]] = []
    for _, term in find_terms(ANNOTATION.sub("", text), glossary):
        before = "。" if UNSPACED.match(term) else ""  # in the middle of a sentence, no space is before such a term
        tokens = tokenizer.encode(before + term)[len(tokenizer.encode(before)) :]
        if not tokens or UNK in tokens or sum(map(len, [*found, tokens])) > room:
            log.warning("line %d: the model cannot write the term '%.99s'", line, term)
        else:
            found.append(tokens)
    return found


def annotated(text: str, terms: Sequence[tuple[Span, str]]) -> str:
    """The text with the translations of terms, which are in order, behind them."""
    notes = [f"{TERM}{'' if UNSPACED.match(target) else ' '}{target}{END}" for _, target in terms]
    return replaced(text, [(end, end) for (_, end), _ in terms], notes)


def with_terms(source: str, target: str, links: Iterable[tuple[Span, Span]], others: Sequence[str]) -> tuple[str, str]:
    """Annotate terms in some training pairs, a function of the pair; `links` are words, in order, and translations.

    For some terms, a random element of `others` replaces the translation on both sides: a model learns little from
    terms that it would write anyway.
    """
    random = Random(f"{source}\n{target}")
    terms: list[list[int]] = []
    for (a, b), (c, d) in links:
        if terms and source[terms[-1][1] : a] == target[terms[-1][3] : c] == " " and random.random() < 0.5:
            terms[-1][1::2] = b, d  # words that are neighbors on both sides may form one term
        else:
            terms.append([a, b, c, d])
    n = random.randint(1, MAX_TERMS) if random.random() < ANNOTATED else 0
    chosen = sorted(random.sample(terms, min(n, len(terms))))
    terms_of = [random.choice(others) if random.random() < EXCHANGED else target[c:d] for *_, c, d in chosen]
    made = list(zip(chosen, terms_of, strict=True))
    in_target = sorted(((c, d), term) for (_, _, c, d), term in made)
    target = replaced(target, [span for span, _ in in_target], [term for _, term in in_target])
    return annotated(source, [((a, b), term) for (a, b, _, _), term in made]), target
