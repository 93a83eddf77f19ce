"""Search options, requests and results of a search, and the protocol of an engine."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError

from nmt.config import LARGEST, SearchSettings, described
from nmt.errors import ConfigError


class SearchOptions(SearchSettings):
    """Options of a search. Raises ConfigError for an unknown option, a wrong type or a value out of range."""

    model_config = ConfigDict(strict=True)  # rejects beam=2.0 and beam=True

    n_best: int = Field(1, ge=1, description="hypotheses returned, at most beam")
    sample: bool = Field(False, description="draw `beam` translations at random instead of searching for the best")
    temperature: float = Field(1.0, ge=1e-3, le=1e3, description="divides the logits; beyond its range they overflow")
    top_k: int = Field(0, ge=0, le=LARGEST, description="draw only from the k most probable tokens; 0 is all")
    top_p: float = Field(1.0, gt=0, le=1, description="draw only from the most probable tokens that reach p together")
    seed: int = Field(1, ge=0, lt=2**31, description="of random draws")
    scores: bool = Field(True, description="compute scores and log-probabilities, which may take an engine more time")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            names = ", ".join(type(self).model_fields)
            raise ConfigError("; ".join(map(_message, error.errors())), hint=f"the options are {names}") from error
        if self.n_best > self.beam:
            message = f"n_best is {self.n_best}, but there are {self.beam} hypotheses"
            raise ConfigError(message, hint=f"add --beam {self.n_best}")

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some options changed; all options are checked together."""
        return type(self)(**{**self.model_dump(), **changes})

    def limit(self, source_length: int, prefix_length: int = 0, model_limit: int = LARGEST) -> int:
        """Maximum target tokens for a source of S tokens, ⌈aS⌉ + b; EOS counts on both sides.

        Training fits a and b to its pairs, and the config in the model file has them.

        At least the prefix (and terms, if any) and EOS, at most `model_limit`. Raises ConfigError if it is too long.
        """
        if prefix_length >= model_limit:
            message = f"the prefix has {prefix_length} pieces, the model takes at most {model_limit - 1}"
            raise ConfigError(message, hint="give a shorter prefix")
        limit = math.ceil(self.max_length_a * source_length) + self.max_length_b
        return min(max(limit, prefix_length + 1), model_limit)

    def length_divisor(self, length: int) -> float:
        """Length penalty for `length` tokens including EOS: score = log-probability / divisor."""
        return float(length**self.alpha)


def _message(fault: Mapping[str, Any]) -> str:
    (name,) = fault["loc"]
    return f"no search option '{name}'" if fault["type"] == "extra_forbidden" else f"{name}: {described(fault)}"


class Terms(NamedTuple):
    """Terms that a translation must contain, see `nmt.decode.constraints`."""

    token_ids: Sequence[Sequence[int]]  # of each term, as often as it is required
    inside_words: Collection[int] = ()  # tokens that continue a word: none of them may follow a term


# Dataclasses that are created for every line are not frozen: creating a frozen one takes three times as long.
@dataclass
class SearchRequest:
    """A source sequence to translate: a sentence, or a part of one that is too long for the model."""

    tokens: list[int]  # source ids without EOS, not empty
    prefix: Sequence[int] = ()  # target ids that the translation begins with
    place: tuple[int, ...] = ()  # numbers of line, sentence and part, from which `seed_of` makes the seed of sampling
    terms: Terms | None = None  # for the torch engine only


@dataclass
class Hypothesis:
    """A finished translation."""

    tokens: list[int]  # target ids, EOS last, without BOS
    log_probs: list[float]  # log-probability of each token given the previous tokens, in nats
    score: float  # sum of log_probs / length penalty
    # Whether EOS was forced at the length limit, and the model would have gone on.
    is_cut: bool = field(default=False, kw_only=True)

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs, 0.0)


NBest = list[Hypothesis]  # the hypotheses of one request, best first
WatchStep = Callable[[dict[int, list[int]]], None]  # takes {index of a request: tokens of its best hypothesis so far}


class RunningSearch(Protocol):
    """A search that an engine has started."""

    def result(self) -> list[NBest]:
        """Wait for the search; return at most `n_best` hypotheses of each request, none if the output is NaN."""


class Engine(Protocol):
    """Translates and scores token ids."""

    name: str  # with version and precision
    explains: bool  # whether `torch_engine` returns an engine of one model, whose attention can be shown
    in_background: bool  # whether a search runs in other threads after `start`, where no step can be watched
    max_length: int  # maximum tokens of a source or target sequence, including EOS

    def torch_engine(self, needed_for: str) -> "Engine":
        """Return the torch engine with the same model. Raises ConfigError, which names the need, if there is none."""

    def start(
        self, requests: Sequence[SearchRequest], options: SearchOptions, *, batch_size: int, watch: WatchStep | None
    ) -> RunningSearch:
        """Start to search.

        At most `batch_size` requests are decoded together. `watch` is called after every step of a search, unless the
        engine has no access to the steps. Without `options.scores`, there may be no log-probabilities and score 0.
        """

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """Return log-probabilities, in nats, of target tokens and EOS. Inputs have no EOS and < `max_length` ids."""

    def attention(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        """Return the cross-attention weights (T, S) of each pair, averaged over heads, by a teacher-forced pass.

        Row t predicts target token t. Inputs as for `score`; the row and the column of EOS are left out. Raises
        InputError if the model has no attention.
        """
