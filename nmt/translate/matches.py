"""Matches in translation memories: units whose source is equal or similar to a text to translate.

    similarity = 1 - edit distance in words / number of words of the longer text

A punctuation mark counts as a word. The step `Matches` takes a match in place of the model's translation, or offers it
beside the translation.

The index of a memory is an SQLite file in the user's cache. It lists each unit under its pairs of adjacent words. An
edit changes at most two pairs of a text, so of enough pairs, each match has one. The shortest of their lists are read
(compare the prefix filter of Chaudhuri et al. 2006), and the edit distance to the units in them is computed.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from zlib import crc32

import regex

from nmt.documents.accelerators import without_accelerator
from nmt.documents.markup import STAND_IN
from nmt.errors import OutputError
from nmt.files import WRITE_HINT, cached
from nmt.text.directives import directive_faults, numbered
from nmt.text.lines import iter_lines
from nmt.text.words import WORD_OR_MARK
from nmt.translate.units import Match, Step, TextHypothesis, Translation, Unit

FORMAT = 1  # version of the index; raise it when its content changes
INDEX = "matches.sqlite"
LEAST = 0.7  # the lowest similarity of a match: at most 3 of 10 words differ
NEARLY = 0.99  # the highest similarity of a match that is not exact
MAX_CHARACTERS = 2_000  # a longer text has no matches
MAX_LISTED = 1_000  # maximum number of units that are read from a list
ENOUGH = 500  # if so many units are read, the longer lists are left out
WORD = regex.compile(WORD_OR_MARK)
TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE units (number INTEGER PRIMARY KEY, key TEXT, source TEXT, target TEXT);
CREATE TABLE lists (feature INTEGER, n INTEGER, unit INTEGER, PRIMARY KEY (feature, n, unit)) WITHOUT ROWID;
CREATE TEMP TABLE unsorted (feature INTEGER, n INTEGER, unit INTEGER);
"""
# Of the units in a list whose number of words is in a range: how many there are, and their texts.
COUNT = "SELECT count(*) FROM (SELECT 1 FROM lists WHERE feature = ? AND n BETWEEN ? AND ? LIMIT ?)"
UNITS = """
SELECT key, source, target FROM lists JOIN units ON number = unit WHERE feature = ? AND n BETWEEN ? AND ? LIMIT ?
"""
similarity = attrgetter("similarity")


def plain(text: str) -> str:
    """Return a text as the steps of a translation get it: without accelerator, and with numbered directives."""
    return numbered(without_accelerator(text)[0])


@lru_cache(2**16)
def letters(written: str) -> str:
    """Return a character for each word between two spaces of a text. One of a million other words has the same."""
    return "".join(chr(0x10000 + crc32(word.encode(errors="replace")) % 2**20) for word in WORD.findall(written))


def key_of(text: str) -> str:
    """Return a character for each word of a text. The key of a text that is too long is empty."""
    return "" if len(text) > MAX_CHARACTERS else "".join(map(letters, plain(text).split()))


def features(key: str) -> list[int]:
    """Return the features under which a text is listed: hashes of its key and of its pairs of words."""
    pairs = map("".join, pairwise(f" {key} "))
    return [crc32(feature.encode()) for feature in dict.fromkeys([key, *pairs])]


def index_of(source: Path, target: Path) -> Path:
    """Return the index of a memory, which is made once. The arguments are files of `text_files`."""
    origin = [FORMAT, str(source), str(target)]
    return cached("matches", origin, partial(write_index, source, target), is_whole) / INDEX


def is_whole(directory: Path) -> bool:
    """Return whether a directory has an index of this version that can be opened."""
    with suppress(sqlite3.Error), closing(connected(directory / INDEX)) as database:
        return bool(database.execute("PRAGMA user_version").fetchone() == (FORMAT,))
    return False


def connected(path: Path) -> sqlite3.Connection:
    """Open an index for reading. Several threads can use the connection one after the other."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)


opened = cache(connected)


@contextmanager
def index_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to OutputError."""
    try:
        yield
    except sqlite3.Error as error:
        raise OutputError(f"the index {path} cannot be used: {error}", hint=f"delete it, or {WRITE_HINT}") from error


