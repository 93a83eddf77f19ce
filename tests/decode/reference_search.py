"""Beam search by its definition: one sentence and hypothesis at a time, in full passes, on lists, without a cache."""

import math
from collections.abc import Callable, Sequence

import torch

from nmt.decode.options import Hypothesis, SearchOptions
from nmt.model.base import Seq2Seq
from nmt.text import BOS, EOS, PAD, UNK

NextLogProbs = Callable[[list[int]], list[float]]  # the tokens so far -> log-probability of each next token, (V,)


def teacher_forced(models: Sequence[Seq2Seq], source: list[int]) -> NextLogProbs:
    """Next-token log-probabilities of the models' mean probability; `source` has EOS and any padding."""

    def next_log_probs(tokens: list[int]) -> list[float]:
        src, tgt_in = torch.tensor([source]), torch.tensor([[BOS, *tokens]])
        probs = [model(src, tgt_in)[0, -1].softmax(-1) for model in models]
        log_probs: list[float] = torch.stack(probs).mean(0).log().tolist()
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
    live: list[tuple[list[int], list[float]]] = [([], [])]  # tokens and their log-probabilities, best first
    finished: list[Hypothesis] = []  # best first

    for length in range(1, limit + 1):
        candidates = []
        for tokens, log_probs in live:
            for token, log_prob in enumerate(next_log_probs(tokens)):
                if is_allowed(token, length, limit, options.min_length, prefix):
                    candidates.append((sum(log_probs) + log_prob, [*tokens, token], [*log_probs, log_prob]))
        candidates = sorted(candidates, reverse=True)[: 2 * n_beams]

        for log_prob, tokens, log_probs in candidates[:n_beams]:
            if tokens[-1] == EOS:
                finished.append(Hypothesis(tokens, log_probs, penalized(log_prob, length, options)))
        finished.sort(key=lambda hypothesis: hypothesis.score, reverse=True)

        unfinished = [candidate for candidate in candidates if candidate[1][-1] != EOS][:n_beams]
        live = [(tokens, log_probs) for _, tokens, log_probs in unfinished]
        if not unfinished:
            break
        best_live = penalized(unfinished[0][0], length, options)
        if len(finished) >= n_beams and best_live <= finished[n_beams - 1].score:
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
