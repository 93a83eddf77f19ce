"""The tree of hypotheses of searches that can be followed by hand."""

import math
from typing import Any

import pytest
from models import TableModel, small_translator, sources

from nmt.decode.options import SearchOptions
from nmt.decode.search import TraceStep, search
from nmt.insight.search_tree import SearchNode, mark_paths, search_tree
from nmt.text import EOS

A, B, C = 4, 5, 6
V = 7
# The probabilities of the next token: A has 0.6 and B 0.4; EOS is likely only after B.
NEXT = {
    (): {A: 0.6, B: 0.4},
    (A,): {EOS: 0.3, A: 0.4, C: 0.25},
    (B,): {EOS: 0.9, C: 0.1},
}


def table(_source: tuple[int, ...], words: tuple[int, ...]) -> list[float]:
    probabilities = NEXT[words[:1]]
    return [probabilities.get(token, 0.0) for token in range(V)]


def tree_of(**options: Any) -> tuple[list[SearchNode], list[int]]:
    """The nodes of a search, and the tokens of its best hypothesis; greedy search finds A A EOS."""
    steps: list[TraceStep] = []
    chosen = SearchOptions(max_length_a=0, max_length_b=3, **options)
    (hypotheses,) = search(TableModel(table), sources((A,)), chosen, trace=steps.append)
    best = hypotheses[0]
    nodes = search_tree(steps, chosen, small_translator().tokenizers.target)
    mark_paths(nodes, best.tokens, [A, A, EOS])
    return nodes, best.tokens


def test_candidates_are_kept_pruned_or_finished() -> None:
    nodes, _ = tree_of(beam=2)
    first_a, first_b, *second = nodes[:6]
    assert (first_a.token, first_b.token) == (A, B)
    for node in (first_a, first_b):
        assert node.parent is None
        assert node.status == "kept"
    # Two beams are kept besides the hypothesis that has finished.
    assert {node.position for node in second} == {2}
    result = [node.token for node in second]
    assert result == [EOS, A, EOS, C]
    found = [node.parent for node in second]
    assert found == [1, 0, 0, 0]
    outcome = [node.status for node in second]
    assert outcome == ["finished", "kept", "pruned", "kept"]


def test_a_node_has_the_scores_of_its_hypothesis() -> None:
    nodes, _ = tree_of(beam=2, alpha=1.0)
    finished = nodes[2]  # B EOS
    assert finished.token_log_prob == pytest.approx(math.log(0.9))
    assert finished.log_prob == pytest.approx(math.log(0.36))
    assert finished.score == pytest.approx(finished.log_prob / 2)


def test_the_paths_of_two_hypotheses_are_marked() -> None:
    nodes, _ = tree_of(beam=2, alpha=1.0)
    result = [node.index for node in nodes if node.is_best]
    assert result == [1, 2]
    greedy = [node.index for node in nodes if node.is_greedy]
    assert greedy[:2] == [0, 3]


def test_greedy_search_is_a_single_path() -> None:
    nodes, best = tree_of(beam=1)
    kept = [node.token for node in nodes if node.status != "pruned"]
    assert kept == best
    path = [node.position for node in nodes if node.is_best]
    assert path == [1, 2, 3]


def test_a_path_ends_before_the_first_token_that_was_no_candidate() -> None:
    nodes, best = tree_of(beam=1)
    for node in nodes:
        node.is_best = False
    mark_paths(nodes, [C, *best], ())
    assert not any(node.is_best for node in nodes)


def test_each_sample_is_a_path() -> None:
    nodes, _ = tree_of(beam=3, n_best=3, sample=True)
    first = [node for node in nodes if node.position == 1]
    assert len(first) == 3
    best = [node for node in nodes if node.is_best]
    assert len(best) >= 2
