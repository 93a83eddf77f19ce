"""Files of pairs: translation memories, tables, catalogs of messages and archives.

`text_files` writes the pairs of a memory into the user's cache as two files of text, once. So whatever reads lines also
reads memories: checks, splits, training and scores. A reader yields one unit after the other, so that a memory may be
larger than the memory of the machine.
"""

import csv
import json
import logging
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from nmt.documents.files import DAMAGES
from nmt.documents.po import po_messages, po_text, translations
from nmt.documents.tables import SEPARATOR, delimiter_of
from nmt.errors import InputError
from nmt.files import cached, check_deflated
from nmt.languages import ROLES, base_language, language_code, language_of_file
from nmt.text.corpus_files import SIDES
from nmt.text.lines import decode_lines, iter_lines, open_bytes, raw_lines, reading

log = logging.getLogger("nmt")

FORMAT = 1  # version of the files in the cache; raise it when their content changes
N_HEAD = 1_000  # the languages of a memory are those of its first units
MAX_DECLARATIONS = 100_000  # bytes at the beginning of a file that are searched for declarations of entities
# XML elements that are units, and for each element with a text, the attributes that name its language.
UNITS = ("tu", "trans-unit", "segment", "termEntry", "conceptEntry")
XML_LANG = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")
TEXTS = {
    "seg": XML_LANG,
    "term": XML_LANG,
    "source": ("source-language", "srcLang"),
    "target": ("target-language", "trgLang"),
}
# Elements without text, such as codes, notes, formulas and phonetic readings.
IGNORED = re.compile("alt-trans|bpt|ept|f|it|note|ph|prop|rPh|ut")
UNAPPROVED = re.compile("no|new|initial|needs-.*")  # values of the attributes `approved` and `state`
NAMESPACE = re.compile("{.*}")
PO_LANGUAGE = re.compile(r"^Language: *([\w-]+)", re.MULTILINE)
HINT = "call its columns de and en, or choose: --source-lang and --target-lang (nmt check: -l); --column and --into"
Names = tuple[str, str]  # of source and target
Unit = Iterable[tuple[str, str]]  # languages or names of columns, with their texts; nothing without approval
Row = dict[Any, str]  # the fields of a table by their columns


def elements(stream: Any, names: Sequence[str]) -> Iterator[tuple[dict[str, str], ElementTree.Element]]:
    """Yield each element of these names with the attributes of the elements around it. Namespaces are removed."""
    around: list[ElementTree.Element] = []
    declarations = stream.read(MAX_DECLARATIONS).replace(b"\0", b"")  # UTF-16 has zeros
    if b"<!ENTITY" in declarations:
        raise ValueError("it declares entities, which is not allowed")
    stream.seek(0)
    for event, node in ElementTree.iterparse(stream, ("start", "end")):  # noqa: S314 - no entities
        if event == "start":
            node.tag = NAMESPACE.sub("", node.tag)
            around.append(node)
            continue
        around.pop()
        if node.tag in names:
            attributes: dict[str, str] = {}
            for outer in around:
                attributes |= outer.attrib
            yield attributes, node
            del around[-1][:]


def xml_units(path: Path) -> Iterator[Unit]:
    header: dict[str, str] = {}
    with open_bytes(path) as stream:
        for attributes, node in elements(stream, ("header", *UNITS)):
            if node.tag == "header":
                header = node.attrib
            else:
                yield xml_unit(node, header | attributes)


def xml_unit(unit: ElementTree.Element, attributes: dict[str, str]) -> Unit:
    """Return the texts of an element. `attributes` are those of the header and of the elements around it."""
    source = attributes.get("srclang", "")
    texts = [(source, "")] if code_of(source) else []
    remove_codes(unit)
    for node in unit.iter():
        attributes |= node.attrib  # an element also has the language of the elements around it
        if node.tag in TEXTS:
            first, second = TEXTS[node.tag]
            language = attributes.get(first) or attributes.get(second, node.tag)
            texts.append((language, "".join(node.itertext())))
    values = attributes.get("approved", ""), attributes.get("state", "")
    return [] if any(map(UNAPPROVED.fullmatch, values)) else texts


def remove_codes(node: ElementTree.Element) -> None:
    """Remove the content and the attributes of the elements that are `IGNORED`."""
    for inner in list(node.iter()):
        if IGNORED.fullmatch(inner.tag):
            tail = inner.tail
            inner.clear()
            inner.tail = tail


def text_of(node: ElementTree.Element) -> str:
    """Return the text in an element of a spreadsheet."""
    remove_codes(node)
    return "".join(node.itertext())


