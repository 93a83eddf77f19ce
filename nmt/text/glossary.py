"""Glossaries: source terms, and the translation that each term must get.

    Ein Hund rennt.  ->  Ein Hund⟦=⟧ hound⟦/⟧ rennt.

A model that was trained with `data.glossary` reads sources with such annotations (Dinu et al. 2019, "Training neural
machine translation to apply terminology constraints"). With any model, the torch engine can force the target terms into
its translations: see `nmt.decode.constraints`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

import regex

from nmt.errors import InputError
from nmt.text import UNK
from nmt.text.spans import Span, replaced
from nmt.text.tokenizer import Tokenizer
from nmt.text.words import CLAUSE_START, SYLLABLE_MARKS, UNSPACED_CHARACTER, UNSPACED_MARK, WORD_OR_MARK

log = logging.getLogger("nmt.texts")  # messages that quote users' texts; `nmt serve` disables this logger

Terms = Mapping[str, str]  # the translation of each source term
SYMBOLS = TERM, END = ["⟦=⟧", "⟦/⟧"]  # the symbols before and after a target term; both are pieces of the vocabulary
ANNOTATED, MAX_TERMS = 0.5, 3  # share of the training pairs that get terms, 0-1; maximum number of terms in a pair
EXCHANGED = 0.25  # share of the annotated terms that get another target word as their translation, 0-1
JOINED = 0.5  # probability that neighboring linked words form one term
MAX_WORDS = 20  # maximum number of words in a source term
UNSPACED = regex.compile(UNSPACED_CHARACTER)
TERM_WORD = regex.compile(WORD_OR_MARK)
ANNOTATION = regex.compile(f"{TERM}(?:(?!{TERM}).)*?{END}")
BEFORE_CLAUSE = regex.compile(CLAUSE_START)


def read_glossary(path: Path, lines: Iterable[str]) -> dict[str, str]:
    """Read the lines of a file of terms: a source term, a tab and a target term. `#` begins a comment line.

    Raises InputError if a line has another form, or if a term has two translations.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        pair = [term.strip() for term in line.split("\t")]
        if len(pair) != 2 or not all(pair) or len(TERM_WORD.findall(pair[0])) > MAX_WORDS:
            raise InputError(
                f"{path}, line {number}, is no pair of terms: {line!r:.60}",
                hint=f"write: source term of at most {MAX_WORDS} words, TAB, target term",
            )
        source, target = pair
        if terms.setdefault(source, target) != target:
            raise InputError(f"{path}, line {number}, translates '{source}' again", hint="keep one translation")
    return terms


def find_terms(text: str, glossary: Terms) -> list[tuple[Span, str]]:
    """Return the span and the translation of each source term in a text.

    Terms consist of whole words and do not overlap. Of the terms that begin with the same word, the longest is taken.
    At the beginning of a sentence and after a colon, a lower-case term also matches with a capital.
    """
    words = [match.span() for match in TERM_WORD.finditer(text)]
    terms = []
    last_end = 0
    for i, (start, _) in enumerate(words):
        for _, end in reversed(words[i : i + MAX_WORDS]):
            if start < last_end:  # this word is part of the last term
                break
            term = text[start:end]  # the longest candidate comes first
            translation = translation_of(term, glossary)
            if translation is None and BEFORE_CLAUSE.search(text, max(start - 10, 0), start):
                translation = translation_of(term[0].lower() + term[1:], glossary)
            if translation is not None:
                terms.append(((start, end), translation))
                last_end = end
    return terms


def translation_of(term: str, glossary: Terms) -> str | None:
    """Return the translation of a term, or None. A Tibetan term matches with and without the mark at its end."""
    bare = term.rstrip(SYLLABLE_MARKS)
    for form in (term, bare, bare + SYLLABLE_MARKS[0]):
        if form in glossary:
            return glossary[form]
    return None


def required_tokens(text: str, glossary: Terms, tokenizer: Tokenizer, room: int, line: int) -> list[list[int]]:
    """Return the token ids of the translation of each term in a text.

    All terms together have at most `room` token ids. A term that does not fit, or that the model cannot write, is left
    out with a warning.
    """
    required = []
    for _, term in find_terms(ANNOTATION.sub("", text), glossary):
        # SentencePiece puts a space before each text. In a script without spaces, encode a mark first, which gets it.
        before = UNSPACED_MARK if UNSPACED.match(term) else ""
        tokens = tokenizer.encode(before + term)[len(tokenizer.encode(before)) :]
        if not tokens or UNK in tokens or len(tokens) > room:
            log.warning("line %d: the model cannot write the term '%.99s'", line, term)
        else:
            required.append(tokens)
            room -= len(tokens)
    return required


def annotated(text: str, terms: Sequence[tuple[Span, str]]) -> str:
    """Return the text with each translation behind its term. `terms` must be in ascending order."""
    notes = []
    for (_, end), target in terms:
        space = "" if UNSPACED.match(target) else " "
        notes.append(((end, end), f"{TERM}{space}{target}{END}"))
    return replaced(text, notes)


def with_terms(
    source: str, target: str, links: Iterable[tuple[Span, Span]], other_words: Sequence[str]
) -> tuple[str, str]:
    """Annotate random terms in a training pair. Returns the new source and target.

    The random choices depend only on the pair. A model learns little from a term that it would write anyway. So some
    terms get another translation, both in the annotation and in the target.

    Args:
        source, target: the training pair.
        links: the spans of source words and of their translations, in the order of the source.
        other_words: target words that can replace a translation.
    """
    random = Random(f"{source}\n{target}")
    terms = joined_terms(source, target, links, random)

    # 1. Choose some terms and their translations. Sort the terms by their places in the source.
    n = random.randint(1, MAX_TERMS) if random.random() < ANNOTATED else 0
    chosen = sorted(random.sample(terms, min(n, len(terms))))
    notes, replacements = [], []
    for source_span, (start, end) in chosen:
        is_exchanged = random.random() < EXCHANGED
        translation = random.choice(other_words) if is_exchanged else target[start:end]
        notes.append((source_span, translation))
        replacements.append(((start, end), translation))

    # 2. Write each translation twice: in the target, and in the source behind its term.
    return annotated(source, notes), replaced(target, sorted(replacements))


def joined_terms(
    source: str, target: str, links: Iterable[tuple[Span, Span]], random: Random
) -> list[tuple[Span, Span]]:
    """Return the spans of terms in source and target. Each linked word is a term.

    Words that are neighbors on both sides are joined to one term with probability `JOINED`.
    """
    terms: list[tuple[Span, Span]] = []
    for source_span, target_span in links:
        if terms:
            (source_start, source_end), (target_start, target_end) = terms[-1]
            is_next = source[source_end : source_span[0]] == target[target_end : target_span[0]] == " "
            if is_next and random.random() < JOINED:
                terms[-1] = (source_start, source_span[1]), (target_start, target_span[1])
                continue
        terms.append((source_span, target_span))
    return terms
