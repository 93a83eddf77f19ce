"""Greedy search, beam search and sampling, over any model that decodes one token at a time.

Greedy search is beam search with one beam. The sentences of a batch are translated independently: the length limit of
each comes from its own source, and each leaves the batch when its search ends (`_is_done`).

    live        K unfinished hypotheses per sentence
    candidates  continuations of live hypotheses by one token. Beam search takes the best 2K: at most K of them end in
                EOS (one per beam), so at least K do not. Sampling takes one per hypothesis.
    finished    hypotheses that end in EOS and rank among the best K candidates of their step
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from nmt.config import LARGEST
from nmt.decode.constraints import NO_TERMS, Constraint, Continuation, as_string
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.sampling import Sampler
from nmt.text import BOS, EOS, PAD

State = TypeVar("State")


class IncrementalDecoder(Protocol[State]):
    """The interface between search and a model, for B sentences, K beams and a vocabulary of V tokens.

    The state holds the KV cache or the recurrent state. Each call returns a new state.
    """

    def start(self, src: Tensor, /) -> State:
        """Encode src (B, S). Returns the state of one beam per sentence before the first target token."""

    def step(self, tokens: Tensor, state: State, /) -> tuple[Tensor, State]:
        """Read one token per beam (B, K). Returns next-token logits (B, K, V), and the state."""

    def select(self, state: State, beam_indices: Tensor, /) -> State:
        """Keep the beams with the given indices, (B', K').

        Index i is beam i % K of batch row i // K, where K is the number of beams before the call. All beams of a new
        row come from the same old row; rows that are left out are gone, and the others keep their order.
        """


class Beams(NamedTuple):
    """The live hypotheses of B sentences, t tokens each, without BOS."""

    tokens: Tensor  # (B, K, t)
    token_log_probs: Tensor  # (B, K, t)
    log_prob: Tensor  # (B, K), sum of `token_log_probs`; -inf where there is no hypothesis


class Candidates(NamedTuple):
    """C continuations of the live hypotheses of each sentence; all fields are (B, C).

    The best is first; in sampling, the order is that of the live hypotheses; with terms, that of `Constraint.by_banks`.
    """

    log_prob: Tensor
    parent_beams: Tensor
    tokens: Tensor
    token_log_probs: Tensor


@dataclass(frozen=True)
class TraceStep:
    """One step of the search, for the B sentences that are still in the batch.

    `sentences` are the indices of these sentences in the batch that `search` was called with.
    """

    position: int  # of the new tokens, counted from 1
    sentences: list[int]
    candidates: Candidates
    live: Beams  # after the step
    parent_beams: Tensor  # (B, K), of `live`


def search(
    decoder: IncrementalDecoder[State],
    src: Tensor,
    options: SearchOptions,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[Constraint] | None = None,
    max_length: int = LARGEST,
    sentence_seeds: Sequence[int] | None = None,
    trace: Callable[[TraceStep], None] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch by the decoder of a model in eval mode.

    Args:
        src: (B, S) source ids, EOS last, then PAD.
        prefixes, constraints: for each sentence, tokens that its translation begins with, and terms that it contains.
        max_length: the maximum number of tokens that the model can decode.
        sentence_seeds: for each sentence, a random seed for sampling; by default its index.
        trace: called after every step.
    Returns:
        for each sentence, at most `n_best` hypotheses, best score first; none if the model's output is NaN.
    """
    prefixes, constraints = prefixes or [()] * len(src), constraints or [NO_TERMS] * len(src)
    lengths = (src != PAD).sum(1).tolist()
    n_needed = [len(prefix) + terms.n_lacking() for prefix, terms in zip(prefixes, constraints, strict=True)]
    max_lengths = [options.limit(n, needed, max_length) for n, needed in zip(lengths, n_needed, strict=True)]
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    sampler = Sampler(options, sentence_seeds or range(len(max_lengths))) if options.sample else None

    sentences = list(range(len(max_lengths)))  # batch row -> sentence; sentences leave the batch when they are done
    live, state = _begin(decoder, src, options)
    tokens = torch.full(live.log_prob.shape, BOS, device=src.device)  # (B, K), the next step's input

    for length in range(1, max(max_lengths) + 1):
        logits, state = decoder.step(tokens, state)
        log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))  # (B, K, V)
        is_cut = _ban(log_probs, [_required(options, max_lengths[s], length, prefixes[s]) for s in sentences])
        if sampler:
            candidates = Candidates(*sampler.continuations(log_probs, live.log_prob, sentences))
        else:
            candidates = _best_continuations(log_probs, live.log_prob.to(log_probs), 2 * options.beam)
        for row, s in enumerate(sentences):
            _allocate_beams(constraints[s], candidates, log_probs, live, row, max_lengths[s], options.beam)
        for row, hypothesis in _ended(candidates, live, is_cut, options, length):
            finished[sentences[row]].append(hypothesis)
        live, parent_beams = _continue(candidates, live, options)
        if trace:
            trace(TraceStep(length, list(sentences), candidates, live, parent_beams))
        best = live.log_prob.amax(1).tolist()
        rows = [row for row, s in enumerate(sentences) if not _is_done(options, finished[s], best[row], length)]
        if not rows:
            break
        beam_indices = parent_beams + tokens.size(1) * torch.arange(len(sentences), device=src.device)[:, None]
        if len(rows) < len(sentences):
            sentences, live = [sentences[row] for row in rows], Beams(*(x[rows] for x in live))
            state = decoder.select(state, beam_indices[rows])
        elif options.beam > 1:
            state = decoder.select(state, beam_indices)
        tokens = live.tokens[..., -1]
    n_bests = []
    for hypotheses in finished:
        best_first = sorted(hypotheses, key=lambda h: -h.score)  # hypotheses with equal scores stay in order
        n_bests.append(best_first[: options.n_best])
    return n_bests


