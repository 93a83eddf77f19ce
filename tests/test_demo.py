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
    found = re.search(rf"^{name} := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, name
    return found[1]


def test_readme_makefile_and_grammar_agree_on_the_sentence_of_the_demo() -> None:
    pair = grammar.demo_pair()
    assert makefile_variable("DEMO_SENTENCE") == pair.zh
    assert makefile_variable("DEMO_TRANSLATION") == pair.en
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf'nmt translate "{pair.zh}" +# {re.escape(pair.en)}', readme)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("translation", "bleu", "status", "message"),
    [
        ("I bought a book yesterday.", "97.41", 0, ""),
        ("I bought yesterday.", "97.41", 2, "error: the translation should be: I bought a book yesterday."),
        ("I bought a book yesterday.", "33.86", 2, "configs/demo.yaml: error: BLEU on test is below 90"),
    ],
)
def test_make_demo_fails_on_bad_results(tmp_path: Path, translation: str, bleu: str, status: int, message: str) -> None:
    """`FAKE_NMT` trains nothing; it prints the given translation and BLEU. Settings are passed on to nmt."""
    (tmp_path / "nmt").write_text(FAKE_NMT, encoding="utf-8")
    (tmp_path / "nmt").chmod(0o755)
    (tmp_path / "installed").touch()
    answers = {"FAKE_RUN": str(tmp_path), "FAKE_TRANSLATION": translation, "FAKE_BLEU": bleu}
    done = subprocess.run(
        ["make", "demo", f"BIN={tmp_path}", f"INSTALLED={tmp_path}/installed", "train.max_steps=20", "run=runs/other"],
        cwd=ROOT,
        env={**os.environ, **answers, "MAKEFLAGS": ""},  # not the flags of `make test`
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert f"BLEU = {bleu}" in done.stdout
    assert (translation in done.stdout.splitlines()) == (float(bleu) >= 90)
    for words in [call.split() for call in (tmp_path / "calls").read_text(encoding="utf-8").splitlines()][:2]:
        assert words[:2] == [words[0], "configs/demo.yaml"]
        assert sorted(words[2:]) == ["run=runs/other", "train.max_steps=20"]
