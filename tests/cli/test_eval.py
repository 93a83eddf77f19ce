"""`nmt eval`."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt
from sacrebleu.metrics.bleu import BLEU

from nmt.cli.evaluate import evaluate, table_of_directions
from nmt.files import atomic_write, hash_file
from nmt.run.directory import RunDirectory
from nmt.translate.translator import Translator

SIGNATURES = {
    "BLEU": "nrefs:{n}|{bs}case:{case}|eff:no|tok:{tok}|smooth:exp|version:",
    "chrF2": "nrefs:{n}|{bs}case:{case}|eff:yes|nc:6|nw:0|space:no|version:",
    "TER": "nrefs:{n}|{bs}case:lc|tok:tercom|norm:{han}|punct:yes|asian:{han}|version:",
}


def test_eval_scores_the_newest_run_on_its_test_set(five_run: FiveRun) -> None:
    done = run_nmt("eval", "--show", 2, cwd=five_run.home)
    assert err_lines(done) == ["model: runs/five"]
    shown = [(SOURCE[i], TARGET[i]) for i in (0, 2)]
    expected = [[f"source       {s}", f"reference    {t}", f"translation  {t}", ""] for s, t in shown]
    lines = out_lines(done)
    assert lines[:8] == [*expected[0], *expected[1]]
    lines = lines[8:]
    perfect = {"BLEU": ("100.00", "100.0"), "chrF2": ("100.00", "100.0"), "TER": ("0.00", "0.0")}
    for line, (name, signature) in zip(lines[:3], SIGNATURES.items(), strict=True):
        value, bound = perfect[name]
        recipe = signature.format(n=1, bs="bs:1000|seed:12345|", case="mixed", tok="13a", han="no")
        assert line.startswith(f"{name} = {value}  (95 %: {bound} to {bound})  {recipe}")
    assert lines[3].startswith("engine = CTranslate2 4.")
    assert lines[4].startswith("perplexity of the references = 1.")
    assert len(lines) == 5
    two = run_nmt("eval", "--json", *["-m", five_run.run] * 2, cwd=five_run.home)
    assert err_lines(two) == [f"ensemble: {five_run.run} and {five_run.run}"]
    assert json.loads(two.stdout)["models"] == [str(five_run.run)] * 2


def test_eval_json_with_several_references(five_run: FiveRun, tmp_path: Path) -> None:
    reference, other = tmp_path / "ref.en.gz", tmp_path / "other.en"
    reference.write_bytes(gzip.compress(five_run.target_file.read_bytes()))
    other.write_text("".join(f"{line}\n" for line in reversed(TARGET)))
    common = ["-m", five_run.model_file, "--beam", 1]
    files = ["--src", five_run.source_file, "--ref", reference, "--ref", other]
    figures = json.loads(run_nmt("eval", *common, *files, "--json").stdout)
    assert figures["n_lines"] == 5
    assert figures["beam"] == 1
    assert [score["name"] for score in figures["scores"]] == list(SIGNATURES)
    assert [round(score["value"], 6) for score in figures["scores"]] == [100, 100, 0]
    assert all(score["signature"].startswith("nrefs:2|bs:1000|") for score in figures["scores"])
    assert all(score["low"] <= score["value"] + 1e-9 <= score["high"] + 1e-6 for score in figures["scores"])


def test_scores_keep_the_hash_of_the_model(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training may replace the model file during an evaluation."""
    run, translate_lines = RunDirectory(five_run.copy_run(tmp_path / "run")), Translator.translate_lines
    loaded = hash_file(run.model_file)

    def replaced_first(*args: Any, **options: Any) -> Any:
        atomic_write(run.model_file, run.checkpoint_file(100).read_bytes())
        return translate_lines(*args, **options)

    monkeypatch.setattr(Translator, "translate_lines", replaced_first)
    evaluate(model=[run.path], engine="torch")
    assert hash_file(run.model_file) != loaded
    assert run.read_scores()[-1]["model_sha256"] == loaded


