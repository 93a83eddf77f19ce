"""BLEU, chrF and TER by sacreBLEU, with signature and confidence interval; paired comparison; and perplexity.

All scores, those of resamples included, are sacreBLEU's. The intervals are quantiles of resampled scores (the bootstrap
percentile interval of Efron and Tibshirani 1993, chapter 13), for one system as for the difference of two. Hypotheses
are detokenized text. Language and script of the references choose the settings, see `choose_settings`.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.config import base_language
from nmt.errors import ConfigError, DataError
from nmt.text.scripts import REGIONAL_CHINESE, Script, main_script

DEFAULT_TOKENIZER = "13a"
QUANTILES = (0.025, 0.975)  # of a 95 % interval
N_TOKENIZED = 100  # lines that end in " ." from which on text counts as tokenized, as in sacreBLEU

# TER's tokens: words; or words, and single Han characters (sacreBLEU's `normalized` with `asian_support`).
TerTokens = Literal["words", "characters"]


@dataclass(frozen=True)
class ScoreSettings:
    """How translations are scored; the default is that for languages with spaces between words."""

    tokenize: str = DEFAULT_TOKENIZER  # sacreBLEU's tokenizer for BLEU
    ter: TerTokens | None = "words"  # None: TER makes no sense and is left out
    lowercase: bool = False

    @property
    def left_out(self) -> str:
        """A statement that TER is left out and why; empty if it is not."""
        if self.ter is not None:
            return ""
        return "TER is left out: it counts words, and the references have no spaces between words"


@dataclass(frozen=True)
class Score:
    """A score with sacreBLEU's signature, which describes how it was computed."""

    name: str  # BLEU, chrF2 or TER
    value: float  # 0-100; TER may be larger
    low: float | None  # 95 % interval by bootstrap over sentences; None without bootstrap
    high: float | None
    signature: str  # sacreBLEU's

    def __str__(self) -> str:
        interval = ""
        if self.low is not None:
            interval = f"  (95 %: {self.low:.1f} to {self.high:.1f})"
        return f"{self.name} = {self.value:.2f}{interval}  {self.signature}"


@dataclass(frozen=True)
class Difference:
    """The score of a system minus that of the baseline."""

    value: float
    low: float  # 95 % interval by paired bootstrap over sentences
    high: float
    p_value: float  # see `paired_p_value`; null hypothesis: the systems are equally good


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


