"""Split a parallel text into train, dev and test such that no sentence of dev or test is in train. Imports no torch."""

import contextlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt.errors import DataError
from nmt.files import atomic_writer
from nmt.text.corpus_files import digests_of
from nmt.text.lines import Pair, is_blank, iter_pairs
from nmt.text.permutation import hold_out, shuffled

HELD_OUT_SHARE, MAX_HELD_OUT, MIN_HELD_OUT = 0.05, 1_000, 100  # of dev and of test; limits are in pairs
MIN_PAIRS = 20
TRAIN, DEV, TEST, BLANK, LEAK = range(5)  # parts of a text, as `Facts` counts them; the last two are left out
OPTIONAL_MARKS = range(10, 37)  # canonical combining classes of Hebrew, Arabic and Syriac vowel points


@dataclass(frozen=True)
class Facts:
    """Counts from the split of a text."""

    n_train: int
    n_dev: int
    n_test: int
    n_blank: int  # pairs left out because a side is blank
    n_leaking: int  # pairs left out because one of their sentences is also in dev or test
    n_words: int  # of the target side of train, see `count_words`
    n_characters: int  # number of distinct characters in train
    letter_overlap: float = 1.0  # see `overlap`, of the letters of both sides; near 0 if their scripts differ


def split_corpus(
    source: Sequence[Path], target: Sequence[Path], directory: Path, languages: tuple[str, str], seed: int = 1
) -> Facts:
    """Write train, dev and test of both languages into a directory, as train.de and so on.

    Reads the text twice, so that memory holds two digests per pair instead of the text. Dev and test are sampled at
    random: 5 % of the pairs each, at least 100, but at most 1,000 and at most a tenth of the pairs. All parts keep the
    order of the text. Sentences that differ only in case, punctuation, spaces or digits count as the same.
    Raises DataError if the sides differ in their number of lines, or there are too few pairs with different sentences.
    """
    is_usable, digests = read_keys(iter_pairs(source, target, strict=True))
    n_pairs = len(digests[0])
    if n_pairs < MIN_PAIRS:
        message = f"{n_pairs} pairs with text on both sides are too few to set some aside for dev and test"
        raise DataError(message, hint=f"give at least {MIN_PAIRS}, or write a config by hand, as configs/five.yaml")
    n_each = min(max(int(n_pairs * HELD_OUT_SHARE), MIN_HELD_OUT), MAX_HELD_OUT, n_pairs // 10)
    parts = np.full(n_pairs, TRAIN)
    held_out, remains = hold_out(digests[0], digests[1], 2 * n_each, seed)
    parts[~remains] = LEAK
    parts[held_out] = DEV
    test = held_out[np.argsort(shuffled(np.arange(len(held_out)), len(held_out), seed))[n_each:]]
    parts[test] = TEST
    for own in digests:  # dev and test share a sentence only if most sentences occur repeatedly
        parts[test[np.isin(own[test], own[parts == DEV])]] = LEAK
    of_line = np.full(len(is_usable), BLANK)
    of_line[is_usable] = parts
    n_train, n_dev, n_test, n_blank, n_leaking = np.bincount(of_line, minlength=5).tolist()
    if not (n_train and n_dev and n_test):
        message = f"without repeated sentences, {n_train} pairs are left for train, {n_dev} for dev, {n_test} for test"
        raise DataError(message, hint="give a text with more different sentences")
    of_text = write_parts(source, target, directory, languages, of_line)
    return Facts(n_train, n_dev, n_test, n_blank, n_leaking, *of_text)


def read_keys(pairs: Iterable[Pair]) -> tuple[NDArray[np.bool_], list[NDArray[np.uint64]]]:
    """Return which pairs have text on both sides, and for each side the digests of these pairs' `key_of`."""
    is_usable, keys = array("b"), [array("Q"), array("Q")]
    for pair in pairs:
        is_usable.append(not (is_blank(pair.source) or is_blank(pair.target)))
        if is_usable[-1]:
            for digests, text in zip(keys, (pair.source, pair.target), strict=True):
                digests.append(int(digests_of([key_of(text)])[0]))
    return np.array(is_usable, bool), [np.array(digests, np.uint64) for digests in keys]


def write_parts(
    source: Sequence[Path], target: Sequence[Path], directory: Path, languages: tuple[str, str], parts: NDArray[np.int_]
) -> tuple[int, int, float]:
    """Write each pair into the files of its part. Return the last three fields of `Facts`."""
    directory.mkdir(parents=True, exist_ok=True)
    n_words, characters = 0, (Counter[str](), Counter[str]())
    with contextlib.ExitStack() as stack:
        files = [
            [stack.enter_context(atomic_writer(directory / f"{part}.{language}")) for language in languages]
            for part in ("train", "dev", "test")
        ]
        for pair, part in zip(iter_pairs(source, target, strict=True), parts.tolist(), strict=True):
            if part < len(files):
                for file, text in zip(files[part], (pair.source, pair.target), strict=True):
                    file.write(f"{text}\n".encode())
            if part == TRAIN:
                for counter, text in zip(characters, (pair.source, pair.target), strict=True):
                    counter.update(text)
                n_words += count_words(pair.target)
    letters = (Counter({c: n for c, n in counter.items() if c.isalpha()}) for counter in characters)
    return n_words, len(characters[0].keys() | characters[1].keys()), overlap(*letters)


def count_words(text: str) -> int:
    """Count words at white space; text without spaces, such as Chinese, counts as 1.6 characters per word."""
    return len(text.split()) if " " in text.strip() else round(len(text) / 1.6)


def overlap(one: Counter[str], other: Counter[str]) -> float:
    """Return the overlap of two relative frequency distributions, the sum of min(p, q), 0-1; 0 if one is empty."""
    n_one, n_other = max(one.total(), 1), max(other.total(), 1)
    return sum(min(one[letter] / n_one, other[letter] / n_other) for letter in one.keys() & other.keys())


class KeyCharacters(dict[int, int | None]):
    """What `str.translate` does with each character to make a key: it stays, or it is left out (None).

    Letters stay, and the vowel signs and other marks without which words of many scripts are the same.
    """

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        is_letter = character.isalnum() and not character.isdecimal()
        is_mark = unicodedata.category(character) in ("Mn", "Mc")
        is_optional = unicodedata.combining(character) in OPTIONAL_MARKS
        is_selector = unicodedata.name(character, "").startswith("VARIATION SELECTOR")
        self[code] = code if is_letter or (is_mark and not is_optional and not is_selector) else None
        return self[code]


KEY_CHARACTERS = KeyCharacters()


def key_of(text: str) -> bytes:
    """Normalize a sentence: sentences with the same key count as the same."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    key = folded.translate(KEY_CHARACTERS)
    # A text without letters is its own key, but all numbers count as the same.
    return (key or ("0" if re.search(r"\d", folded) else folded)).encode()
