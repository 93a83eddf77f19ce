"""`nmt eval`."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import TARGET, FiveRun, err_lines, imported_modules, out_lines, refused, run_in, run_nmt

from nmt.cli.evaluate import evaluate
from nmt.files import atomic_write, hash_file
from nmt.run.directory import RunDirectory
from nmt.translate.translator import Translator


def test_eval_scores_the_newest_run_on_its_test_set(five_home: Path) -> None:
    done = run_in(five_home, "eval")
    assert err_lines(done) == ["model: runs/five"]
    bleu, chrf, ter, engine, perplexity = out_lines(done)
    bs = "bs:1000|seed:12345"
    bleu_signature = f"nrefs:1|{bs}|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    chrf_signature = f"nrefs:1|{bs}|case:mixed|eff:yes|nc:6|nw:0|space:no|version:"
    ter_signature = f"nrefs:1|{bs}|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:"
    assert bleu.startswith(f"BLEU = 100.00  (95 %: 100.0 to 100.0)  {bleu_signature}")
    assert chrf.startswith(f"chrF2 = 100.00  (95 %: 100.0 to 100.0)  {chrf_signature}")
    assert ter.startswith(f"TER = 0.00  (95 %: 0.0 to 0.0)  {ter_signature}")
    assert engine.startswith("engine = CTranslate2 4.")
    assert perplexity.startswith("perplexity of the references = 1.")


def test_a_memory_is_a_test_set(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("en,n,zh\ntea,1,茶\n,2,书\n", encoding="utf-8")
    done = run_in(tmp_path, f"eval -m {five_run.model_file} --bootstrap 0 --json --src a.csv")
    figures = json.loads(done.stdout)
    assert figures["n_lines"] == 1
    assert figures["scores"][1]["value"] > 10


@pytest.mark.parametrize("hypotheses", ["--hyp b.en", "--hyp b.de", "--hyp b -l de", "--hyp b -l en-de"])
def test_given_translations_of_a_memory_are_scored(hypotheses: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("de,en\nTee,tea\n")
    for name, text in {"b.en": "tea", "b.de": "Tee", "b": "Tee"}.items():
        (tmp_path / name).write_text(text)
    done = run_in(tmp_path, f"eval --bootstrap 0 --json --src a.csv {hypotheses}")
    result = json.loads(done.stdout)["scores"][1]["value"]
    assert result == pytest.approx(100)


def test_an_ensemble_is_named(five_home: Path) -> None:
    done = run_in(five_home, "eval -m runs/five -m runs/five --json")
    assert err_lines(done) == ["ensemble: runs/five and runs/five"]
    figures = json.loads(done.stdout)
    assert figures["models"] == ["runs/five", "runs/five"]


def test_eval_json_with_several_references(five_run: FiveRun, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "ref.en.gz", "wb") as file:
        file.write(five_run.target_file.read_bytes())
    (tmp_path / "other.en").write_text("\n".join(reversed(TARGET)))
    test_set = f"--src {five_run.source_file} --ref ref.en.gz --ref other.en"
    done = run_in(tmp_path, f"eval -m {five_run.model_file} --beam 1 {test_set} --json")
    figures = json.loads(done.stdout)
    assert figures["n_lines"] == 5
    assert figures["beam"] == 1
    values = {score["name"]: score["value"] for score in figures["scores"]}
    assert values == pytest.approx({"BLEU": 100, "chrF2": 100, "TER": 0})


def test_scores_keep_the_hash_of_the_model(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training may replace the model file during an evaluation."""
    run = RunDirectory(five_run.copy_run(tmp_path / "run"))
    loaded = hash_file(run.model_file)
    translate_lines = Translator.translate_lines

    def replaced_first(*args: Any, **options: Any) -> Any:
        atomic_write(run.model_file, run.checkpoint_file(100).read_bytes())
        return translate_lines(*args, **options)

    monkeypatch.setattr(Translator, "translate_lines", replaced_first)
    evaluate(model=[run.path], engine="torch")
    assert hash_file(run.model_file) != loaded
    assert run.read_scores()[-1]["model_sha256"] == loaded


