"""`nmt translate`."""

import json
import os
import re
from pathlib import Path

import pytest
from conftest import SOURCE, TARGET, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together

import nmt
from nmt.translate.confidence import Calibration

ODD_LINES = [  # input bytes, "source" in the output of --json
    (b"\xef\xbb\xbf" + SOURCE[0].encode(), SOURCE[0]),  # a BOM at the start of the first line
    (b"", ""),
    (SOURCE[1].encode() + b"\r", SOURCE[1]),  # a line end from Windows
    (b" \t\xe3\x80\x80", " \t\u3000"),
    (b"\0", "\0"),
    ("天气\0很".encode(), "天气\0很"),
    ("好\u2028好\u0085\v\f\x1e茶".encode(), "好\u2028好\u0085\v\f\x1e茶"),  # line ends for str.splitlines
    (b"tea \xff\xe4 or", "tea \ufffd\ufffd or"),
    (b"a\rb\r", "a\rb"),
    ("\ufeff".encode(), "\ufeff"),  # a BOM elsewhere is an ordinary character
    ("😀👩‍👩‍👧\u202e▁<s></s><unk>".encode(), "😀👩‍👩‍👧\u202e▁<s></s><unk>"),
    (SOURCE[4].encode(), SOURCE[4]),  # the last line has no line end
]


def test_as_many_lines_are_written_as_read(five_run: FiveRun, tmp_path: Path) -> None:
    common, given_bytes = ["translate", "-m", five_run.run], b"\n".join(raw for raw, _ in ODD_LINES)
    plain, as_json = run_together([*common, "--beam", 1], [*common, "--beam", 1, "--json"], input=given_bytes)
    lines = out_lines(plain)
    assert len(lines) == len(ODD_LINES)
    assert [lines[0], lines[2], lines[11]] == [TARGET[0], TARGET[1], TARGET[4]]
    assert [n for n, line in enumerate(lines) if not line] == [1, 3, 4, 9], "blank lines stay blank"
    warning = "stdin is not UTF-8 in 1 of 12 lines (line 8 at byte 5); bad bytes are replaced by U+FFFD"
    assert err_lines(plain) == [f"nmt: warning: {warning}"]
    found = [json.loads(line) for line in out_lines(as_json)]
    assert [one["source"] for one in found] == [text for _, text in ODD_LINES]
    assert [one["hypotheses"][0]["text"] for one in found] == lines
    assert out_lines(run_nmt(*common, "-i", five_run.source_file, "-o", tmp_path / "out.en")) == []
    assert (tmp_path / "out.en").read_bytes() == five_run.target_file.read_bytes()


def test_placeholders_stay(five_run: FiveRun) -> None:
    common = ["translate", "-m", five_run.run, "--json"]
    for options, count in ((["--protect-placeholders"], 1), (["--protect", "A.", "--protect", "ß+"], 2)):
        (line,) = out_lines(run_nmt(*common, *options, input="我 {a} A书 好 ß".encode()))
        found = json.loads(line)
        assert found["source"] == "我 {a} A书 好 ß"
        text = found["hypotheses"][0]["text"]
        assert sum(span in text for span in ("{a}", "A书")) == count
    html = run_nmt(*common[:-1], "--protect-placeholders", "--format", "html", "<b>{a}</b>")
    assert out_lines(html) == ["<b>{a}</b>"]


