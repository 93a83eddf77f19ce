"""BLEU, chrF and TER with confidence intervals, paired comparison of systems, and perplexity.

sacreBLEU computes all scores. Hypotheses are detokenized text. Confidence intervals are bootstrap percentile intervals
(Efron and Tibshirani 1993, chapter 13): their bounds are two quantiles of the scores on resamples of the lines.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.errors import ConfigError, DataError
from nmt.languages import is_regional_chinese
from nmt.text.scripts import Script, main_script

log = logging.getLogger("nmt")

DEFAULT_TOKENIZER = "13a"
SEED = 12345  # sacreBLEU's default seed; with it, sacreBLEU draws the same resamples
QUANTILES = (0.025, 0.975)  # the bounds of a 95 % interval
N_TOKENIZED = 100  # as in sacreBLEU, a text with this many lines that end in " ." counts as tokenized

# The tokens that TER counts. "words" are separated by spaces. With "characters", each Han character and each
# punctuation mark is also a token, as with sacreBLEU's `normalized` and `asian_support`.
TerTokens = Literal["words", "characters"]


@dataclass(frozen=True)
class ScoreSettings:
    """The settings for scoring translations. The defaults are for languages with spaces between words."""

    tokenize: str = DEFAULT_TOKENIZER  # sacreBLEU's tokenizer for BLEU
    ter: TerTokens | None = "words"  # None: TER is left out, as for text without spaces
    lowercase: bool = False

    @property
    def left_out(self) -> str:
        """Return a message that says why TER is left out. It is empty if TER is computed."""
        if self.ter is not None:
            return ""
        return "TER is left out: it counts words, and the references have no spaces between words"


SPACED = ScoreSettings()


@dataclass(frozen=True)
class Score:
    """A score, and sacreBLEU's signature, which describes how the score was computed."""

    name: str  # BLEU, chrF2 or TER
    value: float  # from 0 to 100; TER may be larger
    low: float | None  # lower bound of the 95 % interval, by bootstrap over sentences; None without bootstrap
    high: float | None  # upper bound of the interval; None without bootstrap
    signature: str

    def __str__(self) -> str:
        interval = ""
        if self.low is not None:
            interval = f"  (95 %: {self.low:.1f} to {self.high:.1f})"
        return f"{self.name} = {self.value:.2f}{interval}  {self.signature}"


@dataclass(frozen=True)
class Difference:
    """The difference between two scores: the score of a system minus the score of the baseline."""

    value: float
    low: float  # lower bound of the 95 % interval, by paired bootstrap over sentences
    high: float  # upper bound of the interval
    p_value: float  # see `paired_p_value`; the null hypothesis is that the systems are equally good


@dataclass(frozen=True)
class SystemScore:
    """The score of one system in a comparison.

    A lower TER is better. So for TER, a positive difference means that the system is worse.
    """

    value: float
    difference: Difference | None  # None for the baseline


@dataclass(frozen=True)
class PairedScore:
    """The scores of several systems by one metric."""

    name: str
    signature: str  # sacreBLEU's signature, with the number of resamples
    systems: list[SystemScore]  # the first system is the baseline


