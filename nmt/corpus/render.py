"""The findings of a check as text, and as a JSON-serializable dict."""

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_jsonable_python

from nmt.corpus.check import Report
from nmt.corpus.kinds import SEVERITIES

MAX_LINES = 8  # line numbers that are shown for a finding
MAX_CHARACTERS = 90  # of each side of an example


def as_text(report: Report, n_examples: int) -> Iterator[str]:
    """Lines to read in a terminal, with at most `n_examples` of each finding."""
    for corpus in report.corpora:
        numbers = " and ".join(f"{n:,}" for n in sorted({corpus.n_source, corpus.n_target}))
        source, target = (" + ".join(map(str, paths)) for paths in corpus.files.sides)
        yield f"{corpus.files.name}: {numbers} lines of {source} and {target}"
    for finding in report.findings:
        yield ""
        n = len(finding.lines)
        amount = f": {n:,} {'line' if n == 1 else 'lines'}, {percent(finding.share)}" if n else ""
        yield f"{finding.severity:<8} {finding.corpus}: {finding.kind.title}{amount}"
        if finding.detail:
            yield f"         {finding.detail}"
        if n:
            shown = [*map(str, finding.lines[:MAX_LINES]), *["..."] * (n > MAX_LINES)]
            yield f"         {'line' if n == 1 else 'lines'} {', '.join(shown)}"
        for example in finding.examples[:n_examples]:
            yield f"{example.line:>8} {shortened(example.source)}"
            yield f"         {shortened(example.target)}"
        yield f"         -> {finding.kind.advice}"
    yield ""
    yield summary(report)


def percent(share: float) -> str:
    """A share as a percentage, to about two significant digits; a tiny share is not rounded to zero."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %" if share >= 0.0001 else "under 0.01 %"


def shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def summary(report: Report) -> str:
    counts = [sum(finding.severity == severity for finding in report.findings) for severity in SEVERITIES]
    shown = [f"{n} {name}{'' if n == 1 else 's'}" for n, name in zip(counts, SEVERITIES, strict=True) if n]
    return f"{', '.join(shown) or 'no fault found'} in {report.seconds:.0f} s"


def as_plain(report: Report, max_lines: int | None = None) -> dict[str, Any]:
    """The report as a JSON-serializable dict, with at most `max_lines` line numbers of each finding."""
    plain: dict[str, Any] = {
        "corpora": [
            {**vars(corpus.files), "n_source": corpus.n_source, "n_target": corpus.n_target}
            for corpus in report.corpora
        ],
        "languages": report.languages,
        "findings": [
            {
                **vars(finding),
                "kind": finding.kind.name,
                "title": finding.kind.title,
                "count": len(finding.lines),
                "advice": finding.kind.advice,
                "lines": finding.lines[:max_lines],
            }
            for finding in report.findings
        ],
        "seconds": round(report.seconds, 1),
    }
    return dict(to_jsonable_python(plain))
