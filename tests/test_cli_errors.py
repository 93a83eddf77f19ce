"""What the command says when something is wrong: one clear line, a hint, no traceback, and the right exit code."""

import contextlib
import fcntl
import gzip
import json
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import (
    SOURCE,
    TARGET,
    Done,
    FiveCorpus,
    FiveRun,
    environment,
    file_bytes,
    one_clear_error,
    out_lines,
    run_nmt,
    run_together,
    started_nmt,
)

from nmt.text.tokenizer import Tokenizer

# --- arguments --------------------------------------------------------------------------------------------


Case = tuple[list[str], list[str]]  # what is given, what the error must contain


UNFIT: list[Case] = [
    (["translate", "-i", "in.zh", "TEXT"], ["TEXT", "-i"]),
    (["translate", "--n-best", "2", "TEXT"], ["several hypotheses"]),
    (["translate", "--resume"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "/dev/null", "-o", "out"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/null"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/stdout"], ["--resume needs input and output files"]),
    (["translate", "--mbr", "chrf", "--beam", "4", "TEXT"], ["--mbr chooses among samples"]),
    (["eval", "--samples", "4"], ["--samples needs --mbr"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en", "--heads"], ["--hyp uses no model, but --heads needs one"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en", "--beam", "4"], ["--hyp uses no model, but --beam needs one"]),
    (["eval", "--top-p", "0.9"], ["--top-p applies only to sampling"]),
    (["translate", "--temperature", "0.5", "TEXT"], ["--temperature applies only to sampling"]),
    (["translate", "TEXT"], ["no model under runs/"]),
    (["eval"], ["no model under runs/"]),
    (["eval", "--hyp", "test.hyp"], ["--hyp", "--ref"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en"], ["cannot read", "No such file"]),
    (["config", "modle"], ["no key begins with 'modle'"]),
    (["config", "--of", "none.yaml"], ["cannot read none.yaml: No such file"]),
    (["train", "none.yaml"], ["cannot read none.yaml: No such file"]),
    (["tokenize", "."], ["cannot read .: Is a directory"]),
]


@pytest.mark.parametrize(("args", "fragments"), UNFIT, ids=[" ".join(args) for args, _ in UNFIT])
def test_arguments_that_do_not_fit(args: list[str], fragments: list[str]) -> None:
    one_clear_error(run_nmt(*args), 2, *fragments)


UNKNOWN: list[Case] = [
    (["translate", "--beem", "5"], ["--beem"]),
    (["translate", "-5 degrees"], ["No such option", "-5"]),
    (["eval", "--hyp", "a", "--ref", "c", "--hyp", "b"], ["--hyp is given 2 times"]),
    (["translate", "-i", "a", "--input", "b"], ["--input is given 2 times"]),
    (["export", "--to", "ctranslate2", "-o", "x", "-m", "a", "-m", "b"], ["--model is given 2 times"]),
    (["translate", "--mbr", "ter"], ["--mbr", "chrf", "bleu"]),
    (["translate", "--beam", "five"], ["--beam", "integer"]),
    (["eval", "--device"], ["--device"]),
    (["trian", "five.yaml"], ["trian"]),
    (["train"], ["CONFIG"]),
]


@pytest.mark.parametrize(("args", "fragments"), UNKNOWN, ids=[" ".join(args) for args, _ in UNKNOWN])
def test_arguments_that_no_command_has(args: list[str], fragments: list[str]) -> None:
    one_clear_error(run_nmt(*args), 2, *fragments)


def test_options_of_search_that_do_not_fit(five_run: FiveRun) -> None:
    cases: list[Case] = [
        (["--json", "--n-best", "3", "--beam", "2"], ["n_best is 3, but there are 2 hypotheses"]),
        (["--device", "abacus"], ["no device 'abacus'"]),
        (["--beam", "0"], ["beam: input should be greater than or equal to 1, got 0"]),
        (["--alpha", "400"], ["alpha: input should be less than or equal to 10, got 400.0"]),
        (["--sample", "--temperature", "1e-40"], ["temperature: input should be greater than or equal to 0.001"]),
        (["--sample", "--top-p", "1.5"], ["top_p: input should be less than or equal to 1, got 1.5"]),
    ]
    done = run_together(*(["translate", "-m", five_run.run, *args, "我"] for args, _ in cases))
    for one, (_, fragments) in zip(done, cases, strict=True):
        one_clear_error(one, 2, *fragments)


def test_a_text_that_is_the_name_of_a_file_is_not_translated(tmp_path: Path) -> None:
    (tmp_path / "my demo.yaml").write_text("run: x\n")
    stderr = one_clear_error(run_nmt("translate", "my demo.yaml", cwd=tmp_path), 2, "'my demo.yaml' is a file")
    assert "hint: nmt translate -i 'my demo.yaml'" in stderr


def test_a_text_that_begins_with_a_dash_is_told_from_an_option(five_run: FiveRun) -> None:
    stderr = one_clear_error(run_nmt("translate", "- 我"), 2, "No such option")
    assert "put -- before a TEXT that begins with a dash" in stderr
    assert len(out_lines(run_nmt("translate", "-m", five_run.run, "--", "- 我"))) == 1


def test_a_name_does_not_steer_the_terminal(five_run: FiveRun, tmp_path: Path) -> None:
    """Neither in the error nor in the hint, whose commands a shell takes as they are."""
    run = five_run.copy_run(tmp_path / "a b\x1b[31m$(reboot)")
    (run / "tokenizer.model").write_bytes(b"no tokenizer")
    for args in (["translate", "-m", run], ["translate", "--engine", "ctranslate2", "-m", run]):
        done = run_nmt(*args, SOURCE[0])
        assert done.returncode == 2
        assert b"\x1b" not in done.stderr
    stderr = one_clear_error(run_nmt("translate", "--engine", "ctranslate2", "-m", run, "x"), 2, "no export")
    (hint,) = re.findall("(?m)^hint: (.*)$", stderr)
    assert f"-m '{tmp_path}/a b\\x1b[31m$(reboot)' -o" in hint


def test_a_prefix_that_the_model_cannot_hold_is_refused_before_any_output(five_run: FiveRun, tmp_path: Path) -> None:
    common = ["translate", "-m", five_run.run, "-i", five_run.source_file, "--prefix", "book " * 1100]
    together, resumed = run_together([*common, "--workers", 2], [*common, "-o", "out", "--resume"], cwd=tmp_path)
    for done in (together, resumed):
        one_clear_error(done, 2, "the prefix has 1101 pieces, the model takes at most 1023")
    assert list(tmp_path.iterdir()) == []


def test_eval_needs_source_and_reference_together(five_run: FiveRun, tmp_path: Path) -> None:
    short = tmp_path / "short.en"
    short.write_text("".join(f"{line}\n" for line in TARGET[:4]))
    common = ["eval", "-m", five_run.model_file]
    no_ref, no_test, unequal = run_together(
        [*common, "--src", five_run.source_file],
        common,
        [*common, "--src", five_run.source_file, "--ref", five_run.target_file, "--ref", short],
    )
    one_clear_error(no_ref, 2, "--src", "--ref")
    one_clear_error(no_test, 2, "names no data.test")
    one_clear_error(unequal, 2, "5 source lines but 4 lines in reference 2")


MISFITS: list[Case] = [
    (["--hyp", "hyp", "--ref", "short"], ["5 hypotheses", "4 lines in reference 1"]),
    (["--hyp", "empty", "--ref", "empty"], ["empty"]),
    (["--hyp", "hyp", "--ref", "ref", "--tokenize", "14a"], ["14a"]),
    (["--hyp", "hyp", "--ref", "ref", "--src", "short", "--show", "5"], ["4", "5"]),
]


@pytest.mark.parametrize(("args", "fragments"), MISFITS, ids=[" ".join(args) for args, _ in MISFITS])
def test_given_translations_that_cannot_be_scored(tmp_path: Path, args: list[str], fragments: list[str]) -> None:
    for name, lines in (("hyp", TARGET), ("ref", TARGET), ("short", TARGET[:4]), ("empty", [])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    one_clear_error(run_nmt("eval", *args, cwd=tmp_path), 2, *fragments)


def test_any_text_is_a_sentence(five_run: FiveRun) -> None:
    """One with more bytes than a file's name may have, and one from a shell with another encoding."""
    common = ["translate", "-m", five_run.run, "--beam", 1]
    long, foreign = run_together([*common, "我们" * 60], [*common, "--json", "tea \udcff"])  # the byte FF
    assert len(out_lines(long)) == 1
    (line,) = out_lines(foreign)
    assert json.loads(line)["source"] == "tea \ufffd", "as in a file, it is replaced"


# --- config -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("run: x\ndata: [\n", ["bad.yaml:3: not valid YAML"]),
        ("run: x\n  data: 1\n", ["bad.yaml:2: not valid YAML", "mapping values are not allowed here"]),
        ("run: x\nseed: 1\nrun: y\n", ["bad.yaml:3", "duplicate key 'run'"]),
        ("- run\n", ["bad.yaml", "mapping"]),
        ("\udcff", ["bad.yaml", "not valid YAML"]),
    ],
    ids=["open bracket", "indentation", "twice", "list", "not UTF-8"],
)
def test_a_config_that_is_not_yaml(tmp_path: Path, text: str, fragments: list[str]) -> None:
    (tmp_path / "bad.yaml").write_text(text, errors="surrogateescape")
    one_clear_error(run_nmt("train", "bad.yaml", cwd=tmp_path), 2, *fragments)


WRONG = {
    "train.max_stesp=1": ["command line", "unknown key 'train.max_stesp'", "did you mean 'train.max_steps'"],
    "lr=1": ["command line", "unknown key 'lr'", "did you mean 'train.lr'"],
    "model.dropout=1": ["command line", "'model.dropout'", "less than 1", "got 1"],
    "train.lr=quick": ["command line", "'train.lr'", "number", "got 'quick'"],
    "train.schedule=cosine": ["command line", "'train.schedule'", "'noam'", "got 'cosine'"],
    "model.n_heads=5": ["command line", "d_model (64) is not divisible by n_heads (5)"],
    "train.batch_tokens=100": ["train.batch_tokens (100)", "data.max_length (200)"],
    "train.lr": ["'train.lr' is not a setting"],
    "run={": ["'run={'", "not valid YAML"],
}


@pytest.mark.parametrize(("setting", "fragments"), WRONG.items(), ids=WRONG)
def test_a_setting_that_is_wrong(five_corpus: FiveCorpus, setting: str, fragments: list[str]) -> None:
    one_clear_error(run_nmt("train", five_corpus.config, setting), 2, *fragments)


def test_all_faults_of_a_config_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        """\
run: runs/x
data:
  train: {source: train.zh}
  max_lenth: 50
model: {d_model: 30, n_heads: 4}
train:
  warmup: 0
  epochs: 5
"""
    )
    done = run_nmt("train", "bad.yaml", "seed=-1", cwd=tmp_path)
    for fragments in (
        ["bad.yaml:3", "'data.train.target' is missing"],
        ["bad.yaml:4", "unknown key 'data.max_lenth'", "did you mean 'data.max_length'"],
        ["bad.yaml:5", "d_model (30) is not divisible by n_heads (4)"],
        ["bad.yaml:7", "'train.warmup'", "greater than or equal to 1", "got 0"],
        ["bad.yaml:8", "unknown key 'train.epochs'"],
        ["command line", "'seed'", "got -1"],
    ):
        one_clear_error(done, 2, *fragments, n_errors=6)


