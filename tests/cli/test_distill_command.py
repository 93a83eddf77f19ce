"""`nmt distill`."""

from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, run_together


def test_a_corpus_is_rewritten_by_an_ensemble(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in.zh").write_text("".join(f"{line}\n" for line in [*SOURCE, ""]), encoding="utf-8")
    common = ["distill", "-m", five_run.run, "-i", "in.zh"]
    whole, wrong = run_together(
        [*common, "-m", five_run.model_file, "-o", "out.en"],
        ["distill", "-m", five_run.run, "-i", five_run.target_file, "-o", "wrong.en"],
        cwd=tmp_path,
    )
    assert err_lines(whole) == ["to train a student on it: data.train.source=in.zh data.train.target=out.en"]
    assert (tmp_path / "out.en").read_text(encoding="utf-8").split("\n") == [*TARGET, "", ""]
    one_clear_error(wrong, 2, "the model translates zh to en, but ")
