"""`nmt score`: scores pairs of text."""

import json

import pytest
from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together


def test_translations_keep_the_scores_of_translate(five_run: FiveRun) -> None:
    common = ["-m", five_run.run, "--alpha", 0.6, "--json"]
    done = run_nmt("translate", *common, "--engine", "torch", "-i", five_run.source_file)
    translations = [json.loads(line) for line in out_lines(done)]
    tsv = "".join(f"{one['source']}\t{one['hypotheses'][0]['text']}\n" for one in translations)
    scored = run_nmt("score", *common, input=tsv.encode())
    assert err_lines(scored) == []
    for found, expected in zip(map(json.loads, out_lines(scored)), translations, strict=True):
        assert found["source"] == expected["source"]
        (own,), (theirs,) = found["hypotheses"], expected["hypotheses"]
        assert own["text"] == theirs["text"]
        assert own["score"] == pytest.approx(theirs["score"], abs=1e-4)
        assert own["log_prob"] == pytest.approx(theirs["log_prob"], abs=1e-4)
        assert [one["piece"] for one in own["pieces"]] == [one["piece"] for one in theirs["pieces"]]


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
    "line 1 is not source TAB translation: no tab here": ([], "no tab here"),
    "line 2 is not source TAB translation: a": ([], "\na\tb\tc"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_scored_is_refused(five_run: FiveRun, message: str) -> None:
    args, text = REFUSED[message]
    one_clear_error(run_nmt("score", "-m", five_run.run, *args, input=text.encode(), cwd=five_run.home), 2, message)
