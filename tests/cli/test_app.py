"""Starting the command: help, version, imports."""

import re

import pytest
import typer
from conftest import err_lines, out_lines, run_nmt

import nmt
from nmt.cli.app import app

COMMANDS = [[], ["check"], ["train"], ["translate"], ["config"]]
SLOW_IMPORTS = {"torch", "numpy", "sacrebleu", "sentencepiece", "yaml", "nmt.config"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(["nmt", *command]))
def test_help_imports_nothing_slow(command: list[str]) -> None:
    done = run_nmt(*command, "--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert "Usage: " in done.stdout.decode()
    imported = {line.rpartition("|")[2].strip() for line in err_lines(done)}
    assert "nmt.cli" in imported
    assert not imported & SLOW_IMPORTS


def test_version_and_short_help() -> None:
    assert out_lines(run_nmt("--version")) == [f"nmt {nmt.__version__}"]
    assert run_nmt("-h").stdout == run_nmt("--help").stdout


def test_help_groups_the_commands_and_begins_with_the_four_of_the_mission() -> None:
    text = run_nmt("--help").stdout.decode().partition("\nLearn:\n")[2]
    groups = re.split(r"^(\w+):\n", text, flags=re.MULTILINE)
    assert re.findall(r"^  (\w+)", groups[0], re.MULTILINE) == ["train", "translate", "eval", "explain"]
    assert groups[1::2] == ["Data", "Models", "Runs", "Formats", "Serve"]
    assert set(re.findall(r"^  (\w+)", text, re.MULTILINE)) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
