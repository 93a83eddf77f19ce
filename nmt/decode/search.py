"""Greedy search, beam search and sampling, for any model that decodes one token at a time.

Greedy search is beam search with one beam. The sentences of a batch are translated independently of each other. A
sentence leaves the batch when its search ends.

Hypotheses have these names:

    live        the K unfinished hypotheses of a sentence
    candidates  continuations of live hypotheses by one token. Sampling takes one per hypothesis. Beam search takes the
                best 2K. At most K of these end in EOS, so at least K can stay live.
    finished    hypotheses that end in EOS and ranked among the best K candidates of their step
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
    """The interface between the search and a model, for B sentences, K beams and a vocabulary of V tokens.

    The decoder's state contains the KV cache or the recurrent state. Each method returns a new state.
    """

    def start(self, src: Tensor, /) -> State:
        """Encode src (B, S). Return the state before the first target token, with one beam per sentence."""

    def step(self, tokens: Tensor, state: State, /) -> tuple[Tensor, State]:
        """Read one token per beam (B, K). Return the logits of the next tokens (B, K, V) and the new state."""

    def select(self, state: State, beam_indices: Tensor, /) -> State:
        """Keep the beams with the given indices, a tensor of shape (B', K').

        Index i means beam i % K of batch row i // K, before the call. All beams of a new row come from the same old
        row. Rows keep their order, but some rows may be dropped.
        """


class Beams(NamedTuple):
    """The live hypotheses of B sentences. Each hypothesis has t tokens, without BOS."""

    tokens: Tensor  # (B, K, t)
    token_log_probs: Tensor  # (B, K, t)
    log_prob: Tensor  # (B, K), sum of `token_log_probs`; -inf for a beam without a hypothesis


class Candidates(NamedTuple):
    """C continuations of the live hypotheses of each sentence. All fields have the shape (B, C).

    In beam search, the most probable candidate comes first. Sentences with terms have the order of
    `Constraint.by_banks`. In sampling, the candidates have the order of their live hypotheses.
    """

    log_prob: Tensor
    parent_beams: Tensor
    tokens: Tensor
    token_log_probs: Tensor


@dataclass(frozen=True)
class TraceStep:
    """One step of the search, for the B sentences that are still in the batch."""

    position: int  # position of the new tokens in the target, counted from 1
    sentences: list[int]  # for each row, the index of the sentence in the batch at the start of `search`
    candidates: Candidates
    live: Beams  # the live hypotheses after the step
    parent_beams: Tensor  # (B, K), the parent beam of each hypothesis in `live`


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
    """Translate a batch. Return at most `n_best` hypotheses per sentence, the best first.

    Args:
        decoder: the incremental decoder of a model in eval mode.
        src: (B, S), the source ids of each sentence: EOS last, then padding.
        prefixes: for each sentence, the tokens that its translation must begin with.
        constraints: for each sentence, the terms that its translation must contain.
        max_length: maximum number of tokens that the model can decode.
        sentence_seeds: for each sentence, the random seed of sampling. By default, the seed is the sentence's index.
        trace: function that is called after every step.
    """
    prefixes = prefixes or [()] * len(src)
    constraints = constraints or [NO_TERMS] * len(src)
    max_lengths = _max_lengths(src, options, prefixes, constraints, max_length)
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    sampler = Sampler(options, sentence_seeds or range(len(src))) if options.sample else None

    sentences = list(range(len(src)))  # batch row -> sentence; sentences leave the batch when they are done
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
            sentences = [sentences[row] for row in rows]
            live = Beams(*(x[rows] for x in live))
            state = decoder.select(state, beam_indices[rows])
        elif options.beam > 1:
            state = decoder.select(state, beam_indices)
        tokens = live.tokens[..., -1]
    return [_best_first(hypotheses)[: options.n_best] for hypotheses in finished]


def _best_first(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda h: -h.score)  # hypotheses with equal scores keep their order


def _max_lengths(
    src: Tensor,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]],
    constraints: Sequence[Constraint],
    max_length: int,
) -> list[int]:
    """Return the length limit of each sentence, in target tokens. Prefix and required terms fit into the limit."""
    max_lengths = []
    lengths = (src != PAD).sum(1).tolist()
    for length, prefix, constraint in zip(lengths, prefixes, constraints, strict=True):
        n_required = len(prefix) + constraint.n_lacking()
        max_lengths.append(options.limit(length, n_required, max_length))
    return max_lengths


def _begin(decoder: IncrementalDecoder[State], src: Tensor, options: SearchOptions) -> tuple[Beams, State]:
    """Return empty hypotheses and the decoder's initial state.

    Sampling starts with K hypotheses per sentence. Beam search starts with one hypothesis, because K empty hypotheses
    would all have the same continuations.
    """
    state = decoder.start(src)
    n_beams = options.beam if options.sample else 1
    if options.sample:
        beam_indices = torch.arange(len(src), device=src.device)[:, None]
        state = decoder.select(state, beam_indices.expand(-1, n_beams))
    log_prob = torch.zeros(len(src), n_beams, device=src.device)
    empty = log_prob.new_empty(*log_prob.shape, 0)
    return Beams(empty.long(), empty, log_prob), state


NOT_EOS = -1  # value of `_required` if every token except EOS is allowed


def _required(options: SearchOptions, limit: int, length: int, prefix: Sequence[int]) -> int | None:
    """Return which token is required at position `length`, counted from 1.

    The result is the id of a token, `NOT_EOS` if every token except EOS is allowed, or None if every token is allowed.
    """
    if length >= limit:
        return EOS
    if length <= len(prefix):
        return prefix[length - 1]
    return NOT_EOS if length <= options.min_length else None


def _ban(log_probs: Tensor, required: list[int | None]) -> Tensor:
    """Set the log-probabilities of forbidden tokens to -inf, in place. Allowed tokens keep their log-probabilities.

    Args:
        log_probs: (B, K, V).
        required: for each row, the result of `_required`.
    Returns:
        (B, K) bool: whether the length limit cuts off a hypothesis. Then EOS is required, but is not the best token.
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
    """Return the n most probable continuations of each sentence.

    Args:
        log_probs: (B, K, V), the log-probabilities of the next tokens.
        live: (B, K), the log-probabilities of the live hypotheses.
        n: number of continuations, or all if there are fewer.
    """
    n_vocab = log_probs.size(-1)
    sums = (live[..., None] + log_probs).flatten(1)  # (B, K*V)
    best, index = sums.topk(min(n, sums.size(1)))  # (B, n)
    token_log_probs = log_probs.flatten(1).gather(1, index)
    return Candidates(best, index // n_vocab, index % n_vocab, token_log_probs)


def _allocate_beams(
    constraint: Constraint, candidates: Candidates, log_probs: Tensor, live: Beams, row: int, limit: int, n_beams: int
) -> None:
    """If a sentence has terms, choose its candidates by `Constraint.by_banks`, in place."""
    if not constraint.terms:
        return
    hypotheses = [as_string(tokens) for tokens in live.tokens[row].tolist()]
    # 1. Forbid EOS for each hypothesis that lacks a term.
    incomplete = [beam for beam, hypothesis in enumerate(hypotheses) if constraint.n_lacking(hypothesis)]
    log_probs[row, incomplete, EOS] = -math.inf
    # 2. Collect the best candidates, the most probable token of each beam, and the tokens that terms need.
    continuations = constraint.useful_continuations(hypotheses)
    best_tokens = log_probs[row].argmax(-1).tolist()
    continuations.update(map(Continuation, range(len(best_tokens)), best_tokens))
    best_of_all = torch.stack([candidates.parent_beams[row], candidates.tokens[row]], 1)
    continuations.update(Continuation(*pair) for pair in best_of_all.tolist())
    # 3. Choose from these continuations by banks.
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
    """Return the hypotheses that finish in this step, as pairs (batch row, hypothesis).

    `is_cut` (B, K) is the result of `_ban`.
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
    """Return the new live hypotheses and their parent beams (B, K).

    In sampling, the order of the beams stays the same, because `Sampler` draws separate noise for each beam.
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
    """Append the elements of `new` (B, K') to the rows of their parent beams in x (B, K, t).

    Returns a tensor of shape (B, K', t + 1).
    """
    parents = x.take_along_dim(parent_beams[..., None], 1).to(new.dtype)
    return torch.cat([parents, new[..., None]], -1)


def _is_done(options: SearchOptions, finished: list[Hypothesis], best_live: float, length: int) -> bool:
    """Return whether the search for a sentence is complete.

    The search ends if there is no live hypothesis. It also ends if K finished hypotheses are at least as good as the
    best live hypothesis. Live hypotheses are scored at their current length.
    """
    if best_live == -math.inf:
        return True
    if len(finished) < options.beam:
        return False
    kth_best = sorted((h.score for h in finished), reverse=True)[options.beam - 1]
    return best_live / options.length_divisor(length) <= kth_best
