"""What a search is asked for, what it finds, and what an engine is that searches. Imports no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from nmt.errors import ConfigError

Precision = Literal["fp32", "bf16", "int8"]
EngineName = Literal["torch", "ctranslate2"]
Utility = Literal["chrf", "bleu"]


@dataclass(frozen=True)
class SearchOptions:
    """How to search; checked before any work.

    Attributes:
        beam: K hypotheses a sentence; 1 is greedy search. In sampling, the number of samples.
        n_best: hypotheses returned, at most `beam`; by minimum Bayes risk, at most `n_samples`.
        length_penalty: a finished hypothesis of L tokens, EOS counted, with log-probability S scores S / L^alpha
            (`average`) or S / ((5 + L) / 6)^alpha (`gnmt`, Wu et al. 2016).
        alpha: 0 switches the penalty off.
        max_length_a, max_length_b: a source of S tokens, EOS counted, may give ceil(a * S) + b tokens, where EOS
            is forced.
        min_length: tokens before EOS may come.
        sample: draw each token from the model instead of searching for the best.
        temperature: in sampling, logits are divided by it.
        top_k: in sampling, only the k most probable tokens; 0 is all.
        top_p: in sampling, only the most probable tokens that together reach p (Holtzman et al. 2020).
        seed: of sampling.
        mbr: by minimum Bayes risk: of `n_samples` samples those that are most like the others, by chrF or BLEU;
            `beam` and the length penalty do not count then.
        n_samples: of which `mbr` chooses.
    """

    beam: int = 5
    n_best: int = 1
    length_penalty: Literal["average", "gnmt"] = "average"
    alpha: float = 1.0
    max_length_a: float = 1.5
    max_length_b: int = 10
    min_length: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    mbr: Utility | None = None
    n_samples: int = 32

    def __post_init__(self) -> None:
        most, of = (self.n_samples, "n_samples") if self.mbr else (self.beam, "beam")
        for wrong, message in (
            (self.beam < 1, f"beam must be at least 1, got {self.beam}"),
            (self.mbr not in (None, "chrf", "bleu"), f"no utility '{self.mbr}', there are chrf and bleu"),
            (not 2 <= self.n_samples <= 1000, f"n_samples must be 2 to 1000, got {self.n_samples}"),
            (not 1 <= self.n_best <= most, f"n_best must be 1 to {of} ({most}), got {self.n_best}"),
            (self.length_penalty not in ("average", "gnmt"), f"no length penalty '{self.length_penalty}'"),
            (not 0 <= self.alpha < math.inf, f"alpha must be 0 or more, got {self.alpha}"),
            (not 0 <= self.max_length_a < math.inf, f"max_length_a must be 0 or more, got {self.max_length_a}"),
            (self.max_length_b < 1, f"max_length_b must be at least 1, got {self.max_length_b}"),
            (self.min_length < 0, f"min_length must be 0 or more, got {self.min_length}"),
            (not 0 < self.temperature < math.inf, f"temperature must be more than 0, got {self.temperature}"),
            (self.top_k < 0, f"top_k must be 0 or more, got {self.top_k}"),
            (not 0 < self.top_p <= 1, f"top_p must be over 0 and at most 1, got {self.top_p}"),
        ):
            if wrong:
                raise ConfigError(message, hint="`nmt translate --help` lists what is allowed")

    def for_engine(self) -> "SearchOptions":
        """How to search for what is chosen from: for minimum Bayes risk, which compares texts, the samples."""
        if self.mbr is None:
            return self
        return replace(self, mbr=None, sample=True, beam=self.n_samples, n_best=self.n_samples)

    def max_length(self, source_length: int) -> int:
        """The most tokens, EOS counted, that a source of `source_length` tokens, EOS counted, may give."""
        return math.ceil(self.max_length_a * source_length) + self.max_length_b

    def limit(self, source_length: int, prefix_length: int = 0, most: int | None = None) -> int:
        """`max_length`, raised for a longer prefix and EOS, and at most the `most` tokens that the model can hold.

        Raises:
            ConfigError: the prefix and EOS are more than that.
        """
        limit = max(self.max_length(source_length), prefix_length + 1)
        if most is None:
            return limit
        if prefix_length >= most:
            raise ConfigError(
                f"the prefix has {prefix_length} pieces, the model takes at most {most - 1}",
                hint="give a shorter prefix",
            )
        return min(limit, most)

    def divisor(self, length: int) -> float:
        """What a log-probability is divided by at `length` tokens, EOS counted."""
        if self.length_penalty == "gnmt":
            return float(((5 + length) / 6) ** self.alpha)
        return float(length**self.alpha)


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    Attributes:
        ids: its tokens, EOS last, BOS not among them.
        log_probs: of each token given those before it, nats.
        score: their sum over the length penalty's divisor; by minimum Bayes risk the expected utility, 0-100.
    """

    ids: list[int]
    log_probs: list[float]
    score: float

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


class Engine(Protocol):
    """What searches: ids in, hypotheses out."""

    @property
    def max_length(self) -> int:
        """The longest sequence of either side that the model can hold, EOS counted."""

    def translate(
        self,
        segments: Sequence[list[int]],
        options: SearchOptions,
        *,
        batch_size: int,
        prefixes: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """Translate segments, each by itself.

        Args:
            segments: source ids without EOS, none empty.
            options: how to search.
            batch_size: the most segments at a time.
            prefixes: for each segment the ids that its translation begins with; may be empty.
            seeds: for each segment what tells its random draws from those of others.
        Returns:
            for each segment its n-best hypotheses or fewer, best first.
        """

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each piece of given translations, EOS last; cut to what the model can hold."""
