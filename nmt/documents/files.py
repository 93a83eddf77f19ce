"""Files of documents: the format of each suffix, and the members of ZIP archives."""

import codecs
import contextlib
import json
import re
import zipfile
from collections.abc import Iterator
from io import BytesIO

from nmt.documents.epub import EPUB
from nmt.documents.html import HTML, Parser
from nmt.documents.markdown import MARKDOWN
from nmt.documents.markup import Format, Part
from nmt.documents.odf import ODF
from nmt.documents.ooxml import OOXML
from nmt.documents.po import PO
from nmt.documents.resources import FLUENT, PROPERTIES, STRINGS
from nmt.documents.subtitles import SRT, VTT
from nmt.documents.tables import JSON
from nmt.documents.xliff import XLIFF
from nmt.documents.xml_strings import ANDROID, QT, RESX, STRINGSDICT
from nmt.errors import InputError
from nmt.files import ZIP_ERRORS, check_deflated

# The names of archive members that contain text. Comments and slide layouts are not translated.
WORD = r"word/(?:document|header|footer|footnotes|endnotes)[^/]*\.xml"
GRAPHICS = r"(?:word|ppt|xl)/(?:diagrams/(?:data|drawing)|charts/chart|drawings/drawing)[^/]*\.xml"
OFFICE = rf"{WORD}|ppt/(?:slides|notesSlides)/[^/]+\.xml|xl/(?:sharedStrings\.xml|worksheets/[^/]+\.xml)|{GRAPHICS}"
OPEN_DOCUMENT = r"(?:Object [^/]+/)?(?:content|styles)\.xml"  # a chart is an object
BOOK = r"(?!META-INF/|word/|ppt/|xl/).+\.(?:x?html?|ncx)|(?:EPUB|OEBPS|OPS)/.+\.xml"
MEMBERS = re.compile(rf"{OFFICE}|{OPEN_DOCUMENT}|{BOOK}", re.IGNORECASE)
# Maximum size of a document and of its texts, in bytes, and maximum number of archive members.
MAX_FILE_BYTES, MAX_TEXT_BYTES, MAX_MEMBERS = 200_000_000, 20_000_000, 10_000
UNPACKED = 25  # maximum size of all unpacked members together, as a multiple of the maximum size of texts
OFFICE_97 = b"\xd0\xcf\x11\xe0"  # the first bytes of files of Office 97 and of encrypted Office files
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Matches a <meta> element or an XML declaration with an encoding other than UTF-8.
OTHER_CHARSET = re.compile(r"(?i)(?:<meta\s[^<>]*charset|<\?xml\s[^<>]*encoding)\s*=\s*[\"']?(?!utf-?8)\w")
# What the list of members of OpenDocument or EPUB says of an encrypted member. Two methods are for fonts only.
ENCRYPTED = re.compile(
    r"""encryption-data|\sAlgorithm\s*=\s*["'](?!http://www\.idpf\.org/2008/embedding|http://ns\.adobe\.com/pdf/enc#RC)"""
)


@contextlib.contextmanager
def damages(title: object, name: str = "") -> Iterator[None]:
    """Convert errors of reading a damaged document to InputError.

    `title` is the name of the document. `name` is the member of an archive.
    """
    try:
        yield
    except ZIP_ERRORS as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        message = f"{title} is damaged: {name} {reason}".replace("  ", " ")
        raise InputError(message, hint="save it anew from its own program") from error


def encoding_of(suffix: str, content: bytes) -> str:
    """Return the encoding of a text: UTF-16 if it begins with a BOM of UTF-16, else UTF-8.

    Java's property files are in ISO-8859-1, or in UTF-8 if they are valid UTF-8. In ASCII, they may be read as either.
    """
    if suffix != ".properties":
        return UTF_16.get(content[:2], "utf-8")
    for encoding in ("ascii", "utf-8"):
        with contextlib.suppress(UnicodeDecodeError):
            content.decode(encoding)
            return encoding
    return "latin-1"


