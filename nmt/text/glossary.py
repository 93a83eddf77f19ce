"""A glossary: source terms and the translations that they must get. Independent of models and tokenizers."""

import re
from collections.abc import Mapping
from pathlib import Path

from nmt.errors import InputError
from nmt.text.lines import UNSPACED_SCRIPTS, Span, iter_lines

WORD = re.compile(rf"[{UNSPACED_SCRIPTS}]|[^\W{UNSPACED_SCRIPTS}]+|[^\w\s]")  # terms begin and end where these do
BEFORE_SENTENCE = re.compile(r"(?:^|[.!?…:]\s)[^\w]*\Z")
MAX_BEFORE = 10  # characters before a word that show whether it begins a sentence


def read_glossary(path: Path) -> dict[str, str]:
    """Return the terms of a file: source term TAB target term; blank lines and lines that begin with # are left out.

    Raises InputError, which names the line, if a line is something else, or a source term has two translations.
    """
    hint = "write: source term, TAB, target term"
    terms: dict[str, str] = {}
    for number, line in enumerate(iter_lines([path]), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            raise InputError(f"{path}, line {number}, is no pair of terms: {line!r:.60}", hint=hint)
        source, target = fields
        if terms.setdefault(source, target) != target:
            raise InputError(f"{path}, line {number}: '{source}' is '{terms[source]}' already", hint="keep one of them")
    if not terms:
        raise InputError(f"{path} has no terms", hint=hint)
    return terms


class Glossary:
    """Finds terms in texts: whole words, case and form as listed, from left to right, the longest term first."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms = terms
        self.longest = max(map(len, terms), default=0)

    def find(self, text: str) -> list[tuple[Span, str]]:
        """The source terms in a text, with their translations, in order.

        At the beginning of a sentence, a term that is listed in lower case is found with a capital, too.
        """
        words = [match.span() for match in WORD.finditer(text)]
        found: list[tuple[Span, str]] = []
        end = 0  # of the last term
        for i, (start, _) in enumerate(words):
            stops = [stop for _, stop in words[i : i + self.longest] if stop - start <= self.longest and start >= end]
            for stop in reversed(stops):
                term = text[start:stop]
                if term not in self.terms and BEFORE_SENTENCE.search(text, max(start - MAX_BEFORE, 0), start):
                    term = term[0].lower() + term[1:]
                if target := self.terms.get(term):
                    found.append(((start, stop), target))
                    end = stop
                    break
        return found
