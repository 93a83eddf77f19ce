"""Size limits keep the code readable, and the Makefile's .venv has the versions in .constraints.txt."""

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
import typer
from density import density
from pydantic import BaseModel

from nmt.cli.app import app
from nmt.config import Config

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nmt"
TESTS = ROOT / "tests"
FILES = sorted(PACKAGE.rglob("*.py"))
COMMANDS = {"compare", "evaluate", "translate"}  # their long signatures declare command-line options
CORE = ["model/attention.py", "model/positions.py", "model/transformer.py", "decode/search.py"]
CORE += ["train/step.py", "train/loop.py"]
OURS = {"nmt-trainer", "pip"}
MAX_LINES = {ast.FunctionDef: 60, ast.ClassDef: 250, ast.Module: 400}


def n_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_readme_is_short() -> None:
    assert n_lines(ROOT / "README.md") <= 230


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_classes_and_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert n_lines(path) <= MAX_LINES[ast.Module]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in COMMANDS:
            assert node.end_lineno is not None
            n_lines_of_node = node.end_lineno - node.lineno + 1
            assert n_lines_of_node <= MAX_LINES[type(node)], node.name


def test_the_core_is_read_in_an_evening() -> None:
    n_core_lines = [n_lines(PACKAGE / name) for name in CORE]
    assert sum(n_core_lines) <= 1300
    assert n_lines(PACKAGE / "model/transformer.py") <= 220


def test_statements_of_the_package_are_read_at_once() -> None:
    counts = density(PACKAGE)
    assert counts.mean <= 6.4
    assert counts.nine_tenths <= 11
    assert len(counts.large) <= 1, counts.large  # the options of `nmt translate`, a table
    assert counts.n_nested == 0
    assert counts.n_conditionals == 0
    assert counts.comments >= 18
    assert counts.content <= 75_800


def test_statements_of_the_tests_are_read_at_once() -> None:
    counts = density(TESTS)
    assert counts.mean <= 6.6
    assert counts.nine_tenths <= 11
    assert not counts.large
    assert counts.n_nested == 0
    assert counts.n_conditionals == 0
    assert counts.comments >= 6
    assert counts.content <= 1.45 * density(PACKAGE).content


def test_every_room_is_read_at_once() -> None:
    rooms = [path for path in PACKAGE.iterdir() if any(path.rglob("*.py"))]
    assert rooms
    for room in rooms:
        assert density(room).mean <= 6.9, room


def test_commands_and_their_options_are_few() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert len(commands) <= 17
    assert sum(len(command.params) for command in commands.values()) <= 187


def n_settings(section: type[BaseModel]) -> int:
    total = 0
    for field in section.model_fields.values():
        is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        total += n_settings(field.annotation) if is_section else 1  # type: ignore[arg-type]
    return total


def test_settings_are_few() -> None:
    assert n_settings(Config) <= 83


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_installed_versions_are_those_in_the_constraints() -> None:
    if not Path(sys.prefix, ".installed").exists():
        pytest.skip("not the Makefile's .venv")
    text = (ROOT / ".constraints.txt").read_text()
    wanted = {}
    for name, version in re.findall("^([^#=]+)==(.+)$", text, re.MULTILINE):
        wanted[canonical(name)] = version
    for package in metadata.distributions():
        name = canonical(package.name)
        version, _, _ = package.version.partition("+")  # the rest is that of a local build, as 2.13.0+cpu
        assert name in OURS or version == wanted.get(name), name