@pytest.fixture
def chinese(tmp_path: Path) -> Path:
    """A folder with translations into Chinese and two references."""
    (tmp_path / "hyp").write_text("it is raining today\n他今天在学校。\n")
    (tmp_path / "one.zh").write_text("it rained a lot today\n他今天在家。\n")
    (tmp_path / "two.zh").write_text("today it is raining\n今天他在学校。\n")
    return tmp_path


def test_given_translations_are_scored_without_torch(chinese: Path) -> None:
    arguments = ["--hyp", "hyp", "--ref", "one.zh", "--ref", "two.zh"]
    done = run_nmt("eval", *arguments, cwd=chinese, env={"PYTHONPROFILEIMPORTTIME": "1"})
    imported = imported_modules(done)
    assert "nmt.evaluate" in imported
    assert "torch" not in imported
    lines = out_lines(done)
    assert "nrefs:2|bs:1000|seed:12345|case:mixed|eff:no|tok:zh|" in lines[0], "the name of the reference tells it"
    assert len(lines) == 3, "no perplexity without a model"


def test_tokenizer_and_case_can_be_chosen(chinese: Path) -> None:
    options = "--lowercase --tokenize char --bootstrap 0"
    done = run_in(chinese, f"eval --hyp hyp --ref one.zh --ref two.zh {options}")
    assert err_lines(done) == []
    bleu, chrf, ter = out_lines(done)
    assert "  nrefs:2|case:lc|eff:no|tok:char|" in bleu
    assert "  nrefs:2|case:lc|eff:yes|" in chrf
    assert "  nrefs:2|case:lc|tok:tercom|norm:yes|punct:yes|asian:yes|" in ter


UNSUITABLE = {  # arguments -> part of the error message
    "--hyp train.en": "no run names a data.test",
    "--hyp train.en --ref short": "5 hypotheses but 1 lines in reference 1",
    "--hyp train.en --ref train.en --src short": "1 source lines but 5 lines in reference 1",
    "--hyp train.en --ref a.xlsx": "a.xlsx is not a file with lines of text",
    "-m runs/five --src train.zh": "train.zh is no translation memory",
    "--hyp train.en --ref train.en --src a.tmx": "a.tmx is a memory, which has its own references",
    "-m runs/five --ref train.en": "--ref needs --src",
    "-m runs/five/model.safetensors": "no run names a data.test",
}


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_test_sets_that_are_unclear_incomplete_or_unequal_are_refused(
    five_home: Path, tmp_path: Path, arguments: str
) -> None:
    (tmp_path / "short").write_text("one line\n")
    command = f"eval {arguments}".replace("short", f"{tmp_path}/short")
    refused(five_home, command, UNSUITABLE[arguments])


def test_tokenized_text_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("it is a number .\n" * 120)
    (warning,) = err_lines(run_in(tmp_path, "eval --hyp lines --ref lines --bootstrap 0"))
    assert warning.startswith("nmt: warning: 120 of 120 translations end in ' .', as in tokenized text: ")
    assert "--tokenize none" in warning
    result = err_lines(run_in(tmp_path, "eval --hyp lines --ref lines --bootstrap 0 --tokenize none"))
    assert result == []


def test_it_is_said_that_ter_is_left_out(tmp_path: Path) -> None:
    lines = tmp_path / "ref.th"
    lines.write_text("รถไฟออกตอนเก้าโมง\n", encoding="utf-8")
    done = run_nmt("eval", "--hyp", lines, "--ref", lines)
    assert err_lines(done) == ["TER is left out: it counts words, and the references have no spaces between words"]
    assert b"TER" not in done.stdout
    words = run_nmt("eval", "--hyp", lines, "--ref", lines, "--tokenize", "none")
    assert b"TER = 0.00" in words.stdout, "with this option, spaces separate words"
