"""The translation of documents and folders. The suffix of a document determines its format."""

import logging
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.config import languages_of
from nmt.documents import BEGINNINGS, BILINGUAL, SUFFIXES, ZIPPED
from nmt.documents.direction import REDIRECTED, is_right_to_left
from nmt.documents.files import (
    FORMATS,
    MAX_FILE_BYTES,
    MAX_TEXT_BYTES,
    UNPACKED,
    damages,
    decoded,
    encoded,
    encoding_of,
    has_texts,
    unzipped,
    zipped,
)
from nmt.documents.html import escape_html
from nmt.documents.markup import Format, Part, Segment
from nmt.documents.ooxml import workbook_formats
from nmt.documents.tables import parse_csv, parse_string_catalog
from nmt.documents.xliff import TMX_DOUBTFUL, parse_tmx, with_target_language
from nmt.errors import InputError, NmtError, OutputError, os_errors_as
from nmt.files import atomic_writer, read_capped
from nmt.translate.confidence import find_doubts
from nmt.translate.markup import Translated, units_of, written
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit

log = logging.getLogger("nmt.texts")  # messages that quote users' texts; `nmt serve` disables this logger
TMX = """<?xml version="1.0" encoding="utf-8"?><tmx version="1.4"><header creationtool="nmt" creationtoolversion="1"
segtype="sentence" o-tmf="nmt" adminlang="en" srclang="{}" datatype="plaintext"/><body>"""

# A function that yields the translations that it gets, such as a progress bar.
# The second argument is the number of translations.
Watch = Callable[[Iterable[Translation], int], Iterable[Translation]]


def translate_path(translator: Translator, source: Path, output: Path, resume: bool = False, **arguments: Any) -> None:
    """Translate a document, or all documents below a folder into another folder; see `translate_file`.

    In a folder, `resume` skips documents with an up-to-date translation. After an error in a document, the others are
    still translated, and NmtError is raised at the end.
    """
    if not source.is_dir():
        translate_file(translator, source, output, **arguments)
        return
    # 1. Find the documents. The output folder may be below the source folder, so leave out what it contains.
    paths = [path for path in documents_below(source) if not path.resolve().is_relative_to(output.resolve())]
    if not paths:
        raise InputError(f"{source} has no documents outside of {output}", hint=f"they end in {', '.join(SUFFIXES)}")
    # 2. Translate each document. After an error, continue with the next document.
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
        except NmtError as error:
            log.error("%s; %s", error, error.hint)
            n_bad += 1
    # 3. Report the documents that were skipped or had an error.
    if n_skipped:
        log.info("%d of %d documents had been translated before", n_skipped, len(paths))
    if n_bad:
        raise NmtError(f"{n_bad} of {len(paths)} documents could not be translated", hint="see the errors above")


def documents_below(folder: Path) -> list[Path]:
    """Return the documents in a folder and its subfolders, sorted. Raises InputError if a folder cannot be read."""

    def refuse(error: OSError) -> None:
        raise InputError(
            f"cannot read {error.filename}: {error.strerror}", hint="check that you may read it, or move it away"
        ) from error

    paths: list[Path] = []
    for directory, _, names in os.walk(folder, onerror=refuse):
        # While a document is open, Office keeps a file beside it. The name of this file begins with ~$.
        paths += [Path(directory, name) for name in names if not name.startswith("~$")]
    return sorted(path for path in paths if path.is_file() and is_document(path))


def is_document(path: Path) -> bool:
    """Return whether a file has the suffix of a document, and begins as such if the suffix has other meanings, too."""
    suffix = path.suffix.lower()
    if suffix in BEGINNINGS:
        with os_errors_as(InputError, f"read {path}", hint="check that you may read it"), path.open("rb") as file:
            return BEGINNINGS[suffix] in file.read(10_000)
    return suffix in SUFFIXES