def test_eval_of_given_translations_imports_no_torch(tmp_path: Path) -> None:
    hypotheses = ["a Cat sat on the mat .", "it is raining today", "他今天在学校。"]
    references = [
        ["A cat sat on the mat .", "it rained a lot today", "他今天在家。"],
        ["the cat sat on a mat .", "today it is raining", "今天他在学校。"],
    ]
    (tmp_path / "hyp").write_text("\n".join(hypotheses))
    for name, lines in zip(("one.zh", "two.zh"), references, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    given_files = ["eval", "--hyp", "hyp", "--ref", "one.zh", "--ref", "two.zh"]

    done = run_nmt(*given_files, cwd=tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert not any(line.split("|")[-1].strip() == "torch" for line in err_lines(done))
    default = out_lines(done)
    assert len(default) == 3, "no perplexity without a model"
    assert default[0].startswith(f"BLEU = {BLEU(tokenize='zh').corpus_score(hypotheses, references).score:.2f}  (")
    assert SIGNATURES["BLEU"].format(n=2, bs="bs:1000|seed:12345|", case="mixed", tok="zh") in default[0]

    done = run_nmt(*given_files, "--lowercase", "--tokenize", "char", "--bootstrap", 0, cwd=tmp_path)
    assert err_lines(done) == []
    for line, (name, signature) in zip(out_lines(done), SIGNATURES.items(), strict=True):
        assert re.match(rf"{name} = [\d.]+  ", line)
        assert signature.format(n=2, bs="", case="lc", tok="char", han="yes") in line


def test_test_sets_that_are_unclear_incomplete_or_unequal_are_refused(five_run: FiveRun, tmp_path: Path) -> None:
    for name, lines in (("hyp", TARGET), ("ref", TARGET), ("short", TARGET[:4]), ("src", SOURCE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    model = ["-m", str(five_run.model_file)]
    for args, fragments in (
        (["--hyp", "hyp"], ["no run names a data.test"]),
        (["--hyp", "hyp", "--ref", "short"], ["5 hypotheses", "4 lines in reference 1"]),
        (["--hyp", "hyp", "--ref", "ref", "--src", "short", "--show", "5"], ["4", "5"]),
        ([*model, "--src", "src"], ["--src needs --ref"]),
        ([*model, "--ref", "ref"], ["--ref needs --src"]),
        (model, ["no run names a data.test"]),
    ):
        one_clear_error(run_nmt("eval", *args, cwd=tmp_path), 2, *fragments)


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def test_intervals_lie_within_the_scale(tmp_path: Path) -> None:
    references = [f"line {n} has a few more words than the others" for n in range(60)]
    nearly = write_lines(tmp_path / "nearly", ["no word of it", *references[1:]])
    done = run_nmt("eval", "--hyp", nearly, "--ref", write_lines(tmp_path / "ref", references), "--json")
    bleu, chrf, ter = json.loads(done.stdout)["scores"]
    assert 90 < bleu["low"] < bleu["value"] < bleu["high"] == 100, "a resample without the first line is perfect"
    assert 90 < chrf["low"] < chrf["value"] < chrf["high"] == 100
    assert 0 == ter["low"] < ter["value"] < ter["high"] < 10


def test_tokenized_text_is_warned_of_once(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "lines", [f"it is number {n} ." for n in range(120)])
    files = ["eval", "--hyp", lines, "--ref", lines, "--bootstrap", 0]
    (warning,) = err_lines(run_nmt(*files))
    assert warning.startswith("nmt: warning: 120 of 120 translations end in ' .', as in tokenized text: ")
    assert "--tokenize none" in warning
    assert err_lines(run_nmt(*files, "--tokenize", "none")) == []


def test_directions_without_ter_have_none_in_the_table() -> None:
    bleu, ter = {"name": "BLEU", "value": 20.0}, {"name": "TER", "value": 60.0}
    found = table_of_directions({"en-de": {"scores": [bleu, ter]}, "en-th": {"scores": [bleu]}})
    assert [line.split() for line in found] == [
        ["direction", "BLEU", "TER"],
        ["en-de", "20.00", "60.00"],
        ["en-th", "20.00", "–"],
        ["mean", "20.00", "–"],
    ]
