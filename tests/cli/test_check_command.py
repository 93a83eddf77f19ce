"""`nmt check`."""

import json
import re
from pathlib import Path

from conftest import FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together

DATA = Path(__file__).parents[2] / "data" / "zh-en"
CONFIG = """run: runs/none
data:
  root: {root}
  train: {{source: train.zh, target: train.en}}
  dev: {{source: dev.zh, target: dev.en}}
"""


def with_missing_line(folder: Path) -> tuple[Path, Path]:
    source, target = folder / "train.zh", folder / "train.en"
    source.write_bytes(b"".join((DATA / "train.zh").read_bytes().splitlines(keepends=True)[:1500]))
    lines = (DATA / "train.en").read_bytes().splitlines(keepends=True)[:1500]
    target.write_bytes(b"".join(lines[:700] + lines[701:]))
    return source, target


def test_a_config_without_errors(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(CONFIG.format(root=DATA))
    text, as_json = run_together(["check", config], ["check", config, "data.dev=null", "--json"])
    lines = out_lines(text)
    assert lines[0] == f"train: 5,000 lines of {DATA}/train.zh and {DATA}/train.en"
    assert lines[1].startswith("dev: 200 lines of ")
    assert re.fullmatch(r"1 warning, 1 note in \d+ s", lines[-1])
    (line,) = out_lines(as_json)
    report = json.loads(line)
    assert [corpus["name"] for corpus in report["corpora"]] == ["train"]
    assert report["languages"] == ["zh", "en"]
    assert [finding["severity"] for finding in report["findings"]] == ["note"]


def test_errors_page_and_cleaned_files(tmp_path: Path) -> None:
    source, target = with_missing_line(tmp_path)
    done = run_nmt("check", source, target, "--html", tmp_path / "page.html", "--fix", tmp_path / "fixed", "--show", 1)
    assert done.returncode == 1, done.stderr.decode()
    text = done.stdout.decode()
    assert "error    corpus: the sides have different numbers of lines\n" in text
    assert "1,500 source lines, 1,499 target lines; they part at about line 70" in text
    assert "2 errors" in text.splitlines()[-1]
    assert f"written to {tmp_path}/page.html" in done.stderr.decode()
    page = (tmp_path / "page.html").read_text()
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    shifted = next(finding for finding in json.loads(block)["findings"] if finding["kind"] == "shifted")
    assert shifted["count"] > 790
    assert len(shifted["lines"]) <= 1000
    cleaned = [(tmp_path / "fixed" / f"corpus.{side}").read_text() for side in ("zh", "en")]
    assert cleaned[0].count("\n") == cleaned[1].count("\n") >= 1497
    again = run_nmt("check", tmp_path / "fixed" / "corpus.zh", tmp_path / "fixed" / "corpus.en", "-q")
    assert again.returncode == 0
    assert err_lines(again) == []


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    for name in ("a.de", "a.en"):
        (tmp_path / name).write_text("a \x1b[31mb\n")
    text = run_nmt("check", tmp_path / "a.de", tmp_path / "a.en").stdout.decode()
    assert "\x1b" not in text
    assert "\\x1b[31mb" in text


def test_a_model_ranks_pairs_and_its_tokenizer_is_measured(five_run: FiveRun, tmp_path: Path) -> None:
    alone, both = run_together(
        ["check", five_run.config, "--model", five_run.run, "--json"],
        ["check", five_run.config, "-m", five_run.run, "-m", five_run.run, "--json"],
        cwd=tmp_path,
    )
    for done, name in ((alone, "by cross-entropy"), (both, "by dual conditional cross-entropy")):
        assert done.returncode == 1, "dev and test are train"
        findings = json.loads(done.stdout)["findings"]
        assert {finding["corpus"] for finding in findings if finding["kind"] == "leak"} == {"dev", "test"}
        (unlikely,) = [finding for finding in findings if finding["kind"] == "unlikely"]
        assert unlikely["detail"].startswith(name)
        assert unlikely["count"] == 5
        values = [float(example["detail"].split()[0]) for example in unlikely["examples"]]
        assert values == sorted(values, reverse=True)


def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("a\n")
    (tmp_path / "a.en").write_text("")
    one_clear_error(run_nmt("check", tmp_path / "a.de"), 2, "a config (.yaml) or two files are needed")
    one_clear_error(run_nmt("check", tmp_path / "a.de", tmp_path / "none.en"), 2, "cannot read", "none.en")
    one_clear_error(run_nmt("check", tmp_path / "a.de", tmp_path / "a.en"), 2, "a.en is empty")
    one_clear_error(run_nmt("check", "a", "b", "-m", "x", "-m", "y", "-m", "z"), 2, "more than twice")
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "mine").write_text("mine")
    (tmp_path / "a.en").write_text("b\n")
    done = run_nmt("check", tmp_path / "a.de", tmp_path / "a.en", "--fix", tmp_path / "fixed", "--json")
    assert done.returncode == 1
    assert b"fixed is not empty" in done.stderr
