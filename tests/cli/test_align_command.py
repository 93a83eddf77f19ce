"""`nmt align`."""

import json
import re
from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together
from models import LINES, small_translator, write_run


def test_pairs_and_translations_are_aligned_line_by_line(five_run: FiveRun, tmp_path: Path) -> None:
    model = ["-m", five_run.run]
    files = ["--src", five_run.source_file, "--ref", five_run.target_file]
    given, as_json, own, reverse = run_together(
        ["align", *model, *files],
        ["align", *model, *files, "--json", "-o", "aligned.jsonl"],
        ["align", *model, "--beam", 1],
        ["align", *model, *files, "--reverse", five_run.model_file],
        input="".join(f"{line}\n" for line in [SOURCE[0], "", *SOURCE[1:]]).encode(),
        cwd=tmp_path,
    )
    lines = out_lines(given)
    assert len(lines) == 5
    for line, source, target in zip(lines, SOURCE, TARGET, strict=True):
        assert re.fullmatch(r"\d+-\d+( \d+-\d+)*", line)
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert links == sorted(set(links))
        assert all(s < len(source.split()) and t < len(target.split()) for s, t in links)
    assert (out_lines(as_json), err_lines(as_json)) == ([], [])
    trees = [json.loads(line) for line in (tmp_path / "aligned.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [" ".join(f"{s}-{t}" for s, t in tree["links"]) for tree in trees] == lines
    assert [tree["source_words"] for tree in trees] == [line.split() for line in SOURCE]
    assert [tree["target"] for tree in trees] == TARGET
    expected = [f"{target}\t{line}" for target, line in zip(TARGET, lines, strict=True)]
    assert out_lines(own) == [expected[0], "\t", *expected[1:]]
    one_clear_error(reverse, 2, "--reverse translates zh to en, the other model zh to en")


def test_what_cannot_be_aligned_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    model = ["-m", five_run.run]
    (tmp_path / "short").write_text("a\n")
    one_clear_error(run_nmt("align", *model, "--ref", five_run.target_file), 2, "--ref needs --src")
    files = ["--src", five_run.source_file, "--ref", five_run.target_file]
    one_clear_error(run_nmt("align", *model, *files, "--beam", 2), 2, "--beam has no effect with --ref")
    unequal = run_nmt("align", *model, "--src", five_run.source_file, "--ref", tmp_path / "short")
    one_clear_error(unequal, 2, "has 5 lines but")


def test_a_model_of_the_other_direction_must_agree(tmp_path: Path) -> None:
    forward = write_run(small_translator(), tmp_path / "de-en")
    reverse = write_run(small_translator(train={"source": "a.en", "target": "a.de"}), tmp_path / "en-de")
    for name, lines in (("a.de", LINES), ("a.en", LINES[::-1])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = ["-m", forward.path, "--src", "a.de", "--ref", "a.en"]
    alone, both = run_together(["align", *files], ["align", *files, "--reverse", reverse.path], cwd=tmp_path)
    assert len(out_lines(alone)) == len(out_lines(both)) == len(LINES)
    assert out_lines(alone) != out_lines(both)
