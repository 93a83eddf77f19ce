"""Tables for a terminal."""

from collections.abc import Collection, Iterable, Sequence


def columns(names: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str] = ()) -> list[str]:
    """Format a table as lines of text. Columns named in `numbers` are aligned to the right, others to the left."""
    cells = [list(names), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    signs = [">" if name in numbers else "<" for name in names]
    return [
        "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)).rstrip()
        for row in cells
    ]
