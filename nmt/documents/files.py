"""Files of documents: the format of each suffix, and the texts inside of a ZIP archive."""

import contextlib
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO

from nmt.documents.html import HTML, Parser
from nmt.documents.markdown import MARKDOWN
from nmt.documents.markup import Format, Part
from nmt.documents.ooxml import BOXES, PARAGRAPHS
from nmt.documents.subtitles import SRT, VTT
from nmt.documents.tables import JSON, PO
from nmt.documents.xliff import XLIFF
from nmt.errors import InputError
from nmt.files import check_deflated

# The members that have paragraphs. Comments and the layouts of slides are not the document's text.
MEMBERS = re.compile(
    r"word/(document\d*|header\d*|footer\d*|footnotes|endnotes)\.xml|ppt/(slides/slide|notesSlides/notesSlide)\d+\.xml"
    r"|(word|ppt)/(diagrams/(data|drawing)|charts/chart)\d+\.xml"
)
# Limits of a document, of its texts, and of the members of an archive.
MAX_FILE_BYTES, MAX_TEXT_BYTES, MAX_MEMBERS = 200_000_000, 20_000_000, 10_000
UNPACKED = 25  # all members together may have so many times the bytes of texts
OFFICE_97 = b"\xd0\xcf\x11\xe0"  # how files of Office 97 begin, and encrypted files
# What parsers and zipfile raise for damaged documents.
DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, OverflowError, ValueError, EOFError, OSError, RuntimeError)


@contextlib.contextmanager
def damages(title: object, name: str = "") -> Iterator[None]:
    """Convert errors that a damaged document, or its member `name`, causes in a block, to InputError."""
    try:
        yield
    except DAMAGES as error:
        reason = f"{title} is damaged: {name} {error}".replace("  ", " ")
        raise InputError(reason, hint="save it anew from its own program") from error


def decoded(title: object, name: str, content: bytes) -> str:
    """Return the text of a document, or of its member `name`. Raises InputError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        hint = "if it is text in another encoding: iconv -f ENCODING -t utf-8 FILE > NEW"
        where = f"{title} {name}".rstrip()
        raise InputError(f"{where} is not UTF-8 at byte {error.start + 1}", hint=hint) from error


def unzipped(content: bytes, max_bytes: int) -> tuple[list[zipfile.ZipInfo], dict[str, bytes]]:
    """Return the members of a file. Raises one of `DAMAGES` if it cannot be read or is too large."""
    if content.startswith(OFFICE_97):
        raise ValueError("it has a password, or the format of Office 97")
    with zipfile.ZipFile(BytesIO(content)) as archive:
        # The sizes that the archive claims are checked before it is unpacked, and limit what is read.
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS or sum(info.file_size for info in infos) > max_bytes:
            raise ValueError(f"it has over {max_bytes:,} bytes unpacked, or {MAX_MEMBERS:,} members")
        check_deflated(archive)
        members = {info.filename: archive.open(info).read(info.file_size) for info in infos}
    # Of two members of one name, programs may read either.
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
    parser = Parser()
    # Line ends are items, too, and are copied: they have no letters.
    for line in re.split(r"(\A\ufeff|\r?\n)", text):
        parser.write(line, line)
        parser.finish()
    return parser.parts


# The formats of a suffix are applied one after the other: a paragraph of Word may contain a box with paragraphs.
OOXML = [BOXES, PARAGRAPHS]
FORMATS = {
    ".docx": OOXML,
    ".htm": [HTML],
    ".html": [HTML],
    ".json": [JSON],
    ".md": [MARKDOWN],
    ".po": [PO],
    ".pptx": OOXML,
    ".srt": [SRT],
    ".txt": [Format(parse_lines, str)],
    ".vtt": [VTT],
    ".xlf": [XLIFF],
    ".xliff": [XLIFF],
}
