"""The benchmark of students, on the five pairs."""

import json
from pathlib import Path

import ladder
import pytest
import students
from conftest import SOURCE, TARGET, FiveCorpus
from measure import ROOT, Options, Sample
from test_synthetic import run_nmt

from nmt.config import load_config

SETTINGS = ["train.max_steps=6", "train.validate_every=6", "model.d_model=16", "train.warmup=2"]


def test_the_student_learns_what_an_ensemble_says_to_the_corpus_and_of_sampled_sources(
    five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ladder, "run_nmt", run_nmt)
    home = students.Home(load_config(five_corpus.config), five_corpus.home / "runs", n_teachers=2)
    mono = five_corpus.home / "mono.en"
    mono.write_text(f"Tea is nice .\ntea is nice!\n{TARGET[0].lower()}\n", encoding="utf-8")
    for _ in range(2):  # the second time, all files exist
        capsys.readouterr()
        rows = students.train_all(five_corpus.config, home, 2, mono, SETTINGS)
    assert not {"translating", "sampling"} & set(capsys.readouterr().err.split())

    def lines_of(name: str, side: int) -> list[str]:
        return home.data(name, side).read_text(encoding="utf-8").split("\n")[:-1]

    assert (lines_of("corpus", 0), lines_of("corpus", 1)) == (SOURCE, TARGET)
    assert lines_of("distilled-corpus", 0) == SOURCE
    assert lines_of("distilled-sampled-1", 0) == lines_of("sampled-1", 0) != lines_of("sampled-2", 0)
    assert len(lines_of("distilled-sampled-2", 1)) == len(SOURCE)
    assert len(lines_of("distilled-mono", 0)) == len(lines_of("distilled-mono", 1)) == 1
    reverse, student = (load_config(home.run(name) / "config.yaml") for name in ("reverse", "student"))
    assert reverse.data.train.source == (str(home.data("corpus", 1)),)
    assert reverse.data.dev is not None
    assert reverse.data.dev.source == ("train.en",)
    assert student.data.train.target == tuple(
        str(home.data(f"distilled-{name}", 1)) for name in ("corpus", "sampled-1", "sampled-2", "mono")
    )
    assert student.model.n_decoder_layers == 1
    assert [row["model"] for row in rows] == ["teacher", "teacher-2", "student"]
    assert rows[2]["parameters"] < rows[0]["parameters"]


def test_every_system_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def translated(command: list[object], contest: object, options: Options) -> Sample:
        commands.append(" ".join(map(str, command)))
        return {"sentences_s": 100.0 * len(commands), "BLEU": 30.0 - len(commands)}

    monkeypatch.setattr(students, "translated", translated)
    monkeypatch.setattr(students, "ctranslate2_command", lambda contest, kind: ["loop", kind])  # noqa: ARG005
    monkeypatch.setattr(students, "export", lambda home, name, *flags: home.path / name / "".join(flags))
    home = students.Home(load_config(ROOT / "configs/five.yaml"), tmp_path)
    table = students.compare(home, None, Options(tmp_path, None, None, tmp_path, rounds=1))  # type: ignore[arg-type]
    assert len(commands) == len(set(commands)) == 9
    assert table.rows()["student, shortlist, greedy"]["× " + students.BASE] == 9
    drawn = students.frontier(table)
    assert all(f" {name}: last" in drawn for name in ("teacher", "teacher, shortlist", "student, shortlist"))
    assert "loop" not in drawn
    json.dumps(table.as_json())