def po_units(path: Path) -> Iterator[Unit]:
    messages = po_messages("\n".join(iter_lines([path])))
    header = messages[0].values["msgstr"]
    match = PO_LANGUAGE.search(po_text(header["value"]))
    language = match[1] if match else path.stem
    for index, _, source, translation in translations(messages):
        # The sources are in English, as gettext recommends.
        yield [] if "fuzzy" in messages[index].flags else [("en", source), (language, translation)]


def csv_units(path: Path) -> Iterator[Unit]:
    is_quoted = True
    if suffix_of(path) == ".tsv":
        # Many files have quotes that do not enclose fields. Then each line is a row.
        try:
            widths = set(map(len, csv_rows(path, is_quoted)))
        except csv.Error:
            widths = set()
        is_quoted = len(widths) == 1
    return table_units(dict(enumerate(fields)) for fields in csv_rows(path, is_quoted))


def csv_rows(path: Path, is_quoted: bool) -> Iterator[list[str]]:
    lines = (f"{line}\n" for line in iter_lines([path], strict=True))
    first = next(lines, "")
    if SEPARATOR.match(first):
        first = next(lines, "")
    delimiter = "\t" if suffix_of(path) == ".tsv" else delimiter_of(first)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
    return csv.reader(chain([first], lines), delimiter=delimiter, quoting=quoting, strict=True)


def xlsx_units(path: Path) -> Iterator[Unit]:
    """Yield the rows of the first sheet."""
    with zipfile.ZipFile(path) as archive:
        check_deflated(archive)
        shared: list[str] = []
        sheets = []
        for name in archive.namelist():
            if name == "xl/sharedStrings.xml":
                with archive.open(name) as stream:
                    shared = [text_of(node) for _, node in elements(stream, ["si"])]
            elif name.startswith("xl/worksheets/sheet"):
                sheets.append(name)
        with archive.open(min(sheets)) as stream:
            rows = elements(stream, ["row"])
            yield from table_units(sheet_row(row, shared) for _, row in rows)


def sheet_row(row: ElementTree.Element, shared: Sequence[str]) -> Row:
    """Return the texts of a row by the letters of their columns."""
    fields: Row = {}
    for cell in row:
        text = text_of(cell).strip()
        if text and cell.get("t") == "s":
            text = shared[int(text)]
        column = cell.get("r", "").rstrip("0123456789")
        fields[column] = text
    return fields


def table_units(rows: Iterable[Row]) -> Iterator[Unit]:
    """Yield a unit for each row. The first row names the columns.

    It is a unit itself if there are two columns, and their names are not those of languages or sides.
    """
    names: Row = {}
    for row in filter(None, rows):
        if not names:
            names = row
            named = [name for name in names.values() if code_of(name) or name.lower() in (*ROLES, *SIDES)]
            if named or len(names) != 2:
                continue
        if not row.keys() <= names.keys():
            raise ValueError(f"the next row has {len(row)} fields, but the first has {len(names)}")
        yield [(names[column], text) for column, text in row.items()]


def json_units(path: Path) -> Iterator[Unit]:
    return map(record_unit, map(json.loads, filter(str.strip, iter_lines([path]))))


def parquet_units(path: Path) -> Iterator[Unit]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(f"pyarrow is needed for {path}", hint='pip install "nmt-trainer[parquet]"') from error
    for batch in ParquetFile(path).iter_batches():
        yield from map(record_unit, batch.to_pylist())


def record_unit(record: Any) -> Unit:
    """Return the texts of a record. They may be in a record of their own, named `translation`."""
    if not isinstance(record, dict):
        raise ValueError("the next line is no object")
    texts = record.get("translation", record)
    return [(name, text) for name, text in texts.items() if isinstance(text, str)]


def zip_units(path: Path) -> Iterator[Unit]:
    """Yield the pairs of lines of members such as a.de and a.en."""
    sides: dict[str, list[Iterator[str]]] = defaultdict(list)
    with zipfile.ZipFile(path) as archive:
        check_deflated(archive)
        for name in sorted(archive.namelist()):
            code = code_of(name.rpartition(".")[2])
            if code:  # README has none
                lines = raw_lines(archive.open(name), name)
                sides[code].append(decode_lines(lines, name))
        for texts in zip_longest(*map(chain.from_iterable, sides.values())):
            if None in texts:
                raise ValueError("its members have different numbers of lines")
            yield zip(sides, texts, strict=True)


