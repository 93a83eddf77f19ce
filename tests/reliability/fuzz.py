"""Parsers of what strangers write, each with what it promises; as a program, fuzzes one, guided by coverage.

    python tests/reliability/fuzz.py NAME SECONDS FOLDER     NAME: a key of `PARSERS`; needs `pip install atheris`

A parser refuses an input with an error of its own, or keeps its promise. Anything else is a fault: it is printed, once
for each place in the code, and its input is written to FOLDER/NAME.found; FOLDER/NAME keeps the corpus.
"""

import contextlib
import io
import json
import random
import re
import sys
import tempfile
import time
import tomllib
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from unittest import mock
from xml.etree import ElementTree

if __name__ == "__main__":
    sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]
    import atheris  # type: ignore[import-untyped,unused-ignore]

    atheris.instrument_imports(include=["nmt"]).__enter__()

import safetensors
from echo import Echo, in_order
from pydantic import BaseModel, ValidationError

from nmt.config import dump_config, load_config
from nmt.corpus.download import unpacked
from nmt.documents.html import HTML
from nmt.documents.markdown import MARKDOWN
from nmt.documents.markup import Format
from nmt.errors import NmtError
from nmt.files import parse_json
from nmt.run.header import checked_header, hash_of
from nmt.serve.schema import ExplainRequest, LibreRequest, TranslateRequest
from nmt.text.glossary import END, TERM, find_terms, read_glossary
from nmt.text.lines import decode_lines, raw_lines
from nmt.text.placeholders import SPAN, SYMBOLS, Masked
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import vocabulary_of, with_vocabulary
from nmt.translate.documents import DocumentTranslation
from nmt.translate.markup import MarkupTranslator
from nmt.translate.translator import Translator

HOSTILE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text(encoding="utf-8"))
GRAMMAR = {
    suffix: rules.replace("@", "00:00:01,000 --> 00:00:02,000\n") for suffix, rules in HOSTILE["grammar"].items()
}
MEMBERS = {".docx": "word/document.xml", ".pptx": "ppt/slides/slide1.xml"}
AROUND = {".csv": "a,b\n{}", ".xlf": "<xliff version='1.2'>{}</xliff>"}


@mock.patch("nmt.translate.tags.align_for_markup", in_order)
def echo(suffix: str, content: bytes) -> bytes:
    """Translate a document to its own words."""
    translator, column = cast(Translator, Echo()), "2" * (suffix == ".csv")
    document = DocumentTranslation(translator, "x", suffix, content, 10**7, column=column)
    for _ in document.translations():
        pass
    return document.content()


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


def letters(suffix: str, content: bytes) -> Counter[str]:
    """How often each letter and digit is in a document; angle brackets, too, where they are of tags only."""
    if suffix in MEMBERS:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            root = ElementTree.fromstring(archive.read(MEMBERS[suffix]))
        texts = [node for name in "wa" for node in root.iter(f"{{{name}}}t")]
        formats = [node for name in "wa" for node in root.iter(f"{{{name}}}rPr")]
        if any(map(len, texts)) or any(node in texts for one in formats for node in one.iter()):
            raise NmtError("no document has a tag in the text of a run, or a text in its format", hint="")
        return Counter(re.findall(r"[\w<>]", "".join(node.text or "" for node in texts)))
    text = content.decode()
    if suffix == ".json":
        text = re.sub(r"\\(u....|.)", " ", json.dumps(json.loads(text), ensure_ascii=False))  # control characters
    if suffix == ".md":  # in HTML, an entity needs no semicolon
        text = re.sub(r"(?<!\\)&#?\w+;", lambda found: unescape(found[0]), text)
        return Counter(re.findall(r"\w", text))
    return Counter(re.findall(r"[\w<>]", unescape(text)))


def check_letters(suffix: str, content: bytes, new: bytes) -> None:
    """Check the echo of a document: code in a text may be repeated, and a translation stands beside its source."""
    before, after = letters(suffix, content), letters(suffix, new)
    is_longer = suffix in (".po", ".xlf") or re.search(b"(?i)<(?:code|kbd|samp|var)|translate|`", content)
    assert before <= after if is_longer else before == after, f"{before - after} {after - before} in {new!r:.300}"


def document(suffix: str, content: bytes) -> None:
    if suffix in MEMBERS and not content.startswith(b"PK"):
        content = packed(suffix, content.decode(errors="replace"))
    for mark in "。！？":  # no space follows them, but the echo has one
        content = content.replace(mark.encode(), b".")
    new = echo(suffix, content)
    check_letters(suffix, content, new)
    check_letters(suffix, new, echo(suffix, new))


