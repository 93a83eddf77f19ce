"""`nmt compare`: models and files as systems, the HTML page."""

import json
from pathlib import Path

import pytest
from conftest import SOURCE, TARGET, FiveRun, data_of_page, err_lines, one_clear_error, out_lines, run_nmt, run_together

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def systems(folder: Path) -> Path:
    references = (ROOT / "data" / "zh-en" / "test.en").read_text(encoding="utf-8").splitlines()[:60]
    baseline = [line.replace("the", "a").lower() for line in references]  # sacreBLEU's TER ignores case
    other = [line.replace("last ", "") if i % 3 else line.rpartition(" ")[0] for i, line in enumerate(references)]
    for name, lines in (("ref.en", references), ("a.en", baseline), ("b.en", other)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def test_translations_are_compared_without_torch(systems: Path) -> None:
    done = run_nmt("compare", "a.en", "b.en", "--ref", "ref.en", cwd=systems, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert not any(line.split("|")[-1].strip() == "torch" for line in err_lines(done))
    lines = out_lines(done)
    assert lines[:3] == ["A  a.en  (baseline)", "B  b.en", "60 lines of ref.en"]
    assert any(line.startswith("BLEU: nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|") for line in lines)


def test_runs_are_compared_on_their_test_set(five_run: FiveRun, tmp_path: Path) -> None:
    other = tmp_path / "other.en"
    other.write_text("".join(f"{line}\n" for line in [*TARGET[:4], TARGET[0]]), encoding="utf-8")
    files = ["--src", five_run.source_file, "--ref", five_run.target_file]
    named, given = run_together(
        ["compare", five_run.run, other, "--html", "page.html", "--json"],
        ["compare", other, five_run.model_file, *files, "--json", "--lowercase", "--tokenize", "char", "-q"],
        cwd=tmp_path,
    )
    assert err_lines(named) == [f"model: {five_run.run}", "written to page.html"]
    assert err_lines(given) == []
    found, turned = json.loads(named.stdout), json.loads(given.stdout)
    bleu, chrf, _ = found["scores"]
    assert chrf["systems"][0]["value"] == pytest.approx(100)
    assert bleu["systems"][1]["difference"]["value"] < 0
    assert "|case:lc|eff:no|tok:char|" in turned["scores"][0]["signature"]
    assert turned["scores"][1]["systems"][1]["difference"]["value"] > 0
    (worse,) = found["differing"][0]["worse"]
    assert (worse["number"], worse["source"], worse["translations"]) == (5, SOURCE[4], [TARGET[4], TARGET[0]])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert TARGET[4] in page
    assert data_of_page(page)


def test_what_cannot_be_compared_is_refused(five_run: FiveRun, systems: Path, tmp_path: Path) -> None:
    other_test = five_run.copy_run(tmp_path / "other")
    config = other_test / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace(str(five_run.home), str(tmp_path)), encoding="utf-8")
    refused: dict[str, list[object]] = {
        "systems to compare: 1": ["a.en"],
        "no run names a data.test": ["a.en", "b.en"],
        "a model needs the source lines": ["a.en", five_run.run, "--ref", "ref.en"],
        "lines in a.en but 5 lines in reference 1": ["a.en", "b.en", "--ref", five_run.target_file],
        "the runs name different test sets": [five_run.run, other_test],
    }
    done = run_together(*(["compare", *words] for words in refused.values()), cwd=systems)
    for message, one in zip(refused, done, strict=True):
        one_clear_error(one, 2, message)


def test_equal_translations_show_no_difference(systems: Path) -> None:
    (systems / "capitals.en").write_text((systems / "a.en").read_text(encoding="utf-8").upper(), encoding="utf-8")
    done = run_nmt("compare", "a.en", "a.en", "capitals.en", "--ref", "ref.en", cwd=systems)
    rows = [line.split() for line in out_lines(done) if line.startswith(("BLEU   ", "chrF2  ", "TER    "))]
    p_values = {(name, system): float(cells[-1]) for name, system, *cells in rows if system != "A"}
    assert {p_values[name, "B"] for name in ("BLEU", "chrF2", "TER")} == {1.0}
    assert p_values["TER", "C"] == 1.0, "TER ignores case"
    assert p_values["BLEU", "C"] < 0.01
