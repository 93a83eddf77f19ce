"""Matches in translation memories: units whose source is equal or similar to a text to translate.

    similarity = 1 - edit distance in words / number of words of the longer text

Punctuation belongs to the word that it touches. The step `Matches` takes a match in place of the model's translation,
or offers it beside the translation.

The index of a memory is an SQLite file in the user's cache. It lists each unit under its pairs of adjacent words. An
edit changes at most two pairs of a text, so of enough pairs, each match has one. The shortest of their lists are read
(compare the prefix filter of Chaudhuri et al. 2006), and the edit distance to the units in them is computed.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import pairwise, repeat
from pathlib import Path
from zlib import crc32

import regex

from nmt.documents.accelerators import without_accelerator
from nmt.documents.markup import Match
from nmt.documents.memories import stripped
from nmt.errors import OutputError
from nmt.files import WRITE_HINT, cached
from nmt.text.directives import directive_faults, numbered
from nmt.text.lines import iter_lines
from nmt.text.words import WRITTEN_WORD
from nmt.translate.options import LEAST
from nmt.translate.units import Step, TextHypothesis, Translation, Unit

FORMAT = 3  # version of the index; raise it when its content changes
INDEX = "matches.sqlite"
NEARLY = 0.99  # the highest similarity of a match that is not exact
MAX_CHARACTERS = 2_000  # a longer text has no matches
WORD = regex.compile(WRITTEN_WORD)
TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE units (number INTEGER PRIMARY KEY, key TEXT, source TEXT, target TEXT, context TEXT);
CREATE TABLE lists (feature INTEGER, n INTEGER, unit INTEGER, PRIMARY KEY (feature, n, unit)) WITHOUT ROWID;
CREATE TEMP TABLE unsorted (feature INTEGER, n INTEGER, unit INTEGER);
"""
# Rows are sorted before they are written, because this is faster. The last units of the memory come first.
SORT = "INSERT OR IGNORE INTO lists SELECT feature, n, -unit FROM unsorted ORDER BY feature, n, -unit"
# The units in the shortest ?3 of the lists ?1 that have a similar number of words as ?2, but at most 1,000 units. Those
# with the context ?4 come first, then those with the text ?5, then the last ones of the memory.
UNITS = """
WITH sizes AS (SELECT value AS wanted, (SELECT count(*) FROM (
    SELECT 1 FROM lists WHERE feature = value AND n BETWEEN ?2 * 7 / 10 AND ?2 * 10 / 7 LIMIT 1000
)) AS size FROM json_each(?1) ORDER BY size, key LIMIT ?3)
SELECT key, source, target FROM (
    SELECT DISTINCT unit FROM sizes CROSS JOIN lists ON feature = wanted AND n BETWEEN ?2 * 7 / 10 AND ?2 * 10 / 7
    LIMIT 1000
) CROSS JOIN units ON number = -unit ORDER BY context = ?4 DESC, source = ?5 DESC, unit
"""


def plain(text: str) -> str:
    """Return a text as the steps of a translation get it: without accelerator, and with numbered directives."""
    return numbered(without_accelerator(text)[0])


@lru_cache(100_000)
def letter(word: str) -> str:
    """Return a character that stands for a word. One of a million other words has the same."""
    return chr(0x10000 + crc32(word.encode(errors="replace")) % 0x100000)


def key_of(text: str) -> str:
    """Return a character for each word of a text. The key of a text that is too long is empty."""
    if len(text) > MAX_CHARACTERS:
        return ""
    words = WORD.findall(plain(text))
    return "".join(map(letter, words))


def features(text: str, key: str, context: str) -> list[int]:
    """Return the features under which a text is listed: hashes of the text and of its pairs of words.

    A text with a context is also listed under both.
    """
    if not key:
        return []
    wholes = [text, f"{context}\n{key}"] if context else [text]
    pairs = map("".join, pairwise(f" {key} "))
    return [crc32(feature.encode(errors="replace")) for feature in (*wholes, *pairs)]


def index_of(contexts: Path, source: Path, target: Path) -> Path:
    """Return the index of a memory, which is made once. The arguments are the files of `memory_files`."""
    return cached("matches", [FORMAT, str(source)], partial(write_index, contexts, source, target), is_whole) / INDEX


def is_whole(directory: Path) -> bool:
    """Return whether a directory has an index that can be opened."""
    with suppress(sqlite3.Error), closing(connected(directory / INDEX)) as database:
        database.execute("SELECT * FROM lists, units")
        return True
    return False


