"""Size limits keep the code readable; ruff limits arguments, statements and complexity."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nmt"
FILES = sorted(PACKAGE.rglob("*.py"))
COMMANDS = {"compare", "evaluate", "translate"}  # their long signatures declare command-line options
CORE = ["model/attention.py", "model/positions.py", "model/transformer.py", "decode/search.py"]
CORE += ["train/step.py", "train/loop.py"]
BARS = {  # most lines in all files that match
    ("README.md",): 200,
    ("nmt/**/*.py",): 18_700,
    ("nmt/model/**/*.py", "nmt/decode/**/*.py"): 2965,
    ("tests/**/*.py",): 22_100,
}
MAX_LINES = {ast.FunctionDef: 60, ast.ClassDef: 250, ast.Module: 400}


def n_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(("patterns", "most"), BARS.items())
def test_the_whole_stays_small(patterns: tuple[str, ...], most: int) -> None:
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    assert files
    assert sum(map(n_lines, files)) <= most


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_classes_and_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert n_lines(path) <= MAX_LINES[ast.Module]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in COMMANDS:
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno + 1 <= MAX_LINES[type(node)], node.name


def test_the_core_is_read_in_an_evening() -> None:
    assert sum(n_lines(PACKAGE / name) for name in CORE) <= 1300
    assert n_lines(PACKAGE / "model/transformer.py") <= 220
