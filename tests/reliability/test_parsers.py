"""Parsers of what strangers write: documents keep their text; changed bytes give one clear error, or a result."""

import html
import io
import json
import random
import re
import shutil
import sys
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from conftest import soak
from models import random_translator
from pydantic import ValidationError

from nmt.config import load_config
from nmt.corpus.download import unpacked
from nmt.decode.segments import TextHypothesis, Translation
from nmt.decode.translator import Translator
from nmt.documents.files import translate_path
from nmt.errors import NmtError
from nmt.interchange.argos import is_package
from nmt.interchange.huggingface import to_huggingface
from nmt.interchange.marian import import_marian
from nmt.run.header import parse
from nmt.serve.schema import TranslateRequest
from nmt.text.glossary import read_glossary
from nmt.text.placeholders import SPAN, Masked
from nmt.text.vocabulary import vocabulary_of, with_vocabulary

HOSTILE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text(encoding="utf-8"))
GRAMMAR = {
    suffix: rules.replace("@", "00:00:01,000 --> 00:00:02,000\n") for suffix, rules in HOSTILE["grammar"].items()
}
MEMBERS = {".docx": "word/document.xml", ".pptx": "ppt/slides/slide1.xml"}
AROUND = {".csv": "a,b\n{}", ".xlf": "<xliff version='1.2'>{}</xliff>"}
METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


class Echo:
    joiner = " "

    def translate_lines(self, lines: Iterable[str], **_: Any) -> Iterator[Translation]:
        return (Translation(line, [TextHypothesis([], [], 0.0, [], line)]) for line in lines)


def in_order(_: Translator, pairs: Iterable[Any]) -> list[Any]:
    return [[(i, i) for i in range(min(len(source.spans), len(target.spans)))] for source, target in pairs]


@mock.patch("nmt.documents.markup.align_window", in_order)
def echo(source: Path, output: Path) -> None:
    """Translate a document to its own words."""
    column = "2" * (source.suffix == ".csv")
    translate_path(cast(Translator, Echo()), source, output, watch=lambda found, _: found, column=column)


def grown(suffix: str, draw: random.Random, depth: int = 0) -> str:
    """A random text by a grammar."""
    deeper = suffix == ".html" and depth < 6 and draw.random() < 0.5
    rule = draw.choice(GRAMMAR[suffix].split("|"))
    return re.sub(r"\{\}", lambda _: grown(suffix, draw, depth + 1) if deeper else draw.choice(HOSTILE["words"]), rule)


