"""`nmt explain`."""

import json
from pathlib import Path

import pytest
from conftest import SOURCE, TARGET, FiveRun, err_lines, out_lines, refused, run_in


def test_explain_writes_a_page(five_run: FiveRun, tmp_path: Path) -> None:
    done = run_in(tmp_path, f"explain tea -m {five_run.run} -o page.html --reference coffee")
    assert out_lines(done) == []
    assert err_lines(done) == ["written to page.html"]
    assert '"coffee"' in (tmp_path / "page.html").read_text()


def test_the_page_has_a_default_name(five_run: FiveRun, tmp_path: Path) -> None:
    done = run_in(tmp_path, f"explain '{SOURCE[1]}' -m {five_run.run} -q")
    assert err_lines(done) == []
    assert TARGET[1] in (tmp_path / "explanation.html").read_text()


def test_explain_prints_json(five_home: Path) -> None:
    done = run_in(five_home, f"explain '{SOURCE[0]}' --json --sample --seed 4")
    options = json.loads(done.stdout)["options"]
    assert options["sample"] is True
    assert options["seed"] == 4


UNSUITABLE = {  # arguments -> part of the error message
    "a --json --open": "--open and -o are about the page",
    "a --json -o a.html": "--open and -o are about the page",
    "a --seed 3": "--seed applies only to sampling",
    "''": "the sentence is blank",
    "none.docx": "one sentence is needed, not the name of",
    "train.zh": "one sentence is needed",
}


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_explain_refuses_what_it_cannot_do(five_home: Path, arguments: str) -> None:
    refused(five_home, f"explain {arguments}", UNSUITABLE[arguments])
    assert not (five_home / "explanation.html").exists()
