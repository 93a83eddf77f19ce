"""The findings of a check as text, and as a JSON-serializable dict."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic_core import to_jsonable_python

from nmt.corpus.check import CheckReport
from nmt.corpus.kinds import SEVERITIES, Finding

MAX_LINES = 8  # maximum number of shown line numbers of a finding
MAX_CHARACTERS = 90  # maximum number of shown characters of each side of an example
INDENT = " " * 9  # indentation of the lines that follow the first line of a finding


def as_text(report: CheckReport, n_examples: int) -> Iterator[str]:
    """Yield the lines of a report for a terminal, with at most `n_examples` examples of each finding."""
    for corpus in report.corpora:
        counts = dict.fromkeys([corpus.n_source, corpus.n_target])  # one number if both are equal
        numbers = " and ".join([f"{n:,}" for n in counts])
        yield f"{corpus.files.name}: {numbers} lines of {corpus.files}"
    for finding in report.findings:
        yield ""
        yield from finding_as_text(finding, n_examples)
    yield ""
    yield summary(report)


def finding_as_text(finding: Finding, n_examples: int) -> Iterator[str]:
    # Yield the title and the detail.
    n = len(finding.lines)
    unit = "line" if n == 1 else "lines"
    amount = f": {n:,} {unit}, {percent(finding.share)}" if n else ""
    yield f"{finding.severity:<8} {finding.corpus}: {finding.kind.title}{amount}"
    if finding.detail:
        yield f"{INDENT}{finding.detail}"
    # Yield the first line numbers, and the examples.
    if n:
        shown = [str(line) for line in finding.lines[:MAX_LINES]]
        if n > MAX_LINES:
            shown.append("...")
        yield f"{INDENT}{unit} {', '.join(shown)}"
    for example in finding.examples[:n_examples]:
        yield f"{example.line:>8} {shortened(example.source)}"
        yield f"{INDENT}{shortened(example.target)}"
    yield f"{INDENT}-> {finding.kind.advice}"


def percent(share: float) -> str:
    """Return a share as a percentage with about two significant digits."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def summary(report: CheckReport) -> str:
    n_of = Counter(finding.severity for finding in report.findings)
    counts = []
    for severity in SEVERITIES:
        n = n_of[severity]
        if n:
            plural = "" if n == 1 else "s"
            counts.append(f"{n} {severity}{plural}")
    return ", ".join(counts) or "no fault found"


def as_plain(report: CheckReport, max_lines: int | None = None) -> dict[str, Any]:
    """Return the report as a JSON-serializable dict, with at most `max_lines` line numbers of each finding."""
    corpora = [
        {**vars(corpus.files), "n_source": corpus.n_source, "n_target": corpus.n_target} for corpus in report.corpora
    ]
    findings = []
    for finding in report.findings:
        kind = finding.kind
        entry = {**vars(finding), "kind": kind.name, "title": kind.title, "advice": kind.advice}
        entry |= {"count": len(finding.lines), "lines": finding.lines[:max_lines]}
        findings.append(entry)
    return dict(to_jsonable_python({"corpora": corpora, "findings": findings}))
