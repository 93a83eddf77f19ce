"""The formats of translation memories: each has a function that yields the units of a file and writes a copy.

A unit is a mapping from languages or names of columns to texts. Its text named `context` tells units of equal sources
apart. While a reader waits for the next unit, its caller may change the texts of the unit, or clear it so that the copy
lacks it. Only catalogs of messages, and copies of XML, are in the memory as a whole.
"""

import csv
import json
import re
from codecs import StreamWriter
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from lxml import etree

from nmt.documents.po import escape_po, po_messages, translations
from nmt.documents.tables import csv_layout
from nmt.files import check_deflated
from nmt.languages import base_language, language_of_file
from nmt.text.spans import replaced

# XPath of the elements of a unit that have a text, without proposals and what is not approved.
TEXT_NODES = etree.XPath("""
    descendant::*[local-name()='seg' or local-name()='source' or local-name()='target' or local-name()='term']
    [not(parent::*[local-name()='alt-trans'])][not(ancestor-or-self::*[@approved or @state]
    [@approved='no' or @state='new' or @state='initial' or starts-with(@state, 'needs-')])]""")
# XPath of the texts in such an element, without codes, and of its language.
NODE_TEXTS = etree.XPath("""
    descendant::text()[not(ancestor::*[contains(' bpt ept it ph ut ', concat(' ', local-name(), ' '))])]""")
NODE_LANGUAGE = etree.XPath("""string((
    self::*[local-name()='seg' or local-name()='term']/ancestor::*/@*[name()='xml:lang' or name()='lang']
    | self::*[local-name()='source']/ancestor::*[@target-language]/@source-language
    | self::*[local-name()='target']/ancestor::*/@target-language
    | self::*[local-name()='source']/ancestor::*[@trgLang]/@srcLang
    | self::*[local-name()='target']/ancestor::*/@trgLang)[last()])""")
# XPath of a unit's context. `CONTEXT` of `nmt.documents.xml_units` finds the same elements by a pattern.
NODE_CONTEXT = etree.XPath("""string(descendant::*[local-name()='prop' or local-name()='context'][contains(
    ' x-context x-gettext-msgctxt x-po-msgctxt ', concat(' ', @type | @context-type, ' '))]
    [not(ancestor::*[local-name()='alt-trans'])])""")
CONTEXT = "context"
TABS: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None, "lineterminator": "\n"}
# A quoted TSV field that contains quotation marks, all of them doubled. In all other fields, quotation marks are text.
QUOTED = re.compile(r'(?<![^\t])"([^"\t\r\n]*(?:""[^"\t\r\n]*)+)"(?=[\t\r\n]|\Z)')


def utf8_text(stream: Any) -> TextIOWrapper:
    """Decode a binary stream as UTF-8. Readers of binary formats use the `buffer` of the result."""
    return TextIOWrapper(stream, "utf-8-sig", newline="\n")


def xml_units(text: TextIOWrapper, copy: StreamWriter, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the units of TMX, XLIFF and TBX. In a copy, a text with codes in it stays as it is."""
    units = ["{*}tu", "{*}trans-unit", "{*}segment", "{*}termEntry", "{*}conceptEntry"]
    parser = etree.iterparse(text.buffer, tag=units)
    # The parser needs an element until it has read the next one.
    for (_, element), _ in pairwise(chain(parser, [None])):
        # 1. Read the first text in each language.
        nodes: dict[str, Any] = {}
        for node in TEXT_NODES(element):
            language = NODE_LANGUAGE(node) or etree.QName(node).localname
            nodes.setdefault(base_language(language), node)
        unit = {name: "".join(NODE_TEXTS(node)) for name, node in nodes.items()}
        unit[CONTEXT] = NODE_CONTEXT(element)
        yield unit

        # 2. Remove the unit, or change its texts.
        if nodes and not unit:
            element.getparent().remove(element)
        for name, node in nodes.items():
            if unit and not len(node):
                node.text = unit[name]

    # 3. Write the whole document, with its comments and its type.
    tree = parser.root.getroottree()
    tree.write(copy.stream, encoding=tree.docinfo.encoding, xml_declaration=True)


def csv_units(text: TextIOWrapper, copy: StreamWriter, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table. If tabs separate its columns, quotes enclose only the fields that `QUOTED` matches."""
    first_line = text.readline()
    delimiter, start = csv_layout(first_line)
    copy.write(first_line[:start])
    lines: Iterator[str] = chain([first_line[start:]], text)
    layout: Any = {"delimiter": delimiter}
    if delimiter == "\t":
        layout = TABS
        lines = map(unquoted, lines)
    return table_units(csv.reader(lines, strict=True, **layout), csv.writer(copy, **layout))


def unquoted(line: str) -> str:
    """Return a line of TSV in which no field is enclosed in quotes. See `QUOTED`."""
    return QUOTED.sub(lambda field: field[1].replace('""', '"'), line)


def table_units(rows: Any, writer: Any) -> Iterator[dict[str, Any]]:
    """Yield the units of a table. Its first row names the columns."""
    rows = filter(None, rows)
    header = next(rows, ())
    writer.writerow(header)
    names = dict.fromkeys(map(str, header))
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"the next row has {len(row)} fields, but the first has {len(names)} different names")
        unit = dict(zip(names, row, strict=True))
        yield unit
        if unit:
            writer.writerow(unit.values())


