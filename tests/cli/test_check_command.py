"""`nmt check`."""

import json
import re
from pathlib import Path

from conftest import data_of_page, err_lines, one_clear_error, out_lines, run_nmt

DATA = Path(__file__).parents[2] / "data" / "zh-en"


def test_a_config_without_errors(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        f"run: runs/none\ndata: {{root: {DATA}, train: {{source: dev.zh, target: dev.en}}, "
        f"test: {{source: test.zh, target: test.en}}}}\n"
    )
    lines = out_lines(run_nmt("check", config))
    assert lines[0] == f"train: 200 lines of {DATA}/dev.zh and {DATA}/dev.en"
    assert lines[1].startswith("test: ")
    assert re.fullmatch(r".* in \d+ s", lines[-1])
    report = json.loads(run_nmt("check", config, "data.test=null", "--json").stdout)
    assert [corpus["name"] for corpus in report["corpora"]] == ["train"]
    assert report["languages"] == ["zh", "en"]


def test_errors_page_and_cleaned_files(tmp_path: Path) -> None:
    source, target = tmp_path / "train.zh", tmp_path / "train.en"
    source.write_bytes(b"".join((DATA / "train.zh").read_bytes().splitlines(keepends=True)[:1500]))
    lines = (DATA / "train.en").read_bytes().splitlines(keepends=True)[:1500]
    target.write_bytes(b"".join(lines[:700] + lines[701:]))
    done = run_nmt("check", source, target, "--html", tmp_path / "page.html", "--fix", tmp_path / "fixed", "--show", 1)
    assert done.returncode == 1, done.stderr.decode()
    text = done.stdout.decode()
    assert "error    corpus: the sides have different numbers of lines\n" in text
    assert "1,500 source lines, 1,499 target lines; they part at about line 70" in text
    assert "2 errors" in text.splitlines()[-1]
    assert f"written to {tmp_path}/page.html" in done.stderr.decode()
    assert "check the copies, too: some faults show only in lines that belong together\n" in done.stderr.decode()
    page = (tmp_path / "page.html").read_text()
    shifted = next(finding for finding in data_of_page(page)["findings"] if finding["kind"] == "shifted")
    assert shifted["count"] > 790
    assert len(shifted["lines"]) <= 1000
    fixed = [tmp_path / "fixed" / f"corpus.{side}" for side in ("zh", "en")]
    n_source, n_target = (file.read_text().count("\n") for file in fixed)
    assert n_source == n_target >= 1497
    assert err_lines(run_nmt("check", *fixed, "-q")) == []


def test_what_cannot_be_checked_is_refused_and_control_characters_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("a \x1b[31mb\n")
    (tmp_path / "a.en").write_text("")
    one_clear_error(run_nmt("check", "a.de", cwd=tmp_path), 2, "a config (.yaml) or two files are needed")
    one_clear_error(run_nmt("check", "a.de", "none.en", cwd=tmp_path), 2, "none.en")
    one_clear_error(run_nmt("check", "a.de", "a.en", cwd=tmp_path), 2, "a.en is empty")
    (tmp_path / "a.yaml").write_text(
        "run: x\ndata: {train: {source: a.de, target: a.de}, mix: {b: {source: a.de, target: a.de, weight: 0.1}}}\n"
    )
    done = run_nmt("check", "a.yaml", "--fix", "fixed", cwd=tmp_path)
    one_clear_error(done, 2, "--fix would join data.mix with the training files")
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "mine").write_text("mine")
    (tmp_path / "a.en").write_text("b \x1b[31mb\n")
    done = run_nmt("check", "a.de", "a.en", "--fix", "fixed", cwd=tmp_path)
    assert done.returncode == 1
    assert b"fixed is not empty" in done.stderr
    assert b"\x1b" not in done.stdout
    assert b"\\x1b[31mb" in done.stdout
