"""Parsers of what strangers write, each with what it promises; inputs for them, valid and changed.

A parser refuses an input with an error of its own, or keeps its promise. Anything else is a fault.
"""

import io
import json
import random
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from html import unescape
from pathlib import Path
from typing import cast
from unittest import mock
from xml.etree import ElementTree

import safetensors.torch
from echo import Echo, in_order
from models import Parts, random_translator, write_run
from pydantic import BaseModel, ValidationError

from nmt.config import dump_config, load_config
from nmt.corpus.download import unpacked
from nmt.documents import BILINGUAL
from nmt.documents.files import encoding_of
from nmt.documents.html import HTML
from nmt.documents.markdown import MARKDOWN
from nmt.documents.markup import Format
from nmt.errors import InputError, NmtError
from nmt.files import parse_json
from nmt.interchange.huggingface_import import read_json, read_settings, read_sides
from nmt.run.checkpoint import read_checkpoint
from nmt.run.header import checked_header
from nmt.serve.schema import ExplainRequest, LibreRequest, TranslateRequest
from nmt.text.glossary import END, TERM, find_terms, read_glossary
from nmt.text.lines import iter_lines
from nmt.text.placeholders import SPAN, SYMBOLS, Masked
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import vocabulary_of, with_vocabulary
from nmt.translate.documents import DocumentTranslation
from nmt.translate.markup import MarkupTranslator
from nmt.translate.translator import Translator

from .hostile import HOSTILE

TIMES = "00:00:01,000 --> 00:00:02,000\n"
GRAMMAR = {suffix: rules.replace("@", TIMES) for suffix, rules in HOSTILE["grammar"].items()}
MEMBERS = {
    ".docx": "word/document.xml",
    ".epub": "book/chapter.xhtml",
    ".ods": "content.xml",
    ".odt": "content.xml",
    ".pptx": "ppt/slides/slide1.xml",
    ".xlsx": "xl/sharedStrings.xml",
}
NAMESPACES = " ".join(f"xmlns:{name}='{name}'" for name in ("w", "a", "x", "text", "table", "office"))
AROUND = {
    ".csv": "a,b\n{}",
    ".resx": "<root>{}</root>",
    ".stringsdict": "<plist>{}</plist>",
    ".tmx": "<tmx>{}</tmx>",
    ".ts": "<TS>{}</TS>",
    ".tsv": "a\tb\n{}",
    ".xcstrings": '{"sourceLanguage": "de", "strings": {{} "x": { }}}',
    ".xlf": "<xliff version='1.2'>{}</xliff>",
    ".xml": "<resources>{}</resources>",
}
IN_NO_DOCUMENT = (".//{w}t/*", ".//{a}t/*", ".//{x}t/*", ".//{w}rPr//{w}t", ".//{a}rPr//{a}t", ".//{x}rPr//{x}t")
MARIAN_FILES = ("config.json", "vocab.json", "tokenizer_config.json", "target_vocab.json")

# --- documents --------------------------------------------------------------------------------------------