def _begin(decoder: IncrementalDecoder[State], src: Tensor, options: SearchOptions) -> tuple[Beams, State]:
    """Return empty hypotheses and the decoder's initial state.

    Sampling starts with K hypotheses per sentence. Beam search starts with one, because K identical ones would have
    the same continuations.
    """
    state, n_beams = decoder.start(src), 1
    if options.sample:
        n_beams = options.beam
        state = decoder.select(state, torch.arange(len(src), device=src.device)[:, None].expand(-1, n_beams))
    log_prob = torch.zeros(len(src), n_beams, device=src.device)
    empty = log_prob.new_empty(*log_prob.shape, 0)
    return Beams(empty.long(), empty, log_prob), state


NOT_EOS = -1


def _required(options: SearchOptions, limit: int, length: int, prefix: Sequence[int]) -> int | None:
    """The token that must come next, `NOT_EOS` if any token but EOS may come, or None if any token may come."""
    if length >= limit:
        return EOS
    if length <= len(prefix):
        return prefix[length - 1]
    return NOT_EOS if length <= options.min_length else None


def _ban(log_probs: Tensor, required: list[int | None]) -> Tensor:
    """Set the log-probabilities (B, K, V) of forbidden tokens to -inf, in place.

    Allowed tokens are not renormalized, so hypotheses have the log-probabilities of a teacher-forced pass. Returns
    which hypotheses are cut off, (B, K): EOS is required, because of the length limit, but another token is likelier.
    """
    forced = {row: log_probs[row, :, token].clone() for row, token in enumerate(required) if token is not None}
    log_probs[..., :EOS] = -math.inf  # PAD, UNK and BOS
    is_cut = torch.zeros(log_probs.shape[:2], dtype=torch.bool, device=log_probs.device)
    for row, token in enumerate(required):
        if token == EOS:
            is_cut[row] = log_probs[row].amax(-1) > forced[row]
        if token == NOT_EOS:
            log_probs[row, :, EOS] = -math.inf
        elif token is not None:
            log_probs[row] = -math.inf
            log_probs[row, :, token] = forced[row]
    return is_cut