def choose_settings(
    language: str,
    references: Sequence[Sequence[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> ScoreSettings:
    """Choose the settings for scoring translations by the script of the references and the language code.

    The script is considered first, because the code may be wrong: it may be the ending of a file name such as test.tgt.
    The code helps if the text has Han characters, which may be Chinese or Japanese. It also helps if the text mixes
    spaced and unspaced scripts.

    Args:
        language: a code such as zh, th-TH, my_Mymr or zho_Hans; empty if unknown.
        references: one or several lists of lines. If the lines have no letters, only the code decides.
        tokenize: the sacreBLEU tokenizer that the user asks for. With `none`, BLEU and TER split text at spaces.
        lowercase: whether BLEU and chrF ignore case.
    """
    if tokenize == "none":
        return ScoreSettings("none", "words", lowercase)
    chosen = settings_of(main_script(language, chain.from_iterable(references)), language)
    return ScoreSettings(tokenize or chosen.tokenize, chosen.ter, lowercase)


def settings_of(script: Script, language: str) -> ScoreSettings:
    """Return the settings for text in a script. `language` is a code, or empty if unknown."""
    match script:
        case "spaced":
            return SPACED
        case "Hangul":
            # Writers of Korean differ in where they write spaces, so BLEU counts characters. TER counts words.
            return ScoreSettings("char")
        case "Han":
            # sacreBLEU's tokenizer `zh` does not separate ideographs beyond the Basic Multilingual Plane. Regional and
            # literary Chinese use them.
            return ScoreSettings("char" if is_regional_chinese(language) else "zh", "characters")
        case "kana":
            return ScoreSettings("char", "characters")
        case "unspaced":
            # TER is left out, because sacreBLEU's TER cannot separate the letters of these scripts.
            return ScoreSettings("char", None)


def warn_if_tokenized(lines: Sequence[str], name: str, tokenize: str | None = None) -> None:
    """Log a warning if at least `N_TOKENIZED` lines end in " .", as in tokenized text.

    With `--tokenize none`, there is no warning. The message calls the lines `name`.
    """
    n_tokenized = sum(line.endswith(" .") for line in lines)
    if n_tokenized < N_TOKENIZED or tokenize == "none":
        return
    message = "%d of %d %s end in ' .', as in tokenized text: BLEU is defined for detokenized text; "
    message += "to score tokens as they are, `nmt eval --tokenize none`"
    log.warning(message, n_tokenized, len(lines), name)


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    settings: ScoreSettings = SPACED,
    *,
    n_bootstrap: int = 0,
) -> list[Score]:
    """Score translations by bleu, chrf or ter, against one or several lists of references.

    Raises:
        DataError: there are no hypotheses, or a list of references has another number of lines.
        ConfigError: sacreBLEU's tokenizer cannot be used.
    """
    check_references(references, hypotheses, "hypotheses")
    if not hypotheses:
        raise DataError("nothing to score: the files are empty", hint="give at least one line")
    chosen = sacrebleu_metrics(references, settings)
    return [score_by(chosen[name], hypotheses, n_bootstrap) for name in metrics if name in chosen]


def sacrebleu_metrics(references: Sequence[Sequence[str]], settings: ScoreSettings = SPACED) -> dict[str, Metric]:
    """Return sacreBLEU's metrics by name: bleu, chrf and ter. If `settings.ter` is None, ter is left out.

    The metrics hold the references. TER always ignores case, as in sacreBLEU's command.

    Raises ConfigError if the tokenizer is unknown, or needs a library that is missing.
    """
    tokenize = settings.tokenize
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"no sacreBLEU tokenizer '{tokenize}'", hint=f"one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    try:
        # `force` turns off sacreBLEU's warning about tokenized text, which `warn_if_tokenized` replaces.
        bleu = BLEU(lowercase=settings.lowercase, tokenize=tokenize, force=True, references=references)
    except (RuntimeError, ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        message = f"sacreBLEU's tokenizer '{tokenize}' cannot be used here: {reason}"
        raise ConfigError(message, hint="choose another with --tokenize") from error
    chrf = CHRF(lowercase=settings.lowercase, references=references)
    metrics: dict[str, Metric] = {"bleu": bleu, "chrf": chrf}
    if settings.ter is not None:
        by_character = settings.ter == "characters"
        metrics["ter"] = TER(normalized=by_character, asian_support=by_character, references=references)
    return metrics


def score_by(metric: Metric, hypotheses: Sequence[str], n_bootstrap: int) -> Score:
    """Score translations by a metric that holds the references. If `n_bootstrap` is under 2, there is no interval."""
    statistics = line_statistics(metric, hypotheses)
    value = score_of(metric, statistics.sum(0))
    low = high = None
    n_trials = n_bootstrap if n_bootstrap > 1 else 0
    if n_trials:
        (resampled,) = resampled_scores(metric, [statistics], n_trials)
        low, high = interval(resampled)
    return Score(metric_name(metric), value, low, high, signature_of(metric, n_trials))


def paired_score(systems: Sequence[Sequence[str]], metric: Metric, n_trials: int = 1000) -> PairedScore:
    """Score systems, and compare each with the first by paired bootstrap (Koehn 2004).

    The metric holds the references.
    """
    # 1. Score all systems on all lines, and on the same resamples of the lines.
    statistics = [line_statistics(metric, lines) for lines in systems]
    baseline, *values = [score_of(metric, counts.sum(0)) for counts in statistics]
    resampled_baseline, *resampled = resampled_scores(metric, statistics, n_trials)
    # 2. Compare each system except the first with the first system, which is the baseline.
    scores = [SystemScore(baseline, None)]
    for value, resampled_values in zip(values, resampled, strict=True):
        differences = resampled_values - resampled_baseline
        low, high = interval(differences)
        p_value = paired_p_value(value - baseline, differences, len(systems[0]))
        scores.append(SystemScore(value, Difference(value - baseline, low, high, p_value)))
    return PairedScore(metric_name(metric), signature_of(metric, n_trials), scores)


def paired_p_value(difference: float, resampled: NDArray[np.float64], n_lines: int) -> float:
    """Return the p-value of the difference between two systems, given their differences on resamples of the lines.

    The null hypothesis is that both systems are equally good. As in sacreBLEU and in Riezler and Maxwell (2005), the
    absolute differences on resamples are shifted so that their mean is 0. The p-value is the share of shifted
    differences that are at least as large as the observed difference. The observed difference counts as one more.

    If the translations of both systems are equal, the p-value is 1. sacreBLEU's is 1 / (number of resamples + 1).
    """
    if difference == 0:
        return 1.0
    absolute = np.abs(resampled)
    shifted = absolute - absolute.mean()
    n_extreme = int(np.sum(shifted >= abs(difference)))
    p_value = (n_extreme + 1) / (len(resampled) + 1)
    # A text of n lines has at most n^n different resamples, so a p-value below 1 / n^n has no meaning.
    smallest = float(n_lines) ** -n_lines
    return max(p_value, smallest)


def line_statistics(metric: Metric, hypotheses: Sequence[str]) -> NDArray[np.float64]:
    """Return what sacreBLEU counts in each line, such as matching n-grams: an array (lines, statistics).

    The metric holds the references. No public method of sacreBLEU returns the counts of chrF.
    """
    return np.array(metric._extract_corpus_statistics(hypotheses, None), dtype=float)


def score_of(metric: Metric, statistics: NDArray[np.float64]) -> float:
    """Return sacreBLEU's score of a text. `statistics` is the sum of `line_statistics` over the lines of the text."""
    value = float(metric._compute_score_from_stats(statistics.tolist()).score)
    # Rounding can give a perfect translation a BLEU of 100.00000000000004. TER may exceed 100.
    return value if isinstance(metric, TER) else min(value, 100.0)


def resampled_scores(metric: Metric, statistics: Sequence[NDArray[np.float64]], n_trials: int) -> NDArray[np.float64]:
    """Return the scores of all systems on the same resamples of the lines: an array (systems, n_trials).

    A resample has as many lines as the text, drawn with replacement.
    """
    n_lines = len(statistics[0])
    generator = np.random.default_rng(SEED)
    scores = np.empty((len(statistics), n_trials))
    for trial in range(n_trials):
        lines = generator.choice(n_lines, n_lines)
        for system, counts in enumerate(statistics):
            scores[system, trial] = score_of(metric, counts[lines].sum(0))
    return scores


def interval(resampled: NDArray[np.float64]) -> tuple[float, float]:
    """Return the lower and the upper bound of the 95 % interval of resampled values."""
    low, high = np.quantile(resampled, QUANTILES).tolist()
    return low, high


def metric_name(metric: Metric) -> str:
    """Return the name that sacreBLEU prints for a metric, such as chrF2."""
    return f"chrF{metric.beta}" if isinstance(metric, CHRF) else type(metric).__name__


def signature_of(metric: Metric, n_trials: int) -> str:
    """Return sacreBLEU's signature. If there are resamples, the signature contains their number and seed."""
    signature = metric.get_signature()
    if n_trials:
        signature.update("bs", n_trials)
        signature.update("seed", SEED)
    return str(signature)


def check_references(references: Sequence[Sequence[str]], lines: Sequence[str], name: str) -> None:
    """Raise DataError if a list of references has another number of lines than `lines`.

    The message calls these lines `name`.
    """
    for number, reference in enumerate(references, 1):
        if len(reference) != len(lines):
            message = f"{len(lines)} {name} but {len(reference)} lines in reference {number}"
            raise DataError(message, hint="line N of a reference must translate line N of the source")


def perplexity(log_probs: Sequence[Sequence[float]]) -> float:
    """Return the perplexity: exp of the mean negative log-probability per piece. EOS counts as a piece."""
    n_pieces = sum(map(len, log_probs))
    nll = -sum(map(sum, log_probs)) / max(n_pieces, 1)
    return math.exp(nll) if nll < 709 else math.inf


def readable(value: float, digits: int = 2) -> str:
    """Return a loss or a perplexity as text.

    Values of a million or more, as of a diverged model, are written with an exponent.
    """
    return f"{value:.{digits}e}" if value >= 1e6 else f"{value:.{digits}f}"
