"""The tree of hypotheses of a search, built from the steps that `search` passes to its `trace` callback."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nmt.decode.options import SearchOptions
from nmt.decode.search import TraceStep
from nmt.text import EOS
from nmt.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Node:
    """A candidate: a hypothesis continued by one token."""

    index: int
    parent: int | None  # index of the node that it continues; None for the first token
    position: int  # of the token, from 1
    piece: str
    token: int
    token_log_prob: float
    log_prob: float  # of the whole hypothesis, before the length penalty
    score: float  # after the length penalty
    status: str  # kept, pruned or finished
    is_best: bool = False  # on the path of the best hypothesis
    is_greedy: bool = False  # on the path of greedy search


def search_tree(steps: Sequence[TraceStep], options: SearchOptions, tokenizer: Tokenizer) -> list[Node]:
    """Return all candidates of the search for one sentence, step by step, best first within a step."""
    nodes: list[Node] = []
    live: list[int | None] = [None] * options.beam  # node of each live hypothesis
    for step in steps:
        (log_probs,), (parents,), (tokens,), (token_log_probs,) = (x.tolist() for x in step.candidates)
        kept = list(zip(step.parent_beams[0].tolist(), step.live.tokens[0, :, -1].tolist(), strict=True))
        is_live = (step.live.log_prob[0] > -torch.inf).tolist()
        kept_nodes: dict[tuple[int, int], int] = {}
        for rank, (log_prob, parent, token) in enumerate(zip(log_probs, parents, tokens, strict=True)):
            if log_prob == -torch.inf:
                continue
            if token == EOS:
                status = "finished" if rank < options.beam else "pruned"
            else:
                status = "kept" if (parent, token) in kept else "pruned"
            kept_nodes[parent, token] = len(nodes)
            (piece,) = tokenizer.pieces([token])
            score = log_prob / options.length_divisor(step.position)
            of_token = piece, token, token_log_probs[rank]
            nodes.append(Node(len(nodes), live[parent], step.position, *of_token, log_prob, score, status))
        live = [kept_nodes[key] if alive else None for key, alive in zip(kept, is_live, strict=True)]
    return nodes


def with_paths(nodes: Sequence[Node], best: Sequence[int], greedy: Sequence[int]) -> list[Node]:
    """Return the nodes with `is_best` and `is_greedy` set on the paths of two hypotheses, given as token ids.

    A path ends before the first token that was not a candidate of the search.
    """
    on_best, on_greedy = _path(nodes, best), _path(nodes, greedy)
    return [replace(node, is_best=node.index in on_best, is_greedy=node.index in on_greedy) for node in nodes]


def _path(nodes: Sequence[Node], tokens: Sequence[int]) -> set[int]:
    children = {(node.parent, node.token): node.index for node in nodes}
    path, node = set(), None
    for token in tokens:
        if (node := children.get((node, token))) is None:
            break
        path.add(node)
    return path