def workbook_units(text: TextIOWrapper, copy: StreamWriter, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the first sheet. A copy is in CSV."""
    from openpyxl import load_workbook

    workbook = load_workbook(text.buffer, read_only=True, data_only=True)
    rows = workbook.worksheets[0].iter_rows(values_only=True)
    return table_units(rows, csv.writer(copy))


def zip_units(text: Any, copy: StreamWriter, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the pairs of lines of members such as a.de and a.en. A copy is in CSV."""
    archive = ZipFile(text.buffer)
    check_deflated(archive)
    languages, texts = [], []
    for name in archive.namelist():
        language = language_of_file(Path(name))  # README has none
        if language and not name.startswith("__MACOSX/"):
            languages.append(language)
            texts.append(utf8_text(archive.open(name)))
    pairs = zip(*texts, strict=True)
    return table_units(chain([languages], pairs), csv.writer(copy))


def json_units(text: TextIOWrapper, copy: StreamWriter, _: Path) -> Iterator[dict[str, Any]]:
    lines = filter(str.strip, text)
    return mapping_units(map(json.loads, lines), copy)


def parquet_units(text: TextIOWrapper, copy: StreamWriter, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of Parquet. A copy has a line of JSON for each."""
    from pyarrow.parquet import ParquetFile

    for batch in ParquetFile(text.buffer).iter_batches():
        yield from mapping_units(batch.to_pylist(), copy)


def mapping_units(mappings: Iterable[Any], copy: StreamWriter) -> Iterator[dict[str, Any]]:
    """Yield mappings from names to texts. They may be in a mapping of their own, named `translation`."""
    for mapping in mappings:
        if not isinstance(mapping, dict):
            raise ValueError("the next line is no object")
        texts = mapping.get("translation")
        unit = texts if isinstance(texts, dict) else mapping
        yield unit
        if unit:
            print(json.dumps(mapping, ensure_ascii=False, default=str), file=copy)


def po_units(text: TextIOWrapper, copy: StreamWriter, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the translations of messages. Their sources are in English, as gettext recommends.

    A copy has all translations, also those that are left out, because a program needs them in each context.
    """
    # 1. Read all messages, and the language in their header.
    content = text.read()
    match = re.search(r'"Language: *([\w-]+)', content)
    language = base_language(match[1] if match else path.stem)
    messages = po_messages(content)

    # 2. Yield the translations.
    replacements = []
    for index, name, source, translation in translations(messages):
        message = messages[index]
        if "fuzzy" in message.flags or name not in message.values:
            yield {}
            continue
        unit = {"en": source, language: translation, CONTEXT: message.context}
        yield unit
        value = escape_po(unit.get(language, translation))
        replacements.append((message.values[name].span("value"), f'"{value}"'))
    copy.write(replaced(content, replacements))


MEMORY_READERS = {
    ".csv": csv_units,
    ".jsonl": json_units,
    ".parquet": parquet_units,
    ".po": po_units,
    ".tbx": xml_units,
    ".tmx": xml_units,
    ".tsv": csv_units,
    ".xlf": xml_units,
    ".xliff": xml_units,
    ".xlsx": workbook_units,
    ".zip": zip_units,
}
COPY_SUFFIXES = {".parquet": ".jsonl", ".xlsx": ".csv", ".zip": ".csv"}  # the suffixes of copies in another format