def packed(suffix: str, text: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The bytes of a document."""
    if suffix not in MEMBERS:
        return AROUND.get(suffix, "{}").replace("{}", text).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(MEMBERS[suffix], f"<y {NAMESPACES}>{text}</y>")
    return file.getvalue()


def text_of(suffix: str, content: bytes, encoding: str = "utf-8") -> str:
    """The text of a document, or of its only member."""
    if suffix in MEMBERS:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(MEMBERS[suffix])
    return content.decode(encoding)


def text_of_runs(suffix: str, content: bytes) -> str:
    """The text of a document in an archive. What no document has is refused."""
    root = ElementTree.fromstring(text_of(suffix, content))
    for path in IN_NO_DOCUMENT:
        if root.find(path) is not None:
            raise NmtError("a tag in a text, or a text in a format", hint="")
    if suffix in (".ods", ".odt"):
        return "".join(root.itertext())
    texts = [*root.iter("{w}t"), *root.iter("{a}t"), *root.iter("{x}t")]  # of Word, PowerPoint and Excel
    return "".join(node.text or "" for node in texts)


def letters(suffix: str, content: bytes, encoding: str) -> Counter[str]:
    """How often each letter and digit is in a document; angle brackets, too, where they are of tags only."""
    if suffix in MEMBERS and suffix != ".epub":
        return Counter(re.findall(r"[\w<>]", text_of_runs(suffix, content)))
    text = text_of(suffix, content, encoding)
    if suffix == ".md":  # in HTML, an entity needs no semicolon
        text = re.sub(r"(?<!\\)&#?\w+;", lambda entity: unescape(entity[0]), text)
        return Counter(re.findall(r"\w", text))
    if suffix in (".properties", ".strings"):
        text = re.sub(r"\\(?:u([0-9a-fA-F]{4})|[fnrt]?)", lambda escape: chr(int(escape[1] or "20", 16)), text)
    if suffix in (".json", ".xcstrings"):
        text = json.dumps(json.loads(text), ensure_ascii=False)
        text = re.sub(r"\\(u....|.)", " ", text)  # control characters
    return Counter(re.findall(r"[\w<>]", unescape(text)))


def check_letters(suffix: str, content: bytes, new: bytes) -> None:
    """Check the echo of a document: code in a text may be repeated, and a translation stands beside its source."""
    encoding = encoding_of(suffix, content)
    before = letters(suffix, content, encoding)
    after = letters(suffix, new, encoding)
    message = f"{before - after} {after - before} in {new!r:.300}"
    if suffix in BILINGUAL or re.search(b"(?i)<(?:code|kbd|samp|var)|translate|`", content):
        assert before <= after, message
    else:
        assert before == after, message


@mock.patch("nmt.translate.documents.languages_of", mock.Mock(return_value=("de", "en")))
@mock.patch("nmt.translate.tags.align_words", in_order)
def echo(suffix: str, content: bytes) -> bytes:
    """Translate a document to its own words."""
    column = "b" if suffix in (".csv", ".tsv") else ""
    document = DocumentTranslation(cast(Translator, Echo()), "x", suffix, content, 10**7, column=column)
    try:
        for _ in document.translations():
            pass
    except InputError as error:
        if "has no text to translate" not in str(error):
            raise
    return document.content()


def document(suffix: str, content: bytes) -> None:
    if suffix in MEMBERS and not content.startswith(b"PK"):
        content = packed(suffix, content.decode(errors="replace"))
    for mark in "。！？":  # no space follows them, but the echo has one
        content = content.replace(mark.encode(), b".")
    new = echo(suffix, content)
    check_letters(suffix, content, new)
    check_letters(suffix, new, echo(suffix, new))


@mock.patch("nmt.translate.tags.align_words", in_order)
def markup(kind: Format, content: bytes) -> None:
    text = re.sub("[。！？]", ".", content.decode(errors="replace"))
    translator = MarkupTranslator(cast(Translator, Echo()), kind)
    (translation,) = translator.translate_lines([text])
    suffix = ".html" if kind is HTML else ".md"
    check_letters(suffix, text.encode(), translation.text.encode())


# --- other parsers ----------------------------------------------------------------------------------------


def placeholders(content: bytes) -> None:
    text = content.decode(errors="replace")
    for symbols in ([], SYMBOLS):
        mask = Masked.of(text, [SPAN], symbols)
        assert mask.settled(mask.text)[0] == mask.text
        for kept in mask.kept:
            start, end = kept.span
            assert mask.text[start:end] == kept.mark
        if symbols and mask.text and "" not in mask.marks:
            assert mask.filled(mask.text) == text


def config(path: Path) -> None:
    loaded = load_config(path)
    path.write_text(dump_config(loaded), encoding="utf-8")
    assert load_config(path) == loaded


def glossary(path: Path) -> None:
    terms = read_glossary(path, iter_lines([path]))
    names = {term.lower() for term in terms}
    text = " ".join([*terms, "x", *terms])
    text = text.replace(TERM, "").replace(END, "")
    end_before = 0
    for (start, end), _ in find_terms(text, terms):
        assert end_before <= start
        assert text[start:end].lower() in names
        end_before = end


def requests(content: bytes) -> None:
    kinds: list[type[BaseModel]] = [TranslateRequest, LibreRequest, ExplainRequest]
    for kind in kinds:
        with suppress(ValidationError):
            request = kind.model_validate_json(content)
            assert kind.model_validate_json(request.model_dump_json().encode()) == request


@cache
def model_parts() -> Parts:
    with tempfile.TemporaryDirectory() as folder:
        model = random_translator(d_model=8, d_ff=8, n_heads=2, max_positions=16)
        return Parts.of(write_run(model, Path(folder, "run")).model_file)


def header(path: Path) -> None:
    """The content is the entry "nmt" of a model file, whose hashes are made valid."""
    text = path.read_bytes().decode(errors="replace")
    parts = model_parts()
    path.write_bytes(safetensors.torch.save(parts.tensors, {"nmt": text}))
    with suppress(ValueError, TypeError, KeyError):
        path.write_bytes(parts._replace(header=parse_json(text)).joined())
    read_checkpoint(path).model()


def marian(path: Path) -> None:
    """The content is that of four files, with % between them."""
    folder = path.parent
    contents = path.read_bytes().split(b"%")
    for name, content in zip(MARIAN_FILES, contents, strict=False):
        (folder / name).write_bytes(content)
    settings = read_settings(folder)
    of_tokenizer = read_json(folder / "tokenizer_config.json")
    source, target = read_sides(folder, settings, of_tokenizer)
    for side, n in ((source, settings.vocab_size), (target, settings.n_target)):
        n_pieces = len(side.pieces)
        assert n_pieces == len(set(side.pieces)) == len(side.rows), "a piece twice"
        assert set(side.rows) <= set(range(n))


def tokenizer(content: bytes) -> None:
    loaded = Tokenizer(content)
    for text in ("", "a  b", "我 x", "\0"):
        loaded.decode(loaded.encode(text))


def on_file(read: Callable[[Path], object], content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(content)
        read(path)


PARSERS: dict[str, Callable[[bytes], object]] = {
    **{suffix: partial(document, suffix) for suffix in GRAMMAR},
    "zip": partial(document, ".docx"),
    "html": partial(markup, HTML),
    "markdown": partial(markup, MARKDOWN),
    "config": partial(on_file, config),
    "glossary": partial(on_file, glossary),
    "header": partial(on_file, header),
    "entry": lambda content: checked_header({"nmt": content.decode(errors="replace")}),
    "archive": lambda content: unpacked(content, "x.zip", ["word/document.xml"]),
    "marian": partial(on_file, marian),
    "placeholders": placeholders,
    "request": requests,
    "tokenizer": tokenizer,
    "vocabulary": lambda content: "".join(vocabulary_of(content) or ()).encode(),
}


def outcome(read: Callable[[bytes], object], content: bytes) -> str:
    """`held` or `refused`; fails after another error than a refusal."""
    try:
        read(content)
    except (NmtError, ValidationError) as error:
        return "refused" if len(str(error)) < 5000 else "refused at length"
    return "held"


# --- inputs -----------------------------------------------------------------------------------------------


def grown(suffix: str, draw: random.Random, depth: int = 0) -> str:
    """A random text by a grammar."""

    def inner(_: re.Match[str]) -> str:
        if suffix == ".html" and depth < 6 and draw.random() < 0.5:
            return grown(suffix, draw, depth + 1)
        return str(draw.choice(HOSTILE["words"]))

    rule = draw.choice(GRAMMAR[suffix].split("|"))
    return re.sub(r"\{\}", inner, rule)


def grown_document(suffix: str, seed: int) -> bytes:
    """A random document; of those that are packed, the text."""
    draw = random.Random(seed)
    n_rules = 1 if suffix == ".json" else 4
    text = "".join(grown(suffix, draw) for _ in range(n_rules))
    return text.encode() if suffix in MEMBERS else packed(suffix, text)


SEEDS: dict[str, Callable[[], list[bytes]]] = {  # inputs of parsers that are neither grown nor in hostile.toml
    "html": lambda: seeds_of(".html"),
    "markdown": lambda: seeds_of(".md"),
    "header": lambda: [json.dumps(model_parts().header).encode()],
    "tokenizer": lambda: [model_parts().tensors["tokenizer.source"].numpy().tobytes()],
    "vocabulary": lambda: [with_vocabulary(b"abc", ["a", "b"])],
    "archive": lambda: [packed(".docx", "a" * 99, method) for method in (0, 8, 12, 14)],
    "zip": lambda: [packed(".docx", grown(".docx", random.Random(seed))) for seed in range(3)],
}


def seeds_of(name: str) -> list[bytes]:
    """Valid inputs."""
    if name in GRAMMAR:
        return [grown_document(name, seed) for seed in range(40)]
    if name in SEEDS:
        return SEEDS[name]()
    return [HOSTILE["seeds"][name].encode()]


def random_span(name: str, content: bytes, draw: random.Random) -> tuple[int, int]:
    """Where to change an input; of a document half of the time between tags and words, so that it stays valid."""
    if name in GRAMMAR and draw.random() < 0.5:
        edges = [edge.end() for edge in re.finditer(rb"[>\s]", content)]
        edges += [0, len(content)]
        start, end = sorted(draw.choices(edges, k=2))
        return draw.choice([start, end]), end
    start = draw.randrange(len(content) + 1)
    return start, start + draw.choice([0, 1, 4, 30])


def mutated(name: str, content: bytes, draw: random.Random) -> bytes:
    """Some parts removed, moved, repeated, or replaced by what parsers stumble over or what the grammar has."""
    for _ in range(draw.choice([1, 2, 5])):
        # The part is removed or repeated, or something else stands in its place.
        start, end = random_span(name, content, draw)
        repeated = content[start:end] * draw.choice([0, 2, 60])
        stumble = draw.choice(HOSTILE["stumbles"]).encode()
        parts = [repeated, stumble, stumble, 300 * stumble, content[:9], draw.randbytes(1)]
        if name in GRAMMAR:
            parts += 2 * [grown(name, draw).encode()]
        part = draw.choice(parts)
        content = content[:start] + part + content[end:]
    return content
