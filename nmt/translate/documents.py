"""Translate a document; its suffix tells its format. If it is damaged, an error is raised and nothing is written."""

import logging
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.config import language
from nmt.documents import SUFFIXES, ZIPPED
from nmt.documents.files import (
    FORMATS,
    MAX_FILE_BYTES,
    MAX_TEXT_BYTES,
    MEMBERS,
    UNPACKED,
    damages,
    decoded,
    unzipped,
    zipped,
)
from nmt.documents.markup import Format, Part, Segment
from nmt.documents.tables import parse_csv
from nmt.errors import InputError, NmtError, OutputError, os_errors_as
from nmt.files import atomic_writer, read_capped
from nmt.translate.markup import units_of, written
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit

log = logging.getLogger("nmt")
TMX = """<?xml version="1.0" encoding="utf-8"?><tmx version="1.4"><header creationtool="nmt" creationtoolversion="1"
segtype="sentence" o-tmf="nmt" adminlang="en" srclang="{}" datatype="plaintext"/><body>"""
NOT_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML cannot have

Watch = Callable[[Iterable[Translation], int], Iterable[Translation]]


def translate_path(translator: Translator, source: Path, output: Path, resume: bool = False, **arguments: Any) -> None:
    """Translate a document, or the documents in a folder and below into another; see `translate_file`.

    A bad one is logged. With `resume`, those with a newer translation are skipped. Raises NmtError if any was bad.
    """
    if not source.is_dir():
        translate_file(translator, source, output, **arguments)
        return
    # 1. What an earlier run has written into a folder below the source is not translated again.
    paths = [path for path in documents_below(source) if not path.resolve().is_relative_to(output.resolve())]
    if not paths:
        raise InputError(f"{source} has no documents outside of {output}", hint=f"they end in {', '.join(SUFFIXES)}")
    # 2. A bad document does not keep the others from being translated.
    n_bad = n_skipped = 0
    for path in paths:
        new = output / path.relative_to(source)
        if resume and new.exists() and new.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            n_skipped += 1
            continue
        with os_errors_as(OutputError, f"make {new.parent}", hint="check that you may write there"):
            new.parent.mkdir(parents=True, exist_ok=True)
        try:
            translate_file(translator, path, new, **arguments)
            log.info("written to %s", new)
        except InputError as error:
            log.error("%s; %s", error, error.hint)
            n_bad += 1
    # 3. Tell what was left out.
    if n_skipped:
        log.info("%d of %d documents had been translated before", n_skipped, len(paths))
    if n_bad:
        raise NmtError(f"{n_bad} of {len(paths)} documents could not be translated", hint="see the errors above")


def documents_below(folder: Path) -> list[Path]:
    """The documents in a folder and below, sorted. Raises InputError if one of its folders cannot be read."""

    def refuse(error: OSError) -> None:
        hint = "check that you may read it, or move it away"
        raise InputError(f"cannot read {error.filename}: {error.strerror}", hint=hint) from error

    paths = []
    for directory, _, names in os.walk(folder, onerror=refuse):
        for name in names:
            path = Path(directory, name)
            is_lock = name.startswith("~$")  # of an open Office document
            if path.suffix.lower() in SUFFIXES and path.is_file() and not is_lock:
                paths.append(path)
    return sorted(paths)


def translate_file(
    translator: Translator, source: Path, output: Path, *, watch: Watch, bilingual: bool = False, **arguments: Any
) -> None:
    """Write the translation of a document. Raises InputError, and writes nothing, if it is damaged or too large.

    `watch(translations, n)` passes on the n translations, as a progress bar does; `arguments` are those of
    `Translator.translate_lines`. With `bilingual`, pairs of sentences are written instead, see `as_pairs`.
    """
    suffix = source.suffix.lower()
    suffixes = (".tmx", ".tsv") if bilingual else (suffix,)
    # 1. Check the names, before anything is read or written.
    if output.is_dir():
        raise InputError(f"{output} is a folder", hint=f"-o {output / source.with_suffix(suffixes[0]).name}")
    if output.suffix.lower() not in suffixes:
        raise InputError(f"{output} is not named as a {suffixes[0]} file", hint=f"-o {output.with_suffix(suffixes[0])}")
    # 2. Read the document.
    with os_errors_as(InputError, f"read {source}", hint="check the path, and that you may read it"):
        if output.exists() and output.samefile(source):
            raise InputError(f"{source} would be overwritten", hint="give another name after -o")
        content = read_capped(source, MAX_FILE_BYTES)
    # 3. Translate it. The output is opened first: if it cannot be written, that is known before the work.
    with atomic_writer(output) as file:
        document = DocumentTranslation(translator, source, suffix, content, MAX_TEXT_BYTES, **arguments)
        if bilingual:
            lines = as_pairs(translator, output, document.translations(watch))
            file.write("".join(f"{line}\n" for line in lines).encode())
            return
        for _ in document.translations(watch):
            pass  # the document keeps it
        file.write(document.content())


