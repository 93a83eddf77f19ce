"""Print the calibration error of the confidences of a model, and what goes with the quality of a line.

    python tests/decode/measure_confidence.py RUN

Fits to greedy translations of data.dev, as every validation does, and measures on translations of data.test.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics.chrf import CHRF

from nmt.decode.confidence import LEAST_COVERAGE, Calibration, confidence_of, coverage, repeated, samples_of, words_of
from nmt.decode.translator import load
from nmt.text.lines import iter_pairs
from nmt.train.preparation import corpus_paths

N_BINS = 10


def calibration_error(confidences: ArrayLike, right: ArrayLike) -> float:
    """Expected calibration error: the mean over `N_BINS` bins of |mean confidence - share right|, weighted by size."""
    p, y = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    bins = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    return float(np.abs(np.bincount(bins, p - y, N_BINS)).sum() / len(p))


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value; the mean rank of equal ones."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def measure(path: Path) -> None:
    translator, samples, found = load(path, "cpu"), {}, []
    for corpus, beam in (("dev", 1), ("test", translator.options.beam)):
        pairs = list(iter_pairs(*corpus_paths(translator.config, getattr(translator.config.data, corpus))))
        found = list(translator.translate_lines([one.source for one in pairs], translator.with_options(beam=beam)))
        rows = (samples_of(translator, x.hypotheses[0], y.target) for x, y in zip(found, pairs, strict=True))
        samples[corpus] = np.array([row for of_line in rows for row in of_line], np.float64)
    fitted, table = Calibration.fit(samples["dev"].tolist()), samples["test"]
    print(f"{path}: {len(table)} words of {len(found)} lines, {table[:, 2].mean():.1%} right; {fitted}")
    for name, one in {"probability": Calibration(), "calibrated": fitted}.items():
        error = calibration_error([one.confidence(*row[:2]) for row in table], table[:, 2])
        print(f"expected calibration error, {name:<14} {error:.4f}")
    translator.progress = {"best_figures": {"confidence": list(fitted)}}
    words = [words_of(translator, one.hypotheses[0]) for one in found]
    chrf = np.array([CHRF().sentence_score(x.text, [y.target]).score for x, y in zip(found, pairs, strict=True)])
    signs = {
        "mean log-probability": [np.mean(one.hypotheses[0].log_probs or [0.0]) for one in found],
        "mean confidence": [confidence_of(of_line) for of_line in words],
        "least confidence": [min((word.confidence for word in of_line), default=1.0) for of_line in words],
        "coverage": [coverage(translator, one) for one in found],
        "no repetition": [float(not repeated(one.text)) for one in found],
    }
    print("correlation with sentence chrF    Pearson  Spearman")
    for sign, values in signs.items():
        of_lines = np.array(values, np.float64)
        if np.ptp(of_lines):
            both = (np.corrcoef(x, y)[0, 1] for x, y in ((of_lines, chrf), (ranks(of_lines), ranks(chrf))))
            print("{:<34}{:7.3f}{:10.3f}".format(sign, *both))
        least = {"mean confidence": 0.6, "coverage": LEAST_COVERAGE}.get(sign, -np.inf)
        if np.any(low := of_lines < least):
            print(
                f"  below {least}: {low.mean():.1%} of lines, chrF {chrf[low].mean():.1f} and {chrf[~low].mean():.1f}"
            )


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
