"""The Makefile's .venv has the versions in .constraints.txt, and nothing else."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parents[1] / ".constraints.txt"
OURS = {"nmt-trainer", "pip"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_installed_versions_are_those_in_the_constraints() -> None:
    if not Path(sys.prefix, ".installed").exists():
        pytest.skip("not the Makefile's .venv")
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    wanted = {canonical(name): version for name, _, version in (line.partition("==") for line in lines)}
    found = {canonical(one.name): one.version.partition("+")[0] for one in metadata.distributions()}
    others = {name: version for name, version in found.items() if name not in OURS}
    assert others == {name: wanted.get(name, "not in .constraints.txt") for name in others}