def connected(path: Path | str) -> sqlite3.Connection:
    """Open an index for reading. Several threads can use the connection one after the other."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)


opened = cache(connected)


@contextmanager
def index_errors(path: object) -> Iterator[None]:
    """Convert errors of SQLite to OutputError."""
    try:
        yield
    except sqlite3.Error as error:
        raise OutputError(f"the index {path} cannot be used: {error}", hint=f"delete it, or {WRITE_HINT}") from error


def write_index(contexts: Path, source: Path, target: Path, directory: Path) -> None:
    """Write the index of a memory, which may be larger than the memory of the machine."""
    columns = [iter_lines([path]) for path in (source, target, contexts)]
    with index_errors(directory), closing(sqlite3.connect(directory / INDEX)) as database:
        database.executescript(TABLES)
        units = ((key_of(old), old, new, context) for old, new, context in zip(*columns, strict=True))
        database.executemany("INSERT INTO units (key, source, target, context) VALUES (?, ?, ?, ?)", units)
        for number, key, text, context in database.execute("SELECT number, key, source, context FROM units"):
            n_words = len(key)
            rows = zip(features(text, key, context), repeat(n_words), repeat(number))
            database.executemany("INSERT INTO unsorted VALUES (?, ?, ?)", rows)
        database.execute(SORT)
        database.commit()


@lru_cache(1000)
def best_match(text: str, index: str, context: str = "") -> Match | None:
    """Return the best match of a text in a memory, or None if there is none. See `Unit` for `context`."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import extractOne

    # 1. Read the shortest lists. Each edit changes at most two pairs, so a match is in one of these lists. That of the
    # whole text is among the first, because no list of its pairs is shorter.
    key = key_of(text)
    n = len(key)
    lists = json.dumps(features(text, key, context))
    n_lists = 6 * n // 10 + 3 + bool(context)
    with index_errors(index):
        units = opened(index).execute(UNITS, [lists, n, n_lists, context, text]).fetchall()
    # 2. Return the first exact match.
    for unit_key, source, target in units:
        form = form_of(text, source)
        if unit_key == key and form(source) == text:
            return Match(source, form(target), 1.0)
    # 3. Otherwise, choose the most similar unit, the first of several.
    keys = [unit_key for unit_key, _, _ in units]
    found = extractOne(key, keys, scorer=Levenshtein.normalized_similarity, score_cutoff=LEAST)
    if not found:
        return None
    _, of_words, number = found
    _, source, target = units[number]
    return Match(source, form_of(text, source)(target), min(of_words, NEARLY))


def form_of(text: str, source: str) -> Callable[[str], str]:
    """Return the function to apply to both sides of a memory unit before its source is compared with `text`.

    It is `plain`, which removes accelerators, if the unit's `source` has an accelerator and `text` has none. Otherwise,
    it is `str`, which changes nothing.
    """
    return plain if plain(text) == text and plain(source) != source else str


class Matches(Step):
    """The step that takes the translations of memories, and offers others."""

    def __init__(self, memory: Sequence[str], least: float) -> None:
        """Set up the step with paths of indexes, see `index_of`, and with the lowest similarity of a match to take."""
        self.memory = memory
        self.least = least
        self.units: list[Unit] = []
        self.matches: list[Match | None] = []  # of each unit

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        prepared = []
        for unit in units:
            text = unit.text.strip()
            context = stripped(unit.context)  # contexts in the index have no line breaks
            found = [best_match(text, index, context) for index in self.memory]
            match = max(filter(None, found), key=lambda match: match.similarity, default=None)
            # Do not take a match for a unit with a prefix, which no match has, or a match with other placeholders.
            is_near = match and match.similarity >= self.least
            if match and is_near and not unit.prefix and not directive_faults(text, match.target):
                match = replace(match, is_taken=True)
                unit = replace(unit, text="")  # the model translates no blank text
            self.matches.append(match)
            prepared.append(unit)
        return prepared

    def restore(self, translations: list[Translation]) -> list[Translation]:
        for unit, match, translation in zip(self.units, self.matches, translations, strict=True):
            if match:
                translation.matches = [match]
            if match and match.is_taken:
                # The translation has one sentence, which is blank.
                for part in (translation, *translation.parts):
                    take(part, unit.text, match)
        return translations


def take(translation: Translation, text: str, match: Match) -> None:
    """Take a match as the translation of a text."""
    sentence = (0, len(match.target))
    translation.source = text
    translation.sentences = [(0, len(text))]
    translation.hypotheses = [TextHypothesis([], [], 0.0, [], match.target, sentences=[sentence])]
    if match.similarity < 1:
        translation.doubts = [f"match of {match.similarity:.0%}"]
