"""The split of a parallel text into training, dev and test pairs. No dev or test sentence is in a training pair."""

import contextlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import regex
from numpy.typing import NDArray

from nmt.errors import DataError
from nmt.files import atomic_writer
from nmt.text.corpus_files import digests_of
from nmt.text.lines import Pair, iter_pairs
from nmt.text.permutation import hold_out, shuffled
from nmt.text.syntaxes import CODE

# The share of all pairs that become dev pairs, with a maximum and a minimum number. The same applies to test pairs.
HELD_OUT_SHARE, MAX_HELD_OUT, MIN_HELD_OUT = 0.05, 1_000, 100
MIN_PAIRS = 20
TRAIN, DEV, TEST, BLANK, LEAK = range(5)  # parts of a text; the last two parts are not written
# For each pair: whether both sides have text, and the digests of the two sentences.
KEYS = np.dtype([("has_text", bool), ("source", np.uint64), ("target", np.uint64)])
SEED = 1  # seed of the random choice of dev and test pairs
CODE_PATTERN = regex.compile(CODE)
OPTIONAL_MARKS = range(10, 37)  # canonical combining classes of Hebrew, Arabic and Syriac vowel points


@dataclass(frozen=True)
class Facts:
    """Counts from the split of a text."""

    n_train: int
    n_dev: int
    n_test: int
    n_blank: int  # pairs left out because a side is blank
    n_leaking: int  # pairs left out because they share a sentence with a dev or test pair
    n_words: int  # target words of the training pairs, see `count_words`
    n_characters: int  # distinct characters in the training pairs
    n_with_code: int  # training pairs with %s, {name}, <b> or the like on both sides


def split_corpus(source: Sequence[Path], target: Sequence[Path], directory: Path, languages: tuple[str, str]) -> Facts:
    """Write the training, dev and test pairs into a directory, as train.de, train.en, dev.de and so on.

    Dev and test pairs are sampled at random: 5 % of the pairs for each, but 100 to 1,000, and at most a tenth. All
    parts keep the order of the text. Sentences that differ only in case, punctuation, spaces or digits count as the
    same. The text is read twice, so that memory holds two digests per pair instead of the text.

    Raises:
        DataError: the sides have different numbers of lines, or there are too few different sentences.
    """
    pairs = iter_pairs(source, target, strict=True)
    keys = np.fromiter(map(keys_of_pair, pairs), KEYS)
    usable = keys[keys["has_text"]]
    n_pairs = len(usable)
    if n_pairs < MIN_PAIRS:
        message = f"{n_pairs} pairs with text on both sides are too few to set some aside for dev and test"
        raise DataError(message, hint=f"give at least {MIN_PAIRS}, or write a config by hand, as configs/five.yaml")
    parts = np.full(len(keys), BLANK)
    parts[keys["has_text"]] = choose_parts(usable["source"], usable["target"])
    n_train, n_dev, n_test, n_blank, n_leaking = np.bincount(parts, minlength=5).tolist()
    if not (n_train and n_dev and n_test):
        message = f"without repeated sentences, {n_train} pairs are left for train, {n_dev} for dev, {n_test} for test"
        raise DataError(message, hint="give a text with more different sentences")
    counts = write_parts(source, target, directory, languages, parts)
    return Facts(n_train, n_dev, n_test, n_blank, n_leaking, *counts)


def keys_of_pair(pair: Pair) -> tuple[bool, int, int]:
    """Return an element of `KEYS` for a pair. A digest is computed from the key of a sentence, see `key_of`."""
    source_key, target_key = digests_of([key_of(pair.source), key_of(pair.target)]).tolist()
    return pair.has_text, source_key, target_key


def choose_parts(source_keys: NDArray[np.uint64], target_keys: NDArray[np.uint64]) -> NDArray[np.int_]:
    """Return the part of each pair, such as `TRAIN`, of shape (n,)."""
    n_pairs = len(source_keys)
    n_each = max(int(n_pairs * HELD_OUT_SHARE), MIN_HELD_OUT)
    n_each = min(n_each, MAX_HELD_OUT, n_pairs // 10)
    # Hold out the dev and test pairs. Leave out other pairs that share a sentence with them.
    parts = np.full(n_pairs, TRAIN)
    held_out, remains = hold_out(source_keys, target_keys, 2 * n_each, SEED)
    parts[~remains] = LEAK
    parts[held_out] = DEV
    # A random half of the held-out pairs are the test pairs.
    n_held_out = len(held_out)
    order = np.argsort(shuffled(np.arange(n_held_out), n_held_out, SEED))
    test = held_out[order[n_each:]]
    parts[test] = TEST
    # Leave out test pairs that share a sentence with a dev pair. These are rare.
    for keys in (source_keys, target_keys):
        is_in_dev = np.isin(keys[test], keys[parts == DEV])
        parts[test[is_in_dev]] = LEAK
    return parts


def write_parts(
    source: Sequence[Path], target: Sequence[Path], directory: Path, languages: tuple[str, str], parts: NDArray[np.int_]
) -> tuple[int, int, int]:
    """Write a source file and a target file for each part.

    Returns the last three counts of `Facts`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    n_words = n_with_code = 0
    characters = set[str]()
    with contextlib.ExitStack() as stack:
        files = []  # for each part, the source file and the target file
        for part in ("train", "dev", "test"):
            paths = [directory / f"{part}.{language}" for language in languages]
            files.append([stack.enter_context(atomic_writer(path)) for path in paths])
        for pair, part in zip(iter_pairs(source, target, strict=True), parts.tolist(), strict=True):
            if part in (TRAIN, DEV, TEST):
                source_file, target_file = files[part]
                source_file.write(f"{pair.source}\n".encode())
                target_file.write(f"{pair.target}\n".encode())
            if part == TRAIN:
                characters.update(pair.source, pair.target)
                n_words += count_words(pair.target)
                n_with_code += all(map(CODE_PATTERN.search, (pair.source, pair.target)))
    return n_words, len(characters), n_with_code


def count_words(text: str) -> int:
    """Return the number of words. If a text has no spaces, as in Chinese, 1.6 characters count as a word."""
    if " " in text.strip():
        return len(text.split())
    return round(len(text) / 1.6)


class KeyCharacters(dict[int, int | None]):
    """A table for `str.translate` that keeps letters and some marks, and deletes all other characters.

    Vowel signs are kept, because they alone distinguish words in many scripts.
    """

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        is_letter = character.isalnum() and not character.isdecimal()
        self[code] = code if is_letter or is_distinctive_mark(character) else None
        return self[code]


def is_distinctive_mark(character: str) -> bool:
    """Return whether a character is a mark by which two words may differ."""
    if unicodedata.category(character) not in ("Mn", "Mc"):
        return False
    is_selector = unicodedata.name(character, "").startswith("VARIATION SELECTOR")
    return not is_selector and unicodedata.combining(character) not in OPTIONAL_MARKS


KEY_CHARACTERS = KeyCharacters()


def key_of(text: str) -> str:
    """Return the key of a sentence. Sentences with the same key count as the same sentence."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    key = folded.translate(KEY_CHARACTERS)
    if not key:
        # The text has no letters. All numbers have the key "0", and any other text is its own key.
        key = "0" if re.search(r"\d", folded) else folded
    return key
