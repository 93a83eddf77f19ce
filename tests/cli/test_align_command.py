"""`nmt align`."""

import json
import re
from pathlib import Path

from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together


def test_pairs_and_translations_are_aligned_line_by_line(five_run: FiveRun, tmp_path: Path) -> None:
    model = ["-m", five_run.run]
    files = ["--src", five_run.source_file, "--ref", five_run.target_file]
    given, as_json, own = run_together(
        ["align", *model, *files],
        ["align", *model, *files, "--json", "-o", "aligned.jsonl"],
        ["align", *model, "--beam", 1],
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


def test_what_cannot_be_aligned_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    model = ["-m", five_run.run]
    (tmp_path / "short").write_text("a\n")
    one_clear_error(run_nmt("align", *model, "--ref", five_run.target_file), 2, "--ref needs --src")
    files = ["--src", five_run.source_file, "--ref", five_run.target_file]
    one_clear_error(run_nmt("align", *model, *files, "--beam", 2), 2, "--beam has no effect with --ref")
    unequal = run_nmt("align", *model, "--src", five_run.source_file, "--ref", tmp_path / "short")
    one_clear_error(unequal, 2, "has 5 lines but")