def encoded(text: str, encoding: str, suffix: str) -> bytes:
    """Encode a text. Characters that the encoding lacks are written as escapes.

    In HTML and EPUB, these are references such as `&#233;`, and in property files `\\u00e9`. A page without a BOM that
    names another encoding than UTF-8 is written in ASCII, because browsers use that encoding.
    """
    if suffix in (".epub", ".htm", ".html"):
        is_ascii = OTHER_CHARSET.search(text) and not text.startswith("\ufeff")
        return text.encode("ascii" if is_ascii else encoding, "xmlcharrefreplace")
    outside = {"ascii": r"[^\0-\x7f]", "latin-1": r"[^\0-\xff]"}.get(encoding)
    if outside:
        text = re.sub(outside, lambda character: json.dumps(character[0])[1:-1], text)
    return text.encode(encoding)


def decoded(title: object, name: str, content: bytes, encoding: str = "utf-8") -> str:
    """Decode the content of a document, or of its member `name`. Raises InputError if it has another encoding."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        hint = "if it is text in another encoding: iconv -f ENCODING -t utf-8 FILE > NEW"
        where = f"{title} {name}".rstrip()
        raise InputError(f"{where} is not {encoding.upper()} at byte {error.start + 1}", hint=hint) from error


def unzipped(content: bytes, max_bytes: int) -> tuple[list[zipfile.ZipInfo], dict[str, bytes]]:
    """Return the descriptions of the members of a ZIP file, and their contents by name.

    Raises one of `ZIP_ERRORS` if the file is damaged or encrypted, or if the members are too large or too many.
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
        raise ValueError("it has no member with text, or two members of one name")
    encryption = members.get("META-INF/manifest.xml", b"") + members.get("META-INF/encryption.xml", b"")
    if ENCRYPTED.search(encryption.decode(errors="replace")):
        raise ValueError("it is encrypted, with a password or against copies")
    return infos, members


def has_texts(name: str, content: bytes) -> bool:
    """Return whether an archive member contains text.

    Most cells of a sheet refer to texts in another member. A sheet of such cells can be larger than all texts.
    """
    is_sheet = name.startswith("xl/worksheets/")
    return bool(MEMBERS.fullmatch(name)) and not (is_sheet and b"inlineStr" not in content and b'"str"' not in content)


def zipped(infos: list[zipfile.ZipInfo], members: dict[str, bytes]) -> bytes:
    """Return a ZIP file with these members. `infos` gives their names, times and order."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for info in infos:
            archive.writestr(info, members[info.filename], info.compress_type)
    return file.getvalue()


def parse_lines(text: str) -> list[Part]:
    """Return the parts of a plain text. Each line is a paragraph, and so is each column of it.

    Tabs and runs of spaces separate columns.
    """
    parser = Parser()
    # The list contains texts and what separates them. The parser copies separators, because they have no letters.
    for line in re.split(r"(\A\ufeff|\r\n|[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029\u3000]|[ \xa0]{2,})", text):
        parser.write(line, line)
        parser.finish()
    return parser.parts


# A document is translated with the formats of its suffix, one after the other. Documents of Office and of LibreOffice
# have several formats, because a paragraph may contain a text box with paragraphs.
FORMATS = {
    ".arb": [JSON],
    ".docx": OOXML,
    ".epub": [EPUB],
    ".ftl": [FLUENT],
    ".htm": [HTML],
    ".html": [HTML],
    ".json": [JSON],
    ".md": [MARKDOWN],
    ".odp": ODF,
    ".ods": ODF,
    ".odt": ODF,
    ".po": [PO],
    ".pptx": OOXML,
    ".properties": [PROPERTIES],
    ".resx": [RESX],
    ".srt": [SRT],
    ".strings": [STRINGS],
    ".stringsdict": [STRINGSDICT],
    ".ts": [QT],
    ".txt": [Format(parse_lines, str)],
    ".vtt": [VTT],
    ".xlf": [XLIFF],
    ".xliff": [XLIFF],
    ".xml": [ANDROID],
    ".xlsx": OOXML,
}
