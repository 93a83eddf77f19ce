"""Translate a document; its suffix tells its format. If it is damaged, an error is raised and nothing is written."""

import contextlib
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from nmt.decode.segments import Translation
from nmt.decode.translator import Translator
from nmt.documents.html import HTML, Parser
from nmt.documents.markdown import MARKDOWN
from nmt.documents.markup import Format, MarkupTranslator, Part, sentences_of
from nmt.documents.ooxml import BOXES, PARAGRAPHS
from nmt.documents.subtitles import SRT, VTT
from nmt.documents.tables import JSON, PO
from nmt.errors import InputError, os_errors_as
from nmt.files import atomic_writer, read_capped

ZIPPED = (".docx", ".pptx")
# The members that have paragraphs. Comments and the layouts of slides are not the document's text.
MEMBERS = re.compile(
    r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml|ppt/(slides/slide|notesSlides/notesSlide)\d+\.xml"
    r"|(word|ppt)/(diagrams/(data|drawing)|charts/chart)\d+\.xml"
)
MAX_FILE_BYTES, MAX_UNPACKED_BYTES, MAX_TEXT_BYTES, MAX_MEMBERS = 200_000_000, 500_000_000, 20_000_000, 10_000
DAMAGES = (ValueError, zipfile.BadZipFile, EOFError, RuntimeError)  # and what members in other compressions raise:
DAMAGES += (zlib.error, lzma.LZMAError, OSError, NotImplementedError, struct.error)

Watch = Callable[[Iterable[Translation], int], Iterable[Translation]]


def translate_file(translator: Translator, source: Path, output: Path, *, watch: Watch, **arguments: Any) -> None:
    """Write the translation of a document. Raises InputError, and writes nothing, if it is damaged or too large.

    `watch` passes the translations on, whose number it is told; `arguments` are those of `Translator.translate_lines`.
    """
    suffix = source.suffix.lower()
    if output.suffix.lower() != suffix:
        raise InputError(f"{output} is not named as a {suffix} file", hint=f"-o {output.with_suffix(suffix)}")
    with os_errors_as(InputError, f"read {source}", hint="check the path, and that you may read it"):
        if output.exists() and output.samefile(source):
            raise InputError(f"{source} would be overwritten", hint="give another name after -o")
        content = read_capped(source, MAX_FILE_BYTES)
    with damages(source):
        infos, members = unzipped(content) if suffix in ZIPPED else ([], {"": content})
    texts = {
        name: decoded(source, name, data) for name, data in members.items() if not infos or MEMBERS.fullmatch(name)
    }
    with atomic_writer(output) as file:  # opened first: if it cannot be written, fail before translating
        for markup in FORMATS[suffix]:
            documents = []
            for name, text in texts.items():
                with damages(source, name):
                    documents.append(markup.parse(text))
            sentences = [sentence for parts in documents for sentence in sentences_of(parts)]
            found = watch(translator.translate_lines(sentences, **arguments), len(sentences)) if sentences else []
            written = MarkupTranslator(translator, markup).written(documents, (one.text for one in found))
            texts = dict(zip(texts, written, strict=True))
        members |= {name: text.encode() for name, text in texts.items()}
        file.write(zipped(infos, members) if infos else members[""])


@contextlib.contextmanager
def damages(source: Path, name: str = "") -> Iterator[None]:
    """Convert errors that a damaged document, or its member `name`, causes in a block, to InputError."""
    try:
        yield
    except DAMAGES as error:
        raise InputError(
            f"{source} is damaged: {name} {error}".replace("  ", " "), hint="save it anew from its own program"
        ) from error


def decoded(source: Path, name: str, content: bytes) -> str:
    """Return a text. Raises InputError if it is too large or not UTF-8."""
    if len(content) > MAX_TEXT_BYTES:
        raise InputError(f"{source} {name} has {len(content):,} bytes, over {MAX_TEXT_BYTES:,}", hint="split it")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        hint = "if it is text in another encoding: iconv -f ENCODING -t utf-8 FILE > NEW"
        raise InputError(f"{source} {name} is not UTF-8 at byte {error.start + 1}", hint=hint) from error


def unzipped(content: bytes) -> tuple[list[zipfile.ZipInfo], dict[str, bytes]]:
    """Return the members of a file. Raises one of `DAMAGES` if it cannot be read or is too large."""
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise ValueError("it has a password, or the format of Office 97")
    with zipfile.ZipFile(BytesIO(content)) as archive:
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS or sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
            raise ValueError(f"it has over {MAX_UNPACKED_BYTES:,} bytes unpacked, or {MAX_MEMBERS:,} members")
        members = {info.filename: archive.read(info) for info in infos}
    if len(members) < len(infos) or not any(map(MEMBERS.fullmatch, members)):
        raise ValueError("it has no text of Word or PowerPoint, or two texts of one name")
    return infos, members


def zipped(infos: list[zipfile.ZipInfo], members: dict[str, bytes]) -> bytes:
    """Return a zip file whose members have the old names, times and order."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for info in infos:
            archive.writestr(info, members[info.filename], info.compress_type)
    return file.getvalue()


def parse_lines(text: str) -> list[Part]:
    """Return the parts of plain text; each line is a paragraph."""
    lines = Parser()
    for line in re.split(r"(\r?\n)", text):
        lines.write(line, line)
        lines.finish()
    return lines.parts


TEXT, OOXML = [Format(parse_lines, str)], [BOXES, PARAGRAPHS]
FORMATS = {".docx": OOXML, ".htm": [HTML], ".html": [HTML], ".json": [JSON], ".md": [MARKDOWN], ".po": [PO]}
FORMATS |= {".pptx": OOXML, ".srt": [SRT], ".txt": TEXT, ".vtt": [VTT]}
