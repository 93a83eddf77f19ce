"""Cleaned copies of translation memories in their own format: some units are changed or left out, others are copied.

A unit is found in the file by its number: each match of a pattern is a piece of the file that is a unit.
"""

import logging
import re
from collections.abc import Callable, Mapping
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path

from nmt.documents.html import escape_html
from nmt.documents.memories import Names, suffix_of, units_in
from nmt.documents.tables import escape_csv, escape_json
from nmt.files import atomic_writer

log = logging.getLogger("nmt")

Changes = Mapping[int, Names | None]
# For the formats that can be written: the pieces of a file that are units, how a text is escaped, and quotes around it.
LINE = re.compile(rb"(?m)^(?!\r?\n)[^\n]+\n?")
CSV_ROW = re.compile(rb'(?m)^(?!\r?\n|(?:\xef\xbb\xbf)?sep=)(?:[^"\n]++|"[^"]*")+\n?')
XML_UNIT = re.compile(rb"<(tu|trans-unit|segment|termEntry|conceptEntry)[\s>].*?</\1\s*>\s*", re.DOTALL)
Pieces = tuple[re.Pattern[bytes], Callable[[str], str], str]
XML_PIECES: Pieces = XML_UNIT, escape_html, ""
PIECES: dict[str, Pieces] = {
    ".csv": (CSV_ROW, escape_csv, '"?'),
    ".jsonl": (LINE, escape_json, ""),
    ".tsv": (LINE, str, ""),
}


def write_copy(path: Path, copy: Path, languages: Names, columns: Names, changes: Changes) -> None:
    """Write a copy of a memory with some units changed or left out. All others are copied byte for byte.

    A unit stays as it is if its new texts cannot be put in place of the old ones, such as between codes. If the format
    cannot be written, this is logged.

    Args:
        changes: for numbers of pairs, their new texts, or None for a pair to leave out.
    """
    pattern, escape, quote = PIECES.get(suffix_of(path), XML_PIECES)
    _, units = units_in(path, languages, columns)
    n_units = sum(1 for _ in units)
    _, units = units_in(path, languages, columns)
    n_pairs = n_kept = position = 0
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        # 1. Count the pieces of the file that are units. A table may have one more, its header.
        n_headers = sum(1 for _ in pattern.finditer(content)) - n_units
        may_be_header = n_headers == 1 and suffix_of(path) in (".csv", ".tsv")
        if n_headers and not may_be_header:
            log.warning("%s cannot be written in its own format: the two files of text are its copy", path)
            return

        # 2. Write the changed units, and what is between them.
        pieces = islice(pattern.finditer(content), n_headers, None)
        with atomic_writer(copy) as out:
            for pair, piece in zip(units, pieces, strict=True):
                n_pairs += all(pair)
                if not all(pair) or n_pairs not in changes:
                    continue
                texts = changes[n_pairs]
                new = with_texts(piece[0], pair, texts, escape, quote) if texts else b""
                n_kept += new == piece[0]
                out.write(content[position : piece.start()])
                out.write(new)
                position = piece.end()
            out.write(content[position:])
    log.info("%s: the copy of %s; not mended, because of codes or escapes in their texts: %d", copy, path, n_kept)


def with_texts(piece: bytes, old: Names, new: Names, escape: Callable[[str], str], quote: str) -> bytes:
    """Replace the texts of a unit. Return it as it is if they are not found as the whole of two fields or elements."""
    before = [re.escape(escape(text)) for text in old]
    mark = quote[:1]
    after = [f"{mark}{escape(text)}{mark}" for text in new]
    fields = rf"(?<![^>\",;\t\n]){quote}(?:({before[0]})|({before[1]})){quote}(?![^<\",;\t\r\n])"
    text = piece.decode(errors="surrogateescape")
    text, n_replaced = re.subn(fields, lambda match: after[match[1] is None], text)
    is_whole = n_replaced == 2 and old[0] != old[1]
    return text.encode(errors="surrogateescape") if is_whole else piece
