"""The benchmark of synthetic data, on the five pairs."""

import json
from collections.abc import Sequence

import ladder
import pytest
import synthetic
from conftest import SOURCE, TARGET, FiveCorpus
from conftest import run_nmt as called_nmt

from nmt.config import load_config

SETTINGS = ["train.max_steps=6", "train.validate_every=6", "model.d_model=16", "tokenizer.symbols=<BT>"]


def run_nmt(*arguments: object, lines: Sequence[str] = ()) -> list[str]:
    """Like `ladder.run_nmt`, but in this process, which is faster."""
    done = called_nmt(*arguments, input="".join(f"{line}\n" for line in lines).encode())
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n")[:-1]


def test_the_data_are_aligned_and_each_system_has_its_own(
    five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = [one for one in synthetic.SYSTEMS if one.name in ("sampled-tagged", "teacher", "student-distilled")]
    assert len(systems) == 3
    monkeypatch.setattr(ladder, "run_nmt", run_nmt)
    monkeypatch.setattr(synthetic, "SYSTEMS", systems)
    monkeypatch.setattr(synthetic, "TEACHER", [])
    runs = five_corpus.home / "runs"
    for _ in range(2):  # the second time, all files exist
        capsys.readouterr()
        synthetic.compare(five_corpus.config, runs, 5, SETTINGS)
    assert "translating" not in capsys.readouterr().err

    def lines_of(name: str) -> list[str]:
        return (runs / "data" / name).read_text(encoding="utf-8").split("\n")[:-1]

    assert (lines_of("half.zh"), lines_of("half.en")) == (SOURCE[:2], TARGET[:2])
    assert lines_of("sampled-tagged.en") == lines_of("beam.en") == TARGET[2:]
    for name in ("beam", "sampled"):
        tagged, plain = lines_of(f"{name}-tagged.zh"), lines_of(f"{name}.zh")
        assert len(tagged) == 3
        assert [line.removeprefix("<BT> ") for line in tagged] == plain
    assert len(lines_of("half-distilled.en")) == 2
    assert lines_of("other-distilled.zh") == SOURCE[2:]

    config = load_config(runs / "reverse" / "config.yaml")
    assert config.data.dev is not None
    assert (config.data.train.source, config.data.dev.source) == ((str(runs / "data/half.en"),), ("train.en",))
    tagged_config = load_config(runs / "sampled-tagged" / "config.yaml")
    assert tagged_config.data.train.source[1] == str(runs / "data/sampled-tagged.zh")
    rows = json.loads((runs / "synthetic.json").read_text())
    assert [row["system"] for row in rows] == [one.name for one in systems]
    assert all({"BLEU", "greedy_BLEU", "chrF2"} <= row.keys() for row in rows)
    assert "| sampled-tagged | the same, tagged |" in (runs / "synthetic.md").read_text()
