"""`nmt translate`."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import SOURCE, TARGET, Done, FiveRun, err_lines, one_clear_error, out_lines, refused, run_in, run_nmt

import nmt
from nmt.translate.confidence import Calibration


def trees(done: Done) -> list[Any]:
    """The lines of the output of --json."""
    return list(map(json.loads, out_lines(done)))


def best_hypotheses(done: Done) -> list[Any]:
    return [tree["hypotheses"][0] for tree in trees(done)]


ODD_SOURCES = [
    SOURCE[0],
    "",
    SOURCE[1],
    " \t\u3000",
    "\0",
    "天气\0很",
    "好\u2028好\u0085\v\f\x1e茶",  # line ends for str.splitlines
    "tea \ufffd\ufffd or",
    "a\rb",
    "\ufeff",  # a BOM elsewhere is an ordinary character
    "😀👩‍👩‍👧\u202e▁<s></s><unk>",
    SOURCE[4],  # the last line has no line end
]
# What is read otherwise: a BOM at the start, a line end from Windows, bytes that are not UTF-8.
ODD_LINES = "\n".join(ODD_SOURCES).replace("\n \t", "\r\n \t").encode()
ODD_INPUT = b"\xef\xbb\xbf" + ODD_LINES.replace("\ufffd\ufffd".encode(), b"\xff\xe4")


def test_as_many_lines_are_written_as_read(five_home: Path) -> None:
    done = run_in(five_home, "translate -m runs/five --beam 1", ODD_INPUT)
    lines = out_lines(done)
    assert len(lines) == 12
    assert lines[0] == TARGET[0]
    assert lines[2] == TARGET[1]
    assert lines[11] == TARGET[4]
    blank = [n for n, line in enumerate(lines) if not line]
    assert blank == [1, 3, 4, 9], "blank lines stay blank"
    warning = "stdin is not UTF-8 in 1 of 12 lines (line 8 at byte 5); bad bytes are replaced by U+FFFD"
    assert err_lines(done) == [f"nmt: warning: {warning}"]


def test_json_has_the_sources_and_the_same_translations(five_home: Path) -> None:
    plain = run_in(five_home, "translate --beam 1", ODD_INPUT)
    as_json = run_in(five_home, "translate --beam 1 --json", ODD_INPUT)
    sources = [tree["source"] for tree in trees(as_json)]
    assert sources == ODD_SOURCES
    texts = [best["text"] for best in best_hypotheses(as_json)]
    assert texts == out_lines(plain)


@pytest.mark.parametrize(
    ("options", "spans"),
    [("--protect-placeholders", {"{a}"}), ("--protect A. --protect ß+", {"{a}", "A书"})],
    ids=["placeholders", "own patterns"],
)
def test_placeholders_stay(five_home: Path, options: str, spans: set[str]) -> None:
    done = run_in(five_home, f"translate --json {options}", "我 {a} A书 好 ß".encode())
    (tree,) = trees(done)
    assert tree["source"] == "我 {a} A书 好 ß"
    text = tree["hypotheses"][0]["text"]
    assert {span for span in ("{a}", "A书") if span in text} == spans


def test_placeholders_in_markup_stay(five_home: Path) -> None:
    done = run_in(five_home, "translate --protect-placeholders --format html '<b>{a}</b>'")
    assert out_lines(done) == ["<b>{a}</b>"]


def test_translations_have_the_terms_of_a_glossary(five_home: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("茶\tschool\n", encoding="utf-8")
    translate = f"translate --glossary {tmp_path}/terms.tsv"
    lines = out_lines(run_in(five_home, f"{translate} -i train.zh"))
    assert "school" in lines.pop(3)
    # Sentences without terms are as ever.
    assert lines == [*TARGET[:3], *TARGET[4:]]
    message = "CTranslate2 uses a --glossary only with"
    refused(five_home, f"{translate} --engine ctranslate2 茶", message)


@pytest.mark.parametrize("name", ["TERMS.TSV", "terms.tsv.gz"])
def test_the_first_line_of_a_tsv_glossary_is_a_term(name: str, five_home: Path, tmp_path: Path) -> None:
    content = "茶\tschool\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (line,) = out_lines(run_in(five_home, f"translate --glossary {tmp_path}/{name} 茶"))
    assert "school" in line


def test_a_glossary_may_be_a_table(five_home: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.csv").write_text("en;zh\nschool;茶\n", encoding="utf-8")
    (line,) = out_lines(run_in(five_home, f"translate --glossary {tmp_path}/terms.csv 茶"))
    assert "school" in line


def test_matches_of_a_memory_are_taken_or_offered(five_home: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.csv").write_text(f"zh;en\n{SOURCE[0]};From the memory.\n", encoding="utf-8")
    translate = f"translate --json --memory {tmp_path}/memory.csv"
    similar = SOURCE[0].replace("书", "茶")
    exact, offered = trees(run_in(five_home, translate, f"{SOURCE[0]}\n{similar}\n".encode()))
    assert exact["hypotheses"][0]["text"] == "From the memory."
    assert exact["matches"][0]["similarity"] == 1
    unit = {"source": SOURCE[0], "target": "From the memory.", "similarity": pytest.approx(8 / 9), "is_taken": False}
    assert offered["matches"] == [unit]
    (taken,) = out_lines(run_in(five_home, f"{translate} --min-match 0.8".replace("--json", ""), similar.encode()))
    assert taken == "From the memory."


def test_a_memory_that_has_changed_is_read_again(five_home: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.csv"
    for target in ("tea", "green tea"):
        memory.write_text(f"zh;en\n茶;{target}\n", encoding="utf-8")
        assert out_lines(run_in(five_home, f"translate -q --memory {memory} 茶")) == [target]


def test_a_similar_match_that_is_taken_is_reported(five_home: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.csv").write_text(f"zh;en\n{SOURCE[0]};From the memory.\n", encoding="utf-8")
    translate = f"translate --memory {tmp_path}/memory.csv --min-match 0.8"
    done = run_in(five_home, translate, SOURCE[0].replace("书", "茶").encode())
    assert "line 1 is doubtful: match of 89%: " in err_lines(done)[-1]


def test_a_file_that_is_no_memory_is_refused(five_home: Path) -> None:
    refused(five_home, "translate --memory train.zh 茶", "train.zh is no translation memory")


def test_a_text_may_be_longer_than_a_file_name(five_home: Path) -> None:
    done = run_in(five_home, f"translate {'我们' * 60}")
    result = len(out_lines(done))
    assert result == 1


def test_bad_bytes_of_a_text_are_replaced_as_in_a_file(five_home: Path) -> None:
    (tree,) = trees(run_nmt("translate", "--json", "tea \udcff", cwd=five_home))  # \udcff is byte FF
    assert tree["source"] == "tea \ufffd"


def test_a_text_may_begin_with_a_dash(five_home: Path) -> None:
    done = run_in(five_home, "translate -- '- 我'")
    result = len(out_lines(done))
    assert result == 1
    stderr = refused(five_home, "translate '- 我'", "No such option")
    assert "put -- before a TEXT that begins with a dash" in stderr


def test_names_in_hints_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "my demo.yaml").write_text("run: x\n")
    stderr = refused(tmp_path, "translate 'my demo.yaml'", "'my demo.yaml' is a file")
    assert "nmt translate -i 'my demo.yaml'" in stderr


def test_n_best_lists_with_scores_and_pieces(five_home: Path) -> None:
    done = run_in(five_home, "translate -i train.zh --beam 5 --json --n-best 3")
    for i, tree in enumerate(trees(done)):
        assert tree["source"] == SOURCE[i]
        hypotheses = tree["hypotheses"]
        texts = [hypothesis["text"] for hypothesis in hypotheses]
        assert texts[0] == TARGET[i]
        assert len(set(texts)) == 3
        for hypothesis in hypotheses:
            *pieces, eos = hypothesis["pieces"]
            text = ""
            log_prob = eos["log_prob"]
            for piece in pieces:
                text += piece["piece"]
                log_prob += piece["log_prob"]
            assert text.replace("▁", " ").strip() == hypothesis["text"]
            assert log_prob == pytest.approx(hypothesis["log_prob"])
    assert i == 4


def test_a_prefix_that_is_too_long_is_refused_before_any_output(five_run: FiveRun, tmp_path: Path) -> None:
    files = f"-i {five_run.source_file} -o out --resume"
    command = f"translate -m {five_run.run} {files} --prefix '{'book ' * 1100}'"
    refused(tmp_path, command, "the prefix has 1101 pieces, the model takes at most 1023")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def home(five_run: FiveRun, tmp_path: Path) -> Path:
    """A folder with three runs."""
    model = five_run.model_file.read_bytes()
    for time, name in enumerate(["older", "old", "deep/new"]):
        file = tmp_path / "runs" / name / "model.safetensors"
        file.parent.mkdir(parents=True)
        file.write_bytes(model)
        os.utime(file, (time, time))
    return tmp_path


def test_the_model_is_the_newest_under_runs(home: Path) -> None:
    done = run_in(home, f"translate '{SOURCE[1]}'")
    result = out_lines(done)
    assert result == [TARGET[1]]
    assert err_lines(done) == ["model: runs/deep/new"]


def test_the_model_may_be_a_file_without_others(home: Path) -> None:
    done = run_in(home, f"translate -m runs/deep/new/model.safetensors '{SOURCE[0]}'")
    result = out_lines(done)
    assert result == [TARGET[0]]
    assert err_lines(done) == []


def test_the_model_may_be_named_by_nmt_model(five_run: FiveRun, home: Path) -> None:
    done = run_nmt("translate", SOURCE[2], cwd=home, env={"NMT_MODEL": str(five_run.run)})
    result = out_lines(done)
    assert result == [TARGET[2]]
    assert err_lines(done) == []


def test_line_ends_and_control_characters_in_names_are_escaped(five_run: FiveRun, tmp_path: Path) -> None:
    """They are escaped in the error and in the hint; commands in hints are quoted for the shell."""
    run = five_run.copy_run(tmp_path / "a b\nnmt: error: \x1b[31m$(reboot)")
    (run / "tokenizer.model").write_bytes(b"no tokenizer")
    (run / "model.bin").touch()  # now it is a damaged export
    stderr = one_clear_error(run_nmt("translate", "-m", run, "x"), 2, "the tokenizer is damaged")
    assert "\x1b" not in stderr
    (hint,) = re.findall("(?m)^hint: (.*)$", stderr)
    assert f"nmt tokenize '{tmp_path}/a b\\nnmt: error: \\x1b[31m$(reboot)/config.yaml'" in hint


UNLIKELY = f"{SOURCE[0]}\n\n茶茶天们茶我".encode()  # a known line, a blank one, and one that makes no sense


def test_doubtful_lines_are_named(five_home: Path, tmp_path: Path) -> None:
    # 1. A threshold between a known line and one that makes no sense.
    best = best_hypotheses(run_in(five_home, "translate --json", UNLIKELY))
    known, blank, unknown = (hypothesis["confidence"] for hypothesis in best)
    assert unknown < known < blank == 1
    common = f"translate -m runs/five --min-confidence {(known + unknown) / 2}"
    # 2. Lines
    plain = run_in(five_home, common, UNLIKELY)
    (warning,) = err_lines(plain)
    assert warning.startswith(f"nmt: warning: line 3 is doubtful: confidence {unknown:.2f}")
    texts = [hypothesis["text"] for hypothesis in best]
    assert out_lines(plain) == texts, "the output is as ever"
    # 3. JSON has the reasons, also in a file that can be resumed.
    (tmp_path / "in").write_bytes(UNLIKELY)
    resumed = run_in(five_home, f"{common} --json -i {tmp_path}/in -o {tmp_path}/out --resume")
    assert warning in err_lines(resumed)
    lines = (tmp_path / "out").read_text().splitlines()
    first, second, third = map(json.loads, lines)
    assert first["doubtful"] is second["doubtful"] is False
    assert first["reasons"] == second["reasons"] == []
    assert third["doubtful"] is True
    found = f": {', '.join(third['reasons'])}: "
    assert found in warning
    # 4. Lines with markup, without their tags.
    html = run_in(five_home, f"{common} --format html", b"<p>%s</p>" % UNLIKELY)
    assert err_lines(html) == [warning]
    # 5. Documents in a folder
    (tmp_path / "a.po").write_text('msgid "茶茶天们茶我"\nmsgstr ""\n')
    folder = run_in(five_home, f"{common} -q {tmp_path} -o {tmp_path}/new")
    result = err_lines(folder)
    assert result == [warning.replace("line 3", f"{tmp_path}/a.po: text 1")]
    assert (tmp_path / "new/a.po").read_text().startswith("#, fuzzy\nmsgid")


def test_the_best_model_keeps_its_calibration(five_run: FiveRun) -> None:
    by_torch = nmt.load(five_run.run, "cpu", engine="torch")
    by_ctranslate2 = nmt.load(five_run.run, "cpu", engine="ctranslate2")
    calibration = Calibration.of(by_torch.progress)
    assert calibration == Calibration.of(by_ctranslate2.progress)
    assert calibration != Calibration()


@pytest.mark.parametrize("options", ["", "--json"])
def test_lines_that_are_cut_off_are_named_once(five_home: Path, options: str) -> None:
    text = f"{SOURCE[0]}\n\n{SOURCE[1]}"
    done = run_in(five_home, f"translate -m runs/five --max-length 3 {options}", text.encode())
    (line,) = err_lines(done)
    assert "translation cut off at the length limit, before its end: 2 lines (1, 3)" in line
    if options:
        first, second, third = best_hypotheses(done)
        assert first["cut"] is third["cut"] is True
        assert "cut" not in second