def write_index(source: Path, target: Path, directory: Path) -> None:
    """Write the index of a memory, which may be larger than the memory of the machine."""
    pairs = enumerate(zip(iter_lines([source]), iter_lines([target]), strict=True))
    units = ((number, key_of(old), old, new) for number, (old, new) in pairs)
    with index_errors(directory), closing(sqlite3.connect(directory / INDEX)) as database:
        database.executescript(TABLES)
        database.executemany("INSERT INTO units VALUES (?, ?, ?, ?)", units)
        # The rows of the lists are sorted before they are written, because this is faster.
        keys = database.execute("SELECT number, key FROM units WHERE key <> ''")
        rows = ((feature, len(key), number) for number, key in keys for feature in features(key))
        database.executemany("INSERT INTO unsorted VALUES (?, ?, ?)", rows)
        database.execute("INSERT INTO lists SELECT * FROM unsorted ORDER BY feature, n, unit")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.commit()


def best_match(text: str, index: Path) -> Match | None:
    """Return the best match of a text in a memory, or None if there is none."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import extractOne

    key = key_of(text)
    n = len(key)
    if not key:
        return None
    with index_errors(index):
        # 1. Choose the shortest lists. A match has all pairs but `n_changed`, even if it is a word longer.
        database = opened(index)
        in_range = -(-7 * n // 10), 10 * n // 7, MAX_LISTED
        whole, *pairs = features(key)
        sizes = {pair: database.execute(COUNT, (pair, *in_range)).fetchone() for pair in pairs}
        n_changed = max(2 * (3 * n // 10), 2 * (3 * (n + 1) // 10) - 1)
        shortest = sorted(pairs, key=sizes.__getitem__)[: n_changed + 1]
        # 2. Read their units.
        units: list[tuple[str, str, str]] = []
        for feature in [whole, *shortest]:
            units += database.execute(UNITS, (feature, *in_range))
            if len(units) >= ENOUGH:
                break
    # 3. Find the most similar key. Of the units that have it, choose an equal text, or else the last one.
    found = extractOne(key, [unit[0] for unit in units], scorer=Levenshtein.normalized_similarity, score_cutoff=LEAST)
    if not found:
        return None
    matches = [match_of(text, *unit[1:], found[1]) for unit in reversed(units) if unit[0] == found[0]]
    return max(matches, key=similarity)


def match_of(text: str, source: str, target: str, of_words: float) -> Match:
    """Return a unit as the match of a text. If the text has no accelerator, both sides of the match have none, too."""
    if plain(text) == text:
        source, target = plain(source), plain(target)
    return Match(source, target, 1.0 if source == text else min(of_words, NEARLY))


class Matches(Step):
    """The step that takes the translations of memories, and offers others."""

    def __init__(self, memory: Sequence[str], least: float, split_tag: Callable[[str], tuple[str, str]]) -> None:
        """Set up the step.

        Args:
            memory: paths of indexes, see `index_of`.
            least: the lowest similarity of a match that is taken.
            split_tag: a function that splits a text into its language tag and the rest.
        """
        self.indexes = list(map(Path, memory))
        self.least = least
        self.split_tag = split_tag
        self.units: list[Unit] = []
        self.matches: list[Match | None] = []
        self.taken: list[str] = []  # for each unit, the translation that is taken, or an empty text

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        prepared = []
        for unit in units:
            tag, rest = self.split_tag(unit.text)
            text = rest.strip()
            # A memory knows neither other languages nor how the translation must begin.
            indexes = [] if tag or unit.prefix else self.indexes
            matches = [best_match(text, index) for index in indexes]
            match = max(filter(None, matches), key=similarity, default=None)
            self.matches.append(match)
            is_taken = match is not None and match.similarity >= self.least and fits(text, match.target)
            self.taken.append(match.target if match and is_taken else "")
            # The model translates no blank text.
            prepared.append(replace(unit, text="") if is_taken else unit)
        return prepared

    def restore(self, translations: list[Translation]) -> list[Translation]:
        for unit, match, taken, translation in zip(self.units, self.matches, self.taken, translations, strict=True):
            if match:
                translation.matches = [match]
            if match and taken:
                # The unit has a single sentence, which is blank.
                for part in (translation, *translation.parts):
                    part.source = unit.text
                    part.sentences = [(0, len(unit.text))]
                    part.hypotheses = [TextHypothesis([], [], 0.0, [], taken, sentences=[(0, len(taken))])]
                    part.doubts = [f"match of {match.similarity:.0%}"] if match.similarity < 1 else None
        return translations

    def preview(self, texts: list[str]) -> list[str]:
        return [taken or text for taken, text in zip(self.taken, texts, strict=True)]


def fits(text: str, target: str) -> bool:
    """Return whether the translation of a match has the placeholders of a text, which has no opaque elements."""
    return not (STAND_IN.search(text) or directive_faults(text, target))