READERS: dict[str, Callable[[Path], Iterator[Unit]]] = {
    ".csv": csv_units,
    ".jsonl": json_units,
    ".parquet": parquet_units,
    ".po": po_units,
    ".tbx": xml_units,
    ".tmx": xml_units,
    ".tsv": csv_units,
    ".xlf": xml_units,
    ".xliff": xml_units,
    ".xlsx": xlsx_units,
    ".zip": zip_units,
}


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in lower case, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_memory(path: Path) -> bool:
    """Return whether a file has the suffix of a memory."""
    return suffix_of(path) in READERS


def code_of(name: str) -> str:
    """Return the language that is the name of a column or member, or an empty text."""
    return "" if name.lower() in ROLES else language_code(name)


def plain_name(name: str) -> str:
    """Return a language without its region, and the name of another column as it is."""
    return base_language(name) if code_of(name) else name


def plain_units(path: Path) -> Iterator[dict[str, str]]:
    """Yield the units of a memory. Each text is on one line. Raises InputError if the memory is damaged."""
    n_units = 0
    try:
        for unit in READERS[suffix_of(path)](path):
            n_units += 1
            texts: dict[str, str] = {}
            for name, text in unit:
                text.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
                lines = map(str.strip, text.splitlines())
                key = plain_name(name)
                texts[key] = texts.get(key) or " ".join(filter(None, lines))
            yield texts
    except (*DAMAGES, LookupError, csv.Error, ElementTree.ParseError) as error:
        raise InputError(f"{path} is damaged after unit {n_units:,}: {error}", hint="save it anew") from error


def text_files(paths: Sequence[Path], languages: Names, columns: Names) -> tuple[list[Path], list[Path]]:
    """Return files with the sources and with the targets of memories, a text per line. They are in the user's cache.

    Args:
        languages: codes of source and target. If they are empty, the first memory decides.
        columns: the names of columns or languages in the memories, if they are not the languages.
    """
    sources, targets = [], []
    for path in paths:
        if not is_memory(path):
            raise InputError(
                f"{path} is no translation memory", hint=f"they end in {', '.join(READERS)}; of two texts, give both"
            )
        with reading(str(path)):
            status = path.stat()
        origin = [FORMAT, str(path.resolve()), status.st_size, status.st_mtime_ns, languages, columns]
        directory = cached("memory", origin, partial(write_texts, path, languages, columns))
        source, target = sorted(directory.iterdir())  # the name of each begins with its side
        languages = language_of_file(source), language_of_file(target)
        sources.append(source)
        targets.append(target)
    return sources, targets


def write_texts(path: Path, languages: Names, columns: Names, directory: Path) -> None:
    """Write the texts of a memory into a directory. The names of the files end in the codes of the languages."""
    n_units = n_pairs = 0
    codes, units = units_in(path, languages, columns)
    source_file = directory / f"source.{path.name}.{codes[0]}"
    target_file = directory / f"target.{path.name}.{codes[1]}"
    with source_file.open("w", encoding="utf-8") as sources, target_file.open("w", encoding="utf-8") as targets:
        for source, target in units:
            n_units += 1
            if source and target:
                n_pairs += 1
                print(source, file=sources)
                print(target, file=targets)
    log.info("%s: %d pairs; left out without a side or without approval: %d", path, n_pairs, n_units - n_pairs)


def units_in(path: Path, languages: Names, columns: Names) -> tuple[list[str], Iterator[Names]]:
    """Return the codes of source and target, and an iterator of their texts in each unit. A missing text is empty.

    Raises InputError if it is unclear which languages or columns of the memory are meant.
    """
    # 1. Find the names in the first units.
    units = plain_units(path)
    head = list(islice(units, N_HEAD))
    names = list(dict.fromkeys(chain.from_iterable(head)))
    if {*SIDES} <= {*names}:
        names = list(SIDES)

    # 2. Choose two of them: those that are wanted, or else the only two.
    wanted = [plain_name(column or code) for column, code in zip(columns, languages, strict=True)]
    chosen = wanted if {*wanted} <= {*names} else names
    codes = []
    is_clear = len(chosen) == 2
    for name, given in zip(chosen, languages, strict=False):
        code = given or code_of(name)
        codes.append(code)
        is_clear &= bool(code) and code_of(name) in ("", base_language(code))
    if not is_clear:
        known = ", ".join(names) or "none"
        raise InputError(f"which languages of {path}? It has {known:.200}", hint=HINT)
    source, target = chosen
    return codes, ((unit.get(source, ""), unit.get(target, "")) for unit in chain(head, units))
