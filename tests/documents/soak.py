"""Translate folders of real documents by two translators without a model, and look for what was lost or moved.

    pip install cmarkgfm html5lib lxml polib pysubs2
    PYTHONPATH=.:tests python tests/documents/soak.py ~/documents [--suffix .docx .odt]

One translator returns its input, and links each word to itself. The text, the format of each letter, the tags with
their attributes and the members of an archive have to be equal then, but for white space at tags. The other one returns
the words of each sentence in reverse order, and links each word to itself, too. Tags, numbers, placeholders and code
have to be the same ones then, in any order. Other programs' libraries read the documents. Each document that is refused
or has a fault is a line, with the first difference. A table of the formats comes last.
"""

import argparse
import json
import logging
import re
import signal
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import cmarkgfm
import html5lib
import polib
import pysubs2
from cmarkgfm.cmark import Options
from echo import echo_file
from lxml import etree

from nmt.errors import NmtError
from nmt.text.spans import indices_between
from nmt.translate.placement import TaggedPair, word_spans

PATIENCE_S = 120  # CPU time for one document and one translator
XML = etree.XMLParser(recover=True, resolve_entities=False, huge_tree=True)
WIDE_SPACE = re.compile(r"(?<=[\u2e80-\uffef])\s+|\s+(?=[\u2e80-\uffef])")  # beside Chinese letters and the like
KEPT = re.compile(r"\d+|%[sd]|\{\w+\}")  # numbers and placeholders
CODE = ("code", "kbd", "pre", "samp")
OFFICE = re.compile(r"\{.*(?:wordprocessingml|drawingml|spreadsheetml)/.*\}")
# Elements that mean a character.
SIGNS = {
    "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}noBreakHyphen": "-",
    "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}s": " ",
}
# What a translation does not keep: languages, marks of the spelling checker and of pages, and states of XLIFF.
DROPPED = ("proofErr", "lastRenderedPageBreak", "softHyphen", "rPr")
INVISIBLE = ("lang", "altLang", "noProof", "dirty", "err", "smtClean", "hint", "space", "state")
UNFINISHED = ("new", "initial", "needs-translation")


class Item(NamedTuple):
    """A text in one format, or a tag with its attributes, which has no text."""

    name: str
    text: str = ""


class DifferenceError(Exception):
    """What is wrong with a translated document."""


# --- readers ----------------------------------------------------------------------------------------------


def local_name(name: object) -> str:
    """Return a name without its namespace."""
    return str(name).rpartition("}")[2]


def spaced(text: str) -> str:
    """Write one space for all white space between two words."""
    return " ".join(text.split())


def tag_of(node: Any) -> str:
    """Return the name of an element with its visible attributes."""
    attributes = [item for item in sorted(node.items()) if local_name(item[0]) not in INVISIBLE]
    return f"{local_name(node.tag)} {attributes}"


def look_of(run: Any) -> str:
    """Return the visible properties of a run of Office."""
    look = "run"
    for properties in run.iterfind("{*}rPr"):
        for node in properties.iter():
            tag = tag_of(node)
            if tag not in ("rPr []", "rFonts []") and local_name(node.tag) not in INVISIBLE:
                look += f" {tag}"
    return look


def xml_items(node: Any, look: str = "text") -> Iterator[Item]:
    """Yield the content of an element. `look` is the format of the text around it."""
    office = OFFICE.match(str(node.tag))
    name = local_name(node.tag)
    if office and name in DROPPED:
        return
    if node.tag in SIGNS:
        yield Item(look, SIGNS[node.tag])
        return
    if name in CODE:
        yield Item(f"<{name}> {spaced(''.join(node.itertext()))}")
        return
    if office and name == "r":
        look = look_of(node)
    # Runs and texts of Office are not compared, as they may be divided. Other elements have no white space in Office.
    is_shown = not (office and name in ("r", "t"))
    if is_shown:
        yield Item(f"<{tag_of(node)}> {look}")
    text = node.text or ""
    if not office or name == "t" or text.strip():
        yield Item(look, text)
    for child in node:
        yield from xml_items(child, look)
        if not office:
            yield Item(look, child.tail or "")
    if is_shown:
        yield Item(f"</{name}>")


def read_xml(content: bytes) -> Iterator[Item]:
    yield from xml_items(etree.fromstring(content or b"<empty/>", XML))


def read_html(content: bytes) -> Iterator[Item]:
    yield from xml_items(html5lib.parse(content, namespaceHTMLElements=False))


def read_markdown(content: bytes) -> Iterator[Item]:
    page = cmarkgfm.github_flavored_markdown_to_html(content.decode(), Options.CMARK_OPT_UNSAFE)
    yield from read_html(page.encode("utf-8-sig"))


def read_archive(content: bytes) -> Iterator[Item]:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        for name in archive.namelist():
            member = archive.read(name)
            yield Item(name)
            if name.endswith(("html", ".ncx", ".xml")):
                yield from read_xml(member)
            else:
                yield Item(f"{hash(member)}")


def read_subtitles(content: bytes) -> Iterator[Item]:
    for event in pysubs2.SSAFile.from_string(content.decode("utf-8-sig")):
        yield Item(f"{event.start} {event.end}")
        yield Item("text", event.text.replace(r"\N", "\n"))


def read_po(content: bytes) -> Iterator[Item]:
    """Yield each message, and its translation, or its source if there is none yet."""
    for entry in polib.pofile(content.decode()):
        yield Item(f"{entry.msgctxt} {entry.msgid} {entry.flags} {entry.comment}")
        is_finished = entry.msgstr and not entry.fuzzy
        yield Item("text", entry.msgstr if is_finished else entry.msgid)


