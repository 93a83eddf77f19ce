"""train.log: a copy of the log that `nmt train` prints to stderr."""

import logging
import re
from pathlib import Path

import pytest
from conftest import FiveCorpus, FiveRun, run_in

from nmt.cli.streams import log
from nmt.cli.train import kept_log
from nmt.errors import DivergedError

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ((?:DEBUG|INFO|WARNING|ERROR) .*)")
TRAIN = "train five.yaml train.validate_every=100"


def messages(file: Path) -> list[str]:
    """The lines of a log without their times."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        found.append(match[1])
    return found


def test_the_log_holds_what_went_to_stderr(five_run: FiveRun) -> None:
    said = five_run.training.stderr.decode().replace("nmt: warning: ", "")
    logged = messages(five_run.run / "train.log")
    assert [line.partition(" ")[2] for line in logged] == said.splitlines()
    assert any(line.startswith("INFO chosen for 5 pairs") for line in logged), "also what was said before the lock"


def test_a_resumed_training_appends_and_one_that_does_not_begin_writes_nothing(five_corpus: FiveCorpus) -> None:
    file = five_corpus.run / "train.log"
    assert run_in(five_corpus.home, f"{TRAIN} train.max_steps=2").returncode == 0
    before = file.read_bytes()
    assert run_in(five_corpus.home, f"{TRAIN} train.max_steps=50 seed=2").returncode == 2
    assert run_in(five_corpus.home, f"{TRAIN} train.max_steps=50 --dry-run").returncode == 0
    assert file.read_bytes() == before
    assert run_in(five_corpus.home, f"{TRAIN} train.max_steps=4").returncode == 0
    assert file.read_bytes().startswith(before)
    assert f"INFO going on from step 2 of {five_corpus.run}" in messages(file)


def test_lines_wait_until_the_log_is_open_and_an_error_is_kept_with_its_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt")
    file = tmp_path / "train.log"
    with pytest.raises(DivergedError), kept_log(file) as open_log:  # noqa: PT012
        log.info("first\nsecond \x1b[2J")
        assert not file.exists()
        open_log()
        log.warning("third")
        raise DivergedError("the loss is nan")
    log.info("fourth")
    expected = [r"INFO first\nsecond \x1b[2J", "WARNING third", "ERROR DivergedError: the loss is nan"]
    assert messages(file) == expected


def test_a_log_that_cannot_be_written_does_not_stop_training(five_corpus: FiveCorpus) -> None:
    (five_corpus.run / "train.log").mkdir(parents=True)
    done = run_in(five_corpus.home, f"{TRAIN} train.max_steps=2")
    assert done.returncode == 0
    result = done.stderr.count(b"train.log: Is a directory; training goes on")
    assert result == 1
