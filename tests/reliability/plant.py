"""Plants the faults of planted.toml, one after the other, into copies of the code: a test has to fail for each.

.venv/bin/python tests/reliability/plant.py [WORD OF A NAME…]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNUSED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "runs")
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]


def plant(home: Path, fault: dict[str, str]) -> None:
    file = home / fault["file"]
    text = file.read_text()
    n = text.count(fault["old"])
    assert n == 1, f"{file} has {n} of {fault['old']!r}"
    file.write_text(text.replace(fault["old"], fault["new"]))


def failure(home: Path, fault: dict[str, str]) -> str:
    """How the test of a fault fails in a copy of the project; empty if it passes."""
    command = [*PYTEST, *fault["tests"].split(maxsplit=2)]
    variables = {"PYTHONPATH": str(home), "NMT_SOAK": fault.get("soak", "")}
    variables["COLUMNS"] = "300"  # wide enough for the reason in pytest's summary
    done = subprocess.run(command, cwd=home, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode <= 1, done.stdout  # 1: a test failed; below 0: its process crashed
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR")) and " - " in line:
            return line.partition(" - ")[2][:110]
    return f"exit {done.returncode}" if done.returncode else ""


def main(*words: str) -> int:
    """Print each fault and how it was found; return how many were not."""
    n_missed = 0
    planted = (ROOT / "tests/reliability/planted.toml").read_text()
    for name, fault in tomllib.loads(planted).items():
        if words and not any(word in name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            home = shutil.copytree(ROOT, Path(folder, "nmt"), ignore=UNUSED)
            plant(home, fault)
            reason = failure(home, fault)
        n_missed += not reason
        print(f"{'found ' if reason else 'MISSED'} {name}: {reason}", flush=True)
    return n_missed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
