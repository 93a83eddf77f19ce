"""`nmt explain`."""

import json
from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together


def test_explain_writes_a_page_or_prints_json(five_run: FiveRun, tmp_path: Path) -> None:
    model = ("-m", five_run.run)
    page, default, as_json = run_together(
        ["explain", SOURCE[0], *model, "-o", "page.html", "--reference", TARGET[0]],
        ["explain", SOURCE[1], *model, "-q"],
        ["explain", SOURCE[0], *model, "--json", "--sample", "--seed", 4],
        cwd=tmp_path,
    )
    assert (out_lines(page), err_lines(page)) == ([], ["written to page.html"])
    assert (out_lines(default), err_lines(default)) == ([], [])
    assert TARGET[1] in (tmp_path / "explanation.html").read_text()
    found = json.loads(as_json.stdout)
    assert (found["options"]["sample"], found["options"]["seed"]) == (True, 4)


def test_explain_refuses_what_it_cannot_do(five_run: FiveRun, tmp_path: Path) -> None:
    model = ("-m", five_run.run)
    one_clear_error(run_nmt("explain", "a", *model, "--json", "--open", cwd=tmp_path), 2, "--open shows the page")
    one_clear_error(run_nmt("explain", "a", *model, "--seed", 3, cwd=tmp_path), 2, "--seed applies only to sampling")
    one_clear_error(run_nmt("explain", "", *model, cwd=tmp_path), 2, "the sentence is blank")
    one_clear_error(run_nmt("explain", "none.docx", *model, cwd=tmp_path), 2, "one sentence is needed, not the name of")
    one_clear_error(run_nmt("explain", five_run.source_file, *model, cwd=tmp_path), 2, "one sentence is needed")
    assert not list(tmp_path.iterdir())
