"""`nmt backtranslate`."""

from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, run_together


def test_each_line_gets_a_source_and_a_config_can_name_both_files(five_run: FiveRun, tmp_path: Path) -> None:
    mono = tmp_path / "mono.zh"
    mono.write_text("".join(f"{line}\n" for line in [*SOURCE, "", SOURCE[0]]), encoding="utf-8")
    common = ["backtranslate", "-m", five_run.run, "-i", mono.name]
    tagged_one, plain, _ = run_together(
        [*common, "-o", "tagged.en"],
        [*common, "-o", "plain.en", "--tag", "", "--beam", 1],
        [*common, "-o", "sampled.en", "--sample", "--temperature", 3, "--seed", 4],
        cwd=tmp_path,
    )
    (message,) = err_lines(tagged_one)
    assert message.startswith("to train on it, add tagged.en to data.train.source, mono.zh to data.train.target")
    assert message.endswith('tokenizer.symbols: "<BT>"')
    assert "symbols" not in err_lines(plain)[0]
    texts = [*TARGET, "", TARGET[0]]
    assert (tmp_path / "plain.en").read_text(encoding="utf-8").split("\n") == [*texts, ""]
    written = (tmp_path / "tagged.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert written == [f"<BT> {text}" if text else "" for text in texts]
    drawn = (tmp_path / "sampled.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(drawn) == len(texts)
    assert drawn != written
    assert all(line.startswith("<BT> ") for line in drawn if line)


def test_text_of_the_wrong_side_and_odd_tags_are_refused(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "mono.en").write_text("I .\n")
    common = ["backtranslate", "-m", five_run.run, "-i", "mono.en", "-o"]
    direction, tag, stdout, sampling = run_together(
        [*common, "out"], [*common, "out", "--tag", "a b"], [*common, "-"], [*common, "out", "--top-k", 5], cwd=tmp_path
    )
    one_clear_error(direction, 2, "the model translates zh to en, but mono.en is named as en")
    one_clear_error(tag, 2, "the tag 'a b' is not one word")
    one_clear_error(stdout, 2, "nmt backtranslate needs input and output files")
    one_clear_error(sampling, 2, "--top-k applies only to sampling")
    assert [path.name for path in tmp_path.iterdir()] == ["mono.en"]