def as_pairs(translator: Translator, output: Path, translations: Iterable[Translation]) -> Iterator[str]:
    """The lines of a file with sentences and their translations, by its suffix: TMX 1.4 or two columns."""
    pairs = list(chain.from_iterable(translation.sentence_pairs for translation in translations))
    if output.suffix.lower() == ".tsv":
        for pair in pairs:
            yield "\t".join(" ".join(text.split()) for text in pair)
        return
    source, target = (language(translator.config.data, side) or "und" for side in ("source", "target"))
    # In XML, some characters are escaped and others cannot be.
    yield TMX.format(source)
    for pair in pairs:
        old, new = (escape(NOT_XML.sub("", text), quote=False) for text in pair)
        yield f'<tu><tuv xml:lang="{source}"><seg>{old}</seg></tuv><tuv xml:lang="{target}"><seg>{new}</seg></tuv></tu>'
    yield "</body></tmx>"


class DocumentTranslation:
    """The translation of a document: first all of its units, then its content.

    See `between_segments` for callers with other work to do meanwhile.
    """

    def __init__(
        self,
        translator: Translator,
        title: object,
        suffix: str,
        content: bytes,
        max_text: int,
        column: str = "",
        **arguments: Any,
    ) -> None:
        """Read a document.

        Args:
            title: names the document in messages.
            max_text: limit of the bytes of its texts.
            column: the name or number of a CSV file's column.
            arguments: those of `Translator.translate_lines`.
        Raises:
            InputError: it is damaged or too large.
        """
        self.translator = translator
        self.title = title
        self.suffix = suffix
        self.arguments = arguments
        csv = Format(partial(parse_csv, column=column, title=title), str)
        self.formats = [csv] if suffix == ".csv" else FORMATS[suffix]

        # A document of one file has one text, which has no name.
        self.infos: list[zipfile.ZipInfo] = []
        self.members = {"": content}
        names = [""]
        if suffix in ZIPPED:
            with damages(title):
                self.infos, self.members = unzipped(content, UNPACKED * max_text)
            names = [name for name in self.members if MEMBERS.fullmatch(name)]
        # A small archive can hold a huge text.
        n_bytes = sum(len(self.members[name]) for name in names)
        if n_bytes > max_text:
            raise InputError(f"{title} has {n_bytes:,} bytes of text, over {max_text:,}", hint="split it")
        self.texts = {name: decoded(title, name, self.members[name]) for name in names}

    def translations(self, watch: Watch = lambda translations, _: translations) -> Iterator[Translation]:
        """Translate and yield each unit; `watch` is as in `translate_file`. Raises InputError if one is damaged."""
        for markup in self.formats:
            # 1. Read the units of all texts.
            documents: dict[str, list[Part]] = {}
            units: list[Unit] = []
            for name, text in self.texts.items():
                with damages(self.title, name):
                    documents[name] = markup.parse(text)
                units += self.units_of(documents[name], markup, len(units) + 1)
            # 2. Translate them.
            translations: list[Translation] = []
            if units:
                for translation in watch(self.translator.translate_lines(units, **self.arguments), len(units)):
                    translations.append(translation)
                    yield translation
            # 3. Write them. The next format reads what this one has written.
            start = 0
            for name, parts in documents.items():
                end = start + sum(isinstance(part, Segment) for part in parts)
                self.texts[name] = written(parts, translations[start:end])
                start = end

    def units_of(self, parts: Sequence[Part], markup: Format, first: int) -> list[Unit]:
        """Return the units of a text, numbered from `first`; those of plain text have the numbers of their lines.

        So seeds and messages of plain text are those of the lines of a file.
        """
        units = []
        number = first
        for part in parts:
            if isinstance(part, Segment):
                units += units_of([part], markup, number)
            # The line ends of plain text are between its units.
            if self.suffix == ".txt":
                number += part.count("\n") if isinstance(part, str) else 0
            else:
                number = first + len(units)
        return units

    def content(self) -> bytes:
        """Return the new document, once all units are translated."""
        members = {name: text.encode() for name, text in self.texts.items()}
        return zipped(self.infos, self.members | members) if self.infos else members[""]
