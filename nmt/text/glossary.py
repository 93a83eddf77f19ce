"""Glossaries: source terms and the translations that they must get.

    Ein Hund rennt.  ->  Ein Hund⟦=⟧ hound⟦/⟧ rennt.

A model trained with `data.glossary` reads this (Dinu et al. 2019, "Training neural machine translation to apply
terminology constraints"). With any model, the torch engine can constrain its search: `nmt.decode.constraints`.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from nmt.errors import InputError
from nmt.text import UNK
from nmt.text.lines import iter_lines
from nmt.text.spans import Span, replaced
from nmt.text.tokenizer import Tokenizer
from nmt.text.words import CLAUSE_START, UNSPACED_CHARACTER, WORD_OR_MARK

log = logging.getLogger("nmt")

Terms = Mapping[str, str]  # source terms and their translations
SYMBOLS = TERM, END = ["⟦=⟧", "⟦/⟧"]  # around a target term; pieces of the vocabulary
ANNOTATED, MAX_TERMS = 0.5, 3  # share of the training pairs with terms, and the most terms of a pair
EXCHANGED = 0.25  # fraction of the annotated terms whose translation is replaced by that of another word
JOINED = 0.5  # fraction of the neighbors on both sides that form one term
MAX_WORDS = 20  # of a source term
UNSPACED = re.compile(UNSPACED_CHARACTER)
TERM_WORD = re.compile(WORD_OR_MARK)
ANNOTATION = re.compile(f"{TERM}(?:(?!{TERM}).)*?{END}")
BEFORE_CLAUSE = re.compile(CLAUSE_START)


def read_glossary(path: Path) -> dict[str, str]:
    """Return the terms of a file. Raises InputError, which names the line, if one is not as the hint says."""
    terms: dict[str, str] = {}
    for number, line in enumerate(iter_lines([path]), 1):
        if not line.strip() or line.startswith("#"):
            continue
        source, _, target = (part.strip() for part in line.partition("\t"))
        is_pair = source and target and line.count("\t") == 1
        if not is_pair or len(TERM_WORD.findall(source)) > MAX_WORDS:
            hint = f"write: source term of at most {MAX_WORDS} words, TAB, target term"
            raise InputError(f"{path}, line {number}, is no pair of terms: {line!r:.60}", hint=hint)
        if terms.setdefault(source, target) != target:
            raise InputError(f"{path}, line {number}, translates '{source}' again", hint="keep one translation")
    return terms


def find_terms(text: str, glossary: Terms) -> list[tuple[Span, str]]:
    """Return the source terms in a text, with their translations.

    Terms are whole words, from left to right, the longest first. At the beginning of a sentence, a term that is listed
    in lower case is found with a capital, too.
    """
    words = [match.span() for match in TERM_WORD.finditer(text)]
    terms = []
    last_end = 0  # of the last term
    for i, (start, _) in enumerate(words):
        for _, end in reversed(words[i : i + MAX_WORDS]):
            if start < last_end:  # this word is in a term already
                break
            term = text[start:end]  # the longest first
            if term not in glossary and BEFORE_CLAUSE.search(text, max(start - 10, 0), start):
                term = term[0].lower() + term[1:]
            if term in glossary:
                terms.append(((start, end), glossary[term]))
                last_end = end
    return terms


def required_tokens(text: str, glossary: Terms, tokenizer: Tokenizer, room: int, line: int) -> list[list[int]]:
    """Return the target tokens of the terms in a text, at most `room` in all; warn of terms that are left out."""
    required = []
    for _, term in find_terms(ANNOTATION.sub("", text), glossary):
        before = "。" if UNSPACED.match(term) else ""  # in the middle of a sentence, no space is before such a term
        tokens = tokenizer.encode(before + term)[len(tokenizer.encode(before)) :]
        if not tokens or UNK in tokens or len(tokens) > room:
            log.warning("line %d: the model cannot write the term '%.99s'", line, term)
        else:
            required.append(tokens)
            room -= len(tokens)
    return required


def annotated(text: str, terms: Sequence[tuple[Span, str]]) -> str:
    """Return the text with the translations of terms, which are in order, behind them."""
    ends, notes = [], []
    for (_, end), target in terms:
        space = "" if UNSPACED.match(target) else " "
        ends.append((end, end))
        notes.append(f"{TERM}{space}{target}{END}")
    return replaced(text, ends, notes)


@dataclass(order=True)
class LinkedTerm:
    """A source term of a training pair and its translation."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    translation: str = ""  # that the model has to write

    @property
    def target_span(self) -> Span:
        """The span of the translation in the target."""
        return self.target_start, self.target_end

    def is_before(self, other: "LinkedTerm", source: str, target: str) -> bool:
        """Return whether another term follows on both sides after a space."""
        between = source[self.source_end : other.source_start], target[self.target_end : other.target_start]
        return between == (" ", " ")


def with_terms(
    source: str, target: str, links: Iterable[tuple[Span, Span]], other_words: Sequence[str]
) -> tuple[str, str]:
    """Annotate terms in some training pairs, a function of the pair; `links` are words, in order, and translations.

    For some terms, a random element of `other_words` replaces the translation on both sides: a model learns little from
    terms that it would write anyway.
    """
    random = Random(f"{source}\n{target}")
    terms = joined_terms(source, target, links, random)

    # 1. Choose some terms, in the order of the source, and their translations.
    n = random.randint(1, MAX_TERMS) if random.random() < ANNOTATED else 0
    chosen = sorted(random.sample(terms, min(n, len(terms))))
    for term in chosen:
        is_exchanged = random.random() < EXCHANGED
        term.translation = random.choice(other_words) if is_exchanged else target[slice(*term.target_span)]

    # 2. Write them behind the source terms, and into the target.
    notes = [((term.source_start, term.source_end), term.translation) for term in chosen]
    chosen.sort(key=lambda term: term.target_span)
    target = replaced(target, [term.target_span for term in chosen], [term.translation for term in chosen])
    return annotated(source, notes), target


def joined_terms(source: str, target: str, links: Iterable[tuple[Span, Span]], random: Random) -> list[LinkedTerm]:
    """Return linked words as terms; some words that are neighbors on both sides form one term."""
    terms: list[LinkedTerm] = []
    for (source_start, source_end), (target_start, target_end) in links:
        term = LinkedTerm(source_start, source_end, target_start, target_end)
        if terms and terms[-1].is_before(term, source, target) and random.random() < JOINED:
            terms[-1].source_end, terms[-1].target_end = source_end, target_end
        else:
            terms.append(term)
    return terms