def _best_continuations(log_probs: Tensor, live: Tensor, n: int) -> Candidates:
    """Return the n continuations of each sentence with the largest sums live + log_probs, (B, K) and (B, K, V)."""
    n_vocab = log_probs.size(-1)
    sums = (live[..., None] + log_probs).flatten(1)  # (B, K*V)
    best, index = sums.topk(min(n, sums.size(1)))  # (B, n)
    return Candidates(best, index // n_vocab, index % n_vocab, log_probs.flatten(1).gather(1, index))


def _allocate_beams(
    constraint: Constraint, candidates: Candidates, log_probs: Tensor, live: Beams, row: int, limit: int, n_beams: int
) -> None:
    """Replace the candidates of a batch row by those that the beams take with terms, if there are any, in place."""
    if not constraint.terms:
        return
    hypotheses = [as_string(tokens) for tokens in live.tokens[row].tolist()]
    # 1. A hypothesis that lacks a term must not end.
    incomplete = [beam for beam, hypothesis in enumerate(hypotheses) if constraint.n_lacking(hypothesis)]
    log_probs[row, incomplete, EOS] = -math.inf
    # 2. To the best candidates of all beams, add the best token of each beam, and those that terms need.
    continuations = constraint.useful_continuations(hypotheses)
    best_tokens = log_probs[row].argmax(-1).tolist()
    continuations.update(Continuation(beam, token) for beam, token in enumerate(best_tokens))
    best_of_all = zip(candidates.parent_beams[row].tolist(), candidates.tokens[row].tolist(), strict=True)
    continuations.update(Continuation(beam, token) for beam, token in best_of_all)
    # 3. Choose among them by banks.
    ordered = sorted(continuations)
    beams, tokens = live.tokens.new_tensor(ordered).T
    token_log_probs = log_probs[row, beams, tokens]
    sums = live.log_prob[row, beams] + token_log_probs
    taken = constraint.by_banks(hypotheses, ordered, sums.tolist(), limit, n_beams)
    for field, values in zip(candidates, (sums, beams, tokens, token_log_probs), strict=True):
        field[row, : len(taken)] = values[taken]
    candidates.log_prob[row, len(taken) :] = -math.inf


def _ended(
    candidates: Candidates, live: Beams, is_cut: Tensor, options: SearchOptions, length: int
) -> list[tuple[int, Hypothesis]]:
    """Return the candidates that end in EOS and rank among the best K, as (batch row, hypothesis).

    `is_cut` is that of their parent beams, (B, K).
    """
    best = slice(options.beam)
    accepted = (candidates.tokens[:, best] == EOS) & (candidates.log_prob[:, best] > -math.inf)
    if not accepted.any():
        return []
    rows, ranks = accepted.nonzero().unbind(1)
    beams = rows, candidates.parent_beams[rows, ranks]
    columns = (
        rows,
        live.tokens[beams],
        live.token_log_probs[beams],
        candidates.token_log_probs[rows, ranks],
        candidates.log_prob[rows, ranks],
        is_cut[beams],
    )
    ended = []
    for row, tokens, before, last, log_prob, cut in zip(*(x.tolist() for x in columns), strict=True):
        score = log_prob / options.length_divisor(length)
        ended.append((row, Hypothesis([*tokens, EOS], [*before, last], score, is_cut=cut)))
    return ended


def _continue(candidates: Candidates, live: Beams, options: SearchOptions) -> tuple[Beams, Tensor]:
    """Return the best K candidates that do not end in EOS, and their parent beams (B, K).

    Samples stay in their order, because the noise of `Sampler` belongs to a beam.
    """
    log_prob = candidates.log_prob.masked_fill(candidates.tokens == EOS, -math.inf)
    if options.sample:
        index = torch.arange(log_prob.size(1), device=log_prob.device).expand_as(log_prob)
    else:
        log_prob, index = log_prob.topk(min(options.beam, log_prob.size(1)))  # (B, K), sorted
    parent_beams = candidates.parent_beams.gather(1, index)
    tokens = _appended(live.tokens, parent_beams, candidates.tokens.gather(1, index))
    token_log_probs = _appended(live.token_log_probs, parent_beams, candidates.token_log_probs.gather(1, index))
    return Beams(tokens, token_log_probs, log_prob), parent_beams


def _appended(x: Tensor, parent_beams: Tensor, new: Tensor) -> Tensor:
    """Select the parents' sequences from x (B, K, t) and append new (B, K'). Returns (B, K', t + 1)."""
    parents = x.gather(1, parent_beams[..., None].expand(-1, -1, x.size(-1)))
    return torch.cat([parents.to(new.dtype), new[..., None]], -1)


def _is_done(options: SearchOptions, finished: list[Hypothesis], best_live: float, length: int) -> bool:
    """Whether the search of a sentence ends.

    It ends if no hypothesis is live (at the length limit EOS is forced, so none stays live), or if K hypotheses have
    finished and the best live one, scored at its current length, is not better than the K-th best finished one.
    """
    if best_live == -math.inf:
        return True
    if len(finished) < options.beam:
        return False
    kth_best = sorted((h.score for h in finished), reverse=True)[options.beam - 1]
    return best_live / options.length_divisor(length) <= kth_best
