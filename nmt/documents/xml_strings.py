"""Tables of strings of applications in XML: Qt's `.ts`, Android's resources, .NET's `.resx`, Apple's `.stringsdict`.

Qt's files have a place for translations. In the others, a translation replaces its source.
"""

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile

from nmt.documents.xml import XmlNode
from nmt.documents.xml_units import UnitTable, is_empty, open_tag

UNFINISHED = re.compile(r"""\stype\s*=\s*["']unfinished\b""")
HAS_FORMS = re.compile(r"""\snumerus\s*=\s*["']yes\b""")
# Data of a .resx file that is no text: it has another type, or is a setting of the designer.
RESX_OTHER = re.compile(r"""\s(?:type\s*=\s*["'](?!System\.String\b)|mimetype\s*=|name\s*=\s*["'](?:>>|&gt;))""")
PLIST_TEXT_KEY = re.compile(
    r"NSStringLocalizedFormatKey|zero|one|two|few|many|other|\d+"
    r"|iphone|ipad|ipod|mac|applewatch|appletv|applevision"
)
ANDROID_REFERENCE = re.compile(r"\s*[@?](?:\+?[\w.]+:)?(?:[\w.]+/)?[\w.]+\s*")
ANDROID_TOKEN = re.compile(r'\\u[0-9a-fA-F]{4}|\\.|[ \t\r\n]+|"|&quot;|[^\\" \t\r\n&]+|[\\&]', re.DOTALL)
ANDROID_EDGES = {'"', "&quot;", "\\n", "\\t", "\\u0020", "\\u00a0", "\\u00A0"}  # and white space
ANDROID_SPACES = {"\\n": "\n", "\\t": "\t", "\n": "\\n", "\t": "\\t"}  # both ways
ANDROID_ESCAPED = re.compile(r"""[\\'"\n\t]|\A[@?]""")
Pairs = Iterator[tuple[XmlNode, XmlNode]]


def qt_pairs(message: XmlNode) -> Pairs:
    """Yield pairs of an empty unfinished translation, or of a plural form of it, and its source."""
    children = {child.local_name: child for child in message.children}
    source, translation = children.get("source"), children.get("translation")
    if source is None:  # the file has only identifiers
        return
    if translation is None:
        translation = XmlNode("translation", '<translation type="unfinished">', [], "</translation>")
        message.children.insert(message.children.index(source) + 1, translation)
    if not UNFINISHED.search(translation.opening):
        return
    forms = [child for child in translation.children if child.local_name == "numerusform"]
    if HAS_FORMS.search(message.opening) and not forms:
        forms = [XmlNode("numerusform", "<numerusform/>")]
        open_tag(translation)
        translation.children += forms
    for target in forms or [translation]:
        if is_empty(target, QT_TABLE):
            yield target, source


def android_pairs(resource: XmlNode) -> Pairs:
    """Yield pairs of the text of a resource and itself. References to other resources are left out.

    White space and quotation marks at the ends of a text become part of the tags.
    """
    texts = [resource]
    if resource.local_name != "string":
        texts = [child for child in resource.children if child.local_name == "item"]
    for text in texts:
        if not text.children or ANDROID_REFERENCE.fullmatch(text.content):
            continue
        first, last = text.children[0], text.children[-1]
        if not first.opening.startswith("<"):
            edge = "".join(takewhile(is_android_edge, ANDROID_TOKEN.findall(first.opening)))
            first.opening = first.opening.removeprefix(edge)
            text.opening += edge
        if not last.opening.startswith("<"):
            tokens = reversed(ANDROID_TOKEN.findall(last.opening))
            edge = "".join(reversed(list(takewhile(is_android_edge, tokens))))
            last.opening = last.opening.removesuffix(edge)
            text.closing = edge + text.closing
        yield text, text


def is_android_edge(token: str) -> bool:
    """Return whether a token of a text can be outside of the translation."""
    return token.isspace() or token in ANDROID_EDGES


def decode_android(text: str) -> str:
    """Return the text that Android shows. White space is one space. Quotation marks without a backslash are left out.

    Raises ValueError for half of a surrogate pair.
    """
    characters = []
    for token in ANDROID_TOKEN.findall(text):
        if token.startswith("\\u"):
            characters.append(chr(int(token[2:], 16)))
        elif token.startswith("\\"):
            characters.append(ANDROID_SPACES.get(token, token[1:]))
        elif token.isspace():
            characters.append(" ")
        else:
            characters.append(token.strip('"'))
    # Two numbers may be the halves of one character.
    utf_16 = "".join(characters).encode("utf-16", "surrogatepass")
    return utf_16.decode("utf-16")


def encode_android(text: str) -> str:
    """Return a text with the escapes that Android needs."""
    return ANDROID_ESCAPED.sub(lambda sign: ANDROID_SPACES.get(sign[0], f"\\{sign[0]}"), text)


def resx_pairs(data: XmlNode) -> Pairs:
    """Yield the pair of a text and itself, unless the data is no text."""
    if not RESX_OTHER.search(data.opening):
        yield from ((child, child) for child in data.children if child.local_name == "value")


def stringsdict_pairs(dictionary: XmlNode) -> Pairs:
    """Yield the pairs of a text and itself whose keys in a dictionary are those of texts, such as plural forms."""
    elements = [child for child in dictionary.children if child.name]
    for key, value in pairwise(elements):
        is_text = key.local_name == "key" and PLIST_TEXT_KEY.fullmatch(key.content.strip())
        if is_text and value.local_name == "string":
            yield value, value


QT_TABLE = UnitTable("file of Qt Linguist: <TS>", r"TS\b", ("message",), qt_pairs, has_access_keys=True)
QT = QT_TABLE.format()
RESX = UnitTable(".resx file: <root>", r"root\b", ("data",), resx_pairs, has_access_keys=True).format()
STRINGSDICT = UnitTable(".stringsdict file: <plist>", r"plist\b", ("dict",), stringsdict_pairs).format()
ANDROID = UnitTable(
    "file of strings of Android: <resources>; of .xml files, no others are read",
    r"resources\b",
    ("string", "string-array", "plurals"),
    android_pairs,
    around=r"(?!g\Z).+",  # `<xliff:g>` marks what is not translated
    decode=decode_android,
    encode=encode_android,
).format()