def translate_file(
    translator: Translator, source: Path, output: Path, *, watch: Watch, bilingual: bool = False, **arguments: Any
) -> None:
    """Translate the document `source`, and write the translated document to `output`.

    Args:
        watch: a function through which all translations pass, see `Watch`.
        bilingual: whether to write pairs of sentences instead of the document, see `as_pairs`.
        arguments: keyword arguments of `Translator.translate_lines`, and others of `DocumentTranslation`.
    Raises:
        InputError: the document is damaged or too large. Nothing is written.
    """
    suffix = source.suffix.lower()
    suffixes = (".tmx", ".tsv") if bilingual else (suffix,)
    # 1. Check the names of the files before anything is read or written.
    if output.is_dir():
        raise InputError(f"{output} is a folder", hint=f"-o {output}/NEW{suffixes[0]}")
    if output.suffix.lower() not in suffixes:
        raise InputError(
            f"{output} is not named as a {suffixes[0]} file",
            hint=f"-o NEW{suffixes[0]}; --bilingual writes .tmx or .tsv",
        )
    # 2. Read the document.
    with os_errors_as(InputError, f"read {source}", hint="check the path, and that you may read it"):
        if output.exists() and output.samefile(source):
            raise InputError(f"{source} would be overwritten", hint="give another name after -o")
        content = read_capped(source, MAX_FILE_BYTES)

    # 3. Open the output first. If this fails, no time was lost on the translation.
    with atomic_writer(output) as file:
        document = DocumentTranslation(translator, source, suffix, content, MAX_TEXT_BYTES, **arguments)
        if bilingual:
            for line in as_pairs(document, output, document.translations(watch)):
                file.write(f"{line}\n".encode())
            return
        n_texts = sum(1 for _ in document.translations(watch))  # `document` keeps the translations
        file.write(document.content())
    log.info("%s: texts translated: %d", source, n_texts)


def as_pairs(document: "DocumentTranslation", output: Path, translations: Iterable[Translation]) -> Iterator[str]:
    """Yield the lines of a file with sentences and their translations.

    The format is TMX 1.4, or columns if `output` ends in .tsv. With a minimum confidence, the translations to check are
    marked. A third column has the reasons.
    """
    sentences = chain.from_iterable(translation.parts for translation in translations)
    if output.suffix.lower() == ".tsv":
        for sentence in sentences:
            columns = [sentence.source, sentence.text]
            if document.min_confidence is not None:
                columns.append(", ".join(sentence.doubts or []))
            yield "\t".join(" ".join(text.split()) for text in columns)
        return
    source, target = (code or "und" for code in languages_of(document.translator.config.data))
    yield TMX.format(source)
    for sentence in sentences:
        old, new = escape_html(sentence.source), escape_html(sentence.text)
        state = TMX_DOUBTFUL if sentence.doubts else ""
        yield f'<tu><tuv xml:lang="{source}"><seg>{old}</seg></tuv>'
        yield f'<tuv xml:lang="{target}">{state}<seg>{new}</seg></tuv></tu>'
    yield "</body></tmx>"


def formats_of(suffix: str, translator: Translator, title: object, column: str, into: str) -> list[Format]:
    """Return the formats with which a document is translated; see `DocumentTranslation`.

    Raises InputError if the format needs the languages of the model, and the model does not name them.
    """
    if suffix in FORMATS:
        return FORMATS[suffix]
    if suffix in (".csv", ".tsv"):
        parse = partial(parse_csv, column=column, title=title, into=into, is_tsv=suffix == ".tsv")
        return [Format(parse, str, protects=True)]
    source, target = languages_of(translator.config.data)
    if not (source and target):
        raise InputError(
            "the model does not name its languages", hint="train it with data.source_lang and data.target_lang"
        )
    if suffix == ".xcstrings":
        return [Format(partial(parse_string_catalog, target=target), str, protects=True)]
    return [Format(partial(parse_tmx, source=source, target=target), escape_html, protects=True)]


