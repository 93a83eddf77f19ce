"""The command: help, version, imports, unsuitable arguments, and Ctrl-C while a library catches exceptions."""

import re

import pytest
import typer
from conftest import PATIENCE_S, FiveCorpus, err_lines, one_clear_error, out_lines, run_nmt, started_nmt

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


UNSUITABLE: list[tuple[list[str], list[str]]] = [  # arguments, parts of the error message
    (["translate", "-i", "in.zh", "TEXT"], ["TEXT", "-i"]),
    (["translate", "--n-best", "2", "TEXT"], ["several hypotheses"]),
    (["translate", "--resume"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "/dev/null", "-o", "out"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/stdout"], ["--resume needs input and output files"]),
    (["translate", "--temperature", "0.5", "TEXT"], ["--temperature applies only to sampling"]),
    (["translate", "TEXT"], ["no model under runs/"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en"], ["cannot read", "No such file"]),
    (["trian", "five.yaml"], ["trian"]),
    (["config", "modle"], ["no key begins with 'modle'"]),
]


@pytest.mark.parametrize(("args", "fragments"), UNSUITABLE, ids=lambda value: " ".join(value))
def test_unsuitable_arguments_are_refused(args: list[str], fragments: list[str]) -> None:
    one_clear_error(run_nmt(*args), 2, *fragments)


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