def test_translations_have_the_terms_of_a_glossary(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("茶\tschool\n", encoding="utf-8")
    common = ["translate", "-m", five_run.run, "--glossary", tmp_path / "terms.tsv"]
    lines = out_lines(run_nmt(*common, "-i", five_run.source_file))
    assert "school" in lines.pop(3)
    assert lines == [*TARGET[:3], *TARGET[4:]], "sentences without terms are as ever"
    one_clear_error(run_nmt(*common, "--engine", "ctranslate2", "茶"), 2, "CTranslate2 uses a --glossary only with")


def test_a_text_may_be_long_badly_encoded_or_begin_with_a_dash(five_run: FiveRun, tmp_path: Path) -> None:
    common = ["translate", "-m", five_run.run, "--beam", 1]
    assert len(out_lines(run_nmt(*common, "我们" * 60))) == 1, "longer than a file name can be"
    (line,) = out_lines(run_nmt(*common, "--json", "tea \udcff"))  # \udcff is byte FF
    assert json.loads(line)["source"] == "tea \ufffd", "bad bytes are replaced, as in a file"
    assert len(out_lines(run_nmt(*common, "--", "- 我"))) == 1
    stderr = one_clear_error(run_nmt("translate", "- 我"), 2, "No such option")
    assert "put -- before a TEXT that begins with a dash" in stderr
    (tmp_path / "my demo.yaml").write_text("run: x\n")
    stderr = one_clear_error(run_nmt("translate", "my demo.yaml", cwd=tmp_path), 2, "'my demo.yaml' is a file")
    assert "hint: nmt translate -i 'my demo.yaml'" in stderr


def test_n_best_lists_with_scores_and_pieces(five_run: FiveRun) -> None:
    common = ["translate", "-m", five_run.run, "-i", five_run.source_file, "--beam", 5]
    as_json, scored = run_together([*common, "--json", "--n-best", 3], [*common, "--scores"])
    found = [json.loads(line) for line in out_lines(as_json)]
    assert [one["source"] for one in found] == SOURCE
    for hypotheses in (one["hypotheses"] for one in found):
        assert len({one["text"] for one in hypotheses}) == len(hypotheses) == 3
        for one in hypotheses:
            log_probs, pieces = ([piece[key] for piece in one["pieces"]] for key in ("log_prob", "piece"))
            assert sum(log_probs) == pytest.approx(one["log_prob"])
            assert "".join(pieces[:-1]).replace("▁", " ").removeprefix(" ") == one["text"]
    best = [one["hypotheses"][0] for one in found]
    assert [one["text"] for one in best] == TARGET
    assert out_lines(scored) == [f"{one['score']:.4f}\t{one['text']}" for one in best]
    too_many = run_nmt(*common, "--json", "--n-best", 6)
    assert "hint: add --beam 6" in one_clear_error(too_many, 2, "n_best is 6, but there are 5 hypotheses")
    one_clear_error(run_nmt(*common, "--device", "abacus"), 2, "no device 'abacus'")


def test_prefix_and_length_limits(five_run: FiveRun, tmp_path: Path) -> None:
    common = ["translate", "-m", five_run.run, "-i", five_run.source_file]
    prefix = "They are tea"
    prefixed, short = run_together([*common, "--json", "--prefix", prefix], [*common, "--json", "--max-length", 4])

    texts = [json.loads(line)["hypotheses"][0]["text"] for line in out_lines(prefixed)]
    assert all(text.startswith(prefix) for text in texts)
    assert len(set(texts)) > 1
    n_pieces = [len(json.loads(line)["hypotheses"][0]["pieces"]) for line in out_lines(short)]
    assert max(n_pieces) == 4, "EOS is counted"
    done = run_nmt(*common, "--prefix", "book " * 1100, "-o", "out", "--resume", cwd=tmp_path)
    one_clear_error(done, 2, "the prefix has 1101 pieces, the model takes at most 1023")
    assert list(tmp_path.iterdir()) == [], "it is refused before any output"


def test_the_model_is_that_of_m_or_nmt_model_or_the_newest_under_runs(five_run: FiveRun, tmp_path: Path) -> None:
    """A model file needs no other file."""
    away = tmp_path / "model.safetensors"
    away.write_bytes(five_run.model_file.read_bytes())
    home = tmp_path / "home"
    for name, mtime in (("old", 1_000_000_000), ("deep/new", 2_000_000_000), ("older", 900_000_000)):
        model = home / "runs" / name / "model.safetensors"
        model.parent.mkdir(parents=True)
        model.write_bytes(away.read_bytes() if name == "deep/new" else b"")
        os.utime(model, (mtime, mtime))
    named, newest = run_together(["translate", "-m", away, SOURCE[0]], ["translate", SOURCE[1]], cwd=home)
    by_variable = run_nmt("translate", SOURCE[2], cwd=home, env={"NMT_MODEL": str(five_run.run)})
    assert [out_lines(done) for done in (named, newest, by_variable)] == [[text] for text in TARGET[:3]]
    assert [err_lines(done) for done in (named, newest, by_variable)] == [[], ["model: runs/deep/new"], []]


def test_line_ends_and_control_characters_in_names_are_escaped(five_run: FiveRun, tmp_path: Path) -> None:
    """They are escaped in the error and in the hint; commands in hints are quoted for the shell."""
    run = five_run.copy_run(tmp_path / "a b\nnmt: error: \x1b[31m$(reboot)")
    (run / "tokenizer.model").write_bytes(b"no tokenizer")
    (run / "model.bin").touch()  # now it is a damaged export
    stderr = one_clear_error(run_nmt("translate", "-m", run, "x"), 2, "the tokenizer is damaged")
    assert "\x1b" not in stderr
    (hint,) = re.findall("(?m)^hint: (.*)$", stderr)
    assert f"nmt tokenize '{tmp_path}/a b\\nnmt: error: \\x1b[31m$(reboot)/config.yaml'" in hint


def test_doubtful_lines_are_named(five_run: FiveRun, tmp_path: Path) -> None:
    file = tmp_path / "a.zh"
    file.write_text(f"{SOURCE[0]}\n\n茶茶天们茶我", encoding="utf-8")
    common = ["translate", "-m", five_run.run, "-i", file]
    found = [json.loads(line)["hypotheses"][0] for line in out_lines(run_nmt(*common, "--json"))]
    for best in found:
        assert [best["text"][word["start"] : word["end"]] for word in best["words"]] == best["text"].split()
    known, blank, unknown = (best["confidence"] for best in found)
    assert unknown < known < blank == 1
    checked_lines = [*common, "--min-confidence", (known + unknown) / 2]
    plain, checked, whole, html = run_together(
        common,
        checked_lines,
        [*checked_lines, "--json", "--resume", "-o", tmp_path / "a.en"],
        [*checked_lines, "--format", "html"],
    )
    assert (checked.stdout, err_lines(plain)) == (plain.stdout, [])
    (warning,) = err_lines(checked)
    assert warning.startswith(f"nmt: warning: line 3 is doubtful: confidence {unknown:.2f}")
    assert warning in err_lines(whole)
    trees = [json.loads(line) for line in (tmp_path / "a.en").read_text().splitlines()]
    reasons = warning.split(": ")[3].split(", ")
    assert [(one["doubtful"], one["reasons"]) for one in trees] == [(False, []), (False, []), (True, reasons)]
    one_clear_error(html, 2, "--format html goes with none of --json, --scores, --min-confidence")


def test_the_best_model_keeps_its_calibration(five_run: FiveRun) -> None:
    found = [Calibration.of(nmt.load(five_run.run, "cpu", engine=one).progress) for one in ("torch", "ctranslate2")]
    assert found[0] == found[1] != Calibration()


def test_lines_that_are_cut_off_are_named_once(five_run: FiveRun) -> None:
    common = ["translate", "-m", five_run.run, "--max-length", 3]
    text = "\n".join([SOURCE[0], "", SOURCE[1]]).encode()
    plain, as_json = run_together(common, [*common, "--json"], input=text)
    message = "translation cut off at the length limit, before the model ended it: 2 lines (1, 3)"
    for done in (plain, as_json):
        assert [message in line for line in err_lines(done) if "cut off" in line] == [True]
    hypotheses = [json.loads(line)["hypotheses"][0] for line in out_lines(as_json)]
    assert [hypothesis.get("cut") for hypothesis in hypotheses] == [True, None, True]