class DocumentTranslation:
    """The translation of a document: `translations` translates all units, then `content` returns the new document.

    To do other work during the translation, set `nmt.documents.markup.between_segments`.
    """

    def __init__(
        self,
        translator: Translator,
        title: object,
        suffix: str,
        content: bytes,
        max_text: int,
        column: str = "",
        into: str = "",
        min_confidence: float | None = None,
        **arguments: Any,
    ) -> None:
        """Read a document.

        Args:
            title: the name of the document in messages.
            max_text: maximum size of all texts of the document, in bytes.
            column: the name of the column to translate in a CSV or TSV file.
            into: the name of the column that gets the translations, see `parse_csv`.
            min_confidence: the lowest confidence of a translation that needs no check, see `find_doubts`. It needs
                the option `scores`.
            arguments: keyword arguments of `Translator.translate_lines`.
        Raises:
            InputError: the document is damaged or too large.
        """
        self.translator = translator
        self.title = title
        self.suffix = suffix
        self.into = into
        self.min_confidence = min_confidence
        self.arguments = arguments
        self.formats = formats_of(suffix, translator, title, column, into)

        # A document that is not an archive has one text, whose name is empty.
        self.infos: list[zipfile.ZipInfo] = []
        self.members = {"": content}
        names = [""]
        if suffix in ZIPPED:
            with damages(title):
                self.infos, self.members = unzipped(content, UNPACKED * max_text)
            names = [name for name, member in self.members.items() if has_texts(name, member)]
        # Check the unpacked size, because a small archive can contain a huge text.
        n_bytes = sum(len(self.members[name]) for name in names)
        if n_bytes > max_text:
            raise InputError(f"{title} has {n_bytes:,} bytes of text, over {max_text:,}", hint="split it")
        self.encoding = encoding_of(suffix, content)
        self.texts = {name: decoded(title, name, self.members[name], self.encoding) for name in names}
        if suffix == ".xlsx":
            self.formats = workbook_formats(self.members)
        if suffix in (".xlf", ".xliff"):
            _, target = languages_of(translator.config.data)
            self.texts[""] = with_target_language(self.texts[""], target)

    def translations(self, watch: Watch = lambda translations, _: translations) -> Iterator[Translation]:
        """Translate all units, and yield the translation of each unit. All translations pass through `watch`.

        Raises InputError if a text of the document is damaged.
        """
        sources: list[str] = []
        targets: list[Translated] = []
        for markup in self.formats:
            # 1. Read the units of all texts.
            documents: dict[str, list[Part]] = {}
            units: list[Unit] = []
            for name, text in self.texts.items():
                with damages(self.title, name):
                    documents[name] = markup.parse(text)
                units += self.units_of(documents[name], markup, len(units) + 1)
            # 2. Translate the units of all texts together.
            arguments = dict(self.arguments)
            if markup.protects:
                options = arguments.get("options") or self.translator.options
                arguments["options"] = options.changed(protect_placeholders=True)
            n_before = len(targets)
            if units:
                for translation in watch(self.translator.translate_lines(units, **arguments), len(units)):
                    find_doubts(self.translator, translation, self.min_confidence, f"{self.title}: text")
                    sources.append(translation.source)
                    targets.append(Translated(translation.text, translation.doubts, translation.matches))
                    yield translation
            # 3. Write the translations into the texts, and free the units. The next format parses the new texts.
            units.clear()
            remaining = iter(targets[n_before:])
            for name in list(documents):
                text = written(documents.pop(name), remaining)
                self.texts[name], faults = markup.review(self.texts[name], text)
                for fault in faults:
                    log.warning("%s: %s", self.title, fault)
        # 4. Refuse a document without text, such as scanned pages. In a bilingual file, all targets may be finished.
        if not (sources or self.into or self.suffix in BILINGUAL):
            raise InputError(f"{self.title} has no text to translate", hint="check that it is the right document")
        # 5. Change the direction of the texts if the translation runs in another one.
        redirected = REDIRECTED.get(self.suffix)
        is_reverse = is_right_to_left("".join(target.text for target in targets))
        if redirected and is_reverse != is_right_to_left("".join(sources)):
            direction = "rtl" if is_reverse else "ltr"
            self.texts = {name: redirected(text, direction) for name, text in self.texts.items()}

    def units_of(self, parts: Sequence[Part], markup: Format, first: int) -> list[Unit]:
        """Return the units of a text, numbered from `first`. In plain text, the number of a unit is its line number.

        Random seeds and messages depend on this number. With it, a document is translated as the same lines are.
        """
        units = []
        number = first
        for part in parts:
            if isinstance(part, Segment):
                units += units_of([part], markup, number)
                if self.suffix != ".txt":
                    number += 1
            # In plain text, the parts between the units contain the line ends.
            elif self.suffix == ".txt":
                number += part.count("\n")
        return units

    def content(self) -> bytes:
        """Return the content of the new document. All units must have been translated."""
        members = {name: encoded(text, self.encoding, self.suffix) for name, text in self.texts.items()}
        return zipped(self.infos, self.members | members) if self.infos else members[""]
