"""Config files that tests write and load."""

from pathlib import Path

import pytest
from conftest import rows_of

from nmt.config import Config, load_config
from nmt.errors import ConfigError

MINIMAL = "run: r\ndata: {train: {source: a.de, target: a.en}}\n"
OTHER_CORPORA = (  # settings that a config has only if the corpus is given
    "data.dev={source: d, target: e}",
    "data.test={source: f, target: g}",
    "data.mix={NAME: {source: h, target: i, weight: 0.1}}",
)


def cases(table: str) -> list[list[str]]:
    """The rows of a table: what a test is given, an arrow, and what it expects."""
    return [row.split(" → ") for row in rows_of(table)]


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "demo.yaml"
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return path


def load(folder: Path, content: str | bytes, *overrides: str) -> Config:
    return load_config(write(folder, content), overrides)


def fault(folder: Path, content: str | bytes, *overrides: str) -> str:
    """The error message for a config, with the file's name instead of its path."""
    with pytest.raises(ConfigError) as caught:
        load(folder, content, *overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{folder}/", "")
