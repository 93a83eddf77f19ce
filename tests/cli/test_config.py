"""`nmt config`, and invalid configs."""

from pathlib import Path

from conftest import Done, FiveCorpus, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together

from nmt.config import load_config
from nmt.config import settings as all_settings


def test_config_lists_every_key_with_its_range_default_and_meaning() -> None:
    rows = [row.split() for row in out_lines(run_nmt("config"))]
    assert rows == [" ".join(row).split() for row in all_settings()]
    some = [row.split() for row in out_lines(run_nmt("config", "train.max"))]
    assert some == [row for row in rows if row[0].startswith("train.max")]


def printed_values(done: Done) -> dict[str, str]:
    return dict(line.split("=", 1) for line in out_lines(done))


def test_config_of_a_file_prints_its_values(five_corpus: FiveCorpus) -> None:
    printed = printed_values(run_nmt("config", "--of", five_corpus.config))
    assert list(printed) == [key for key, *_ in all_settings() if not key.startswith("data.mix.")], "none is mixed in"
    assert printed["model.d_model"] == "64"
    assert printed["train.max_epochs"] == "-"
    assert printed["data.dev.target"] == str(five_corpus.target_file), "paths are resolved"
    for args, expected in (
        (["data.test.source"], [str(five_corpus.source_file)]),  # for one key only the value
        (["tokenizer.t"], ["tokenizer.type=bpe"]),
        (["run", "run=runs/other"], ["runs/other"]),
        (["data.test.source", "data.root=/corpora"], ["/corpora/train.zh"]),
    ):
        assert out_lines(run_nmt("config", *args, "--of", five_corpus.config)) == expected
    one_clear_error(run_nmt("config", "run", "run=x"), 2, "overrides change the values of a file")


def test_config_of_a_file_prints_fitted_values_and_the_reason(five_run: FiveRun, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    text = five_run.config.read_text().replace(f"run: {five_run.run}", f"run: {tmp_path}/run")
    text = text.replace("validate_every: 100, ", "")
    config.write_text(text)
    done, model, fine = run_together(
        ["config", "--of", config],
        ["config", "model.n_heads", "--of", config],
        ["train", config, f"train.init_from={five_run.run}", "train.max_steps=1"],
    )
    printed = printed_values(done)
    for key, value in {"model.d_ff": "256", "train.batch_tokens": "1024", "train.validate_every": "100"}.items():
        assert printed[key] == value
    (why,) = (line for line in err_lines(done) if line.startswith("chosen for 5 pairs: "))
    chosen = dict(setting.split("=") for setting in why.removeprefix("chosen for 5 pairs: ").split())
    assert chosen == {key: printed[key] for key in chosen}
    assert set(chosen) >= {"tokenizer.vocab_size", "model.d_ff", "train.lr", "train.batch_tokens"}
    assert not {"model.d_model", "train.max_steps", "train.max_epochs"} & set(chosen), "set, or without effect"
    assert "chosen for 1 steps an epoch: train.validate_every=100" in err_lines(done)
    assert out_lines(model) == ["4"]
    assert f"as in {five_run.run}: " in fine.stderr.decode(), "inherited sizes are logged as such"
    trained = load_config(tmp_path / "run" / "config.yaml")
    assert printed_values(run_nmt("config", "--of", config)) == printed, "also for a run that was started"
    assert str(trained.train.lr) == printed["train.lr"]


def test_config_of_a_file_without_its_corpus_marks_fitted_values(five_corpus: FiveCorpus) -> None:
    five_corpus.source_file.unlink()
    done = run_nmt("config", "--of", five_corpus.config)
    printed = printed_values(done)
    assert printed["model.d_ff"] == printed["train.lr"] == "[fitted]"
    assert printed["model.d_model"] == "64"
    assert printed["model.norm"] == "pre"
    assert printed["train.max_epochs"] == "-", "max_steps is the limit"
    assert f"cannot read {five_corpus.source_file}" in done.stderr.decode()
    quick = run_nmt("config", "train.max_steps", "--of", five_corpus.config)
    assert (out_lines(quick), quick.stderr) == (["200"], b""), "the corpus is not read"


def test_all_faults_of_a_config_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("run: runs/x\ndata:\n  train: {source: train.zh}\n")
    done = run_nmt("train", "bad.yaml", "seed=-1", cwd=tmp_path)
    for fragments in (["bad.yaml:3", "'data.train.target' is missing"], ["command line", "'seed'", "got -1"]):
        one_clear_error(done, 2, *fragments, n_errors=2)
