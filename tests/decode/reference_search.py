"""Beam search by its definition: one sentence and hypothesis at a time, in full passes, on lists, without a cache."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from nmt.decode.options import Hypothesis, SearchOptions
from nmt.model.base import Seq2Seq
from nmt.text import BOS, EOS, PAD, UNK


class Beam(NamedTuple):
    """A hypothesis that is not finished."""

    tokens: list[int]
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)

    def extended(self, token: int, log_prob: float) -> "Beam":
        return Beam([*self.tokens, token], [*self.log_probs, log_prob])


NextLogProbs = Callable[[list[int]], list[float]]  # the tokens so far -> log-probability of each next token, (V,)


def teacher_forced(models: Sequence[Seq2Seq], source: list[int]) -> NextLogProbs:
    """Next-token log-probabilities of the models' mean probability; `source` has EOS and any padding."""

    def next_log_probs(tokens: list[int]) -> list[float]:
        src = torch.tensor([source])
        tgt_in = torch.tensor([[BOS, *tokens]])
        next_logits = [model(src, tgt_in)[0, -1] for model in models]
        probs = torch.stack(next_logits).softmax(-1).mean(0)
        log_probs: list[float] = probs.log().tolist()
        return log_probs

    return next_log_probs


def reference_search(
    next_log_probs: NextLogProbs,
    source_length: int,
    options: SearchOptions,
    *,
    prefix: Sequence[int] = (),
    max_length: int,
) -> list[Hypothesis]:
    """All finished hypotheses of one sentence, best first; `source_length` counts EOS but not padding."""
    n_beams = options.beam
    limit = math.ceil(options.max_length_a * source_length) + options.max_length_b
    limit = min(max(limit, len(prefix) + 1), max_length)
    live = [Beam([], [])]  # best first
    finished: list[Hypothesis] = []  # best first

    for length in range(1, limit + 1):
        # 1. The best continuations of all beams.
        candidates = []
        for beam in live:
            for token, log_prob in enumerate(next_log_probs(beam.tokens)):
                if is_allowed(token, length, limit, options.min_length, prefix):
                    candidates.append(beam.extended(token, log_prob))
        candidates.sort(key=lambda beam: (beam.log_prob, beam.tokens), reverse=True)
        del candidates[2 * n_beams :]

        # 2. Those with EOS are finished if they are among the first K.
        for beam in candidates[:n_beams]:
            if beam.tokens[-1] == EOS:
                score = penalized(beam.log_prob, length, options)
                finished.append(Hypothesis(beam.tokens, beam.log_probs, score))
        finished.sort(key=lambda hypothesis: hypothesis.score, reverse=True)

        # 3. The others go on, unless none can be better than the worst that is finished.
        unfinished = [beam for beam in candidates if beam.tokens[-1] != EOS]
        live = unfinished[:n_beams]
        if not live:
            break
        if len(finished) >= n_beams:
            worst = finished[n_beams - 1].score
            if penalized(live[0].log_prob, length, options) <= worst:
                break
    return finished


def is_allowed(token: int, length: int, limit: int, min_length: int, prefix: Sequence[int]) -> bool:
    """Whether the token at position `length` may be `token`. The limit overrides the prefix, the prefix all bans."""
    if length == limit:
        return token == EOS
    if length <= len(prefix):
        return token == prefix[length - 1]
    if token == EOS:
        return length > min_length
    return token not in (PAD, UNK, BOS)


def penalized(log_prob: float, length: int, options: SearchOptions) -> float:
    """Return S / L^α, the score of log-probability S and length L."""
    return float(log_prob / length**options.alpha)
