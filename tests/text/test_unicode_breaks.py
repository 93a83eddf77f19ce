"""The tests that Unicode publishes for grapheme clusters, words and sentences: every difference has a reason.

See https://www.unicode.org/reports/tr29/.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import regex

from nmt.text.sentences import sentence_spans
from nmt.text.words import WORD_OR_CHARACTER


class Case(NamedTuple):
    """A text and the positions of the boundaries inside of it."""

    text: str
    boundaries: set[int]


def from_codes(codes: str) -> str:
    return "".join(chr(int(code, 16)) for code in codes.split())


def read_cases() -> dict[str, list[Case]]:
    cases = dict[str, list[Case]]()
    for line in Path(__file__).with_name("unicode_breaks.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, _, codes = line.partition(": ")
        parts = [from_codes(part) for part in codes.split("|")]
        boundaries = {len("".join(parts[:n])) for n in range(1, len(parts))}
        cases.setdefault(kind, []).append(Case("".join(parts), boundaries))
    return cases


CASES = read_cases()

# For each kind: the reasons of all differences, as patterns of the text around the boundary, which is marked with a
# bar; and the number of differences with each reason. A difference has the first reason that matches.
CLUSTERS = {r"\u200d\|\u2701": 1}  # since Unicode 15.1, U+2701 is no emoji
WORDS = {
    # A mark or an invisible character without a letter before it is part of the next word, or a word.
    r"[\p{Cf}\p{M}]\|": 309,
    r"\|[\p{Cf}\p{M}]": 356,
    # Tags may be put between a word and a punctuation mark inside of it, as in "and/or" and "3,5".
    r"""\|[.,:'"]""": 76,
    r"""[.,:'"]\|""": 26,
    r"\u3031\||\|\u3031": 6,  # each Japanese letter is a word
    r" \| ": 2,  # each space is a word
    r"\U0001f1e7\|\U0001f1e8": 1,  # a joiner separates the letters of a flag, as in \X
}
SENTENCES = {
    r"[\r\n\x85]\|": 91,  # a unit has no line breaks
    # Outside of Chinese and Japanese, a mark without white space after it belongs to an abbreviation, as in "etc.".
    r"[.!]\p{M}*\|[\x01\w]": 18,
    # An invisible character or a mark without a letter before it is part of the next sentence.
    r"[\p{Cf}\p{M}]\|": 12,
    r"\|[\p{Cf}\p{M}]": 9,
}


def differences(cases: list[Case], boundaries: list[set[int]], reasons: dict[str, int]) -> Counter[str]:
    """Count the differences of each reason. The key of a difference without a reason is its text."""
    counts = Counter[str]()
    for case, found in zip(cases, boundaries, strict=True):
        for position in case.boundaries ^ found:
            marked = f"{case.text[:position]}|{case.text[position:]}"
            fitting = [pattern for pattern in reasons if matches_at(pattern, marked, position)]
            reason = fitting[0] if fitting else ascii(marked)
            counts[reason] += 1
    return counts


def matches_at(pattern: str, marked: str, position: int) -> bool:
    """Return whether the pattern matches the text around the bar at this position."""
    return any(match.start() <= position < match.end() for match in regex.finditer(pattern, marked))


def parts(pattern: str, text: str) -> set[int]:
    """The boundaries between the matches of a pattern."""
    return {match.end() for match in regex.finditer(pattern, text)} - {len(text)}


def test_grapheme_clusters() -> None:
    cases = CASES["grapheme"]
    found = [parts(r"\X", case.text) for case in cases]
    assert differences(cases, found, CLUSTERS) == CLUSTERS


def test_words() -> None:
    cases = CASES["word"]
    found = [parts(WORD_OR_CHARACTER, case.text) for case in cases]
    assert differences(cases, found, WORDS) == WORDS


def test_sentences() -> None:
    cases = CASES["sentence"]
    found = []
    for case in cases:
        spans = sentence_spans(case.text)
        found.append({start for start, _ in spans[1:]})
    assert differences(cases, found, SENTENCES) == SENTENCES
