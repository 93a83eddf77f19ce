"""`nmt score`: scores pairs of text."""

import json

import pytest
from conftest import SOURCE, TARGET, FiveRun, one_clear_error, out_lines, run_nmt, run_together


def test_pairs_are_scored_line_by_line(five_run: FiveRun) -> None:
    score = ["score", "--src", five_run.source_file, "--ref", five_run.target_file]
    plain, as_json, evaluation = run_together(
        score, [*score, "--json", "--alpha", 0.6], ["eval", "--beam", 1, "--json", "--bootstrap", 0], cwd=five_run.home
    )
    n_pieces, total = 0, 0.0
    for n, (line, tree) in enumerate(zip(out_lines(plain), map(json.loads, out_lines(as_json)), strict=True)):
        log_prob, _, of_pieces = line.partition("\t")
        values = [float(value) for value in of_pieces.split(" ")]
        assert float(log_prob) == pytest.approx(sum(values), abs=1e-3)
        (found,) = tree["hypotheses"]
        assert (tree["source"], found["text"]) == (SOURCE[n], TARGET[n])
        assert found["log_prob"] == pytest.approx(float(log_prob), abs=1e-3)
        assert found["score"] == pytest.approx(found["log_prob"] / len(values) ** 0.6)
        assert [piece["log_prob"] for piece in found["pieces"]] == pytest.approx(values, abs=1e-3)
        n_pieces, total = n_pieces + len(values), total + float(log_prob)
    perplexity = json.loads(evaluation.stdout)["perplexity"]
    assert 2.718281828 ** (-total / n_pieces) == pytest.approx(perplexity, rel=1e-3)


def test_files_of_different_lengths_are_refused(five_run: FiveRun) -> None:
    scored = run_nmt("score", "-m", five_run.run, "--src", "train.zh", "--ref", "five.yaml", cwd=five_run.home)
    one_clear_error(scored, 2, "has 5 lines but five.yaml has")
