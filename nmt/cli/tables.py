"""Tables for a terminal, and the text that `nmt compare` prints."""

from collections.abc import Iterable, Iterator, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.insight.compare import Comparison


def columns(rows: Iterable[Sequence[object]]) -> list[str]:
    """Format a table as lines of text, with left-aligned columns."""
    table = [tuple(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table]


def comparison_text(comparison: "Comparison") -> list[str]:
    """Format a comparison as lines of text. Each system has a letter; the baseline is A."""
    # 1. List the systems with their letters.
    letters = ascii_uppercase[: len(comparison.systems)]
    lines = [f"{letter}  {name}" for letter, name in zip(letters, comparison.systems, strict=True)]
    lines[0] += "  (baseline)"
    lines.append(f"{comparison.n_lines} lines of {comparison.corpus}")
    # 2. Add the scores.
    return [*lines, "", *score_table(comparison, letters)]


def score_table(comparison: "Comparison", letters: str) -> Iterator[str]:
    """Yield the lines of a table of scores, with differences from the baseline. Then explain the table."""
    rows = [["score", "", "", "difference", "95 % interval", "p"]]
    for paired in comparison.scores:
        for letter, system in zip(letters, paired.systems, strict=True):
            # The baseline has no difference.
            row = [paired.name, letter, f"{system.value:.2f}"]
            difference = system.difference
            if difference is None:
                row += ["", "", ""]
            else:
                interval = f"{difference.low:+.2f} to {difference.high:+.2f}"
                row += [f"{difference.value:+.2f}", interval, f"{difference.p_value:.4f}"]
            rows.append(row)
    yield from columns(rows)
    # Explain the numbers, and add sacreBLEU's signatures.
    if comparison.left_out:
        yield comparison.left_out
    yield "p by paired bootstrap, as sacreBLEU computes it, but ties count: 1 for equal systems; intervals by bootstrap"
    for paired in comparison.scores:
        yield f"{paired.name}: {paired.signature}"
