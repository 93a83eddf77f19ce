"""BLEU, chrF and TER by sacreBLEU, with signature and confidence interval; and perplexity.

Several systems are compared by sacreBLEU's paired bootstrap. Hypotheses are detokenized text. Imports no torch.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from nmt.config import base_language
from nmt.errors import ConfigError, DataError

BLEU_TOKENIZERS = dict.fromkeys(("zh", "zho", "cmn", "yue"), "zh") | dict.fromkeys(("ja", "jpn", "ko", "kor"), "char")
DEFAULT_TOKENIZER = "13a"


@dataclass(frozen=True)
class Score:
    """A score with sacreBLEU's signature, which describes how it was computed."""

    name: str  # BLEU, chrF2 or TER
    value: float  # 0-100; TER may be larger
    low: float | None  # 95 % interval by bootstrap over sentences; None without bootstrap
    high: float | None
    signature: str  # sacreBLEU's

    def __str__(self) -> str:
        interval = "" if self.low is None else f"  (95 %: {self.low:.1f} to {self.high:.1f})"
        return f"{self.name} = {self.value:.2f}{interval}  {self.signature}"


@dataclass(frozen=True)
class Difference:
    """The score of a system minus that of the baseline."""

    value: float
    low: float  # 95 % interval by paired bootstrap over sentences
    high: float
    p_value: float  # of sacreBLEU's paired bootstrap; null hypothesis: the systems are equally good


@dataclass(frozen=True)
class SystemScore:
    """The score of one of several systems. Lower TER is better: a positive difference means a worse system."""

    value: float
    difference: Difference | None  # None for the baseline


@dataclass(frozen=True)
class PairedScore:
    """The scores of several systems by one metric."""

    name: str
    signature: str  # sacreBLEU's, with the number of resamples
    systems: list[SystemScore]  # the baseline first


def bleu_tokenizer(language: str) -> str:
    """Return sacreBLEU's tokenizer for a target language: 13a, or characters for Chinese, Japanese and Korean."""
    return BLEU_TOKENIZERS.get(base_language(language), DEFAULT_TOKENIZER)


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = DEFAULT_TOKENIZER,
    lowercase: bool = False,
    n_bootstrap: int = 0,
) -> list[Score]:
    """Score translations by any of bleu, chrf and ter, against one or several lists of references.

    Raises DataError if the numbers of lines differ, or there are none, and ConfigError as `sacrebleu_metrics`.
    """
    check_references(references, hypotheses, "hypotheses")
    if not hypotheses:
        raise DataError("nothing to score: the files are empty", hint="give at least one line")
    known = sacrebleu_metrics(tokenize=tokenize, lowercase=lowercase)
    return [_score(known[name], hypotheses, references, n_bootstrap) for name in metrics]