@mock.patch("nmt.translate.tags.align_for_markup", in_order)
def markup(kind: Format, content: bytes) -> None:
    text = re.sub("[。！？]", ".", content.decode(errors="replace"))
    (found,) = MarkupTranslator(cast(Translator, Echo()), kind).translate_lines([text])
    check_letters(".html" if kind is HTML else ".md", text.encode(), found.text.encode())


def lines(content: bytes) -> None:
    found = [*decode_lines(raw_lines(io.BytesIO(content), "x"), "x")]
    assert len(found) == content.count(b"\n") + (content[-1:] not in (b"", b"\n"))
    assert not any("\n" in line.encode().decode() for line in found)


def placeholders(content: bytes) -> None:
    text = content.decode(errors="replace")
    for symbols in ([], SYMBOLS):
        mask = Masked.of(text, [SPAN], symbols)
        assert mask.settled(mask.text)[0] == mask.text
        assert not symbols or not mask.text or "" in mask.marks or mask.filled(mask.text) == text
        assert [mask.text[slice(*kept.span)] for kept in mask.kept] == mask.marks


def config(path: Path) -> None:
    found = load_config(path)
    path.write_text(dump_config(found), encoding="utf-8")
    assert load_config(path) == found


def glossary(path: Path) -> None:
    terms = read_glossary(path)
    text = " ".join([*terms, "x", *terms]).replace(TERM, "").replace(END, "")
    found = find_terms(text, terms)
    assert all(a[0][1] <= b[0][0] for a, b in pairwise(found))
    assert all(text[start:end].lower() in map(str.lower, terms) for (start, end), _ in found)


def requests(content: bytes) -> None:
    kinds: list[type[BaseModel]] = [TranslateRequest, LibreRequest, ExplainRequest]
    for kind in kinds:
        with contextlib.suppress(ValidationError):
            found = kind.model_validate_json(content)
            assert kind.model_validate_json(found.model_dump_json().encode()) == found


def header(path: Path) -> None:
    """The content is the entry "nmt" of a model file, whose hashes are made valid."""
    import safetensors.torch

    from nmt.run.checkpoint import read_checkpoint

    text, (intact, tensors) = path.read_bytes().decode(errors="replace"), model_parts()
    with contextlib.suppress(ValueError, TypeError, KeyError):
        entry = parse_json(text)
        hashes = {"header_sha256": hash_of(entry), "tensors_sha256": json.loads(intact)["tensors_sha256"]}
        text = json.dumps({**entry, **hashes})
    path.write_bytes(safetensors.torch.save(tensors, {"nmt": text}))
    read_checkpoint(path).model()


def marian(path: Path) -> None:
    """The content is that of four files, with % between them."""
    from nmt.interchange.marian import read_sides
    from nmt.interchange.marian_files import read_json, read_settings

    names = ("config.json", "vocab.json", "tokenizer_config.json", "target_vocab.json")
    for name, content in zip(names, path.read_bytes().split(b"%"), strict=False):
        path.with_name(name).write_bytes(content)
    settings = read_settings(path.parent)
    sides = read_sides(path.parent, settings, read_json(path.with_name(names[2])), None)
    for side, n in zip(sides, (settings.vocab_size, settings.n_target), strict=True):
        assert len({*side.pieces}) == len(side.pieces) == len(side.rows), "a piece twice"
        assert {*side.rows} <= {*range(n)}


def tokenizer(content: bytes) -> None:
    found = Tokenizer(content)
    for text in ("", "a  b", "我 x", "\0"):
        found.decode(found.encode(text))


