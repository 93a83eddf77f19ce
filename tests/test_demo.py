"""`make demo`: its limits, its sentence, and that it fails when the model has not learned enough."""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "data"))  # the grammar is a program beside the data, not part of a package
grammar = import_module("zh_en_grammar")

FAKE_NMT = """#!/bin/sh
echo "$*" >> "$FAKE_RUN/calls"
case "$1 $2" in
"config run") echo "$FAKE_RUN" ;;
"config data.test.source") echo data/zh-en/test.zh ;;
"config data.test.target") echo data/zh-en/test.en ;;
"translate -q") echo "$FAKE_TRANSLATION" ;;
"eval "*) printf 'translation  BLEU = 99\\nBLEU = %s  (95 %%: 1.0 to 99.0)  nrefs:1\\n' "$FAKE_BLEU" ;;
esac
"""


def makefile_variable(name: str) -> str:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^{name} := (.*)$", text, re.MULTILINE)
    return str(value)


def test_readme_makefile_and_grammar_agree_on_the_sentence_of_the_demo() -> None:
    pair = grammar.demo_pair()
    assert makefile_variable("DEMO_SENTENCE") == pair.zh
    assert makefile_variable("DEMO_TRANSLATION") == pair.en
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf'nmt translate "{pair.zh}" +# {re.escape(pair.en)}', readme)


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make_demo(folder: Path, translation: str, bleu: str) -> "subprocess.CompletedProcess[str]":
    """Run `make demo` with `FAKE_NMT`, which trains nothing and prints the given translation and BLEU."""
    (folder / "nmt").write_text(FAKE_NMT, encoding="utf-8")
    (folder / "nmt").chmod(0o755)
    (folder / "installed").touch()
    command = ["make", "demo", f"BIN={folder}", f"INSTALLED={folder}/installed"]
    settings = ["train.max_steps=20", "run=runs/other"]
    env = {**os.environ, "FAKE_RUN": str(folder), "FAKE_TRANSLATION": translation, "FAKE_BLEU": bleu}
    env["MAKEFLAGS"] = ""  # not the flags of `make test`
    return subprocess.run([*command, *settings], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@needs_make
def test_make_demo_shows_the_translation_and_bleu_and_passes_settings_on(tmp_path: Path) -> None:
    done = make_demo(tmp_path, "I bought a book yesterday.", "97.41")
    assert done.returncode == 0, done.stderr
    assert "BLEU = 97.41" in done.stdout
    assert "I bought a book yesterday." in done.stdout.splitlines()
    # Settings go to nmt.
    tokenize, train, *_ = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    result = sorted(tokenize.split())
    assert result == ["configs/demo.yaml", "run=runs/other", "tokenize", "train.max_steps=20"]
    result = sorted(train.split())
    assert result == ["configs/demo.yaml", "run=runs/other", "train", "train.max_steps=20"]


FAILURES = [  # translation, BLEU, error, whether the translation is shown
    ("I bought yesterday.", "97.41", "error: the translation should be: I bought a book yesterday.", True),
    ("I bought a book yesterday.", "33.86", "configs/demo.yaml: error: BLEU on test is below 90", False),
]


@needs_make
@pytest.mark.parametrize(("translation", "bleu", "message", "is_shown"), FAILURES)
def test_make_demo_fails_on_a_wrong_translation_or_low_bleu(
    tmp_path: Path, translation: str, bleu: str, message: str, is_shown: bool
) -> None:
    done = make_demo(tmp_path, translation, bleu)
    assert done.returncode == 2
    assert message in done.stderr
    assert (translation in done.stdout.splitlines()) == is_shown