def sacrebleu_metrics(
    references: Sequence[Sequence[str]] | None = None, *, tokenize: str = DEFAULT_TOKENIZER, lowercase: bool = False
) -> dict[str, Metric]:
    """Return sacreBLEU's metrics by name: bleu, chrf, ter. References are processed once, if they are given here.

    TER always ignores case, as in sacreBLEU's command. Raises ConfigError if sacreBLEU has no such tokenizer, or a
    library that it needs is missing.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"no sacreBLEU tokenizer '{tokenize}'", hint=f"one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    try:
        bleu = BLEU(lowercase=lowercase, tokenize=tokenize, references=references)
    except (RuntimeError, ImportError, OSError) as error:
        message = f"sacreBLEU's tokenizer '{tokenize}' cannot be used here: {' '.join(str(error).split())}"
        raise ConfigError(message, hint="choose another with --tokenize") from error
    chrf = CHRF(lowercase=lowercase, references=references)
    return {"bleu": bleu, "chrf": chrf, "ter": TER(references=references)}


def paired_scores(
    systems: Sequence[Sequence[str]], metrics: Mapping[str, Metric], *, n_trials: int = 1000
) -> list[PairedScore]:
    """Score systems and compare each with the first one, as `sacrebleu --paired-bs` does (Koehn 2004).

    Scores and p-values are sacreBLEU's. The interval of a difference is a bootstrap interval from the same resamples.
    The metrics, from `sacrebleu_metrics`, have the references.
    """
    named: list[tuple[str, Sequence[str]]] = [(str(i), tuple(lines)) for i, lines in enumerate(systems)]
    for metric in metrics.values():  # cache the slowest part, which sacreBLEU's test and the intervals need
        metric._extract_corpus_statistics = functools.cache(metric._extract_corpus_statistics)  # type: ignore[method-assign]
    paired = PairedTest(named, metrics, references=None, test_type="bs", n_samples=n_trials)
    signatures, results = paired()
    n_lines = len(named[0][1])
    draws = np.random.default_rng(paired._seed).choice(n_lines, size=(n_trials, n_lines), replace=True)
    found = []
    for name, metric in paired.metrics.items():
        resampled = [_resampled(metric, lines, draws) for _, lines in named]
        scores: list[SystemScore] = []
        for i, result in enumerate(results[name]):
            assert not isinstance(result, str)  # only the names of the systems are strings
            difference = None
            if result.p_value is not None:
                low, high = np.quantile(resampled[i] - resampled[0], (0.025, 0.975)).tolist()
                difference = Difference(float(result.score) - scores[0].value, low, high, float(result.p_value))
            scores.append(SystemScore(float(result.score), difference))
        found.append(PairedScore(name, str(signatures[name]), scores))
    return found


def _resampled(metric: Metric, lines: Sequence[str], draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the score of each resample: a row of `draws` (resamples, lines), which holds indices of lines."""
    statistics = np.array(metric._extract_corpus_statistics(lines, None), dtype=float)  # (lines, statistics)
    sums = (statistics[row].sum(0).tolist() for row in draws)
    return np.array([metric._compute_score_from_stats(total).score for total in sums])


def check_references(references: Sequence[Sequence[str]], lines: Sequence[str], name: str) -> None:
    """Raise DataError if a reference and `lines` differ in length; `name` describes `lines` in the message."""
    for number, reference in enumerate(references, 1):
        if len(reference) != len(lines):
            message = f"{len(lines)} {name} but {len(reference)} lines in reference {number}"
            raise DataError(message, hint="line N of a reference must translate line N of the source")


def _score(metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], n_bootstrap: int) -> Score:
    # sacreBLEU's bootstrap computes some scores in float and some in numpy.float32; statistics.mean refuses the mix.
    # Its public API neither converts them nor returns the interval's bounds as numbers.
    compute = metric._compute_score_from_stats
    metric._compute_score_from_stats = lambda stats: compute([float(x) for x in stats])  # type: ignore[method-assign]
    result = metric.corpus_score(hypotheses, references, n_bootstrap=n_bootstrap or 1)
    low = high = None
    if n_bootstrap > 1:  # with n_bootstrap=1, sacreBLEU does not resample
        low, high = float(result._mean - result._ci), float(result._mean + result._ci)
    return Score(result.name, float(result.score), low, high, str(metric.get_signature()))


def sentence_bleu(text: str, reference: str, *, tokenize: str = DEFAULT_TOKENIZER) -> float:
    """Return sacreBLEU's `sentence_score`, 0-100: BLEU of n-grams no longer than the sentence."""
    return float(BLEU(tokenize=tokenize, effective_order=True).sentence_score(text, [reference]).score)


def perplexity(log_probs: Sequence[Sequence[float]]) -> float:
    """Return exp of the mean negative log-probability per piece, EOS included, over all lines."""
    nll = -sum(map(sum, log_probs)) / max(sum(map(len, log_probs)), 1)
    return math.exp(nll) if nll < 709 else math.inf
