"""Greedy search, beam search and sampling over a step function.

Never sees a model: `start`, `step` and `select` are all it knows (see `Stepper`). Greedy search is beam search
with one beam. Each sentence searches by itself: its limit comes from its own source, it stops by its own rule, and
it leaves the batch when it is done.

    live        K unfinished hypotheses a sentence
    candidates  their best continuations: 2K, so that K remain when all ends are taken out (or, in sampling, one
                drawn continuation of each)
    finished    hypotheses that have reached EOS, ranked by score
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.decode.options import Hypothesis, SearchOptions
from nmt.seeds import seed_of
from nmt.text import BOS, EOS, PAD

State = TypeVar("State")
GROUP = 64  # neighboring tokens of which first only the best, or in sampling the sum, is looked at


class Stepper(Protocol[State]):
    """What a model offers to search; B sentences, K beams, V pieces."""

    def start(self, src: Tensor, /) -> State:
        """Read the source ids (B, S); the state of one beam a sentence."""

    def step(self, ids: Tensor, state: State, /) -> tuple[Tensor, State]:
        """Read one more token of each beam (B, K); logits (B, K, V) of the next, which search overwrites."""

    def select(self, state: State, rows: Tensor, /) -> State:
        """Keep the beams (B', K'), indices into B*K; those of a row come from one sentence.

        Sentences that stay keep their places, but that the last ones take those of sentences that leave.
        """


@dataclass(frozen=True)
class TraceStep:
    """What one step of the search did, for whoever watches: `sentences` are positions in the caller's batch."""

    position: int
    sentences: list[int]
    tokens: Tensor  # (B, K, t) of the live hypotheses
    live: Tensor  # (B, K) their log-probabilities; -inf where there is none


