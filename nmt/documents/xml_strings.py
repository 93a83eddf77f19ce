"""Tables of strings of applications in XML: Qt's `.ts`, Android's resources, .NET's `.resx`, Apple's `.stringsdict`.

Qt's files have a place for translations. In the others, a translation replaces its source.
"""

import re
from itertools import pairwise

from nmt.documents.html import escape_html
from nmt.documents.markup import ReviewState
from nmt.documents.tables import join_surrogates
from nmt.documents.xml import XmlNode
from nmt.documents.xml_units import Pairs, UnitTable, child_named, is_empty, open_tag

UNFINISHED = re.compile(r"""\stype\s*=\s*["']unfinished["']""")
# The mark of the access key in a label, such as `E&xit`. Names such as AT&T, entities and addresses have another `&`.
ACCESS_KEY = r"((?<!&)(?<![A-Z](?=&[A-Z]))&(?=\w)(?!\w+[;=]))"
# Data of a .resx file that is no text: it has another type, or is a setting of the designer.
RESX_OTHER = re.compile(r"""\s(?:type\s*=\s*["'](?!System\.String\b)|mimetype\s*=|name\s*=\s*["'](?:>>|&gt;))""")
DEVICES = "iphone|ipad|ipod|mac|applewatch|appletv|applevision"
TEXT_KEY = re.compile(rf"NSStringLocalizedFormatKey|zero|one|two|few|many|other|\d+|{DEVICES}")
ANDROID_REFERENCE = re.compile(r"[@?][\w.+:/]+")  # such as @string/ok and ?attr/name
# What is outside of the translation at the start of a text, and at its end in reverse order.
ANDROID_START = re.compile(r'(?:\s|"|\\n|\\u0020)*')
ANDROID_END = re.compile(r'(?:\s|"(?!\\)|n\\(?!\\)|0200u\\(?!\\))*')
ANDROID_ESCAPE = re.compile(r'\\(?:u(?P<number>[0-9a-fA-F]{4})|(?P<name>.))|"|(?P<space>[ \t\r\n]+)', re.DOTALL)
ANDROID_SIGN = re.compile(r"""[\\'"]|\A[@?]""")


def qt_pairs(message: XmlNode) -> Pairs:
    """Yield pairs of an empty unfinished translation, or of an empty plural form of it, and its source.

    A translation that has some plural forms already stays unfinished.
    """
    source, translation = child_named(message, "source"), child_named(message, "translation")
    if source and translation and UNFINISHED.search(translation.opening):
        forms = [child for child in translation.children if child.name == "numerusform"] or [translation]
        targets = list(filter(is_empty, forms))
        tag = finished = open_tag(translation)
        if targets == forms:
            finished = UNFINISHED.sub("", tag)
        translation.opening = ReviewState(tag, finished, tag)
        for target in targets:
            yield target, source


def android_pairs(resource: XmlNode) -> Pairs:
    """Yield pairs of the text of a resource and itself. References to other resources are left out.

    White space and quotation marks at the ends of a text become part of the tags.
    """
    texts = [resource]
    if resource.local_name != "string":
        texts = [child for child in resource.children if child.name == "item"]
    for text in texts:
        if not text.children or ANDROID_REFERENCE.fullmatch(text.content.strip()):
            continue
        first, last = text.children[0], text.children[-1]
        start = ANDROID_START.match(first.opening)[0]  # type: ignore[index]
        text.opening += start
        first.opening = first.opening.removeprefix(start)
        end = ANDROID_END.match(last.opening[::-1])[0][::-1]  # type: ignore[index]
        text.closing = end + text.closing
        last.opening = last.opening.removesuffix(end)
        yield text, text


def decode_android(text: str) -> str:
    """Return the text that Android shows. White space is one space. Quotation marks without a backslash are left out.

    Raises ValueError for half of a surrogate pair.
    """

    def character(escape: re.Match[str]) -> str:
        if escape["number"]:
            return chr(int(escape["number"], 16))
        name = escape["name"] or ""
        return " " if escape["space"] else {"n": "\n", "t": "\t"}.get(name, name)

    return join_surrogates(ANDROID_ESCAPE.sub(character, text))


def escape_android(text: str) -> str:
    """Escape a text for an Android resource. Consecutive spaces are escaped, because Android shows them as one."""
    text = ANDROID_SIGN.sub(r"\\\g<0>", text).replace("  ", r"\u0020\u0020")
    return escape_html(text).replace("\n", r"\n").replace("\t", r"\t")


def resx_pairs(data: XmlNode) -> Pairs:
    """Yield the pair of a text and itself, unless the data is no text."""
    value = child_named(data, "value")
    if value and not RESX_OTHER.search(data.opening):
        yield value, value


def stringsdict_pairs(dictionary: XmlNode) -> Pairs:
    """Yield pairs of a text and itself, if its key in the dictionary is that of a text, such as a plural form."""
    elements = [child for child in dictionary.children if child.name]
    for key, value in pairwise(elements):
        if value.name == "string" and TEXT_KEY.fullmatch(key.content.strip()):
            yield value, value


QT = UnitTable("file of Qt Linguist: <TS>", r"TS\b", ("message",), qt_pairs, codes=ACCESS_KEY).format()
RESX = UnitTable(".resx file: <root>", r"root\b", ("data",), resx_pairs, codes=ACCESS_KEY).format()
PLURALS = r"(%(?:\d+\$)?#@\w+@)"  # such as %#@files@, which Apple replaces by one of the plural forms of `files`
STRINGSDICT = UnitTable(".stringsdict: <plist>", r"plist\b", ("dict",), stringsdict_pairs, codes=PLURALS).format()
ANDROID = UnitTable(
    "file of strings of Android: <resources>; of .xml files, no others are read",
    r"resources\b",
    ("string", "string-array", "plurals"),
    android_pairs,
    around=r"(?!g\Z).+",  # `<xliff:g>` marks what is not translated
    decode=decode_android,
    escape=escape_android,
).format()
