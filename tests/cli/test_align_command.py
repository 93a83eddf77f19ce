"""`nmt align`."""

import json
from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, one_clear_error, out_lines, run_in

PAIRS = "align --src train.zh --ref train.en"  # in the folder of the five pairs


def test_links_join_words_of_the_given_pairs(five_run: FiveRun) -> None:
    lines = out_lines(run_in(five_run.home, PAIRS))
    for line, source, target in zip(lines, SOURCE, TARGET, strict=True):
        links = line.split(" ")
        assert links == sorted(set(links))
        for link in links:
            source_word, target_word = link.split("-")
            assert int(source_word) < len(source.split())
            assert int(target_word) < len(target.split())


def test_json_has_words_and_the_same_links(five_run: FiveRun, tmp_path: Path) -> None:
    links = out_lines(run_in(five_run.home, PAIRS))
    file = tmp_path / "aligned.jsonl"
    assert out_lines(run_in(five_run.home, f"{PAIRS} --json -o {file}")) == []
    for i, line in enumerate(file.read_text().splitlines()):
        tree = json.loads(line)
        assert tree["source_words"] == SOURCE[i].split()
        assert tree["target"] == TARGET[i]
        assert " ".join(f"{s}-{t}" for s, t in tree["links"]) == links[i]
    assert i == 4


def test_without_references_the_model_translates(five_run: FiveRun) -> None:
    links = out_lines(run_in(five_run.home, PAIRS))
    text = f"{SOURCE[0]}\n\n{SOURCE[1]}\n"
    lines = out_lines(run_in(five_run.home, "align --beam 1", text.encode()))
    assert lines == [f"{TARGET[0]}\t{links[0]}", "\t", f"{TARGET[1]}\t{links[1]}"]


def test_what_cannot_be_aligned_is_refused(five_run: FiveRun) -> None:
    one_clear_error(run_in(five_run.home, "align --ref train.en"), 2, "--ref needs --src")
    one_clear_error(run_in(five_run.home, f"{PAIRS} --beam 2"), 2, "--beam has no effect with --ref")
    one_clear_error(run_in(five_run.home, "align --src train.zh --ref five.yaml"), 2, "has 5 lines but")
