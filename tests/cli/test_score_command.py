"""`nmt score`: scores pairs of text."""

import json
import math
from pathlib import Path

import pytest
from conftest import SOURCE, TARGET, out_lines, refused, run_in

SCORE = "score --src train.zh --ref train.en"  # in the folder of the five pairs


def test_a_line_has_the_log_probabilities_of_the_translation_and_of_its_pieces(five_home: Path) -> None:
    total = 0.0
    n_pieces = 0
    for line in out_lines(run_in(five_home, SCORE)):
        log_prob, of_pieces = line.split("\t")
        log_probs = list(map(float, of_pieces.split(" ")))
        assert float(log_prob) == pytest.approx(sum(log_probs), abs=1e-3)
        total += float(log_prob)
        n_pieces += len(log_probs)
    # The perplexity of `nmt eval` is of the same log-probabilities.
    evaluation = run_in(five_home, "eval --beam 1 --json --bootstrap 0")
    perplexity = json.loads(evaluation.stdout)["perplexity"]
    log_prob_per_piece = total / n_pieces
    result = math.exp(-log_prob_per_piece)
    assert result == pytest.approx(perplexity, rel=1e-3)


def test_json_adds_scores_with_the_length_penalty(five_home: Path) -> None:
    plain = out_lines(run_in(five_home, SCORE))
    lines = out_lines(run_in(five_home, f"{SCORE} --json"))
    for i, tree in enumerate(map(json.loads, lines)):
        (hypothesis,) = tree["hypotheses"]
        assert tree["source"] == SOURCE[i]
        assert hypothesis["text"] == TARGET[i]
        log_probs = [piece["log_prob"] for piece in hypothesis["pieces"]]
        score = hypothesis["log_prob"] / len(log_probs)  # decode.alpha is 1
        assert hypothesis["score"] == pytest.approx(score)
        of_pieces = " ".join(f"{x:.4f}" for x in log_probs)
        assert plain[i] == f"{hypothesis['log_prob']:.4f}\t{of_pieces}"


def test_what_cannot_be_scored_is_refused(five_home: Path) -> None:
    refused(five_home, "score --src train.zh --ref five.yaml", "has 5 lines but five.yaml has")
    refused(five_home, f"{SCORE} -o train.zh", "train.zh would be overwritten")
