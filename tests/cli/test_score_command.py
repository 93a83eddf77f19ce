"""`nmt score`: rescores the output of `nmt translate --json`, and scores pairs of text."""

import json
from pathlib import Path

import pytest
from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together


def test_translations_keep_the_scores_of_translate(five_run: FiveRun, tmp_path: Path) -> None:
    found, again = tmp_path / "found.jsonl", tmp_path / "again.jsonl"
    common = ["-m", five_run.run, "--alpha", 0.6]
    done = run_nmt("translate", *common, "--engine", "torch", "--json", "-i", five_run.source_file, "-o", found)
    assert done.returncode == 0
    scored = run_nmt("score", *common, "-i", found, "--json", "-o", again)
    assert (out_lines(scored), err_lines(scored)) == ([], [])
    stdin = run_nmt("score", *common, "--json", input=again.read_bytes())
    for line, *others in zip(
        *(text.splitlines() for text in (found.read_text(), again.read_text())), out_lines(stdin), strict=True
    ):
        expected = json.loads(line)
        for other in map(json.loads, others):
            assert other["source"] == expected["source"]
            for own, theirs in zip(other["hypotheses"], expected["hypotheses"], strict=True):
                assert own["text"] == theirs["text"]
                assert own["score"] == pytest.approx(theirs["score"], abs=1e-4)
                assert own["log_prob"] == pytest.approx(theirs["log_prob"], abs=1e-4)
                assert [one["piece"] for one in own["pieces"]] == [one["piece"] for one in theirs["pieces"]]
                for mine, other_piece in zip(own["pieces"], theirs["pieces"], strict=True):
                    assert mine["log_prob"] == pytest.approx(other_piece["log_prob"], abs=1e-4)


def test_pairs_are_scored_line_by_line(five_run: FiveRun) -> None:
    tsv = "".join(f"{s}\t{t}\n" for s, t in zip(SOURCE, TARGET, strict=True)) + "\n"
    files, pairs, evaluation = run_together(
        ["score", "--src", five_run.source_file, "--ref", five_run.target_file],
        ["score"],
        ["eval", "--beam", 1, "--json", "--bootstrap", 0],
        input=tsv.encode(),
        cwd=five_run.home,
    )
    lines = out_lines(files)
    assert out_lines(pairs) == [*lines, "0.0000\t"]
    n_pieces, total = 0, 0.0
    for line in lines:
        log_prob, _, of_pieces = line.partition("\t")
        values = [float(value) for value in of_pieces.split(" ")]
        assert float(log_prob) == pytest.approx(sum(values), abs=1e-3)
        n_pieces, total = n_pieces + len(values), total + float(log_prob)
    perplexity = json.loads(evaluation.stdout)["perplexity"]
    assert 2.718281828 ** (-total / n_pieces) == pytest.approx(perplexity, rel=1e-3)


REFUSED: dict[str, tuple[list[str], str]] = {
    "--src and --ref go together": (["--src", "a"], ""),
    "has 5 lines but five.yaml has": (["--src", "train.zh", "--ref", "five.yaml"], ""),
    "both --src and -i were given": (["--src", "a", "--ref", "b", "-i", "c"], ""),
    "line 1 is neither source TAB translation nor JSON of `nmt translate`: no tab here": ([], "no tab here"),
    "line 2 is neither source": ([], '\n{"source": "a", "hypotheses": 3}'),
    "2 hypotheses do not fit on one line": ([], '{"source": "a", "hypotheses": [{"text": "a"}, {"text": "b"}]}'),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_scored_is_refused(five_run: FiveRun, message: str) -> None:
    args, text = REFUSED[message]
    one_clear_error(run_nmt("score", "-m", five_run.run, *args, input=text.encode(), cwd=five_run.home), 2, message)
