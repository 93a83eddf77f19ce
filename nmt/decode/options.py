"""Options of a search, its results, and the protocol of an engine that searches. Imports no torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ConfigDict, Field, ValidationError

from nmt.config import LARGEST, SearchSettings, described
from nmt.decode import Utility
from nmt.errors import ConfigError


class SearchOptions(SearchSettings):
    """How to search; types and ranges are checked before any work, however the options are given.

    Attributes:
        beam: K hypotheses per sentence; 1 is greedy search. In sampling, the number of samples.
        n_best: hypotheses returned, at most `beam`; with `mbr`, at most `n_samples`.
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
        mbr: minimum Bayes risk: of `n_samples` samples, return those most similar to the others, by chrF or BLEU;
            `beam` and the length penalty are not used.
        n_samples: the samples among which `mbr` chooses.
    Raises:
        ConfigError: an option is unknown, of another type or out of range.
    """

    model_config = ConfigDict(strict=True)  # beam=2.0 or beam=True in a program is a mistake

    n_best: int = Field(1, ge=1)
    sample: bool = False
    temperature: float = Field(1.0, ge=1e-3, le=1e3)  # beyond it, logits overflow
    top_k: int = Field(0, ge=0, le=LARGEST)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = Field(1, ge=0, lt=2**31)
    mbr: Utility | None = None
    n_samples: int = Field(32, ge=2, le=1000)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            names = ", ".join(type(self).model_fields)
            faults = "; ".join(map(_fault, error.errors()))
            raise ConfigError(faults, hint=f"the options are {names}") from error
        limit, name = (self.n_samples, "samples") if self.mbr else (self.beam, "beam")
        if self.n_best > limit:
            raise ConfigError(
                f"n_best is {self.n_best}, but there are {limit} hypotheses", hint=f"add --{name} {self.n_best}"
            )

    def changed(self, **changes: Any) -> "SearchOptions":
        """These options with some changed; checked as a whole."""
        return SearchOptions(**{**self.model_dump(), **changes})

    def for_engine(self) -> "SearchOptions":
        """Options for generating the candidates: for minimum Bayes risk, those of the samples."""
        if self.mbr is None:
            return self
        return self.changed(mbr=None, sample=True, beam=self.n_samples, n_best=self.n_samples)

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


def _fault(fault: Mapping[str, Any]) -> str:
    name = ".".join(map(str, fault["loc"]))
    return f"no search option '{name}'" if fault["type"] == "extra_forbidden" else f"{name}: {described(fault)}"


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
