"""`nmt config`, and invalid configs."""

import re
from pathlib import Path

import pytest
from conftest import Done, FiveCorpus, FiveRun, out_lines, run_in, run_nmt

from nmt.config import settings as all_settings

KEYS = [key for key, *_ in all_settings()]


def printed_values(done: Done) -> dict[str, str]:
    values = {}
    for line in out_lines(done):
        key, value = line.split("=", 1)
        values[key] = value
    return values


def test_config_lists_every_key_with_its_range_default_and_meaning() -> None:
    # The columns are padded with spaces.
    lines = out_lines(run_nmt("config"))
    for line, row in zip(lines, all_settings(), strict=True):
        assert line.split() == " ".join(row).split()


def test_config_lists_the_keys_that_begin_alike() -> None:
    lines = out_lines(run_nmt("config", "train.max"))
    keys = [line.split()[0] for line in lines]
    assert keys == [key for key in KEYS if key.startswith("train.max")]


def test_config_of_a_file_prints_its_values(five_corpus: FiveCorpus) -> None:
    printed = printed_values(run_in(five_corpus.home, "config --of five.yaml"))
    # No corpus is mixed in.
    keys = [key for key in KEYS if not key.startswith("data.mix.")]
    assert list(printed) == keys
    assert printed["model.d_model"] == "64"
    assert printed["train.max_epochs"] == "-"
    assert printed["data.dev.target"] == str(five_corpus.target_file), "paths are resolved"


OF_FIVE = {  # arguments -> what is printed
    "model.d_model": "64",  # of one key only the value
    "tokenizer.t": "tokenizer.type=bpe",
    "run run=runs/other": "runs/other",
    "data.test.source data.root=/corpora": "/corpora/train.zh",
    "data.mix.old.weight 'data.mix={old: {source: a, target: b, weight: 0.5}}'": "0.5",
}


@pytest.mark.parametrize("arguments", OF_FIVE)
def test_config_of_a_file_prints_some_values(five_corpus: FiveCorpus, arguments: str) -> None:
    lines = out_lines(run_in(five_corpus.home, f"config {arguments} --of five.yaml"))
    assert lines == [OF_FIVE[arguments]]


@pytest.fixture
def unfitted(five_corpus: FiveCorpus) -> Path:
    """The folder of a config that leaves more to training."""
    text = five_corpus.config.read_text()
    five_corpus.config.write_text(text.replace("validate_every: 100, ", ""))
    return five_corpus.home


def test_config_of_a_file_marks_what_training_chooses(unfitted: Path) -> None:
    printed = printed_values(run_in(unfitted, "config --of five.yaml"))
    marked = {key for key, value in printed.items() if value == "[fitted]"}
    assert marked >= {"tokenizer.vocab_size", "model.d_ff", "train.lr", "train.batch_tokens", "train.validate_every"}
    assert printed["model.d_model"] == "64", "is set"
    assert printed["train.max_epochs"] == "-", "has no effect"
    assert printed["model.norm"] == "pre", "has a default"
    # Training says what it has chosen.
    log = run_in(unfitted, "train five.yaml --dry-run").stderr.decode()
    (chosen,) = re.findall("^chosen for 5 pairs: (.*)", log, re.MULTILINE)
    settings = chosen.split()
    keys = [setting.split("=")[0] for setting in settings]
    assert set(keys) == marked
    assert "model.d_ff=256" in settings


def test_config_of_a_file_marks_what_fine_tuning_inherits(five_run: FiveRun, unfitted: Path) -> None:
    origin = f"train.init_from={five_run.run}"
    printed = printed_values(run_in(unfitted, f"config '' {origin} --of five.yaml"))
    assert printed["model.norm"] == f"[as in {five_run.run}]"
    assert printed["model.d_ff"] == f"[as in {five_run.run}]"
    assert printed["model.d_model"] == "64"
    assert printed["train.lr"] == "[fitted]"
    done = run_in(unfitted, f"train five.yaml {origin} train.max_steps=1")
    assert f"as in {five_run.run}: " in done.stderr.decode()
