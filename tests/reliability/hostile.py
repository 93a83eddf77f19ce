"""What tests of this folder send to parsers, pages, servers and commands."""

import tomllib
from pathlib import Path

HOSTILE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text())