@cache
def model_parts() -> tuple[bytes, dict[str, Any]]:
    """The entry "nmt" of a small model file, and its tensors."""
    from models import random_translator, write_run

    with tempfile.TemporaryDirectory() as folder:
        model = random_translator(d_model=8, d_ff=8, n_heads=2, max_positions=16)
        path = write_run(model, Path(folder, "run")).model_file
        with safetensors.safe_open(path, framework="pt") as file:
            return file.metadata()["nmt"].encode(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def on_file(read: Callable[[Path], object], content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(content)
        read(path)


def seeds_of(name: str) -> list[bytes]:
    """Valid inputs."""
    if name in GRAMMAR:
        draws = [random.Random(n) for n in range(40)]
        texts = ["".join(grown(name, draw) for _ in range(1 if name == ".json" else 4)) for draw in draws]
        return [text.encode() if name in MEMBERS else packed(name, text) for text in texts]
    other: dict[str, Callable[[], list[bytes]]] = {
        "html": lambda: seeds_of(".html"),
        "markdown": lambda: seeds_of(".md"),
        "lines": lambda: ["\ufeffa\r\nb\x85c\n\u2028d".encode()],
        "header": lambda: [model_parts()[0]],
        "tokenizer": lambda: [model_parts()[1]["tokenizer.source"].numpy().tobytes()],
        "vocabulary": lambda: [with_vocabulary(b"abc", ["a", "b"])],
        "archive": lambda: [packed(".docx", "a" * 99, method) for method in (0, 8, 12, 14)],
        "zip": lambda: [packed(".docx", grown(".docx", random.Random(n))) for n in range(3)],
    }
    return other[name]() if name in other else [HOSTILE["seeds"][name].encode()]


PARSERS: dict[str, Callable[[bytes], object]] = {
    **{suffix: partial(document, suffix) for suffix in GRAMMAR},
    "zip": partial(document, ".docx"),
    "html": partial(markup, HTML),
    "markdown": partial(markup, MARKDOWN),
    "config": partial(on_file, config),
    "glossary": partial(on_file, glossary),
    "header": partial(on_file, header),
    "entry": lambda content: checked_header(content.decode(errors="replace")),
    "lines": lines,
    "archive": lambda content: unpacked(content, "x.zip", [*MEMBERS.values()][:1]),
    "marian": partial(on_file, marian),
    "placeholders": placeholders,
    "request": requests,
    "tokenizer": tokenizer,
    "vocabulary": lambda content: "".join(vocabulary_of(content) or ()).encode(),
}


def mutated(name: str, content: bytes, draw: random.Random) -> bytes:
    """Some parts removed, moved, repeated, or replaced by what parsers stumble over or what the grammar has."""
    for _ in range(draw.choice([1, 2, 5])):
        start = draw.randrange(len(content) + 1)
        end = start + draw.choice([0, 1, 4, 30])
        if name in GRAMMAR and draw.random() < 0.5:  # between tags and words, so that it stays valid
            edges = [0, *(found.end() for found in re.finditer(rb"[>\s]", content)), len(content)]
            start, end = sorted(draw.choices(edges, k=2))
            end = draw.choice([start, end])
        stumble = draw.choice(HOSTILE["stumbles"]).encode() * draw.choice([1, 1, 300])
        new = grown(name, draw).encode() if name in GRAMMAR else content[:9]
        part = draw.choice([stumble, draw.randbytes(1), new, content[start:end] * draw.choice([0, 2, 60])])
        content = content[:start] + part + content[end:]
    return content


def outcome(read: Callable[[bytes], object], content: bytes, most_s: float = 2) -> str:
    """`held` or `refused`; fails after another error than a refusal, or after more than `most_s` of computing."""
    start, found = time.process_time(), "held"
    try:
        read(content)
    except (NmtError, ValidationError) as error:
        found = "refused" if len(str(error)) < 5000 else "refused at length"
    taken = time.process_time() - start
    assert taken < most_s, f"{taken:.1f} s"
    return found


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one parser; libFuzzer ends the process."""
    corpus, found = folder / name, folder / f"{name}.found"
    for path in (corpus, found):
        path.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds_of(name)):
        (corpus / f"seed{i}").write_bytes(seed)
    places, counts, told = set[str](), Counter[str](), [time.monotonic()]

    def run(content: bytes) -> None:
        counts["executions"] += 1
        if time.monotonic() > told[0] + 5:
            told[0] = time.monotonic()
            print(f"{name}: {dict(counts)}, {time.process_time():.0f} s, {len(places)} found", flush=True)
        try:
            counts[outcome(PARSERS[name], content)] += 1
        except Exception as error:
            frames = [f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
            place = f"{type(error).__name__} {frames[-1]} {str(error)[:12]}"
            if place not in places:
                places.add(place)
                (found / f"{len(places)}").write_bytes(content)
                print(f"FOUND {name}: {place} {str(error)[:300]} {content[:200]!r}", flush=True)

    def mutate(content: bytes, max_size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        by_atheris: bytes = atheris.Mutate(content, max_size)
        return draw.choice([by_atheris, mutated(name, content, draw)[:max_size]])

    options = [f"-max_total_time={seconds}", "-max_len=3000", "-timeout=60"]
    atheris.Setup([sys.argv[0], f"-artifact_prefix={found}/", *options, str(corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
