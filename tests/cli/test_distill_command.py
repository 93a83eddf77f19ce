"""`nmt distill`."""

from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, run_together

import nmt
from nmt.evaluate import closest


def test_a_corpus_is_rewritten_by_the_best_or_the_most_similar_hypothesis(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in.zh").write_text("".join(f"{line}\n" for line in [*SOURCE, ""]), encoding="utf-8")
    translator = nmt.load(five_run.run)
    found = list(translator.translate_lines([*SOURCE, ""], translator.with_options(beam=8, n_best=8)))
    texts = [[hypothesis.text for hypothesis in one.hypotheses] for one in found]
    references = [of[i % len(of)] for i, of in enumerate(texts)]
    (tmp_path / "ref.en").write_text("".join(f"{line}\n" for line in references), encoding="utf-8")
    common = ["distill", "-m", five_run.run, "-i", "in.zh"]
    similar = ["--best-of", 8, "--ref", "ref.en"]
    best, of_eight, first, last = run_together(
        [*common, "-m", five_run.model_file, "-o", "best.en"],
        [*common, "-o", "similar.en", *similar],
        [*common, "-o", "parts.en", *similar, "--shard", "0/2"],
        [*common, "-o", "parts.en", *similar, "--shard", "1/2"],
        cwd=tmp_path,
    )
    assert err_lines(best) == ["to train a student on it: data.train.source=in.zh data.train.target=best.en"]
    assert (tmp_path / "best.en").read_text(encoding="utf-8").split("\n") == [*TARGET, "", ""]

    expected = [of[closest(of, reference)] for of, reference in zip(texts, references, strict=True)]
    assert expected == references
    assert expected != [*TARGET, ""]
    assert of_eight.returncode == 0
    assert (tmp_path / "similar.en").read_text(encoding="utf-8").split("\n")[:-1] == expected
    parts = [(tmp_path / f"parts.en.shard-00{i}-of-002").read_text(encoding="utf-8").split("\n")[1:-1] for i in (0, 1)]
    assert first.returncode == last.returncode == 0
    assert parts[0] + parts[1] == expected


def test_what_does_not_fit_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in.zh").write_text("我\n我\n", encoding="utf-8")
    (tmp_path / "ref.en").write_text("I\n")
    common = ["distill", "-m", five_run.run, "-i", "in.zh", "-o", "out.en"]
    alone, short, few = run_together(
        [*common, "--ref", "ref.en"],
        [*common, "--ref", "ref.en", "--best-of", 4],
        [*common, "--ref", "in.zh", "--best-of", 4, "--beam", 2],
        cwd=tmp_path,
    )
    one_clear_error(alone, 2, "--best-of and --ref go together")
    one_clear_error(short, 2, "in.zh has 2 lines but ref.en has 1")
    one_clear_error(few, 2, "n_best is 4, but there are 2 hypotheses")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.zh", "ref.en"]
