"""Scores with their recipe: BLEU, chrF and TER by sacreBLEU, each with its signature and interval.

Hypotheses are detokenised text, references are untouched. Imports no torch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF, CHRFScore
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


def _score(metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], n_bootstrap: int) -> Score:
    compute = metric._compute_score_from_stats
    # in resampling sacreBLEU mixes float with numpy.float32, which statistics.mean refuses
    metric._compute_score_from_stats = lambda stats: compute([float(x) for x in stats])  # type: ignore[method-assign]
    result = metric.corpus_score(hypotheses, references, n_bootstrap=n_bootstrap or 1)
    low = high = None
    if n_bootstrap > 1:  # sacreBLEU draws nothing for one
        low, high = float(result._mean - result._ci), float(result._mean + result._ci)
    signature = str(metric.get_signature())
    return Score(result.name, float(result.score), low, high, signature)


def pairwise_scores(
    texts: Sequence[str], metric: Literal["chrf", "bleu"], *, tokenize: str = DEFAULT_TOKENIZER
) -> NDArray[np.float64]:
    """sacreBLEU's sentence score of every text with every text as its reference.

    The figures of `CHRF().sentence_score` and `BLEU(effective_order=True).sentence_score`, which count n-grams
    anew for each pair; counted once a text, 32 texts take a tenth of the time by chrF, a quarter by BLEU.

    Args:
        texts: N of them.
        metric: chrf or bleu.
        tokenize: sacreBLEU's tokenizer for BLEU.
    Returns:
        (N, N), 0-100: hypotheses down, references across.
    """
    if metric == "chrf":
        chrf = CHRF()
        units: Sequence[Sequence[str]] = ["".join(text.split()) for text in texts]
        totals, matches = _ngram_matches(units, chrf.char_order)
        # of each order: n-grams of the hypothesis, of the reference, of both
        stats = np.stack(np.broadcast_arrays(totals[:, None], totals[None], matches), -1)  # (N, N, order, 3)
        compute: Callable[[list[int]], CHRFScore | BLEUScore] = chrf._compute_score_from_stats
    else:
        bleu = BLEU(tokenize=tokenize, effective_order=True)
        units = [tuple(bleu.tokenizer(text.rstrip()).split()) for text in texts]
        totals, matches = _ngram_matches(units, bleu.max_ngram_order)
        lengths = np.array([len(words) for words in units])
        both = np.stack(np.broadcast_arrays(lengths[:, None], lengths), -1)
        # the two lengths, then of each order n-grams of both, then of the hypothesis
        stats = np.concatenate([both, matches, np.broadcast_to(totals[:, None], matches.shape)], -1)
        compute = bleu._compute_score_from_stats
    rows = stats.reshape(len(texts), len(texts), -1).tolist()
    return np.array([[compute(pair).score for pair in row] for row in rows])


def _ngram_matches(units: Sequence[Sequence[str]], max_order: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many n-grams each of N sequences has, (N, order), and how many each two share, (N, N, order)."""
    totals, matches = [], []
    for n in range(1, max_order + 1):
        columns: dict[Sequence[str], int] = {}
        ngrams = [[columns.setdefault(x[i : i + n], len(columns)) for i in range(len(x) - n + 1)] for x in units]
        counts = np.array([np.bincount(of_text, minlength=len(columns)) for of_text in ngrams])  # (N, n-grams)
        totals.append(counts.sum(1))
        matches.append(np.array([np.minimum(row, counts).sum(1) for row in counts]))
    return np.stack(totals, -1), np.stack(matches, -1)


def perplexity(log_probs: Sequence[Sequence[float]]) -> float:
    """exp of the mean negative log-probability of a piece, EOS counted, over all lines."""
    n_tokens = sum(map(len, log_probs))
    nll = -sum(map(sum, log_probs)) / max(n_tokens, 1)
    return math.exp(nll) if nll < 709 else math.inf
