"""`nmt init`: writes a config for two text files; `nmt train` trains with it."""

import os
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from conftest import err_lines, one_clear_error, refused, run_in, run_nmt

from nmt.config import load_config

DATA = Path(__file__).parents[2] / "data/zh-en"
TEXT = os.fsdecode(b"te\nrun: xt\xff")  # goes into a comment of the config


def test_a_config_is_written_that_trains(tmp_path: Path) -> None:
    for language in ("zh", "en"):
        with (DATA / f"train.{language}").open("rb") as file:
            lines = list(islice(file, 400))
        (tmp_path / f"{TEXT}.{language}").write_bytes(b"".join(lines[:300]))
        (tmp_path / f"corrected.{language}").write_bytes(b"".join(lines[300:]))
    done = run_nmt("init", f"{TEXT}.zh", f"{TEXT}.en", "--minutes", 0.05, cwd=tmp_path)
    assert "240 pairs to train on" in err_lines(done)[0]
    assert load_config(tmp_path / "zh-en.yaml").train.max_minutes == 0.05
    assert "expected" in (tmp_path / "zh-en.yaml").read_text(encoding="utf-8")
    assert not (tmp_path / "runs").exists()
    # It trains, and is not overwritten.
    assert run_in(tmp_path, "train zh-en.yaml").returncode == 0
    assert (tmp_path / "runs/zh-en/model.safetensors").is_file()
    # It can be trained further on other text.
    more = run_in(tmp_path, "init corrected.zh corrected.en --from runs/zh-en -o fine.yaml")
    assert more.returncode == 0
    assert run_in(tmp_path, "train fine.yaml train.max_steps=2").returncode == 0
    again = run_nmt("init", f"{TEXT}.zh", f"{TEXT}.en", cwd=tmp_path)
    one_clear_error(again, 2, "zh-en.yaml exists already")


def test_memories_are_joined_and_split(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        word = chr(97 + n % 26) * (n // 26 + 1)
        rows.append(f"the {word} house,das Haus {word}")
    (tmp_path / "a.csv").write_text("\n".join(["en,de", *rows[:40]]))
    (tmp_path / "b.csv").write_text("\n".join(["en,de", *rows[40:]]))
    done = run_nmt("init", "a.csv", "b.csv", "--minutes", 0.05, cwd=tmp_path)
    assert "a.csv: 40 pairs; left out" in err_lines(done)[0]
    result = load_config(tmp_path / "en-de.yaml").data.train[0].target
    assert result == ("train.de",)
    assert "for a.csv and b.csv" in (tmp_path / "en-de.yaml").read_text(encoding="utf-8")
    assert (tmp_path / "en-de/train.en").read_text().startswith("the ")


UNSUITABLE = {  # arguments -> part of the error message
    "a.txt a.de": "a.txt: the name does not end in a language code",
    "a.de a.en -o mine": "mine does not end in .yaml",
    "a.de a.en -o runs/a.yaml": "runs/a.yaml does not end in .yaml, or is in runs/",
    "a.de a.de": "both sides are in 'de'",
    "a.de a.txt --target-lang ../x": "a.txt: '../x' is not a language code",
    "a.de a.txt --target-lang english": "a.txt: 'english' is not a language code",
    "a.de no.en": "cannot read no.en",
    "a.de a.en --from no": "no is not a run",
    "a.de a.txt --target-lang en": "1 pairs with text on",
    "a.de": "a.de is no translation memory",
    "a.tmx a.de": "a.de is no translation memory",
    "a.de a.txt --target-lang en --minutes inf": "no training takes inf minutes",
    "a.de a.txt --target-lang en --minutes nan": "no training takes nan minutes",
    "a.de a.txt --target-lang en --minutes 0": "no training takes 0 minutes",
    "b.de b.de --target-lang en --device cdua": "no device 'cdua'",
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "a.de").write_text("x\n")
    (tmp_path / "a.tmx").write_text(
        '<tmx><tu><tuv lang="de"><seg>x</seg></tuv><tuv lang="en"><seg>x</seg></tuv></tu></tmx>'
    )
    with (tmp_path / "b.de").open("w") as file:
        for n in range(1, 301):
            print("x" * n, file=file)
    return tmp_path


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_wrong_arguments_are_told(texts: Path, arguments: str) -> None:
    refused(texts, f"init {arguments}", UNSUITABLE[arguments])
    names = [path.name for path in texts.iterdir()]
    result = sorted(names)
    assert result == ["a.de", "a.tmx", "a.txt", "b.de"]


def test_text_in_the_direction_opposite_to_that_of_the_run_is_refused(texts: Path) -> None:
    (texts / "r").mkdir()
    (texts / "r/config.yaml").write_text("run: r\ndata: {train: {source: a.en, target: a.de}}\n")
    refused(texts, "init a.de a.en --from r -o f.yaml", "r translates en to de, not de to en")
    refused(texts, "init a.tmx --from r -o f.yaml --source-lang de --target-lang en", "not de to en")
    refused(texts, "init a.txt a.txt --from r -o f.yaml", "1 pairs with text on")  # their names have no languages


def test_a_name_that_is_not_utf_8_is_refused(texts: Path) -> None:
    output = os.fsdecode(b"\xff.yaml")
    done = run_in(texts, f"init b.de b.de --target-lang en -o {output}")
    one_clear_error(done, 2, "'data.root': input should be a path without NUL and lone surrogates", n_errors=2)


def test_lines_that_are_all_too_long_are_told_with_what_to_do(tmp_path: Path) -> None:
    """`nmt init` takes no settings."""
    letters = Random(1)
    for language in ("th", "en"):
        with (tmp_path / f"l.{language}").open("w") as file:
            for _ in range(60):
                print(*letters.choices("abcdefgh", k=450), file=file)
    message = "none of the 48 training pairs is left: 48 over 200 pieces (data.max_length), 0 of"
    stderr = refused(tmp_path, "init l.th l.en -o c.yaml", message)
    assert "hint: split the lines into sentences" in stderr
    assert not (tmp_path / "c.yaml").exists()
