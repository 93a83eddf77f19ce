"""Scores of how unlikely sentence pairs are as translations: `nmt check --model`.

With one model, the score is the cross-entropy per piece of the target given the source. With a second model of the
opposite direction, it is the dual conditional cross-entropy (Junczys-Dowmunt 2018, "Dual conditional cross-entropy
filtering of noisy parallel corpora", equation 1): |H(t|s) - H(s|t)| + (H(t|s) + H(s|t)) / 2. The first term is large
if one text contains more than the other, the second if the pair is unlikely in both directions.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nmt.corpus.check import Report
from nmt.corpus.kinds import KINDS, Example, Finding
from nmt.corpus.reading import Chunk, decode
from nmt.decode.translator import Translator

PART = 1_000  # pairs scored at once
SHARE, MIN_LINES, MAX_LINES = 0.01, 20, 1_000  # of the pairs to report
N_EXAMPLES = 5


def cross_entropies(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """Return the cross-entropy of each target given its source, in nats per piece, including EOS."""
    return [-sum(line) / max(len(line), 1) for line in translator.reference_log_probs(sources, targets)]


def disbelief(models: Sequence[Translator], sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """Return how unlikely each pair is; 0 is certain. A second model translates in the opposite direction."""
    forward = cross_entropies(models[0], sources, targets)
    if len(models) == 1:
        return forward
    backward = cross_entropies(models[1], targets, sources)
    return [abs(f - b) + (f + b) / 2 for f, b in zip(forward, backward, strict=True)]


def least_believed(models: Sequence[Translator], chunks: Iterable[Chunk], report: Report) -> Finding:
    """Return the least likely pairs of the training corpus as a finding; its examples are the least likely of these.

    `chunks` are the training pairs, and `report` is of the same corpus.
    """
    found: list[tuple[float, int]] = []
    texts: dict[int, tuple[str, str]] = {}
    n_pairs = report.corpora[0].n_pairs
    n_named = min(max(int(SHARE * n_pairs), MIN_LINES), MAX_LINES, n_pairs)
    for lines, sources, targets in parts(chunks):
        found += zip(disbelief(models, sources, targets), lines, strict=True)
        found = sorted(found, reverse=True)[:n_named]
        texts |= zip(lines, zip(sources, targets, strict=True), strict=True)
        texts = {line: texts[line] for _, line in found[:N_EXAMPLES]}
    examples = [Example(line, *texts[line], f"{value:.2f} nats per piece") for value, line in found[:N_EXAMPLES]]
    measured = "dual conditional cross-entropy" if len(models) > 1 else "cross-entropy"
    median = float(np.median([value for value, _ in found])) if found else 0.0
    detail = f"by {measured}; those named have {found[-1][0]:.2f} nats per piece or more, in the median {median:.2f}"
    lines = sorted(line for _, line in found)
    return Finding(
        report.corpora[0].files.name, KINDS["unlikely"], "note", lines, len(lines) / n_pairs, detail, examples
    )


def parts(chunks: Iterable[Chunk]) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """Yield line numbers, sources and targets of up to `PART` pairs at a time."""
    for chunk in chunks:
        source, target = (
            [decode(raw, number) for number, raw in enumerate(side, chunk.first)]
            for side in (chunk.source, chunk.target)
        )
        for start in range(0, len(source), PART):
            end = min(start + PART, len(source))
            yield [*range(chunk.first + start, chunk.first + end)], source[start:end], target[start:end]