# --- corpus -----------------------------------------------------------------------------------------------


def test_a_corpus_that_cannot_be_used(five_corpus: FiveCorpus) -> None:
    home = five_corpus.home
    (home / "short.en").write_text("".join(f"{line}\n" for line in TARGET[:4]))
    (home / "empty").write_text("")
    (home / "blank").write_text("\n \n\n\n\n")
    (home / "plain.gz").write_text("this was never packed")
    before = sorted(home.rglob("*"))
    cases = [
        (["source=none.zh"], ["cannot read", "none.zh: No such file"]),
        (["target=short.en"], ["train.zh has 5 lines but", "short.en has 4"]),
        (["source=empty", "target=empty"], ["empty is empty"]),
        (["target=blank"], ["train has no pair that can be used"]),
        (["source=plain.gz"], ["cannot read", "plain.gz", "gzip"]),
        (["source=[train.zh, short.en]"], ["train.zh + ", "short.en has 9 lines but", "train.en has 5"]),
    ]
    for changes, fragments in cases:
        settings = [f"data.train.{change}" for change in changes]
        one_clear_error(run_nmt("tokenize", five_corpus.config, *settings), 2, *fragments)
    no_test = run_nmt("train", five_corpus.config, "data.test.source=none.zh")
    stderr = one_clear_error(no_test, 2, "cannot read", "none.zh")
    assert f"hint: check the path; it is relative to data.root, {home}" in stderr
    assert sorted(home.rglob("*")) == before, "nothing is written before all is checked"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_smaller_than_the_alphabet(five_corpus: FiveCorpus, kind: str) -> None:
    args = ["tokenize", five_corpus.config, f"tokenizer.type={kind}"]
    stderr = one_clear_error(run_nmt(*args, "tokenizer.vocab_size=100"), 2, "tokenizer.vocab_size=100", "at least")
    found = re.search(r"at least (\d+)", stderr)
    assert found
    least = int(found[1])
    one_clear_error(run_nmt(*args, f"tokenizer.vocab_size={least - 1}"), 2, f"at least {least}")
    assert not five_corpus.run.exists()
    assert out_lines(run_nmt(*args, f"tokenizer.vocab_size={least}")) == []
    assert len(Tokenizer((five_corpus.run / "tokenizer.model").read_bytes())) == least


