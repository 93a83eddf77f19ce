"""Print how well the confidences of `nmt translate --json` are calibrated, and what goes with the quality of a line.

    python tests/decode/measure_confidence.py RUN

Fits to greedy translations of data.dev, as every validation does, and measures on translations of data.test.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics.chrf import CHRF

from nmt.cli.options import pairs_of_run
from nmt.decode.confidence import LEAST_COVERAGE, Calibration, confidence_of, coverage, repeated, samples_of, words_of
from nmt.decode.segments import Translation
from nmt.decode.translator import Translator, load

N_BINS = 10


def calibration_error(confidences: ArrayLike, right: ArrayLike) -> float:
    """Expected calibration error: the mean over `N_BINS` bins of |mean confidence - share right|, weighted by size."""
    p, y = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    bins = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    return float(np.abs(np.bincount(bins, p - y, N_BINS)).sum() / len(p))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """The rank of each value; the mean rank of equal ones."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def correlations(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Pearson's and Spearman's."""
    return float(np.corrcoef(one, other)[0, 1]), float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def translations(translator: Translator, sources: Sequence[str], **options: int) -> list[Translation]:
    return list(translator.translate_lines(sources, translator.with_options(**options)))


def samples(translator: Translator, found: Sequence[Translation], references: Sequence[str]) -> NDArray[np.float64]:
    pairs = zip(found, references, strict=True)
    return np.array([row for one, text in pairs for row in samples_of(translator, one.hypotheses[0], text)], np.float64)


def measure(path: Path) -> None:
    translator = load(path, "cpu")
    dev, test = (pairs_of_run(translator.run, corpus, "") for corpus in ("dev", "test"))
    (dev_sources, dev_references), (sources, references) = (
        ([pair.source for pair in pairs], [pair.target for pair in pairs]) for _, pairs in (dev, test)
    )
    fitted = Calibration.fit(samples(translator, translations(translator, dev_sources, beam=1), dev_references))
    found = translations(translator, sources)
    table = samples(translator, found, references)
    print(f"{path}: {len(table)} words of {len(sources)} lines, {table[:, 2].mean():.1%} right; {fitted}")
    for name, one in {"probability": Calibration(), "calibrated": fitted}.items():
        error = calibration_error([one.confidence(*row[:2]) for row in table], table[:, 2])
        print(f"expected calibration error, {name:<14} {error:.4f}")
    translator.progress = {"best_figures": {"confidence": list(fitted)}}
    words = [words_of(translator, one.hypotheses[0]) for one in found]
    chrf = np.array(
        [CHRF().sentence_score(one.text, [text]).score for one, text in zip(found, references, strict=True)]
    )
    hypotheses = [one.hypotheses[0] for one in found]
    signs = {
        "mean log-probability": np.array([one.log_prob / max(len(one.log_probs), 1) for one in hypotheses]),
        "mean confidence": np.array([confidence_of(of_line) for of_line in words]),
        "least confidence": np.array([min((word.confidence for word in of_line), default=1.0) for of_line in words]),
        "coverage": np.array([coverage(translator, one) for one in found]),
        "no repetition": np.array([float(not repeated(one.text)) for one in found]),
    }
    print("correlation with sentence chrF    Pearson  Spearman")
    for sign, values in signs.items():
        if np.ptp(values):
            print("{:<34}{:7.3f}{:10.3f}".format(sign, *correlations(values, chrf)))
    for sign, least in {"mean confidence": 0.6, "coverage": LEAST_COVERAGE}.items():
        if np.any(low := signs[sign] < least):
            print(f"{sign} below {least}: {low.mean():.1%} of lines, chrF {chrf[low].mean():.1f}", end=", ")
            print(f"of others {chrf[~low].mean():.1f}")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
