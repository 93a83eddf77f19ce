"""The command: help, version, imports, unsuitable arguments, and Ctrl-C while a library catches exceptions."""

import re
from pathlib import Path

import pytest
import typer
from conftest import PATIENCE_S, FiveCorpus, imported_modules, out_lines, refused, run_nmt, started_nmt

import nmt
from nmt.cli.app import app

SLOW_IMPORTS = {"torch", "numpy", "sacrebleu", "sentencepiece", "yaml", "nmt.config"}


@pytest.mark.parametrize("command", ["", "check", "train", "translate", "config"])
def test_help_imports_nothing_slow(command: str) -> None:
    done = run_nmt(*command.split(), "--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    imported = imported_modules(done)
    assert "nmt.cli" in imported
    assert not imported & SLOW_IMPORTS


def test_version() -> None:
    result = out_lines(run_nmt("--version"))
    assert result == [f"nmt {nmt.__version__}"]


def test_help_has_a_short_name() -> None:
    short = run_nmt("-h")
    assert short.stdout == run_nmt("--help").stdout


def test_help_lists_all_commands_and_begins_with_the_four_of_the_mission() -> None:
    text = run_nmt("--help").stdout.decode()
    _, _, text = text.partition("\nCommands:\n")
    commands = re.findall(r"^  (\w+)", text, re.MULTILINE)
    assert commands[:4] == ["train", "translate", "eval", "explain"]
    registered = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    result = set(commands)
    assert result == set(registered)


UNSUITABLE = {  # command -> part of the error message
    "translate -i in.zh TEXT": "both a TEXT and -i",
    "translate --n-best 2 TEXT": "several hypotheses",
    "translate --resume": "--resume needs input and output files",
    "translate --resume -i /dev/null -o out": "--resume needs input and output files",
    "translate --temperature 0.5 TEXT": "--temperature applies only to sampling",
    "translate TEXT": "no model under runs/",
    "eval --hyp test.hyp --ref test.en": "No such file",
    "eval --hyp test.hyp --beam 0": "--hyp uses no model",
    "trian five.yaml": "trian",
    "config modle": "no key begins with 'modle'",
    "config run run=x": "overrides change the values of a file",
    "serve -m none": "no model at",
}


@pytest.mark.parametrize("command", UNSUITABLE)
def test_unsuitable_arguments_are_refused(tmp_path: Path, command: str) -> None:
    refused(tmp_path, command, UNSUITABLE[command])


# sitecustomize: raises SIGINT while MODULE is imported, and catches the exception, as torch does with numpy.
SITE = """
import signal, sys

class Swallowing:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE" and sys.orig_argv[1:3] == ["-m", "nmt"]:
            sys.meta_path.remove(self)
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                pass

sys.meta_path.insert(0, Swallowing())
"""


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_ctrl_c_during_an_import_ends_a_training(five_corpus: FiveCorpus, module: str) -> None:
    home = five_corpus.home
    (home / "sitecustomize.py").write_text(SITE.replace("MODULE", module))
    with started_nmt("train", five_corpus.config, cwd=home, env={"PYTHONPATH": str(home)}) as process:
        stdout, stderr = process.communicate(b"", timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (130, b""), stderr
    assert b"Traceback" not in stderr
    assert not five_corpus.run.exists()