def choose_settings(
    language: str,
    references: Sequence[Sequence[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> ScoreSettings:
    """Choose how to score translations into a language, by its code and by the script of the references.

    The script goes first, because a code may be unknown or wrong: file names such as test.tgt look like one. The code
    decides what the script leaves open: Han is Chinese or Japanese; and a text with some letters of an unspaced script
    may be one in this script with many foreign names, or one in a spaced script with a few.

    Args:
        language: a code such as zh, th-TH, my_Mymr or zho_Hans; empty if unknown.
        references: one or several lists of lines; without letters in them, only the code decides.
        tokenize: sacreBLEU's tokenizer that the user asks for. With `none`, tokens are what spaces separate, for TER
            as well as for BLEU.
        lowercase: whether BLEU and chrF ignore case.
    """
    if tokenize == "none":
        return ScoreSettings("none", "words", lowercase)
    code = base_language(language)
    chosen = settings_of(main_script(code, chain.from_iterable(references)), code)
    return ScoreSettings(tokenize or chosen.tokenize, chosen.ter, lowercase)


def settings_of(script: Script, code: str) -> ScoreSettings:
    """Return how text in a script is scored; `code` is the code of its language."""
    match script:
        case "spaced":
            return ScoreSettings()
        case "Hangul":
            # Korean has spaces between words, which writers place differently: BLEU by characters, TER by words.
            return ScoreSettings("char")
        case "Han":
            # sacreBLEU's tokenizer `zh` is made for modern Chinese: it does not separate the ideographs beyond the
            # Basic Multilingual Plane, which regional and literary Chinese use.
            return ScoreSettings("char" if code in REGIONAL_CHINESE else "zh", "characters")
        case "kana":
            return ScoreSettings("char", "characters")
        case "unspaced":
            # sacreBLEU's TER has no setting that separates letters of these scripts.
            return ScoreSettings("char", None)


def bleu_tokenizer(language: str, references: Sequence[Sequence[str]] = ()) -> str:
    """Return sacreBLEU's tokenizer for a target language and, if they are known, the script of the references."""
    return choose_settings(language, references).tokenize


def tokenized_warning(lines: Sequence[str], name: str, tokenize: str) -> str:
    """Return a warning if text is tokenized, as sacreBLEU's: 100 lines end in " .". Empty with `--tokenize none`."""
    n_tokenized = sum(line.endswith(" .") for line in lines)
    if n_tokenized < N_TOKENIZED or tokenize == "none":
        return ""
    facts = f"{n_tokenized:,} of {len(lines):,} {name} end in ' .', as in tokenized text"
    return f"{facts}: BLEU is defined for detokenized text; to score tokens as they are, `nmt eval --tokenize none`"


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = DEFAULT_TOKENIZER,
    lowercase: bool = False,
    ter: TerTokens | None = "words",
    n_bootstrap: int = 0,
) -> list[Score]:
    """Score translations by any of bleu, chrf and ter, against one or several lists of references.

    Without `ter`, that metric is left out. `tokenize`, `lowercase` and `ter` are fields of `ScoreSettings`.

    Raises DataError if the numbers of lines differ, or there are none, and ConfigError as `sacrebleu_metrics`.
    """
    check_references(references, hypotheses, "hypotheses")
    if not hypotheses:
        raise DataError("nothing to score: the files are empty", hint="give at least one line")
    chosen = sacrebleu_metrics(references, tokenize=tokenize, lowercase=lowercase, ter=ter)
    return [score_by(chosen[name], hypotheses, n_bootstrap) for name in metrics if name in chosen]


def sacrebleu_metrics(
    references: Sequence[Sequence[str]],
    *,
    tokenize: str = DEFAULT_TOKENIZER,
    lowercase: bool = False,
    ter: TerTokens | None = "words",
) -> dict[str, Metric]:
    """Return sacreBLEU's metrics by name: bleu, chrf, ter. They process the references once.

    TER always ignores case, as in sacreBLEU's command. Raises ConfigError if sacreBLEU has no such tokenizer, or a
    library that it needs is missing.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"no sacreBLEU tokenizer '{tokenize}'", hint=f"one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    try:
        # `force` only turns off sacreBLEU's warning about tokenized text; ours is `tokenized_warning`.
        bleu = BLEU(lowercase=lowercase, tokenize=tokenize, force=True, references=references)
    except (RuntimeError, ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        message = f"sacreBLEU's tokenizer '{tokenize}' cannot be used here: {reason}"
        raise ConfigError(message, hint="choose another with --tokenize") from error
    chrf = CHRF(lowercase=lowercase, references=references)
    metrics: dict[str, Metric] = {"bleu": bleu, "chrf": chrf}
    if ter is not None:
        by_character = ter == "characters"
        metrics["ter"] = TER(normalized=by_character, asian_support=by_character, references=references)
    return metrics


def score_by(metric: Metric, hypotheses: Sequence[str], n_bootstrap: int) -> Score:
    """Score translations by a metric that has the references; the interval needs at least 2 resamples."""
    statistics = line_statistics(metric, hypotheses)
    value = score_of(metric, statistics.sum(0))
    low = high = None
    n_trials = n_bootstrap if n_bootstrap > 1 else 0
    if n_trials:
        (resampled,) = resampled_scores(metric, [statistics], n_trials)
        low, high = interval(resampled)
    return Score(metric_name(metric), value, low, high, signature_of(metric, n_trials))


def paired_scores(
    systems: Sequence[Sequence[str]], metrics: Mapping[str, Metric], *, n_trials: int = 1000
) -> list[PairedScore]:
    """Score systems and compare each with the first one on the same resamples of the lines (Koehn 2004).

    The metrics, from `sacrebleu_metrics`, have the references.
    """
    return [paired_score(systems, metric, n_trials) for metric in metrics.values()]


def paired_score(systems: Sequence[Sequence[str]], metric: Metric, n_trials: int) -> PairedScore:
    # 1. Score all systems, on all lines and on the same resamples.
    statistics = [line_statistics(metric, lines) for lines in systems]
    baseline, *values = [score_of(metric, counts.sum(0)) for counts in statistics]
    resampled_baseline, *resampled = resampled_scores(metric, statistics, n_trials)
    # 2. Compare each with the baseline.
    scores = [SystemScore(baseline, None)]
    for value, resampled_values in zip(values, resampled, strict=True):
        differences = resampled_values - resampled_baseline
        low, high = interval(differences)
        p_value = paired_p_value(value - baseline, differences, len(systems[0]))
        scores.append(SystemScore(value, Difference(value - baseline, low, high, p_value)))
    return PairedScore(metric_name(metric), signature_of(metric, n_trials), scores)


def paired_p_value(difference: float, resampled: NDArray[np.float64], n_lines: int) -> float:
    """Return the p-value of a difference of two systems, given the differences on resamples of the lines.

    A p-value is the probability of a result at least as extreme as the observed one if the systems are equally good.
    As in sacreBLEU and in Riezler and Maxwell (2005), resampled absolute differences minus their mean are the results
    under this hypothesis, and the observed one counts as one of them. Ties count, which sacreBLEU leaves out: for equal
    systems, it finds 1 / (number of resamples + 1).
    """
    if difference == 0:  # every result is at least as extreme
        return 1.0
    absolute = np.abs(resampled)
    shifted = absolute - absolute.mean()
    n_extreme = int(np.sum(shifted >= abs(difference)))
    p_value = (n_extreme + 1) / (len(resampled) + 1)
    # n lines have at most n^n different resamples, so no smaller p-value means anything: one line shows nothing.
    smallest = float(n_lines) ** -n_lines
    return max(p_value, smallest)


def line_statistics(metric: Metric, hypotheses: Sequence[str]) -> NDArray[np.float64]:
    """Return what sacreBLEU counts in each line, such as matching n-grams: (lines, statistics).

    The metric has the references. This method is not public, but sacreBLEU's public ones return no counts for chrF,
    and no resampled scores.
    """
    return np.array(metric._extract_corpus_statistics(hypotheses, None), dtype=float)


def score_of(metric: Metric, statistics: NDArray[np.float64]) -> float:
    """Return sacreBLEU's score of a text, given the sums of the statistics of its lines: (statistics,)."""
    value = float(metric._compute_score_from_stats(statistics.tolist()).score)
    # By rounding, BLEU of a perfect translation is 100.00000000000004.
    return value if isinstance(metric, TER) else min(value, 100.0)


def resampled_scores(metric: Metric, statistics: Sequence[NDArray[np.float64]], n_trials: int) -> NDArray[np.float64]:
    """Return the scores of systems on the same resamples of their lines: (systems, n_trials).

    A resample draws as many lines as there are, with replacement; sacreBLEU draws the same.
    """
    n_lines = len(statistics[0])
    seed = sacrebleu_seed()
    generator = np.random.default_rng(None if seed == "none" else int(seed))
    scores = np.empty((len(statistics), n_trials))
    for trial in range(n_trials):
        lines = generator.choice(n_lines, size=n_lines, replace=True)
        for system, counts in enumerate(statistics):
            scores[system, trial] = score_of(metric, counts[lines].sum(0))
    return scores


def sacrebleu_seed() -> str:
    """Return the seed of sacreBLEU's resamples, as it stands in signatures; `none` draws others at every call.

    Raises ConfigError if the environment variable that sets it has no number.
    """
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    if seed != "none" and not seed.isdecimal():
        raise ConfigError(f"SACREBLEU_SEED is {seed}, not a whole number", hint="set a number, or `none`, or unset it")
    return seed


def interval(resampled: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of resampled values: lower and upper bound."""
    low, high = np.quantile(resampled, QUANTILES).tolist()
    return low, high


def metric_name(metric: Metric) -> str:
    """Return the name of a metric as sacreBLEU prints it."""
    return f"chrF{metric.beta}" if isinstance(metric, CHRF) else type(metric).__name__


def signature_of(metric: Metric, n_trials: int) -> str:
    """Return sacreBLEU's signature, with the number of resamples if there are any."""
    signature = metric.get_signature()
    if n_trials:
        signature.update("bs", n_trials)
        signature.update("seed", sacrebleu_seed())
    return str(signature)


def check_references(references: Sequence[Sequence[str]], lines: Sequence[str], name: str) -> None:
    """Raise DataError if a reference and `lines` differ in length; `name` describes `lines` in the message."""
    for number, reference in enumerate(references, 1):
        if len(reference) != len(lines):
            message = f"{len(lines)} {name} but {len(reference)} lines in reference {number}"
            raise DataError(message, hint="line N of a reference must translate line N of the source")


def sentence_bleu(text: str, reference: str, *, tokenize: str = DEFAULT_TOKENIZER) -> float:
    """Return sacreBLEU's `sentence_score`, 0-100: BLEU of n-grams no longer than the sentence."""
    return float(BLEU(tokenize=tokenize, effective_order=True).sentence_score(text, [reference]).score)


def perplexity(log_probs: Sequence[Sequence[float]]) -> float:
    """Return exp of the mean negative log-probability per piece, EOS included, over all lines."""
    n_pieces = sum(map(len, log_probs))
    nll = -sum(map(sum, log_probs)) / max(n_pieces, 1)
    return math.exp(nll) if nll < 709 else math.inf


def readable(value: float, digits: int = 2) -> str:
    """Write a loss or a perplexity; from a million on, with an exponent, as it says only that a model diverged."""
    return f"{value:.{digits}e}" if value >= 1e6 else f"{value:.{digits}f}"
