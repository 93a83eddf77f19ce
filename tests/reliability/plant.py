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


def failure(home: Path, fault: dict[str, str]) -> str:
    """How the test of a fault fails in a copy of the project; empty if it passes."""
    file = home / fault["file"]
    text = file.read_text(encoding="utf-8")
    assert text.count(fault["old"]) == 1, f"{fault['file']} has {text.count(fault['old'])} of {fault['old']!r}"
    file.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault["tests"].split(maxsplit=2)]
    env = os.environ | {"PYTHONPATH": str(home), "NMT_SOAK": fault.get("soak", "")}
    env["COLUMNS"] = "300"  # wide enough for the reason in pytest's summary
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    assert done.returncode <= 1, done.stdout  # 1: a test failed; below 0: its process crashed
    ends = [line.partition(" - ")[2] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return next(filter(None, ends), f"exit {done.returncode}")[:110] if done.returncode else ""


def main(*words: str) -> int:
    """Print each fault and how it was found; return how many were not."""
    faults, n_missed = tomllib.loads(Path(__file__).with_name("planted.toml").read_text(encoding="utf-8")), 0
    for name, fault in faults.items():
        if words and not any(word in name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = failure(shutil.copytree(ROOT, Path(folder, "nmt"), ignore=UNUSED), fault)
        n_missed += not found
        print(f"{'found ' if found else 'MISSED'} {name}: {found}", flush=True)
    return n_missed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
