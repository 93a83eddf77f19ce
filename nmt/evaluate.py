"""Scores with their recipe: BLEU, chrF and TER by sacreBLEU, each with its signature and interval.

Hypotheses are detokenised text, references are untouched. Imports no torch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.config import base_language
from nmt.errors import ConfigError, DataError

BLEU_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "cmn", "yue"), "zh"),
    **dict.fromkeys(("ja", "jpn", "ko", "kor"), "char"),
}
DEFAULT_TOKENIZER = "13a"


@dataclass(frozen=True)
class Score:
    """A figure with the recipe that gives it.

    Attributes:
        name: BLEU, chrF2, TER.
        value: 0-100 (TER may be more).
        low, high: 95 % interval by bootstrap over sentences; None where it was not asked for.
        signature: sacreBLEU's.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    signature: str

    def __str__(self) -> str:
        interval = "" if self.low is None else f"  (95 %: {self.low:.1f} to {self.high:.1f})"
        return f"{self.name} = {self.value:.2f}{interval}  {self.signature}"


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a target language: 13a, but characters for Chinese, Japanese and Korean."""
    return BLEU_TOKENIZERS.get(base_language(language), DEFAULT_TOKENIZER)


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str = DEFAULT_TOKENIZER,
    lowercase: bool = False,
    metrics: Sequence[str] = ("bleu", "chrf"),
    n_bootstrap: int = 0,
) -> list[Score]:
    """Score translations.

    Args:
        hypotheses: one a sentence.
        references: one or several lists, each as long as `hypotheses`.
        tokenize: sacreBLEU's tokenizer for BLEU.
        lowercase: compare without case.
        metrics: of bleu, chrf, ter, in this order.
        n_bootstrap: resamplings for the interval; 0 for none.
    Raises:
        DataError: the numbers of lines differ, or there are none.
    """
    for number, lines in enumerate(references, 1):
        if len(lines) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses but {len(lines)} lines in reference {number}",
                hint="line N of a reference must translate line N of the source",
            )
    if not hypotheses:
        raise DataError("nothing to score: the files are empty", hint="give at least one line")
    makers: dict[str, Callable[[], Metric]] = {
        "bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenize),
        "chrf": lambda: CHRF(lowercase=lowercase),
        "ter": lambda: TER(case_sensitive=not lowercase),
    }
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(
            f"sacreBLEU has no tokenizer '{tokenize}'", hint=f"there is {', '.join(sorted(BLEU.TOKENIZERS))}"
        )
    try:
        made = [makers[name]() for name in metrics]
    except (RuntimeError, ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"sacreBLEU's tokenizer '{tokenize}' cannot be used here: {reason}",
            hint="give another with --tokenize",
        ) from error
    return [_score(metric, hypotheses, references, n_bootstrap) for metric in made]


def _score(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], n_bootstrap: int
) -> Score:
    compute = metric._compute_score_from_stats
    # in resampling sacreBLEU mixes float with numpy.float32, which statistics.mean refuses
    metric._compute_score_from_stats = lambda stats: compute([float(x) for x in stats])  # type: ignore[method-assign]
    result = metric.corpus_score(hypotheses, references, n_bootstrap=n_bootstrap or 1)
    low = high = None
    if n_bootstrap > 1:  # sacreBLEU draws nothing for one
        low, high = float(result._mean - result._ci), float(result._mean + result._ci)
    signature = str(metric.get_signature())
    return Score(result.name, float(result.score), low, high, signature)


def perplexity(log_probs: Sequence[Sequence[float]]) -> float:
    """exp of the mean negative log-probability of a piece, EOS counted, over all lines."""
    n_tokens = sum(map(len, log_probs))
    nll = -sum(map(sum, log_probs)) / max(n_tokens, 1)
    return math.exp(nll) if nll < 709 else math.inf
