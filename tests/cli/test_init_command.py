"""`nmt init`: writes a config for two text files; `nmt train` trains with it."""

import os
from pathlib import Path
from random import Random

from conftest import err_lines, one_clear_error, run_nmt

from nmt.config import load_config

DATA = Path(__file__).parents[2] / "data/zh-en"
TEXT = os.fsdecode(b"te\nrun: xt\xff")  # goes into a comment of the config


def test_a_config_is_written_that_trains(tmp_path: Path) -> None:
    for language in ("zh", "en"):
        lines = (DATA / f"train.{language}").read_text(encoding="utf-8").splitlines()[:300]
        (tmp_path / f"{TEXT}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run_nmt("init", f"{TEXT}.zh", f"{TEXT}.en", "--minutes", 0.05, cwd=tmp_path)
    assert any("300" not in line and "240 pairs to train on" in line for line in err_lines(done))
    config = load_config(tmp_path / "zh-en.yaml")
    assert config.train.max_minutes == 0.05
    assert "expected" in (tmp_path / "zh-en.yaml").read_text(encoding="utf-8")
    assert not (tmp_path / "runs").exists()
    trained = run_nmt("train", "zh-en.yaml", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr.decode()
    assert (tmp_path / "runs/zh-en/model.safetensors").is_file()
    again = run_nmt("init", f"{TEXT}.zh", f"{TEXT}.en", cwd=tmp_path)
    one_clear_error(again, 2, "zh-en.yaml exists already")


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "a.de").write_text("x\n")
    one_clear_error(run_nmt("init", "a.txt", "a.de", cwd=tmp_path), 2, "a.txt: '' is not a language code")
    one_clear_error(run_nmt("init", "a.de", "a.en", "-o", "mine", cwd=tmp_path), 2, "mine does not end in .yaml")
    one_clear_error(run_nmt("init", "a.de", "a.de", cwd=tmp_path), 2, "both sides are in 'de'")
    for code in ("../x", "EN", "english"):
        done = run_nmt("init", "a.de", "a.txt", "--target-lang", code, cwd=tmp_path)
        one_clear_error(done, 2, f"a.txt: '{code}' is not a language code")
    one_clear_error(run_nmt("init", "a.de", "no.en", cwd=tmp_path), 2, "cannot read no.en")
    one_clear_error(run_nmt("init", "a.de", "a.txt", "--target-lang", "en", cwd=tmp_path), 2, "1 pairs with text on")
    for minutes in ("inf", "nan", 0, -1):
        done = run_nmt("init", "a.de", "a.txt", "--target-lang", "en", "--minutes", minutes, cwd=tmp_path)
        one_clear_error(done, 2, "is not in the range 0<x<10000000")
    (tmp_path / "a.de").write_text("".join(f"{word}\n" for word in map("x".__mul__, range(1, 301))))
    done = run_nmt("init", "a.de", "a.de", "--target-lang", "en", "--device", "cdua", cwd=tmp_path)
    one_clear_error(done, 2, "no device 'cdua'")
    done = run_nmt("init", "a.de", "a.de", "--target-lang", "en", "-o", os.fsdecode(b"\xff.yaml"), cwd=tmp_path)
    one_clear_error(done, 2, "'data.root': input should be a path without NUL and lone surrogates", n_errors=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.txt"]


def test_lines_that_are_all_too_long_are_told_with_what_to_do(tmp_path: Path) -> None:
    """`nmt init` takes no settings."""
    for language, seed in (("th", 1), ("en", 2)):
        letters = Random(seed)
        lines = [" ".join("".join(letters.choices("abcdefgh", k=5)) for _ in range(90)) for _ in range(60)]
        (tmp_path / f"l.{language}").write_text("\n".join(lines) + "\n")
    done = run_nmt("init", "l.th", "l.en", "-o", "c.yaml", cwd=tmp_path)
    one_clear_error(done, 2, "none of the 48 training pairs is left: 48 over 200 pieces (data.max_length)")
    assert b"hint: split the lines into sentences" in done.stderr
    assert not (tmp_path / "c.yaml").exists()
