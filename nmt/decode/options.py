"""The options, requests and results of a search, and the protocol that every engine implements."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError

from nmt.config import LARGEST, SearchSettings, described
from nmt.decode.constraints import NO_TERMS, Constraint
from nmt.errors import ConfigError


class SearchOptions(SearchSettings):
    """The options of a search. Raises ConfigError if an option is unknown, has the wrong type or is out of range."""

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
            messages = [f"{fault['loc'][0]}: {described(fault)}" for fault in error.errors()]
            raise ConfigError("; ".join(messages), hint="nmt translate --help describes the options") from error
        if self.n_best > self.beam:
            raise ConfigError(
                f"n_best is {self.n_best}, but there are {self.beam} hypotheses", hint=f"add --beam {self.n_best}"
            )

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some options changed. Raises ConfigError if the options of the copy are invalid."""
        return type(self)(**{**self.model_dump(), **changes})

    def limit(self, source_length: int, prefix_length: int = 0, model_limit: int = LARGEST) -> int:
        """Return the length limit ⌈A·S⌉ + B of a translation in tokens, EOS included.

        A is `max_length_a` and B is `max_length_b`. Training fits both to the training pairs.

        Args:
            source_length: S, in tokens, EOS included.
            prefix_length: number of tokens in the prefix and the required terms. The limit has room for them and EOS.
            model_limit: maximum of the limit.
        Raises:
            ConfigError: the prefix and EOS are longer than `model_limit`.
        """
        if prefix_length >= model_limit:
            message = f"the prefix has {prefix_length} pieces, the model takes at most {model_limit - 1}"
            raise ConfigError(message, hint="give a shorter prefix")
        limit = math.ceil(self.max_length_a * source_length) + self.max_length_b
        return min(max(limit, prefix_length + 1), model_limit)

    def length_divisor(self, length: int) -> float:
        """Return the length penalty for a hypothesis of `length` tokens, including EOS.

        The score of a hypothesis is its log-probability divided by the length penalty.
        """
        return float(length**self.alpha)


# These dataclasses are created for every line. They are not frozen, because creating a frozen one takes three times
# as long.
@dataclass
class SearchRequest:
    """A source sequence to translate: a sentence, or a part of a sentence that is too long for the model."""

    tokens: list[int]  # source ids without EOS, at least one
    prefix: Sequence[int] = ()  # target ids that the translation must begin with
    place: tuple[int, ...] = ()  # numbers of line, sentence and part; the random seed depends on them
    constraint: Constraint = NO_TERMS  # the required terms, which only the torch engine supports
    attention: bool = False  # whether hypotheses should have attention weights, which torch's search leaves out


# Key: source tokens and target tokens, without EOS. Value: the weights that `Engine.attention` returns for this pair.
Attention = dict[tuple[tuple[int, ...], ...], NDArray[np.float32]]


@dataclass
class Hypothesis:
    """A finished translation."""

    tokens: list[int]  # target ids without BOS; the last one is EOS
    log_probs: list[float]  # log-probability of each token given the previous tokens, in nats
    score: float  # sum of `log_probs`, divided by the length penalty
    # True if EOS was forced at the length limit, and the model would have continued.
    is_cut: bool = field(default=False, kw_only=True)
    attention: Attention = field(default_factory=dict, kw_only=True)  # empty if the search has computed no weights

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs, 0.0)


NBest = list[Hypothesis]  # the hypotheses of one request, the best first
WatchStep = Callable[[dict[int, list[int]]], None]  # takes {index of a request: tokens of its best live hypothesis}
# A search that an engine has started. Calling it waits for the search. It returns at most `n_best` hypotheses of each
# request, or none if the model's output for the request is NaN.
RunningSearch = Callable[[], list[NBest]]


class Engine(Protocol):
    """The interface of an engine, which translates and scores token ids."""

    name: str  # name of the engine with its version and precision
    explains: bool  # whether explanations are possible; they need torch and a single model
    in_background: bool  # whether a search runs in other threads after `start`; such a search cannot be watched
    max_length: int  # maximum number of tokens of a source or target sequence, including EOS

    def torch_engine(self, needed_for: str) -> "Engine":
        """Return the torch engine with the same model.

        Raises ConfigError if there is no such engine. The message names `needed_for`, the feature that needs torch.
        """

    def start(
        self, requests: Sequence[SearchRequest], options: SearchOptions, *, batch_size: int, watch: WatchStep | None
    ) -> RunningSearch:
        """Start a search.

        At most `batch_size` requests are decoded together. `watch` is called after every step, if the engine supports
        this. If `options.scores` is false, hypotheses may have no log-probabilities and a score of 0.
        """

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """Return the log-probabilities, in nats, of the target tokens and EOS of each pair.

        Each source and each target has fewer than `max_length` ids, without EOS.
        """

    def attention(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        """Return the cross-attention weights of each pair, averaged over heads, as a matrix of shape (T, S).

        Row t has the weights with which the model predicts target token t. EOS has no row and no column. The inputs are
        the same as in `score`. Raises InputError if the model has no attention.
        """
