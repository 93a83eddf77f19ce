"""`make student`: from a run of the five pairs to a student of two steps, and its exports. npm is a stub."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from conftest import SOURCE, FiveRun, environment, run_nmt

from nmt.config import load_config

ROOT = Path(__file__).parents[1]
NMT = f"""#!/bin/sh
echo "$1" >> "${{0%/*}}/calls"
exec {sys.executable} -m nmt "$@"
"""
NPM = """#!/bin/sh
mkdir node_modules
touch node_modules/.package-lock.json
"""
CONFIG = """\
run: runs/browser
data: {train: {source: replaced.zh, target: replaced.en}}
tokenizer: {vocab_size: 344}
model: {norm: post, positions: marian, start: zero, norm_epsilon: 1.0e-6, d_model: 64, d_ff: 64, n_heads: 2,
        n_encoder_layers: 1, n_decoder_layers: 1}
train: {max_steps: 50, precision: fp32}
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


class Student(NamedTuple):
    """A folder with programs, and the teacher, the student, what the teacher says."""

    home: Path
    teacher: Path
    run: Path
    text: Path

    def make(self, *variables: str) -> "subprocess.CompletedProcess[str]":
        """Run `make student`. `calls` then has the commands of nmt."""
        calls = self.home / "calls"
        calls.write_text("")
        command = ["make", "student", f"BIN={self.home}", f"INSTALLED={self.home}/installed"]
        command += [f"RUN={self.teacher}/", f"STUDENT={self.run}"]
        command += [f"CONFIG={self.home}/browser.yaml", *variables]
        env = environment()
        env |= {"MAKEFLAGS": "", "MAKELEVEL": "0"}  # not those of `make test`
        env["PATH"] = f"{self.home}:{env['PATH']}"
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    def calls(self) -> list[str]:
        calls = self.home / "calls"
        return calls.read_text().split()


def student_of(home: Path, teacher: Path) -> Student:
    for name, script in (("nmt", NMT), ("npm", NPM)):
        program = home / name
        program.write_text(script)
        program.chmod(0o755)
    (home / "installed").touch()
    (home / "browser.yaml").write_text(CONFIG)
    return Student(home, teacher, home / "student", teacher.with_name(f"{teacher.name}-text"))


@pytest.fixture(scope="module")
def student(five_run: FiveRun, tmp_path_factory: pytest.TempPathFactory) -> Student:
    """A student that is finished."""
    home = tmp_path_factory.mktemp("home")
    student = student_of(home, five_run.copy_run(home / "teacher"))
    done = student.make("train.max_steps=2")
    assert done.returncode == 0, done.stderr
    return student


def test_the_student_is_exported_in_every_format(student: Student) -> None:
    exported = f"{student.run}-ct2"
    done = run_nmt("translate", "-m", exported, "-o", student.home / "out", input=SOURCE[0].encode())
    assert done.returncode == 0
    assert Path(exported, "vmap.txt").exists(), "the shortlist"
    assert Path(f"{student.run}-marian", "decoder.yml").exists()
    assert Path(f"{student.run}-site", "index.html").exists()


def test_the_student_learns_what_the_teacher_says(student: Student, five_run: FiveRun) -> None:
    config = load_config(student.run / "config.yaml")
    (corpus,) = config.data.train
    assert corpus.source == (f"{student.text}/train.source",)
    assert corpus.target == (f"{student.text}/train.taught",)
    taught = (student.text / "train.taught").read_text()
    assert taught == five_run.target_file.read_text(), "the teacher knows the pairs by heart"


def test_the_student_has_the_dev_set_and_the_languages_of_the_teacher(student: Student, five_run: FiveRun) -> None:
    data = load_config(student.run / "config.yaml").data
    (dev,) = data.dev
    assert dev.source == (str(five_run.source_file),)
    assert dev.target == (str(five_run.target_file),)
    assert (data.source_lang, data.target_lang) == ("zh", "en")


def test_a_reverse_run_samples_more_sources_for_the_teacher(student: Student) -> None:
    done = student.make("--dry-run", f"REVERSE={student.teacher}")
    text = student.text
    sampled = f"{text}/sampled-teacher"
    assert f"--sample --top-p 0.95 -m {student.teacher} -i {text}/train.target -o {sampled}.source" in done.stdout
    assert f"-m {student.teacher} -i {sampled}.source -o {sampled}.taught" in done.stdout
    assert f"target: [{text}/train.taught, {sampled}.taught]" in done.stdout


def test_a_reverse_run_of_the_same_direction_is_one_line(student: Student) -> None:
    done = student.make(f"REVERSE={student.teacher}")
    assert f"make student: error: {student.teacher} translates as {student.teacher} does;" in done.stderr
    assert student.calls() == ["info"]


def test_settings_go_to_the_training(student: Student) -> None:
    settings = load_config(student.run / "config.yaml").train
    assert settings.max_steps == 2


def test_a_second_make_repeats_no_finished_step(student: Student) -> None:
    shutil.rmtree(f"{student.run}-ct2")
    done = student.make("train.max_steps=2")
    assert done.returncode == 0
    assert "is finished" in done.stderr
    assert student.calls() == ["config", "train", "export"]


def test_a_run_that_is_missing_is_one_line(tmp_path: Path) -> None:
    student = student_of(tmp_path, tmp_path / "nothing")
    done = student.make()
    error, of_make = done.stderr.splitlines()
    assert error.startswith(f"make student: error: {tmp_path}/nothing is not a trained run; name one:")
    assert of_make.startswith("make: ***")
    assert not student.text.exists()


def test_a_teacher_without_a_dev_set_is_one_line(five_run: FiveRun, tmp_path: Path) -> None:
    teacher = five_run.copy_run(tmp_path / "teacher")
    config = teacher / "config.yaml"
    tree = yaml.safe_load(config.read_text())
    tree["data"]["dev"] = None
    config.write_text(yaml.safe_dump(tree))
    done = student_of(tmp_path, teacher).make()
    assert f"make student: error: {teacher} has no data.dev.source;" in done.stderr
