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
from functools import partial
from importlib import import_module
from re import _constants as kind  # type: ignore[attr-defined]
from re import _parser as expressions  # type: ignore[attr-defined]
from typing import Any

import pytest
from conftest import soak

import nmt
from nmt.text.vocabulary import TAG
from reliability.fuzz import GRAMMAR, HOSTILE, MEMBERS, PARSERS, echo, mutated, outcome, packed, seeds_of

METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.mark.parametrize("name", PARSERS)
def test_changed_inputs_are_refused_or_read(name: str) -> None:
    """What is read keeps what `PARSERS` promises; so does the unchanged input."""
    seeds, found = seeds_of(name), Counter[str]()
    for n in range(soak(20, 1000) if name != "tokenizer" else soak(3, 100)):
        content, draw = seeds[n % len(seeds)], random.Random(n)
        assert name not in GRAMMAR or outcome(PARSERS[name], content) == "held", content
        changed = mutated(name, content, draw)
        if name in MEMBERS and n % 2:  # the archive
            changed = mutated("", packed(name, content.decode(), draw.choice(METHODS)), draw)
        try:
            found[outcome(PARSERS[name], changed)] += 1
        except Exception as error:
            raise AssertionError(changed) from error
    print(name, dict(found))


@pytest.mark.parametrize(("suffix", "content", "expected"), HOSTILE["found"])
def test_what_fuzzing_has_found_stays_mended(suffix: str, content: str, expected: str) -> None:
    found = echo(suffix, packed(suffix, content))
    if suffix in MEMBERS:
        with zipfile.ZipFile(io.BytesIO(found)) as archive:
            found = archive.read(MEMBERS[suffix])[len("<x xmlns:w='w' xmlns:a='a'>") : -len("</x>")]
    assert "".join(found.decode().split()) == "".join((expected or content).split())


def test_an_archive_whose_member_is_beyond_all_files_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
        archive.infolist()[0].header_offset = 2**63
    assert outcome(PARSERS["zip"], file.getvalue()) == "refused"


@pytest.mark.parametrize(("name", "method"), [*(("zip", one) for one in METHODS), ("archive", METHODS[1])])
def test_an_archive_that_unpacks_to_more_than_it_declares_takes_little_memory(name: str, method: int) -> None:
    content = bytearray(packed(".docx", " " * 20_000_000, method))
    for mark, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", content, content.index(mark) + offset, 100)
    tracemalloc.start()
    assert outcome(PARSERS[name], bytes(content), most_s=60) == "refused"
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("suffix", GRAMMAR)
def test_documents_are_read_in_linear_time(suffix: str) -> None:
    for stumble in HOSTILE["stumbles"][:: soak(9, 1)]:
        text = GRAMMAR[suffix].split("|")[0].replace("{}", f"a {stumble * soak(300, 10_000)} b")
        outcome(partial(echo, suffix), packed(suffix, text), most_s=soak(2, 20))


@pytest.mark.parametrize(("name", "before", "repeated", "after"), HOSTILE["long"])
def test_long_inputs_are_read_in_linear_time(name: str, before: str, repeated: str, after: str) -> None:
    outcome(PARSERS[name], (before + repeated * (soak(40_000, 200_000) // len(repeated)) + after).encode(), soak(2, 10))


def example(tree: Any, draw: random.Random) -> str:
    """A text that a regular expression matches, more or less."""
    text = ""
    for name, argument in tree:
        if name is kind.LITERAL:
            text += chr(argument)
        elif name is kind.IN:
            items = [chr(one[0] if kind_ is kind.RANGE else one) for kind_, one in argument if kind_ in CHARACTERS]
            text += draw.choice([*" a0!", *items] if argument[0][0] is not kind.NEGATE else ' a0!<"&')
        elif name is kind.BRANCH:
            text += example(draw.choice(argument[1]), draw)
        elif name in (kind.SUBPATTERN, kind.ATOMIC_GROUP):
            text += example(argument[-1] if name is kind.SUBPATTERN else argument, draw)
        elif name in (kind.MAX_REPEAT, kind.MIN_REPEAT, kind.POSSESSIVE_REPEAT):
            text += "".join(
                example(argument[2], draw) for _ in range(min(draw.randint(0, 2) + argument[0], argument[1]))
            )
        elif name in (kind.ANY, kind.NOT_LITERAL):
            text += draw.choice(" a0!<")
        elif name is kind.ASSERT:
            text += example(argument[1], draw)
    return text


CHARACTERS = (kind.LITERAL, kind.RANGE)
# Expressions that are matched at one place only, in a few characters, or with well-formed texts.
MATCHED = {"ADDRESS_OR_BRANCHES", "BEFORE_CLAUSE", "BEGINS_WITH_TIME", "DECIMAL", "ENCODING", "FRONT_MATTER"}
MATCHED |= {"JSON_KEY_END", "JSON_STRING", "PO_FUZZY", "PO_LINE", "POSITION_AND_DASH", "SPEAKER", "TIMES", "TOKEN"}


def test_expressions_take_linear_time() -> None:
    """Search with every regular expression of the rooms that read text, in texts that repeat a part of a match."""
    rooms = ("config", "corpus", "decode.confidence", "decode.masking", "decode.segments", "documents", "text")
    modules = [
        import_module(one.name) for one in pkgutil.walk_packages(nmt.__path__, "nmt.") if one.name[4:].startswith(rooms)
    ]
    found = {value: name for module in modules for name, value in vars(module).items() if isinstance(value, re.Pattern)}
    assert len(found) > 40
    slow = dict[str, tuple[str, str, str]]()
    for expression, name in found.items():
        tree = expressions.parse(expression.pattern, expression.flags)
        for n in range(0 if name in MATCHED or expression is TAG else soak(30, 1000)):
            draw = random.Random(n)
            text = example(tree, draw) + example(tree, draw)
            start, end = sorted(draw.choices(range(len(text) + 1), k=2))
            repeated = text[start : draw.choice([end, start + 1])] or "0"
            before, after = draw.choice(["", text[:start]]), draw.choice(["\x01", "a", " ", text[end:] + "\n!"])
            for length in (1000, 8000):
                start_s = time.process_time()
                expression.findall(before + repeated * (length // len(repeated)) + after)
                taken = time.process_time() - start_s
                if taken < 0.001:
                    break
            if taken > 0.1:
                slow[name] = before, repeated, after
                break
    assert not slow
