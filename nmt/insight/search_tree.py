"""The tree of all hypotheses that a search considered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from nmt.decode.options import SearchOptions
from nmt.decode.search import TraceStep
from nmt.text import EOS
from nmt.text.tokenizer import Tokenizer


@dataclass
class SearchNode:
    """A candidate of the search: a live hypothesis, continued by one more token."""

    index: int  # index in the list of all nodes
    parent: int | None  # index of the node that this node continues; None if `token` is the first token
    position: int  # position of `token` in the hypothesis, from 1
    piece: str
    token: int
    token_log_prob: float  # log-probability of `token`, in nats
    log_prob: float  # log-probability of the whole hypothesis, in nats
    score: float  # log_prob after the length penalty
    status: str  # kept, pruned or finished
    is_best: bool = False  # whether the node is on the path of the best hypothesis
    is_greedy: bool = False  # whether the node is on the path of the hypothesis of greedy search


def search_tree(steps: Sequence[TraceStep], options: SearchOptions, tokenizer: Tokenizer) -> list[SearchNode]:
    """Return all candidates of the search for one sentence, step by step.

    In beam search, the candidates of a step are sorted, the best first.
    """
    nodes: list[SearchNode] = []
    live: list[int | None] = [None] * options.beam  # index of the node of each live hypothesis
    for step in steps:
        # 1. Find the candidates that stay live after the step. Each is a pair of parent beam and token.
        parent_beams = step.parent_beams[0].tolist()
        last_tokens = step.live.tokens[0, :, -1].tolist()
        kept = list(zip(parent_beams, last_tokens, strict=True))

        # 2. Make a node for each candidate.
        node_of: dict[tuple[int, int], int] = {}
        candidates = [x[0].tolist() for x in step.candidates]
        for rank, candidate in enumerate(zip(*candidates, strict=True)):
            log_prob, parent, token, token_log_prob = candidate
            if log_prob == -torch.inf:
                continue
            is_kept = rank < options.beam if token == EOS else (parent, token) in kept
            status = "pruned"
            if is_kept:
                status = "finished" if token == EOS else "kept"
            (piece,) = tokenizer.pieces([token])
            score = log_prob / options.length_divisor(step.position)
            node = SearchNode(
                index=len(nodes),
                parent=live[parent],
                position=step.position,
                piece=piece,
                token=token,
                token_log_prob=token_log_prob,
                log_prob=log_prob,
                score=score,
                status=status,
            )
            node_of[parent, token] = node.index
            nodes.append(node)
        # 3. Find the node of each live hypothesis. A beam without one may get any node: its candidates have -inf.
        live = [node_of.get(key) for key in kept]
    return nodes


def mark_paths(nodes: Sequence[SearchNode], best: Sequence[int], greedy: Sequence[int]) -> None:
    """Mark the nodes on the paths of the best and of the greedy hypothesis.

    `best` and `greedy` are token ids. A path ends before the first token that was not a candidate of the search.
    """
    children = {(node.parent, node.token): node for node in nodes}
    for node in path_of(best, children):
        node.is_best = True
    for node in path_of(greedy, children):
        node.is_greedy = True


def path_of(tokens: Sequence[int], children: Mapping[tuple[int | None, int], SearchNode]) -> Iterator[SearchNode]:
    """Yield the nodes of a hypothesis. `children` has each node by its parent's index and its token."""
    index = None
    for token in tokens:
        node = children.get((index, token))
        if node is None:
            return
        yield node
        index = node.index