def read_xliff(content: bytes) -> Iterator[Item]:
    """Yield each target, or its source if there is none yet, then all else."""
    root = etree.fromstring(content, XML)
    for unit in root.iter("{*}trans-unit", "{*}segment"):
        texts = {local_name(child.tag): child for child in unit}
        target = texts.get("target")
        shown = texts.get("seg-source", texts["source"])
        if target is not None:
            if "".join(target.itertext()).strip() and target.get("state") not in UNFINISHED:
                shown = target
            unit.remove(target)
        yield from list(xml_items(shown))[1:-1]
    yield from xml_items(root)


def read_json(content: bytes) -> Iterator[Item]:
    """Yield each value. Its name is the path to it: the keys and indices of the objects and lists around it."""
    values = [("", json.loads(content))]
    for name, value in values:  # the list grows
        if isinstance(value, str):
            yield Item(f"text{name}", value)
        elif isinstance(value, dict):
            values += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            values += [(f"{name}.{i}", inner) for i, inner in enumerate(value)]
        else:
            yield Item(f"{name} {value}")


Reader = Callable[[bytes], Iterator[Item]]
READERS: dict[str, Reader] = {".htm": read_html, ".html": read_html, ".md": read_markdown, ".po": read_po}
READERS |= {".arb": read_json, ".json": read_json}
READERS |= {".srt": read_subtitles, ".vtt": read_subtitles, ".xlf": read_xliff, ".xliff": read_xliff}
READERS |= dict.fromkeys((".docx", ".epub", ".odp", ".ods", ".odt", ".pptx", ".xlsx"), read_archive)


# --- comparisons ------------------------------------------------------------------------------------------


def in_one_form(items: Iterable[Item]) -> list[Item]:
    """Join texts in one format. White space looks the same in any format, and does not count at tags."""
    joined = [Item("")]
    for name, text in items:
        last = joined[-1]
        if last.text and text and (name == last.name or text.isspace()):
            joined[-1] = Item(last.name, last.text + text)
        elif text.strip() or not (text or name.startswith(("text", "run"))):
            joined.append(Item(name, text))
    return [Item(name, spaced(WIDE_SPACE.sub("", text))) for name, text in joined]


def compare_equal(old: Iterable[Item], new: Iterable[Item]) -> None:
    """Raise DifferenceError if the items differ."""
    for items in zip_longest(in_one_form(old), in_one_form(new)):
        before, after = map(str, items)
        if before != after:
            raise DifferenceError(f"{before:.250} became {after:.250}")


def kept(items: Iterable[Item]) -> Counter[str]:
    """Count what any translation keeps: tags, with the text of code, numbers and placeholders."""
    counts = Counter[str]()
    for name, text in in_one_form(items):
        counts.update(KEPT.findall(text) if text else [name])
    return counts


def compare_kept(old: Iterable[Item], new: Iterable[Item]) -> None:
    """Raise DifferenceError if anything that a translation keeps is lost or added."""
    before, after = kept(old), kept(new)
    if before != after:
        raise DifferenceError(f"lost {before - after!s:.200}, added {after - before!s:.200}")


# --- translators ------------------------------------------------------------------------------------------


def reverse(text: str) -> str:
    """Return the words of a sentence in reverse order."""
    words = [text[start:end] for start, end in word_spans(text)]
    return " ".join(reversed(words))


def in_reverse(_engine: object, _tokenizers: object, pairs: Iterable[TaggedPair]) -> None:
    """Stand in for `align_words`: link each source word to the target word at its place from the end."""
    for pair in pairs:
        for source_span, target_span in pair.sentences:
            words = indices_between(pair.whole_words, *source_span)
            targets = indices_between(pair.target_words, *target_span)
            # Elements cut source words into parts, which are all linked to the word.
            for word, t in zip(reversed(words), targets, strict=False):
                parts = indices_between(pair.source_words, *pair.whole_words[word])
                pair.links += [(s, t) for s in parts]
                pair.shares[t] = dict.fromkeys(parts, 1 / len(parts))


def identical(source: Path, output: Path) -> None:
    echo_file(source, output, str)


def reversed_words(source: Path, output: Path) -> None:
    with mock.patch("nmt.translate.tags.align_words", in_reverse):
        echo_file.__wrapped__(source, output, reverse)  # type: ignore[attr-defined]


TRANSLATORS = {"identity": (identical, compare_equal), "reversal": (reversed_words, compare_kept)}


def give_up(_signal: int, _frame: object) -> None:
    raise DifferenceError(f"it takes over {PATIENCE_S} s")


def soak(path: Path, output: Path) -> Iterator[str]:
    """Translate and compare one document. Yields what happened, for the columns of the table."""
    yield "files"
    read = READERS[path.suffix.lower()]
    for name, (translate, compare) in TRANSLATORS.items():
        signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
        try:
            translate(path, output)
            compare(read(path.read_bytes()), read(output.read_bytes()))
        except NmtError as error:
            print(f"refused: {error}", flush=True)
            yield "refused"
            break
        except Exception as error:
            print(f"{name}: {path}: {error!r:.600}", flush=True)
            yield name
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with documents of the formats in the table")
    parser.add_argument("--suffix", nargs="*", default=list(READERS), help="only documents with these suffixes")
    arguments = parser.parse_args()
    logging.disable()
    signal.signal(signal.SIGPROF, give_up)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        for documents in arguments.folders:
            for path in sorted(documents.rglob("*")):
                suffix = path.suffix.lower()
                if suffix in arguments.suffix and path.is_file():
                    counts[suffix].update(soak(path, Path(folder, f"new{suffix}")))
    columns = ("files", "refused", *TRANSLATORS)
    print("faults of", *columns, sep="\t")
    for suffix, row in counts.items():
        print(suffix, *(row[column] for column in columns), sep="\t")


if __name__ == "__main__":
    main()
