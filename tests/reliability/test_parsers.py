"""Parsers of what strangers write: documents keep their text; changed bytes give one clear error, or a result."""

import io
import pkgutil
import random
import re
import struct
import time
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from re import _constants as kind  # type: ignore[attr-defined]
from re import _parser as expressions  # type: ignore[attr-defined]
from typing import Any

import pytest
import regex
from conftest import check_linear, soak

import nmt
from nmt.documents import SUFFIXES
from nmt.documents.files import FORMATS
from nmt.text.vocabulary import TAG
from reliability.hostile import HOSTILE
from reliability.parsers import GRAMMAR, MEMBERS, PARSERS, echo, mutated, outcome, packed, seeds_of

METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.mark.parametrize("name", PARSERS)
def test_changed_inputs_are_refused_or_read(name: str) -> None:
    """What is read keeps what `PARSERS` promises; so does the unchanged input."""
    seeds = seeds_of(name)
    outcomes = Counter[str]()
    n_inputs = soak(3, 100) if name == "tokenizer" else soak(20, 1000)
    for n in range(n_inputs):
        content = seeds[n % len(seeds)]
        draw = random.Random(n)
        if name in GRAMMAR:
            assert outcome(PARSERS[name], content) == "held", content
        changed = mutated(name, content, draw)
        if name in MEMBERS and n % 2:  # change the archive instead
            archive = packed(name, content.decode(), draw.choice(METHODS))
            changed = mutated("", archive, draw)
        try:
            outcomes[outcome(PARSERS[name], changed)] += 1
        except Exception as error:
            raise AssertionError(changed) from error
    print(name, dict(outcomes))


