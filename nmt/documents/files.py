"""Files of documents: the format of each suffix, and the members of ZIP archives."""

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
from nmt.documents.po import PO
from nmt.documents.subtitles import SRT, VTT
from nmt.documents.tables import JSON
from nmt.documents.xliff import XLIFF
from nmt.errors import InputError
from nmt.files import check_deflated

# The names of archive members that contain paragraphs. Comments and slide layouts are not translated.
MEMBERS = re.compile(
    r"word/(document\d*|header\d*|footer\d*|footnotes|endnotes)\.xml|ppt/(slides/slide|notesSlides/notesSlide)\d+\.xml"
    r"|(word|ppt)/(diagrams/(data|drawing)|charts/chart)\d+\.xml"
)
# Maximum size of a document and of its texts, in bytes, and maximum number of archive members.
MAX_FILE_BYTES, MAX_TEXT_BYTES, MAX_MEMBERS = 200_000_000, 20_000_000, 10_000
UNPACKED = 25  # maximum size of all unpacked members together, as a multiple of the maximum size of texts
OFFICE_97 = b"\xd0\xcf\x11\xe0"  # the first bytes of files of Office 97 and of encrypted Office files
# The exceptions that parsers and zipfile raise for damaged documents.
DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, OverflowError, ValueError, EOFError, OSError, RuntimeError)


@contextlib.contextmanager
def damages(title: object, name: str = "") -> Iterator[None]:
    """Convert errors of reading a damaged document to InputError.

    `title` is the name of the document. `name` is the member of an archive.
    """
    try:
        yield
    except DAMAGES as error:
        reason = f"{title} is damaged: {name} {error}".replace("  ", " ")
        raise InputError(reason, hint="save it anew from its own program") from error


def decoded(title: object, name: str, content: bytes) -> str:
    """Decode the content of a document, or of its member `name`. Raises InputError if the content is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        hint = "if it is text in another encoding: iconv -f ENCODING -t utf-8 FILE > NEW"
        where = f"{title} {name}".rstrip()
        raise InputError(f"{where} is not UTF-8 at byte {error.start + 1}", hint=hint) from error


def unzipped(content: bytes, max_bytes: int) -> tuple[list[zipfile.ZipInfo], dict[str, bytes]]:
    """Return the descriptions of the members of a ZIP file, and their contents by name.

    Raises one of `DAMAGES` if the file is damaged, or if the members are too large or too many.
    """
    if content.startswith(OFFICE_97):
        raise ValueError("it has a password, or the format of Office 97")
    with zipfile.ZipFile(BytesIO(content)) as archive:
        # Check the sizes in the archive's directory before unpacking. No member is read beyond its size.
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS or sum(info.file_size for info in infos) > max_bytes:
            raise ValueError(f"it has over {max_bytes:,} bytes unpacked, or {MAX_MEMBERS:,} members")
        check_deflated(archive)
        members = {info.filename: archive.open(info).read(info.file_size) for info in infos}
    # Refuse two members with the same name. Some programs read the first of them, others the second.
    if len(members) < len(infos) or not any(map(MEMBERS.fullmatch, members)):
        raise ValueError("it has no text of Word or PowerPoint, or two texts of one name")
    return infos, members


def zipped(infos: list[zipfile.ZipInfo], members: dict[str, bytes]) -> bytes:
    """Return a ZIP file with these members. `infos` gives their names, times and order."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for info in infos:
            archive.writestr(info, members[info.filename], info.compress_type)
    return file.getvalue()


def parse_lines(text: str) -> list[Part]:
    """Return the parts of a plain text. Each line is a paragraph."""
    parser = Parser()
    # The list contains lines and line ends. The parser copies line ends, because they have no letters.
    for line in re.split(r"(\A\ufeff|\r?\n)", text):
        parser.write(line, line)
        parser.finish()
    return parser.parts


# A document is translated with the formats of its suffix, one after the other. Word and PowerPoint have two formats,
# because a paragraph may contain a text box with paragraphs.
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
