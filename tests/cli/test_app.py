"""Starting the command: help, version, imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from conftest import FiveCorpus, environment, err_lines, out_lines, run_nmt

import nmt
from nmt.cli.app import app

COMMANDS = [[], ["check"], ["tokenize"], ["train"], ["translate"], ["eval"], ["export"], ["config"]]


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
    short, long = run_nmt("-h"), run_nmt("--help")
    assert short.stdout == long.stdout
    help_text = "\n".join(out_lines(short))
    for (name,) in COMMANDS[1:]:
        assert f"\n  {name} " in help_text


def test_help_groups_the_commands_and_begins_with_the_four_of_the_mission() -> None:
    text = run_nmt("--help").stdout.decode().partition("\nLearn:\n")[2]
    groups = re.split(r"^(\w+):\n", text, flags=re.MULTILINE)
    assert re.findall(r"^  (\w+)", groups[0], re.MULTILINE) == ["train", "translate", "eval", "explain"]
    assert groups[1::2] == ["Data", "Models", "Runs", "Formats", "Serve"]
    assert set(re.findall(r"^  (\w+)", text, re.MULTILINE)) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (
            {"text.de": "ja\n", "text.en": "yes\n"},
            "nmt check text.de text.en, then nmt init text.de text.en -o mine.yaml",
        ),
        (
            {"a b.de": "ja\n", "a b.en": "yes\n"},
            "nmt check 'a b.de' 'a b.en', then nmt init 'a b.de' 'a b.en' -o mine.yaml",
        ),
        ({"dev.de": "a", "dev.en": "b", "train.de": "a a a", "train.en": "b b b"}, "nmt check train.de train.en, "),
        ({"text.de": "ja\n", "other.en": "yes\n"}, None),
        ({"text.de": "ja\n", "text.en": ""}, None),
        ({"text.de": "ja\n", "text.py": "yes\n" * 9}, None),
        ({"page.png": "\0", "page.pdf": "%PDF"}, None),
        ({"text.de": "ja\n", "text.en": "yes\n", "mine.yaml": "# mine\nrun: runs/mine\n"}, "nmt train mine.yaml"),
        ({"settings.yaml": "train: 1\n"}, None),
        (
            {"mine.yaml": "run: runs/mine\n", "runs/mine/model.safetensors": "?"},
            'nmt translate "A sentence."  (with runs/mine)',
        ),
    ],
)
def test_a_plain_nmt_says_what_to_do_next(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = run_nmt(cwd=tmp_path)
    shown, _, suggestion = done.stderr.decode().partition("\nNext: ")
    assert (done.returncode, done.stdout) == (2, b"")
    assert shown.startswith("Usage: nmt ")
    assert suggestion.startswith(expected or "")
    assert bool(suggestion) == (expected is not None)


def test_the_installed_script_runs_the_same_command(five_corpus: FiveCorpus) -> None:
    script = Path(sys.executable).with_name("nmt")
    if not script.exists():
        pytest.skip("nmt is not installed as a script for this Python")
    args = ["config", "--of", str(five_corpus.config)]
    by_script = subprocess.run([script, *args], capture_output=True, env=environment(), check=True)
    assert by_script.stdout == run_nmt(*args).stdout != b""
