"""`nmt compare`: models and files as systems, the HTML page."""

import json
from itertools import islice
from pathlib import Path

import pytest
from conftest import (
    SOURCE,
    TARGET,
    FiveRun,
    data_of_page,
    err_lines,
    imported_modules,
    out_lines,
    refused,
    run_in,
    run_nmt,
)

TEST = Path(__file__).parents[2] / "data" / "zh-en" / "test.en"


@pytest.fixture(scope="module")
def systems(folder: Path) -> Path:
    """A folder with 60 references and the translations of two systems."""
    with TEST.open(encoding="utf-8") as file:
        text = "".join(islice(file, 60))
    (folder / "empty").touch()
    (folder / "a.csv").write_text("de,fr\n")
    (folder / "ref.en").write_text(text)
    (folder / "a.en").write_text(text.replace("the", "a").lower())
    (folder / "b.en").write_text(text.replace("a", "the"))
    return folder


def test_translations_are_compared_without_torch(systems: Path) -> None:
    arguments = ["a.en", "b.en", "--ref", "ref.en"]
    done = run_nmt("compare", *arguments, cwd=systems, env={"PYTHONPROFILEIMPORTTIME": "1"})
    imported = imported_modules(done)
    assert "nmt.evaluate" in imported
    assert "torch" not in imported
    assert out_lines(done)[:3] == ["A  a.en  (baseline)", "B  b.en", "60 lines of ref.en"]
    assert b"\nBLEU: nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|" in done.stdout


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    """Translations of the five sentences, the last of which is wrong."""
    file = tmp_path / "worse.en"
    lines = [*TARGET[:4], TARGET[0]]
    file.write_text("\n".join(lines))
    return file


def test_a_run_is_compared_on_its_test_set(five_run: FiveRun, worse: Path) -> None:
    done = run_in(worse.parent, f"compare {five_run.run} worse.en --html page.html --json")
    result = err_lines(done)
    assert result == [f"model: {five_run.run}", "written to page.html"]
    comparison = json.loads(done.stdout)
    bleu, chrf, _ = comparison["scores"]
    baseline, _ = chrf["systems"]
    assert baseline["value"] == pytest.approx(100)
    _, other = bleu["systems"]
    assert other["difference"]["value"] < 0
    # The line that differs is named.
    (line,) = comparison["differing"][0]["worse"]
    assert line["number"] == 5
    assert line["source"] == SOURCE[4]
    assert line["translations"] == [TARGET[4], TARGET[0]]
    page = (worse.parent / "page.html").read_text(encoding="utf-8")
    assert data_of_page(page)
    assert TARGET[4] in page


def test_a_model_file_is_compared_on_a_given_test_set(five_home: Path, worse: Path) -> None:
    test_set = "--src train.zh --ref train.en --lowercase --tokenize char"
    done = run_in(five_home, f"compare {worse} runs/five/model.safetensors {test_set} --json -q")
    assert err_lines(done) == []
    comparison = json.loads(done.stdout)
    bleu, chrf, _ = comparison["scores"]
    assert "|case:lc|eff:no|tok:char|" in bleu["signature"]
    _, model = chrf["systems"]
    assert model["difference"]["value"] > 0


def test_runs_with_different_test_sets_are_refused(five_run: FiveRun, five_home: Path, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "other")
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace(str(five_home), str(tmp_path)))
    refused(five_home, f"compare runs/five {run}", "the runs name different test sets")


UNSUITABLE = {  # arguments -> part of the error message
    "a.en": "systems to compare: 1",
    "a.en b.en": "no run names a data.test",
    "a.en b.en --src a.csv": "which languages of a.csv?",
    "a.docx b.en --ref ref.en": "a.docx is not a file with lines of text",
    "empty empty --ref empty": "nothing to compare: empty is empty",
    "a.en HOME/runs/five --ref ref.en": "a model needs the source lines",
    "a.en b.en --ref HOME/train.en": "lines in a.en but 5 lines in reference 1",
    "HOME/runs/five missing.en --src HOME/train.zh --ref HOME/train.en": "cannot read missing.en",
}


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_what_cannot_be_compared_is_refused(five_home: Path, systems: Path, arguments: str) -> None:
    command = f"compare {arguments}".replace("HOME", str(five_home))
    refused(systems, command, UNSUITABLE[arguments])