def packed(suffix: str, text: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The bytes of a document."""
    if suffix not in MEMBERS:
        return AROUND.get(suffix, "{}").replace("{}", text).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(MEMBERS[suffix], f"<x xmlns:w='w' xmlns:a='a'>{text}</x>")
    return file.getvalue()


def letters(path: Path) -> Counter[str]:
    """How often each letter and digit is in a document."""
    content = path.read_bytes()
    if path.suffix in MEMBERS:
        with zipfile.ZipFile(path) as archive:
            content = re.sub(rb"<[^>]*>", b"", archive.read(MEMBERS[path.suffix]))
    text = json.dumps(json.loads(content), ensure_ascii=False) if path.suffix == ".json" else content.decode()
    return Counter(re.findall(r"\w", html.unescape(text)))


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, removed, moved, or repeated, or replaced by what parsers stumble over."""
    for _ in range(draw.choice([1, 2, 5])):
        start = draw.randrange(len(content) + 1)
        end = start + draw.choice([0, 1, 4, 30])
        stumble = draw.choice(HOSTILE["stumbles"]).encode() * draw.choice([1, 1, 300])
        part = draw.choice([stumble, draw.randbytes(1), content[:9], content[start:end] * draw.choice([0, 2, 60])])
        content = content[:start] + part + content[end:]
    return content


def outcome(work: Callable[[], object], seed: object, most_s: float = 2) -> str:
    """`held` or `refused`; fails after another error than a refusal, or after more than `most_s` of computing."""
    start, found = time.process_time(), "held"
    try:
        work()
    except (NmtError, ValidationError) as error:
        found = "refused" if len(str(error)) < 5000 else "refused at length"
    except Exception as error:
        raise AssertionError(seed) from error
    assert time.process_time() - start < most_s, seed
    return found


@pytest.mark.parametrize("suffix", GRAMMAR)
def test_documents_keep_their_text_and_changed_ones_are_refused_or_written(suffix: str, tmp_path: Path) -> None:
    source, output, found = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", Counter[str]()
    for n in range(soak(30, 1000)):
        draw = random.Random(n)
        text = "".join(grown(suffix, draw) for _ in range(1 if suffix == ".json" else 4))
        source.write_bytes(packed(suffix, text))
        assert outcome(partial(echo, source, output), n) == "held"
        before, after = letters(source), letters(output)
        assert before <= after if suffix in (".po", ".xlf") else before == after, (n, text, output.read_bytes())
        changed = packed(suffix, mutated(text.encode(), draw).decode(errors="ignore"))
        if suffix in MEMBERS and n % 2:  # the archive
            changed = mutated(packed(suffix, text, draw.choice(METHODS)), draw)
        source.write_bytes(changed)
        found[outcome(partial(echo, source, output), n)] += 1
        assert {path.name for path in tmp_path.iterdir()} <= {source.name, output.name}
    print(suffix, dict(found))


@pytest.mark.parametrize("suffix", GRAMMAR)
def test_documents_are_read_in_linear_time(suffix: str, tmp_path: Path) -> None:
    source = tmp_path / f"a{suffix}"
    for stumble in HOSTILE["stumbles"][:: soak(9, 1)]:
        text = GRAMMAR[suffix].split("|")[0].replace("{}", f"a {stumble * soak(300, 10_000)} b")
        source.write_bytes(packed(suffix, text))
        outcome(partial(echo, source, tmp_path / f"b{suffix}"), stumble, most_s=soak(2, 20))


@pytest.mark.parametrize("name", [*HOSTILE["seeds"], "vocabulary", "archive"])
def test_changed_bytes_are_refused_or_read(name: str, tmp_path: Path) -> None:
    path, found = tmp_path / "file", Counter[str]()

    def placeholders(content: bytes) -> None:
        mask = Masked.of(content.decode(errors="replace"), [SPAN], [])
        assert mask.settled(mask.text, [SPAN])[0] == mask.text

    readers: dict[str, Callable[[bytes], object]] = {
        "config": lambda _: load_config(path),
        "glossary": lambda _: read_glossary(path),
        "header": lambda content: parse(content.decode(errors="replace")),
        "archive": lambda content: [is_package(path), unpacked(content, "x.zip", [*MEMBERS.values()][:1])],
        "placeholders": placeholders,
        "request": lambda content: TranslateRequest.model_validate_json(content).model_dump_json().encode(),
        "vocabulary": vocabulary_of,
    }
    seeds = {"vocabulary": with_vocabulary(b"abc", ["a", "b"]), "archive": packed(".docx", "a" * 99, zipfile.ZIP_LZMA)}
    for n in range(soak(25, 1000)):
        content = mutated(seeds.get(name) or HOSTILE["seeds"][name].encode(), random.Random(n))
        path.write_bytes(content)
        found[outcome(partial(readers[name], content), n)] += 1
    print(name, dict(found))


@mock.patch.dict(sys.modules, {"transformers": None})  # it takes seconds to load, and would compare valid models
def test_changed_models_are_refused_or_imported(tmp_path: Path) -> None:
    model, found = tmp_path / "model", Counter[str]()
    to_huggingface(random_translator(norm="post", activation="silu"), model)
    files = {file: file.read_bytes() for file in sorted(model.glob("*")) if soak(file.suffix != ".spm", True)}
    for n in range(soak(3, 1000)):
        draw = random.Random(n)
        file = draw.choice([*files])
        file.write_bytes(mutated(files[file], draw))
        found[outcome(lambda: import_marian(model, tmp_path / "run"), n)] += 1
        file.write_bytes(files[file])
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
    print("models", dict(found))
