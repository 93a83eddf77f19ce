"""Tables for a terminal."""

from collections.abc import Iterable, Sequence


def columns(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table as lines of text, columns aligned."""
    cells = [list(names), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
