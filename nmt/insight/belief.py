"""Scores of how unlikely sentence pairs are as translations: `nmt check --model`.

With one model, the score is the cross-entropy per piece of the target given the source. With a second model of the
opposite direction, it is the dual conditional cross-entropy (Junczys-Dowmunt 2018, "Dual conditional cross-entropy
filtering of noisy parallel corpora", equation 1): |H(t|s) - H(s|t)| + (H(t|s) + H(s|t)) / 2. The first term is large
if one text contains more than the other, the second if the pair is unlikely in both directions.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from nmt.corpus.check import Report
from nmt.corpus.kinds import KINDS, Example, Finding
from nmt.corpus.reading import Chunk, decode
from nmt.decode.translator import Translator

SHARE, MIN_LINES, MAX_LINES = 0.01, 20, 1_000  # of the pairs to report
N_EXAMPLES = 5


def disbelief(models: Sequence[Translator], sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """Return how unlikely each pair is; 0 is certain. A second model translates in the opposite direction."""

    def cross_entropies(translator: Translator, given: Sequence[str], texts: Sequence[str]) -> list[float]:
        log_probs = translator.reference_log_probs(given, texts)
        return [-sum(line) / max(len(line), 1) for line in log_probs]  # nats per piece, EOS counted

    forward = cross_entropies(models[0], sources, targets)
    if len(models) == 1:
        return forward
    backward = cross_entropies(models[1], targets, sources)
    return [abs(f - b) + (f + b) / 2 for f, b in zip(forward, backward, strict=True)]


def least_believed(models: Sequence[Translator], chunks: Iterable[Chunk], report: Report) -> Finding:
    """Return the least likely pairs of the training corpus as a finding; its examples are the least likely of these.

    `chunks` are the training pairs, and `report` is of the same corpus.
    """
    corpus = report.corpora[0]
    n_pairs = corpus.n_pairs
    n_named = min(max(int(SHARE * n_pairs), MIN_LINES), MAX_LINES, n_pairs)
    found: list[tuple[float, int, str, str]] = []  # value, line, source, target
    for chunk in chunks:
        sources, targets = (
            [decode(raw, i) for i, raw in enumerate(side, chunk.first)] for side in (chunk.source, chunk.target)
        )
        values = disbelief(models, sources, targets)
        found += zip(values, range(chunk.first, chunk.first + len(sources)), sources, targets, strict=True)
        found = sorted(found, reverse=True)[:n_named]
    examples = [Example(i, src, tgt, f"{value:.2f} nats per piece") for value, i, src, tgt in found[:N_EXAMPLES]]
    measured = "dual conditional cross-entropy" if len(models) > 1 else "cross-entropy"
    values = [value for value, *_ in found]
    detail = (
        f"by {measured}; those named have {values[-1]:.2f} nats per piece or more, in the median {median(values):.2f}"
    )
    lines = sorted(line for _, line, *_ in found)
    return Finding(corpus.files.name, KINDS["unlikely"], "note", lines, len(lines) / n_pairs, detail, examples)