def without_spaces(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(("suffix", "content", "expected"), HOSTILE["found"])
def test_what_fuzzing_has_found_stays_mended(suffix: str, content: str, expected: str) -> None:
    document = echo(suffix, packed(suffix, content))
    if suffix in MEMBERS:
        with zipfile.ZipFile(io.BytesIO(document)) as archive:
            (document,) = re.findall(b"^<y .*?>(.*)</y>$", archive.read(MEMBERS[suffix]), re.DOTALL)
    result = without_spaces(document.decode())
    assert result == without_spaces(expected or content)


def test_every_format_is_among_these_parsers() -> None:
    tested = [FORMATS.get(suffix) for suffix in GRAMMAR]
    result = [suffix for suffix in SUFFIXES if suffix not in GRAMMAR and FORMATS[suffix] not in tested]
    assert result == []


# --- archives ---------------------------------------------------------------------------------------------


def test_an_archive_whose_member_is_beyond_all_files_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
        archive.infolist()[0].header_offset = 2**63
    result = outcome(PARSERS["zip"], file.getvalue())
    assert result == "refused"


@pytest.mark.parametrize(("name", "method"), [*(("zip", method) for method in METHODS), ("archive", METHODS[1])])
def test_an_archive_that_unpacks_to_more_than_it_declares_takes_little_memory(name: str, method: int) -> None:
    archive = bytearray(packed(".docx", " " * 20_000_000, method))
    struct.pack_into("<I", archive, archive.index(b"PK\3\4") + 22, 100)  # the size in the local header
    struct.pack_into("<I", archive, archive.index(b"PK\1\2") + 24, 100)  # the size in the directory
    tracemalloc.start()
    result = outcome(PARSERS[name], bytes(archive))
    assert result == "refused"
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 5_000_000


# --- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", GRAMMAR)
def test_documents_are_read_in_linear_time(suffix: str) -> None:
    rule = GRAMMAR[suffix].split("|")[0]

    def read(stumble: str, n: int) -> None:
        document = packed(suffix, rule.replace("{}", f"a {stumble * n} b"))
        outcome(partial(echo, suffix), document)

    for stumble in HOSTILE["stumbles"][:: soak(9, 1)]:
        check_linear(partial(read, stumble), soak(300, 10_000))


@pytest.mark.parametrize(("name", "before", "repeated", "after"), HOSTILE["long"])
def test_long_inputs_are_read_in_linear_time(name: str, before: str, repeated: str, after: str) -> None:
    def read(n: int) -> None:
        content = (before + repeated * n + after).encode()
        outcome(PARSERS[name], content)

    check_linear(read, soak(40_000, 200_000) // len(repeated))


def test_many_messages_take_little_memory() -> None:
    tracemalloc.start()
    echo(".po", b'msgid "Hund"\nmsgstr ""\n\n' * 2000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4000 * 2000


# Expressions that are matched at one place only, in a few characters, or with well-formed texts.
MATCHED = """CODE_OR_BRANCHES BEFORE_CLAUSE BEGINS_WITH_TIME CELL DECIMAL ENCODING FRONT_MATTER FROM_CJK
    LAST_WORD MEMBERS PO_FUZZY PO_LINE SPECIAL STRINGS_ENTRY TOKEN"""
ROOMS = ("nmt.config", "nmt.corpus", "nmt.documents", "nmt.text", "nmt.translate")  # which read text


# Parts of texts, for expressions of the library regex.
REPEATED = """a|. |。|."|a. A|。 |“|。「|[|{|{{ |<a|0|0.| |'|a-|⟦1|क|ก|http://|a@"""


def expressions_of_rooms(kind: type) -> dict[Any, str]:
    """Every regular expression, and its name."""
    named: dict[Any, str] = {}
    for module in pkgutil.walk_packages(nmt.__path__, "nmt."):
        if module.name.startswith(ROOMS):
            values = vars(import_module(module.name))
            named |= {value: name for name, value in values.items() if isinstance(value, kind)}
    return named


def example(tree: Any, draw: random.Random) -> str:
    """A text that a parsed regular expression matches, more or less."""
    return "".join(example_of(name, argument, draw) for name, argument in tree)


def example_of(name: Any, argument: Any, draw: random.Random) -> str:
    """A text for a node of a parsed regular expression."""
    if name is kind.LITERAL:
        return chr(argument)
    if name is kind.IN:
        return draw.choice([*characters(argument)])
    if name in (kind.ANY, kind.NOT_LITERAL):
        return draw.choice(" a0!<")
    if name is kind.BRANCH:
        return example(draw.choice(argument[1]), draw)
    if name is kind.SUBPATTERN:
        return example(argument[-1], draw)
    if name is kind.ATOMIC_GROUP:
        return example(argument, draw)
    if name is kind.ASSERT:
        return example(argument[1], draw)
    if name in (kind.MAX_REPEAT, kind.MIN_REPEAT, kind.POSSESSIVE_REPEAT):
        least, most, repeated = argument
        n = min(least + draw.randint(0, 2), most)
        return "".join(example(repeated, draw) for _ in range(n))
    return ""


def characters(items: Any) -> Iterator[str]:
    """The first characters of a set's ranges, and some that are likely to be in it."""
    if items[0][0] is kind.NEGATE:
        yield from ' a0!<"&'
        return
    yield from " a0!"
    for name, argument in items:
        if name is kind.LITERAL:
            yield chr(argument)
        elif name is kind.RANGE:
            yield chr(argument[0])


def seconds_to_search(expression: Any, text: str) -> float:
    start = time.process_time()
    expression.findall(text)
    return time.process_time() - start


def slow_text(expression: re.Pattern[str]) -> tuple[str, str, str] | None:
    """The beginning, the repeated part and the end of a text in which a search takes too long."""
    tree = expressions.parse(expression.pattern, expression.flags)
    for seed in range(soak(30, 1000)):
        # 1. A part of two matches, which is repeated.
        draw = random.Random(seed)
        text = example(tree, draw) + example(tree, draw)
        places = range(len(text) + 1)
        start, end = sorted(draw.choices(places, k=2))
        repeated = text[start : draw.choice([end, start + 1])] or "0"
        before = draw.choice(["", text[:start]])
        after = draw.choice(["\x01", "a", " ", text[end:] + "\n!"])

        # 2. Searched in a text of 1,000 characters, and of 8,000 if that is not done at once.
        n = 1000 // len(repeated)
        if seconds_to_search(expression, before + repeated * n + after) < 0.001:
            continue
        if seconds_to_search(expression, before + repeated * 8 * n + after) > 0.1:
            return before, repeated, after
    return None


def test_expressions_take_linear_time() -> None:
    """Search with every regular expression of the rooms that read text, in texts that repeat a part of a match."""
    named = expressions_of_rooms(re.Pattern)
    assert len(named) > 40
    for expression, name in named.items():
        if name not in MATCHED.split() and expression is not TAG:
            assert slow_text(expression) is None, name


@pytest.mark.parametrize("repeated", REPEATED.split("|"))
def test_expressions_of_the_library_regex_take_linear_time(repeated: str) -> None:
    named = expressions_of_rooms(regex.Pattern)
    assert len(named) > 20
    for expression, name in named.items():
        if name not in MATCHED:
            assert seconds_to_search(expression, repeated * (20_000 // len(repeated)) + "\x01") < 0.5, name
