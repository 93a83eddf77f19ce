"""`nmt config`, and invalid configs."""

from pathlib import Path

from conftest import Done, FiveCorpus, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together

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


def test_config_of_a_file_marks_what_training_chooses_and_training_says_what(five_run: FiveRun, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    text = five_run.config.read_text().replace(f"run: {five_run.run}", f"run: {tmp_path}/run")
    config.write_text(text.replace("validate_every: 100, ", ""))
    origin = f"train.init_from={five_run.run}"
    done, inherited, dry, fine = run_together(
        ["config", "--of", config],
        ["config", "", origin, "--of", config],
        ["train", config, "--dry-run"],
        ["train", config, origin, "train.max_steps=1"],
    )
    printed, fine_tuned = printed_values(done), printed_values(inherited)
    marked = {key for key, value in printed.items() if value == "[fitted]"}
    assert marked >= {"tokenizer.vocab_size", "model.d_ff", "train.lr", "train.batch_tokens", "train.validate_every"}
    assert not {"model.d_model", "train.max_steps", "train.max_epochs"} & marked, "set, or without effect"
    assert (printed["model.d_model"], printed["model.norm"], printed["train.max_epochs"]) == ("64", "pre", "-")
    assert fine_tuned["model.norm"] == fine_tuned["model.d_ff"] == f"[as in {five_run.run}]"
    assert (fine_tuned["model.d_model"], fine_tuned["train.lr"]) == ("64", "[fitted]")
    lines = [line.partition(": ") for line in err_lines(dry) if line.startswith("chosen for")]
    reasons = ["5 pairs", "the lengths of the pairs", "1 steps an epoch"]
    assert [why for why, _, _ in lines] == [f"chosen for {reason}" for reason in reasons]
    chosen = dict(setting.split("=") for _, _, told in lines for setting in told.split())
    assert chosen.keys() == marked
    assert chosen["model.d_ff"] == "256"
    assert f"as in {five_run.run}: " in fine.stderr.decode(), "inherited sizes are logged as such"