# --- models and runs --------------------------------------------------------------------------------------


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_file_that_is_no_model(five_run: FiveRun, tmp_path: Path) -> None:
    model, sprung = five_run.model_file.read_bytes(), tmp_path / "sprung"
    flipped = bytearray(model)
    flipped[-1000] ^= 1
    files = {
        "text": b"These are words, not weights.\n" * 10,
        "empty": b"",
        "pickle": pickle.dumps(Trap(sprung)),
        "truncated": model[: len(model) // 2],
        "flipped": bytes(flipped),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    done = run_together(*(["translate", "-m", tmp_path / name, "我"] for name in [*files, "."]))
    for name, one in zip(files, done, strict=False):
        one_clear_error(one, 2, str(tmp_path / name), "damaged" if name == "flipped" else " not ")
    one_clear_error(done[-1], 2, "no model at", "model.safetensors")
    assert not sprung.exists(), "nothing is unpickled, ever"


def test_a_run_whose_tokenizer_was_exchanged(five_run: FiveRun, five_corpus: FiveCorpus) -> None:
    run = five_run.copy_run(five_corpus.home / "run")
    assert out_lines(run_nmt("tokenize", five_corpus.config, "tokenizer.vocab_size=400")) == []
    shutil.copy(five_corpus.run / "tokenizer.model", run)
    told = f"{run}/tokenizer.model is not the tokenizer that the model was trained with"
    for done in run_together(
        ["translate", "-m", run, SOURCE[0]], ["train", five_run.config, f"run={run}", "train.max_steps=300"]
    ):
        one_clear_error(done, 2, told)


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
def test_tokenize_does_not_exchange_the_tokenizer_of_a_model(five_run: FiveRun, tmp_path: Path, deleted: bool) -> None:
    """Nor does it where the file was deleted, as a hint says that one may: the model has its own."""
    run = five_run.copy_run(tmp_path / "run")
    if deleted:
        (run / "tokenizer.model").unlink()
    before = file_bytes(run)
    one_clear_error(run_nmt("tokenize", five_run.config, f"run={run}", "tokenizer.vocab_size=400"), 2, str(run))
    assert file_bytes(run) == before


def test_fresh_does_not_move_the_working_directory(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    before = file_bytes(tmp_path)
    for more in ([], ["--dry-run"]):
        done = run_nmt("train", five_run.config, "run=.", "train.max_steps=2", "--fresh", *more, cwd=run)
        one_clear_error(done, 2, "run=. ", "working directory")
    assert file_bytes(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_run_that_was_begun_otherwise(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    other = tmp_path / "other.en"
    other.write_text("".join(f"{line} ?\n" for line in TARGET))
    moved = Path(shutil.copytree(five_run.home, tmp_path / "moved"))
    for config in (moved / "five.yaml", moved / "runs" / "five" / "config.yaml"):
        config.write_text(config.read_text().replace(str(five_run.home), str(moved)))
    (moved / "train.en").write_text("".join(f"{line} !\n" for line in TARGET))

    common = ["train", five_run.config, f"run={run}", "train.max_steps=300"]
    architecture, data, content = run_together(
        [*common, "model.n_encoder_layers=1", "seed=2"],
        [*common, f"data.train.target={other}"],
        ["train", moved / "five.yaml", "train.max_steps=300"],
    )
    one_clear_error(architecture, 2, str(run), "model.n_encoder_layers was 2, is 1", "seed was 1, is 2")
    one_clear_error(data, 2, str(run), "the files of train.target are not those")
    told = one_clear_error(content, 2, str(moved / "runs" / "five"), "the files of train.target, dev.target are not")
    assert "source" not in told.split("hint: ")[0]


# --- output -----------------------------------------------------------------------------------------------


def test_an_output_that_cannot_be_written(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.iterdir())
    translate = ["translate", "-m", five_run.run, SOURCE[0]]
    nowhere, directory, tokenize = run_together(
        [*translate, "-o", "none/out.en"],
        [*translate, "-o", tmp_path],
        ["tokenize", five_run.config, f"run={tmp_path}/file/run"],
        cwd=tmp_path,
    )
    one_clear_error(nowhere, 1, "cannot write ", "none/out.en: No such file or directory")
    one_clear_error(directory, 1, f"cannot write {tmp_path}: Is a directory")
    one_clear_error(tokenize, 1, f"cannot make the run's directory {tmp_path}/file/run: Not a directory")
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk(five_run: FiveRun) -> None:
    full = Path("/dev/full")
    if not (full.exists() and stat.S_ISCHR(full.stat().st_mode)):
        pytest.skip("no /dev/full here")
    for args in (["translate", "-m", five_run.run, SOURCE[0]], ["config"], ["--help"]):
        with full.open("wb") as out:
            done = run_nmt(*args, stdout=out)
        one_clear_error(done, 1, "cannot write the output: No space left on device")


def in_shell(command: str, cwd: Path, *, stdin: bytes = b"") -> Done:
    """A line of bash in which `nmt` is the command."""
    nmt = f"nmt() {{ '{sys.executable}' -m nmt \"$@\"; }}\n"
    return subprocess.run(
        ["bash", "-c", nmt + command], input=stdin, cwd=cwd, env=environment(), capture_output=True, check=False
    )


def test_output_to_an_open_descriptor_keeps_what_is_around_it(five_run: FiveRun, tmp_path: Path) -> None:
    script = f"""
    m='{five_run.run}'; s='{five_run.source_file}'; r='{five_run.target_file}'
    (echo a; nmt translate -q -m $m -o /dev/stdout "{SOURCE[0]}"; echo b) > around
    (nmt eval -q -m $m --src $s --ref $r --bootstrap 0 -o >(cat > kept) > scores; wait $!) &
    nmt translate -q -m $m -i $s -o /dev/stdout | cat > piped
    wait
    nmt eval -q -m $m --src $s --ref $r --bootstrap 0 -o - > both
    """
    done = in_shell(script, tmp_path)
    assert done.stderr == b""
    assert (tmp_path / "around").read_text() == f"a\n{TARGET[0]}\nb\n"
    assert (tmp_path / "kept").read_text().splitlines() == TARGET
    assert (tmp_path / "piped").read_text().splitlines() == TARGET
    assert (tmp_path / "scores").read_text().startswith("BLEU = 100.00")
    assert (tmp_path / "both").read_text() == (tmp_path / "kept").read_text() + (tmp_path / "scores").read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"around", "both", "kept", "piped", "scores"}


def test_a_closed_pipe_ends_quietly(five_run: FiveRun) -> None:
    lines = f"{SOURCE[0]}\n".encode() * 1000  # more in JSON than a pipe can hold
    command = "nmt translate -q -m runs/five --beam 1 --json | head -n 1; exit ${PIPESTATUS[0]}"
    done = in_shell(command, five_run.home, stdin=lines)
    assert done.stderr == b""
    assert json.loads(done.stdout)["hypotheses"][0]["text"] == TARGET[0]
    assert done.returncode == 0, "whoever read our output has had enough: nothing failed"


def test_a_closed_stdin_or_stdout_is_no_bug_of_ours(five_run: FiveRun) -> None:
    done = in_shell("nmt translate -q -m runs/five <&- & nmt translate -q -m runs/five >&- TEXT; wait", five_run.home)
    assert b"Traceback" not in done.stderr
    assert all(line.startswith((b"nmt: error: ", b"hint: ")) for line in done.stderr.splitlines())


def test_an_input_that_is_not_what_its_name_says(five_run: FiveRun, tmp_path: Path) -> None:
    plain, cut = tmp_path / "plain.gz", tmp_path / "cut.gz"
    plain.write_text("this was never packed")
    cut.write_bytes(gzip.compress(five_run.source_file.read_bytes())[:-20])
    none, *odd = run_together(
        *(["translate", "-m", five_run.run, "-i", path] for path in (tmp_path / "none.zh", plain, cut))
    )
    stderr = one_clear_error(none, 2, f"cannot read {tmp_path}/none.zh: No such file or directory")
    assert "data.root" not in stderr
    for path, done in zip((plain, cut), odd, strict=True):
        one_clear_error(done, 2, f"cannot read {path}")


# --- signals and two trainings at once --------------------------------------------------------------------


@contextlib.contextmanager
def training_under_way(corpus: FiveCorpus) -> Iterator[subprocess.Popen[bytes]]:
    """`nmt train` without an end, once it has done some steps."""
    metrics = corpus.run / "metrics.jsonl"
    with started_nmt("train", corpus.config, "train.max_steps=1000000", cwd=corpus.home) as process:
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 5):
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            assert time.monotonic() < deadline, "no steps are done"
            time.sleep(0.05)
        yield process


def check_stopped(process: subprocess.Popen[bytes], corpus: FiveCorpus, exit_code: int) -> int:
    """Make sure that a training that was told to stop has saved all; returns its step."""
    stdout, stderr = process.communicate(timeout=120)
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    log = one_clear_error(done, exit_code, "stopped at step ", "all saved")
    assert "nmt: warning: stopping after this step; once more to stop at once" in log
    assert "the same command goes on" in log
    step = int(json.loads((corpus.run / "last.json").read_text())["step"])
    assert f"stopped at step {step}, all saved" in log
    assert (corpus.run / "checkpoints" / f"step-{step}.safetensors").exists()
    return step


def check_goes_on(corpus: FiveCorpus, step: int) -> None:
    """Make sure that the same command goes on from `step`."""
    done = run_nmt("train", corpus.config, f"train.max_steps={step + 2}", cwd=corpus.home)
    assert out_lines(done) == []
    assert f"going on from step {step} of {corpus.run}" in done.stderr.decode()
    lines = [json.loads(line) for line in (corpus.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "lr" in line] == list(range(1, step + 3))


def test_ctrl_c_saves_and_the_same_command_goes_on(five_corpus: FiveCorpus) -> None:
    with training_under_way(five_corpus) as process:
        process.send_signal(signal.SIGINT)
        step = check_stopped(process, five_corpus, 128 + signal.SIGINT)
    check_goes_on(five_corpus, step)


def test_a_second_training_is_refused_and_sigterm_saves_the_first(five_corpus: FiveCorpus) -> None:
    with training_under_way(five_corpus) as process:
        second = run_nmt("train", five_corpus.config, cwd=five_corpus.home)
        one_clear_error(second, 2, f"{five_corpus.run} is in use by another training")
        process.send_signal(signal.SIGTERM)
        step = check_stopped(process, five_corpus, 128 + signal.SIGTERM)
    check_goes_on(five_corpus, step)


@pytest.fixture
def busy_run(five_run: FiveRun, tmp_path: Path) -> Iterator[Path]:
    """A run in the middle of another training's work: its lock held, a file half written."""
    run = five_run.copy_run(tmp_path / "run")
    (run / "checkpoints" / "step-201.safetensors.tmp.1").write_bytes(b"half of it")
    with (run / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield run


@pytest.mark.parametrize(
    ("command", "options"),
    [("train", []), ("train", ["--fresh"]), ("tokenize", [])],
    ids=["train", "train --fresh", "tokenize"],
)
def test_who_is_refused_leaves_the_run_alone(
    five_run: FiveRun, busy_run: Path, command: str, options: Sequence[str]
) -> None:
    before = sorted(busy_run.parent.rglob("*"))
    args = [command, five_run.config, f"run={busy_run}", "train.max_steps=300", *options]
    one_clear_error(run_nmt(*args), 2, f"{busy_run} is in use by another training")
    assert sorted(busy_run.parent.rglob("*")) == before
