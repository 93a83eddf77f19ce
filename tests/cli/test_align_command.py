"""`nmt align`."""

import json
from pathlib import Path

from conftest import SOURCE, TARGET, out_lines, refused, run_in

PAIRS = "align --src train.zh --ref train.en"  # in the folder of the five pairs


def test_links_join_words_of_the_given_pairs(five_home: Path) -> None:
    lines = out_lines(run_in(five_home, PAIRS))
    for line, source, target in zip(lines, SOURCE, TARGET, strict=True):
        links = line.split(" ")
        assert links == sorted(set(links))
        for link in links:
            source_word, target_word = link.split("-")
            assert int(source_word) < len(source.split())
            assert int(target_word) < len(target.split())


def test_json_has_words_and_the_same_links(five_home: Path, tmp_path: Path) -> None:
    links = out_lines(run_in(five_home, PAIRS))
    file = tmp_path / "aligned.jsonl"
    result = out_lines(run_in(five_home, f"{PAIRS} --json -o {file}"))
    assert result == []
    for i, line in enumerate(file.read_text().splitlines()):
        tree = json.loads(line)
        assert tree["source_words"] == SOURCE[i].split()
        assert tree["target"] == TARGET[i]
        moses = [f"{s}-{t}" for s, t in tree["links"]]
        assert moses == links[i].split()
    assert i == 4


def test_what_cannot_be_aligned_is_refused(five_home: Path) -> None:
    refused(five_home, "align --ref train.en", "Missing option '--src'")
    refused(five_home, f"{PAIRS} -o train.en", "train.en would be overwritten")