def search(
    model: Stepper[State],
    src: Tensor,
    options: SearchOptions,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    max_length: int | None = None,
    sentence_seeds: Sequence[int] | None = None,
    trace: Callable[[TraceStep], None] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        model: the step function.
        src: (B, S) source ids, EOS last, then PAD.
        options: beam, penalties, limits.
        prefixes: for each sentence the tokens that its translation must begin with; may be empty.
        max_length: the most tokens the model can write, whatever the source.
        sentence_seeds: for each sentence what tells its random draws from those of others; else its position.
        trace: called after every step.
    Returns:
        for each sentence its `n_best` hypotheses or fewer, best score first; at least one.
    """
    n_beams, device = options.beam, src.device
    limits = [options.limit(int(n), len(prefix), max_length) for n, prefix in _with_prefix(src, prefixes)]
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    draws = _Draws(options, sentence_seeds or range(len(limits))) if options.sample else None

    alive = list(range(len(limits)))  # positions in the batch of the sentences still searched
    state = model.start(src)
    ids = torch.full((len(alive), 1), BOS, device=device)
    live = torch.zeros(len(alive), 1, device=device)
    if options.sample:  # every sample is a hypothesis from the start; else beams part with the first token
        ids, live = ids.expand(-1, n_beams), live.expand(-1, n_beams)
        state = model.select(state, torch.arange(len(alive), device=device)[:, None].expand(-1, n_beams))
    tokens = torch.empty(*ids.shape, 0, dtype=torch.long, device=device)
    token_log_probs = torch.empty(*ids.shape, 0, device=device)

    for length in range(1, max(limits) + 1):
        logits, state = model.step(ids, state)
        # normalised before any ban: a score is what teacher forcing gives
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_probs = torch.log_softmax(logits, -1, out=logits)  # in place takes two thirds of the time
        live, token_log_probs = live.to(log_probs), token_log_probs.to(log_probs)
        _ban(log_probs, [_allowed(options, limits[b], length, prefixes[b] if prefixes else ()) for b in alive])

        if draws:
            scores, parents, words, step_log_probs = draws.candidates(log_probs, live, alive)
        else:
            scores, parents, words, step_log_probs = _best_candidates(log_probs, live, 2 * n_beams)

        is_end = words == EOS
        accepted = is_end[:, :n_beams] & (scores[:, :n_beams] > -math.inf)
        if accepted.any():
            at = accepted.nonzero().unbind(1)  # sentences, candidates
            own = at[0], parents[at]
            ends = (at[0], tokens[own], token_log_probs[own], step_log_probs[at], scores[at])
            for b, ids_before, before, last, score in zip(*(x.tolist() for x in ends), strict=True):
                end = Hypothesis([*ids_before, EOS], [*before, last], score / options.divisor(length))
                finished[alive[b]].append(end)

        live, chosen = scores.masked_fill(is_end, -math.inf).topk(min(n_beams, scores.size(1)))  # (B, K'), sorted
        parents = parents.gather(1, chosen)
        tokens = _appended(tokens, parents, words.gather(1, chosen))
        token_log_probs = _appended(token_log_probs, parents, step_log_probs.gather(1, chosen))
        if trace:
            trace(TraceStep(length, list(alive), tokens, live))

        best_live = live[:, 0].tolist()
        on = [b for b, a in enumerate(alive) if not _is_done(options, finished[a], best_live[b], length)]
        if not on:
            break
        if len(on) < len(alive) or n_beams > 1:
            rows = parents + torch.arange(0, ids.numel(), ids.size(1), device=device)[:, None]  # (B, K') into B*K
            if len(on) < len(alive):
                order = _closed_up(on)
                alive, kept = [alive[b] for b in order], torch.tensor(order, device=device)
                rows, live, tokens, token_log_probs = rows[kept], live[kept], tokens[kept], token_log_probs[kept]
            state = model.select(state, rows)
        ids = tokens[..., -1]
    # sorted() is stable: of equals, the one found first
    return [sorted(found, key=lambda h: -h.score)[: options.n_best] for found in finished]


def _with_prefix(src: Tensor, prefixes: Sequence[Sequence[int]] | None) -> list[tuple[int, Sequence[int]]]:
    lengths = (src != PAD).sum(1).tolist()
    return list(zip(lengths, prefixes or [()] * len(lengths), strict=True))


def _allowed(options: SearchOptions, limit: int, length: int, prefix: Sequence[int]) -> int | None:
    """The one token that must come now; None where the model chooses, -1 where anything but EOS may come."""
    if length >= limit:
        return EOS
    if length <= len(prefix):
        return prefix[length - 1]
    return -1 if length <= options.min_length else None


def _ban(log_probs: Tensor, allowed: list[int | None]) -> None:
    """Set what may not come to -inf, in place: (B, K, V)."""
    forced = {
        b: log_probs[b, :, only].clone() for b, only in enumerate(allowed) if only is not None and only != -1
    }
    log_probs[..., :EOS] = -math.inf  # PAD, UNK and BOS
    for b, only in enumerate(allowed):
        if only == -1:
            log_probs[b, :, EOS] = -math.inf
        elif only is not None:
            log_probs[b] = -math.inf
            log_probs[b, :, only] = forced[b]


def _closed_up(on: list[int]) -> list[int]:
    """The places of the sentences that stay, in order but for the last ones: those take the places left empty."""
    staying, last = set(on), [b for b in on if b >= len(on)]
    return [b if b in staying else last.pop() for b in range(len(on))]


Candidates = tuple[Tensor, Tensor, Tensor, Tensor]  # each (B, C): scores, parents, words, the words' log-probs


def _grouped(x: Tensor) -> Tensor:
    """(B, K, V) to (B, K, G, 64): the vocabulary in groups of neighboring tokens, the last filled with -inf."""
    if x.size(-1) % GROUP:
        x = F.pad(x, (0, -x.size(-1) % GROUP), value=-math.inf)
    return x.view(*x.shape[:2], -1, GROUP)


def _best_candidates(log_probs: Tensor, live: Tensor, n: int) -> Candidates:
    """The n best continuations of all beams of a sentence, or all that there are; best first.

    They lie in the groups of neighbouring pieces that have the greatest maxima, so that all but those few groups
    need only their maximum taken, which is much quicker than sorting.
    """
    n_beams, n_vocab = log_probs.shape[1:]
    groups = _grouped(log_probs)  # (B, K, G, 64)
    n_groups = groups.size(2)
    n = min(n, n_beams * n_vocab)
    maxima = (groups.amax(-1) + live[..., None]).flatten(1)  # (B, K*G)
    chosen = maxima.topk(min(n, maxima.size(1)), sorted=False).indices  # (B, n)
    best = groups.flatten(1, 2).gather(1, chosen[..., None].expand(-1, -1, GROUP))  # (B, n, 64)
    scores, place = (best + live.gather(1, chosen // n_groups)[..., None]).flatten(1).topk(n)
    position = chosen.gather(1, place // GROUP) * GROUP + place % GROUP  # among the pieces of all beams
    parents = position // (n_groups * GROUP)
    words = (position % (n_groups * GROUP)).clamp(max=n_vocab - 1)  # padding comes last, among what is -inf too
    return scores, parents, words, best.flatten(1).gather(1, place)


class _Draws:
    """Random draws from softmax(logits) by the Gumbel-max trick: the largest sum of a logit and its noise.

    Drawn in two stages, a group of neighboring tokens by its total probability, then a token of it: V/64 + 64
    random numbers per beam instead of V. They depend on the sentence's seed, the step, the beam and the token
    alone. The rest of the batch can change a draw only through the rounding of the logits, where the two largest
    sums are equal but for it: in fp32 about one draw in a million. A token at the threshold of top-k or top-p that
    rounding adds or removes matters only to the draws that it wins, because the others keep their noise.
    """

    def __init__(self, options: SearchOptions, seeds: Sequence[int]) -> None:
        self.options = options
        self.generators = [torch.Generator().manual_seed(seed_of(options.seed, seed)) for seed in seeds]

    def candidates(self, log_probs: Tensor, live: Tensor, alive: list[int]) -> Candidates:
        """One continuation of each beam; to be called once per step."""
        groups = _grouped(self._allowed_logits(log_probs))  # (B, K, G, 64)
        n_groups = groups.size(2)
        noise = self._gumbel(alive, log_probs.size(1), n_groups + GROUP, log_probs.device)
        totals = groups.flatten(2).softmax(-1).view_as(groups).sum(-1).log()  # (B, K, G)
        group = (totals + noise[..., :n_groups]).argmax(-1, keepdim=True)  # (B, K, 1)
        of_group = groups.gather(2, group[..., None].expand(-1, -1, -1, GROUP))[:, :, 0]  # (B, K, 64)
        place = (of_group + noise[..., n_groups:]).argmax(-1, keepdim=True)
        words = (group * GROUP + place).clamp(max=log_probs.size(-1) - 1)  # beyond V only if no logit is a number
        drawn = log_probs.gather(-1, words)[..., 0]  # (B, K)
        parents = torch.arange(live.size(1), device=live.device).expand_as(live)
        return live + drawn, parents, words[..., 0], drawn

    def _allowed_logits(self, log_probs: Tensor) -> Tensor:
        """Logits at the temperature, -inf for what top-k and top-p leave out. They keep all that ties."""
        logits = log_probs / self.options.temperature  # (B, K, V)
        if 0 < self.options.top_k < logits.size(-1):
            least = logits.topk(self.options.top_k, sorted=False).values.amin(-1, keepdim=True)
            logits.masked_fill_(logits < least, -math.inf)
        if self.options.top_p < 1:
            ordered = logits.sort(dim=-1, descending=True).values
            n_before = (ordered.softmax(-1).cumsum(-1) < self.options.top_p).sum(-1, keepdim=True)
            least = ordered.gather(-1, n_before.clamp(max=logits.size(-1) - 1))  # the one that reaches p
            logits.masked_fill_(logits < least, -math.inf)
        return logits

    def _gumbel(self, alive: list[int], n_beams: int, n: int, device: torch.device) -> Tensor:
        """(B, K, n) Gumbel noise, from the CPU's generators, so that all devices draw the same."""
        noise = torch.empty(len(alive), n_beams, n)
        for row, b in zip(noise, alive, strict=True):
            row.uniform_(generator=self.generators[b])
        return noise.to(device).clamp_(min=2**-25).log_().neg_().log_().neg_()  # uniform_ may give 0, never 1


def _appended(x: Tensor, parents: Tensor, new: Tensor) -> Tensor:
    """What the parents, (B, K') of beams (B, K, t), have, and one more, (B, K'): (B, K', t + 1)."""
    return torch.cat([x.gather(1, parents[..., None].expand(-1, -1, x.size(-1))), new[..., None]], -1)


def _is_done(options: SearchOptions, finished: list[Hypothesis], best_live: float, length: int) -> bool:
    """Whether K hypotheses have finished and the best live one, at its present length, does not beat them."""
    if best_live == -math.inf:
        return True
    if len(finished) < options.beam:
        return False
    worst = sorted((h.score for h in finished), reverse=True)[options.beam - 1]
    return best_live / options.divisor(length) <= worst
