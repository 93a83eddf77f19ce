"""`nmt score`: scores pairs of text."""

import json
from pathlib import Path

import pytest
from conftest import FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together


def test_translations_keep_the_scores_of_translate(five_run: FiveRun, tmp_path: Path) -> None:
    common = ["-m", five_run.run, "--alpha", 0.6, "--json"]
    done = run_nmt("translate", *common, "--engine", "torch", "-i", five_run.source_file)
    translations = [json.loads(line) for line in out_lines(done)]
    (tmp_path / "out").write_text("".join(f"{one['hypotheses'][0]['text']}\n" for one in translations))
    scored = run_nmt("score", *common, "--src", five_run.source_file, "--ref", tmp_path / "out")
    assert err_lines(scored) == []
    for found, expected in zip(map(json.loads, out_lines(scored)), translations, strict=True):
        assert found["source"] == expected["source"]
        (own,), (theirs,) = found["hypotheses"], expected["hypotheses"]
        assert own["text"] == theirs["text"]
        assert own["score"] == pytest.approx(theirs["score"], abs=1e-4)
        assert own["log_prob"] == pytest.approx(theirs["log_prob"], abs=1e-4)
        assert [one["piece"] for one in own["pieces"]] == [one["piece"] for one in theirs["pieces"]]


def test_pairs_are_scored_line_by_line(five_run: FiveRun) -> None:
    files, evaluation = run_together(
        ["score", "--src", five_run.source_file, "--ref", five_run.target_file],
        ["eval", "--beam", 1, "--json", "--bootstrap", 0],
        cwd=five_run.home,
    )
    lines = out_lines(files)
    n_pieces, total = 0, 0.0
    for line in lines:
        log_prob, _, of_pieces = line.partition("\t")
        values = [float(value) for value in of_pieces.split(" ")]
        assert float(log_prob) == pytest.approx(sum(values), abs=1e-3)
        n_pieces, total = n_pieces + len(values), total + float(log_prob)
    perplexity = json.loads(evaluation.stdout)["perplexity"]
    assert 2.718281828 ** (-total / n_pieces) == pytest.approx(perplexity, rel=1e-3)


def test_files_of_different_lengths_are_refused(five_run: FiveRun) -> None:
    scored = run_nmt("score", "-m", five_run.run, "--src", "train.zh", "--ref", "five.yaml", cwd=five_run.home)
    one_clear_error(scored, 2, "has 5 lines but five.yaml has")
