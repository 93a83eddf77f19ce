"""The real command, end to end, in a subprocess: what each does when all is well."""

import contextlib
import gzip
import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from conftest import (
    NMT,
    SOURCE,
    TARGET,
    Done,
    FiveCorpus,
    FiveRun,
    environment,
    err_lines,
    file_bytes,
    out_lines,
    run_nmt,
    run_together,
    started_nmt,
)
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from safetensors import safe_open

import nmt
from nmt.config import load_config
from nmt.config import settings as all_settings
from nmt.text.tokenizer import Tokenizer

COMMANDS = [[], ["tokenize"], ["train"], ["translate"], ["eval"], ["export"], ["config"]]
SEPARATE = ["tokenizer.joint=false", "model.tied_embeddings=none"]


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# --- starting ---------------------------------------------------------------------------------------------


SLOW_IMPORTS = {"torch", "numpy", "sacrebleu", "sentencepiece", "yaml", "nmt.config"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(["nmt", *command]))
def test_help_imports_nothing_slow(command: list[str]) -> None:
    done = run_nmt(*command, "--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert "Usage: " in done.stdout.decode()
    imported = {line.rpartition("|")[2].strip() for line in err_lines(done)}
    assert "nmt.cli" in imported
    assert not imported & SLOW_IMPORTS


def test_dir_lists_what_the_package_offers() -> None:
    assert {"load", "Translator", "attention_summary", "NmtError"} <= set(dir(nmt))
    assert all(hasattr(nmt, name) for name in dir(nmt))


def test_version_and_short_help() -> None:
    assert out_lines(run_nmt("--version")) == [f"nmt {nmt.__version__}"]
    short, long = run_nmt("-h"), run_nmt("--help")
    assert short.stdout == long.stdout
    help_text = "\n".join(out_lines(short))
    for (name,) in COMMANDS[1:]:
        assert f"\n  {name} " in help_text


def test_the_script_is_the_module(five_corpus: FiveCorpus) -> None:
    script = Path(sys.executable).with_name("nmt")
    if not script.exists():
        pytest.skip("nmt is not installed as a script beside this Python")
    args = ["config", "--of", str(five_corpus.config)]
    by_script = subprocess.run([script, *args], capture_output=True, env=environment(), check=True)
    assert by_script.stdout == run_nmt(*args).stdout != b""


# --- config -----------------------------------------------------------------------------------------------


def test_config_lists_every_key_with_its_range_default_and_meaning() -> None:
    rows = out_lines(run_nmt("config"))
    known = list(all_settings())
    assert len(rows) == len(known) > 50
    for row, (key, allowed, default, meaning) in zip(rows, known, strict=True):
        assert row.split()[0] == key
        assert row.endswith(f"  {meaning}")
        assert row.removeprefix(key).removesuffix(meaning).split() == [*allowed.split(), default]
        assert meaning, f"{key} has no help"

    some = out_lines(run_nmt("config", "train.max"))
    assert [row.split() for row in some] == [row.split() for row in rows if row.startswith("train.max")]


def told_by_config(done: Done) -> dict[str, str]:
    return dict(line.split("=", 1) for line in out_lines(done))


def test_config_of_a_file_tells_its_values(five_corpus: FiveCorpus) -> None:
    told = told_by_config(run_nmt("config", "--of", five_corpus.config))
    assert list(told) == [key for key, *_ in all_settings()]
    assert told["model.d_model"] == "64"
    assert told["train.max_epochs"] == "-"
    assert told["decode.beam"] == "5"
    assert told["data.dev.target"] == str(five_corpus.target_file), "paths are resolved"

    def one(key: str) -> list[str]:
        return out_lines(run_nmt("config", key, "--of", five_corpus.config))

    assert one("data.test.source") == [str(five_corpus.source_file)], "of one key its value alone"
    assert one("tokenizer.t") == ["tokenizer.type=bpe"]


def test_config_of_a_file_tells_what_a_training_would_use_and_why(five_run: FiveRun, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    text = five_run.config.read_text().replace(f"run: {five_run.run}", f"run: {tmp_path}/run")
    text = text.replace("validate_every: 100, ", "")
    config.write_text(text)
    done, model, fine = run_together(
        ["config", "--of", config],
        ["config", "model.n_heads", "--of", config],
        ["train", config, f"train.init_from={five_run.run}", "train.max_steps=1"],
    )
    told = told_by_config(done)
    for key, value in {"model.d_ff": "256", "train.batch_tokens": "1024", "train.validate_every": "100"}.items():
        assert told[key] == value
    (why,) = (line for line in err_lines(done) if line.startswith("chosen for 5 pairs: "))
    chosen = dict(setting.split("=") for setting in why.removeprefix("chosen for 5 pairs: ").split())
    assert chosen == {key: told[key] for key in chosen}
    assert set(chosen) >= {"tokenizer.vocab_size", "model.d_ff", "model.n_heads", "model.dropout", "train.lr"}
    assert set(chosen) >= {"train.batch_tokens", "train.accumulate", "train.warmup"}
    assert not {"model.d_model", "train.max_steps", "train.max_epochs"} & set(chosen), "set, or without effect"
    assert "chosen for 1 steps an epoch: train.validate_every=100" in err_lines(done)
    assert out_lines(model) == ["4"]
    assert f"as in {five_run.run}: " in fine.stderr.decode(), "inherited sizes are told as such"
    trained = load_config(tmp_path / "run" / "config.yaml")
    assert told_by_config(run_nmt("config", "--of", config)) == told, "also of a run that goes on"
    assert str(trained.train.lr) == told["train.lr"]


def test_config_of_a_file_says_where_the_corpus_is_missing(five_corpus: FiveCorpus) -> None:
    five_corpus.source_file.unlink()
    done = run_nmt("config", "--of", five_corpus.config)
    told = told_by_config(done)
    assert told["model.d_ff"] == told["train.lr"] == "[fitted]"
    assert told["model.d_model"] == "64"
    assert told["model.norm"] == "pre"
    assert told["train.max_epochs"] == "-", "max_steps is the limit"
    assert f"cannot read {five_corpus.source_file}" in done.stderr.decode()
    for key in ("run", "data.test.source", "decode", "train.max_steps"):
        quick = run_nmt("config", key, "--of", five_corpus.config)
        assert out_lines(quick)
        assert quick.stderr == b"", "the corpus is not read"


# --- tokenize ---------------------------------------------------------------------------------------------


def test_tokenize_writes_a_tokenizer_and_tells_about_it(five_corpus: FiveCorpus) -> None:
    texts = ["我 昨天 买 了 茶 。", "tea  or €"]
    done = run_nmt("tokenize", five_corpus.config, "--show", texts[0], "--show", texts[1], cwd=five_corpus.home)

    tokenizer = Tokenizer((five_corpus.run / "tokenizer.model").read_bytes())
    shown = [line.split(" ") for line in out_lines(done)]
    assert shown == [tokenizer.pieces(tokenizer.encode(text)) for text in texts]
    assert "▁昨天" in shown[0]
    assert shown[1][-3:] == ["<0xE2>", "<0x82>", "<0xAC>"], "what the corpus never had is spelt in bytes"

    log = err_lines(done)
    assert f"the text gives {len(tokenizer)} pieces at most: tokenizer.vocab_size=600 was cut" in log
    n_words = sum(len(line.split()) for line in TARGET)
    n_pieces = sum(map(len, tokenizer.encode_all(TARGET)))
    target = f"target: {len(tokenizer)} pieces in the vocabulary; on dev {n_pieces / n_words:.2f} pieces per word"
    assert f"{target}, 0.00 % byte pieces" in log
    assert any(line.startswith(f"source: {len(tokenizer)} pieces") for line in log)
    assert f"written to {five_corpus.run}" in log


def test_tokenize_one_a_side_without_torch_and_quietly(five_corpus: FiveCorpus) -> None:
    env = {"PYTHONPROFILEIMPORTTIME": "1"}
    done = run_nmt("tokenize", five_corpus.config, *SEPARATE, "-q", "--show", "我 Beijing", env=env)
    assert not (five_corpus.run / "tokenizer.model").exists()
    source, target = (
        Tokenizer((five_corpus.run / name).read_bytes()) for name in ("tokenizer.src.model", "tokenizer.tgt.model")
    )
    assert len(source.encode("学校")) < len(target.encode("学校")), "each knows its own side's words"
    assert len(target.encode("Beijing")) < len(source.encode("Beijing"))
    assert out_lines(done) == [" ".join(source.pieces(source.encode("我 Beijing")))]
    imports = [line for line in err_lines(done) if line.startswith("import time:")]
    assert imports == err_lines(done), "-q says nothing"
    assert not any(line.split("|")[-1].strip() == "torch" for line in imports)


# --- train ------------------------------------------------------------------------------------------------


def test_train_leaves_the_files_of_a_run(five_run: FiveRun) -> None:
    run, done = five_run.run, five_run.training
    assert done.stdout == b"", "stdout carries data alone"
    log = done.stderr.decode()
    assert "tokenizer.vocab_size=600 was cut" in log
    assert "5 of 5 pairs of dev have a side that is also in train" in log
    assert "\nchosen for 5 pairs: tokenizer.vocab_size=600 model.n_heads=4 model.d_ff=256 " in f"\n{log}"
    assert "step 200: dev loss" in log
    assert f"reference    {TARGET[0]}" in log, "samples of dev are shown"
    assert re.search(rf"\ndone: 200 steps in .*; the model is {five_run.model_file}\n", log)

    assert set(file_bytes(run)) == {
        "config.yaml",
        "manifest.json",
        "tokenizer.model",
        "model.safetensors",
        "checkpoints/step-100.safetensors",
        "checkpoints/step-200.safetensors",
        "last.json",
        "metrics.jsonl",
        "lock",
    }
    resolved = load_config(run / "config.yaml")
    assert resolved.model.d_ff == 256, "what was left open is filled in"
    assert resolved.train.max_steps == 200
    manifest = json.loads((run / "manifest.json").read_text())
    assert set(manifest["data"]) == {f"{c}.{s}" for c in ("train", "dev", "test") for s in ("source", "target")}
    assert manifest["seed"] == 1
    assert manifest["command"][-1] == str(five_run.config)
    assert manifest["versions"]["nmt"] == nmt.__version__
    assert json.loads((run / "last.json").read_text()) == {"step": 200}
    metrics = json_lines((run / "metrics.jsonl").read_text())
    assert [line["step"] for line in metrics if "lr" in line] == list(range(1, 201))
    validations = [line for line in metrics if "dev_bleu" in line]
    assert [line["step"] for line in validations] == [100, 200]
    assert all("tok:13a" in line["bleu_signature"] for line in validations)
    assert metrics[0]["loss"] > 4 > 2 > validations[-1]["dev_loss"]


def test_train_again_is_finished_and_a_raised_limit_goes_on(five_run: FiveRun, tmp_path: Path) -> None:
    same, raised = five_run.copy_run(tmp_path / "same"), five_run.copy_run(tmp_path / "raised")
    before = file_bytes(same)
    again, more = run_together(
        ["train", five_run.config, f"run={same}"],
        ["train", five_run.config, f"run={raised}", "train.max_steps=203"],
    )
    assert out_lines(again) == []
    assert err_lines(again)[-1].startswith(f"{same} is finished: 200 steps in ")
    assert "train.max_steps" in err_lines(again)[-1], "and says what to raise"
    after = file_bytes(same)
    assert after.keys() == before.keys()
    assert {name for name in before if after[name] != before[name]} <= {"config.yaml"}, "run=PATH is another one"

    log = err_lines(more)
    assert f"going on from step 200 of {raised}" in log
    assert any(line.startswith("done: 203 steps in ") for line in log)
    assert json.loads((raised / "last.json").read_text()) == {"step": 203}
    steps = [line["step"] for line in json_lines((raised / "metrics.jsonl").read_text()) if "lr" in line]
    assert steps == list(range(1, 204))
    assert load_config(raised / "config.yaml").train.max_steps == 203, "key=value is over the file's"


def test_train_fresh_moves_the_old_run_aside_and_keeps_it(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    before = file_bytes(run)
    done = run_nmt("train", five_run.config, f"run={run}", "train.max_steps=2", "seed=7", "--fresh")
    aside = tmp_path / "run.1"
    assert f"the old run is kept in {aside}" in err_lines(done)
    assert file_bytes(aside) == before
    assert json.loads((run / "last.json").read_text()) == {"step": 2}
    assert json.loads((run / "manifest.json").read_text())["seed"] == 7


def test_train_fresh_behind_a_link_keeps_the_old_run_and_the_link(five_run: FiveRun, tmp_path: Path) -> None:
    before = file_bytes(five_run.copy_run(tmp_path / "disk" / "run"))
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    done = run_nmt("train", five_run.config, f"run={tmp_path}/link", "train.max_steps=2", "--fresh")
    aside = tmp_path / "disk" / "run.1"
    assert f"the old run is kept in {aside}" in err_lines(done)
    assert file_bytes(aside) == before
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "disk" / "run" / "last.json").read_text()) == {"step": 2}


def test_train_quietly_with_a_tokenizer_a_side(five_corpus: FiveCorpus) -> None:
    train = run_nmt("train", five_corpus.config, *SEPARATE, "train.max_steps=2", "-q", cwd=five_corpus.home)
    assert (train.returncode, train.stdout, train.stderr) == (0, b"", b"")
    assert {file.name for file in five_corpus.run.glob("tokenizer*")} == {
        "tokenizer.src.model",
        "tokenizer.tgt.model",
    }
    (five_corpus.run / "tokenizer.src.model").unlink()  # the model carries its own
    translate = run_nmt("translate", "-q", "--max-length", 5, input="我\n\n书\n".encode(), cwd=five_corpus.home)
    assert len(out_lines(translate)) == 3
    assert translate.stderr == b""


def test_train_goes_on_with_the_tokenizer_it_began_with(five_run: FiveRun, tmp_path: Path) -> None:
    """One of its own making, whose file was deleted, as a hint says that one may: the checkpoint has it."""
    run = five_run.copy_run(tmp_path / "run")
    config, file = run / "config.yaml", run / "tokenizer.model"
    config.write_text(config.read_text().replace("type: bpe", "type: unigram"))  # what training anew would give
    own = file.read_bytes()
    file.unlink()
    changes = [f"run={run}", "tokenizer.type=unigram", "train.max_steps=201"]
    assert out_lines(run_nmt("train", five_run.config, *changes)) == []
    with safe_open(run / "checkpoints" / "step-201.safetensors", framework="numpy") as last:
        assert last.get_tensor("tokenizer.source").tobytes() == own


def test_train_dry_run_says_what_it_would_take_and_writes_nothing(five_corpus: FiveCorpus) -> None:
    before = file_bytes(five_corpus.home)
    done = run_nmt("train", five_corpus.config, "model.d_model=32", "--dry-run", cwd=five_corpus.home)
    assert file_bytes(five_corpus.home) == before
    assert not five_corpus.run.parent.exists()

    lines = out_lines(done)
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert set(told) >= {"parameters", "encoder", "decoder", "batches", "speed", "memory", "time"}

    def number(text: str) -> int:
        return int(text.replace(",", ""))

    blocks = [number(line.split()[1]) for line in lines if line.startswith("  ")]
    assert sum(blocks) == number(told["parameters"]) > 10_000
    assert number(told["source_embedding"]) % 32 == 0, "as wide as key=value said"
    assert told["batches"].startswith("1 an epoch, ")
    assert "1 steps an epoch" in told["batches"]
    assert "target tokens a second, fp32 on " in told["speed"]
    assert 0 < float(told["memory"].removesuffix(" GB")) < 100
    assert told["time"].endswith(" in all without validations")
    assert any("tokenizer.vocab_size=600 was cut" in line for line in err_lines(done))
    (why,) = (line for line in err_lines(done) if line.startswith("chosen for 5 pairs: "))
    assert " train.lr=0.002 " in why
    assert "d_model" not in why


# --- translate --------------------------------------------------------------------------------------------


def test_translate_gives_the_five_exactly(five_run: FiveRun, tmp_path: Path) -> None:
    """Greedy and with a beam, by stdin and by files; as TEXT in `test_translate_finds_its_model`."""
    out = tmp_path / "out.en"
    common = ["translate", "-m", five_run.run]
    by_stdin, by_file = run_together(
        [*common, "--beam", 1],
        [*common, "--beam", 5, "-i", five_run.source_file, "-o", out],
        input=five_run.source_file.read_bytes(),
    )
    assert out_lines(by_stdin) == TARGET
    assert by_file.returncode == 0
    assert by_file.stdout == b""
    assert out.read_bytes() == five_run.target_file.read_bytes()


ODD_LINES = [  # bytes in, text of "source" in --json
    (b"\xef\xbb\xbf" + SOURCE[0].encode(), SOURCE[0]),  # a BOM in front of the first line
    (b"", ""),
    (SOURCE[1].encode() + b"\r", SOURCE[1]),  # an end of line from Windows
    (b" \t\xe3\x80\x80", " \t\u3000"),
    (b"\0", "\0"),
    ("天气\0很".encode(), "天气\0很"),
    ("好\u2028好\u0085\v\f\x1e茶".encode(), "好\u2028好\u0085\v\f\x1e茶"),  # ends of lines for str.splitlines
    (b"tea \xff\xe4 or", "tea \ufffd\ufffd or"),
    (b"a\rb\r", "a\rb"),
    ("\ufeff".encode(), "\ufeff"),  # a BOM elsewhere is a character
    ("😀👩‍👩‍👧\u202e▁<s></s><unk>".encode(), "😀👩‍👩‍👧\u202e▁<s></s><unk>"),
    (SOURCE[4].encode(), SOURCE[4]),  # the last line has no end
]


def test_translate_gives_as_many_lines_as_it_got(five_run: FiveRun) -> None:
    given_bytes = b"\n".join(raw for raw, _ in ODD_LINES)
    plain, as_json = run_together(
        ["translate", "-m", five_run.run, "--beam", 1],
        ["translate", "-m", five_run.run, "--beam", 1, "--json"],
        input=given_bytes,
    )
    lines = out_lines(plain)
    assert len(lines) == len(ODD_LINES)
    assert [lines[0], lines[2], lines[11]] == [TARGET[0], TARGET[1], TARGET[4]]
    assert [n for n, line in enumerate(lines) if not line] == [1, 3, 4, 9], "blank ones blank"
    warning = "stdin is not UTF-8 in 1 of 12 lines (line 8 at byte 5); bad bytes are replaced by U+FFFD"
    assert err_lines(plain) == [f"nmt: warning: {warning}"]

    found = [json.loads(line) for line in out_lines(as_json)]
    assert [one["source"] for one in found] == [text for _, text in ODD_LINES]
    assert [one["hypotheses"][0]["text"] for one in found] == lines


def test_translate_json_n_best_and_scores(five_run: FiveRun) -> None:
    common = ["translate", "-m", five_run.run, "-i", five_run.source_file, "--beam", 5]
    as_json, scored = run_together([*common, "--json", "--n-best", 3], [*common, "--scores"])
    found = [json.loads(line) for line in out_lines(as_json)]
    assert [one["source"] for one in found] == SOURCE
    for one in found:
        hypotheses = one["hypotheses"]
        assert len({hypothesis["text"] for hypothesis in hypotheses}) == len(hypotheses) == 3
        scores = [hypothesis["score"] for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            pieces = [piece["piece"] for piece in hypothesis["pieces"]]
            log_probs = [piece["log_prob"] for piece in hypothesis["pieces"]]
            assert pieces[-1] == "</s>"
            assert "</s>" not in pieces[:-1]
            assert all(log_prob <= 0 for log_prob in log_probs)
            assert math.isclose(sum(log_probs), hypothesis["log_prob"], rel_tol=1e-9)
            assert math.isclose(hypothesis["score"], hypothesis["log_prob"] / len(pieces), rel_tol=1e-5)
            assert "".join(pieces[:-1]).replace("▁", " ").removeprefix(" ") == hypothesis["text"]
    best = [one["hypotheses"][0] for one in found]
    assert [one["text"] for one in best] == TARGET
    assert out_lines(scored) == [f"{one['score']:.4f}\t{one['text']}" for one in best]


def test_translate_heeds_prefix_and_lengths(five_run: FiveRun) -> None:
    common = ["translate", "-m", five_run.run, "-i", five_run.source_file, "--json"]
    prefix = "They are tea"
    prefixed, short = run_together([*common, "--prefix", prefix, "--min-length", 12], [*common, "--max-length", 4])

    def best(line: str) -> dict[str, Any]:
        return dict(json.loads(line)["hypotheses"][0])

    long = [best(line) for line in out_lines(prefixed)]
    assert all(one["text"].startswith(prefix) for one in long)
    assert len({one["text"] for one in long}) > 1
    assert all(len(one["pieces"]) > 12 for one in long), "so many pieces before the end"
    n_pieces = [len(best(line)["pieces"]) for line in out_lines(short)]
    assert max(n_pieces) == 4, "the end is counted"


def test_translate_samples_as_its_seed_says(five_run: FiveRun) -> None:
    sample = ["translate", "-m", five_run.run, "--sample", "--temperature", 3, "--max-length", 8]
    first, second, other = run_together(
        [*sample, "--seed", 5, "--batch-size", 1],
        [*sample, "--seed", 5, "--batch-size", 64],
        [*sample, "--seed", 6],
        input=five_run.source_file.read_bytes() * 2,
    )
    drawn = out_lines(first)
    assert drawn == out_lines(second)
    assert drawn != out_lines(other)
    assert drawn[:5] != drawn[5:], "the same sentence on another line is drawn anew"


def test_translate_by_minimum_bayes_risk_and_together(five_run: FiveRun) -> None:
    common = ["translate", "-m", five_run.run, "-m", five_run.model_file, "-i", five_run.source_file]
    together, chosen = run_together(
        common,
        [*common, "--mbr", "chrf", "--samples", 6, "--json", "--n-best", 2, "--temperature", 2, "--seed", 5],
    )
    assert out_lines(together) == TARGET
    found = [json.loads(line)["hypotheses"] for line in out_lines(chosen)]
    assert len(found) == len(SOURCE)
    translator = nmt.load([five_run.run, five_run.model_file])
    options = translator.with_options(mbr="chrf", n_samples=6, n_best=2, temperature=2.0, seed=5)
    expected = list(translator.translate_lines(SOURCE, options))
    assert [[h["text"] for h in one] for one in found] == [[h.text for h in one.hypotheses] for one in expected]
    for one in found:
        assert [h["score"] for h in one] == sorted((h["score"] for h in one), reverse=True)
        assert all(0 <= h["score"] <= 100 and h["log_prob"] < 0 for h in one)


def read_line(process: subprocess.Popen[bytes], timeout: float = 120) -> bytes:
    """The next line of a running command's stdout, or what there is of it after `timeout` seconds."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n") and select.select([process.stdout], [], [], timeout)[0]:
        if not (byte := process.stdout.read(1)):
            break
        line += byte
    return line


def test_translate_stream_answers_each_line_and_ctrl_c_ends_it(five_run: FiveRun, tmp_path: Path) -> None:
    with started_nmt("translate", "-m", five_run.run, "--stream", cwd=tmp_path) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for source, target in zip(SOURCE[:3], TARGET, strict=False):
            process.stdin.write(f"{source}\n".encode())
            assert read_line(process).decode() == f"{target}\n", "before the next one is sent"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b""


def test_translate_prompts_on_a_terminal(five_run: FiveRun, tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    try:
        with (
            os.fdopen(terminal, "rb", buffering=0) as stdin,
            started_nmt("translate", "-m", five_run.run, cwd=tmp_path, stdin=stdin) as process,
        ):
            assert process.stderr is not None
            os.write(keyboard, f"{SOURCE[1]}\n".encode())
            assert read_line(process).decode() == f"{TARGET[1]}\n"
            os.write(keyboard, b"\x04")  # Ctrl-D
            assert process.wait(timeout=60) == 0
            assert process.stderr.read().decode().splitlines() == ["one sentence a line; Ctrl-D ends", "> > "]
    finally:
        os.close(keyboard)


def test_a_pipe_sees_lines_before_its_writer_is_done(five_run: FiveRun, tmp_path: Path) -> None:
    with started_nmt("translate", "-q", "-m", five_run.run, cwd=tmp_path) as process:
        assert process.stdin is not None
        for source, target in zip(SOURCE[:2], TARGET[:2], strict=True):
            process.stdin.write(f"{source}\n".encode())  # the writer stays, and so does the pipe
            assert read_line(process).decode() == f"{target}\n"
        rest, _ = process.communicate(f"{SOURCE[2]}\n\n{SOURCE[3]}".encode(), timeout=60)
    assert rest.decode() == f"{TARGET[2]}\n\n{TARGET[3]}\n"


def test_ctrl_c_ends_a_translation_that_waits_for_lines(five_run: FiveRun, tmp_path: Path) -> None:
    with started_nmt("translate", "-q", "-m", five_run.run, cwd=tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(f"{SOURCE[0]}\n".encode())
        read_line(process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert stderr == b""


@pytest.mark.parametrize("options", [["-i", "in.zh"], ["-i", "in.zh.gz"], []], ids=["-i", "-i .gz", "stdin"])
def test_a_file_is_translated_beside_a_progress_bar(five_run: FiveRun, tmp_path: Path, options: list[str]) -> None:
    """On a terminal: lines done and in all, lines a second, time left; stdout is not touched by it."""
    (tmp_path / "in.zh").write_text("".join(f"{line}\n" for line in SOURCE))
    (tmp_path / "in.zh.gz").write_bytes(gzip.compress((tmp_path / "in.zh").read_bytes()))
    seen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    with (tmp_path / "in.zh").open("rb") as stdin, (tmp_path / "out.en").open("wb") as out:
        done = subprocess.run(
            [*NMT, "translate", "-m", five_run.run, *options],
            cwd=tmp_path,
            env=environment(),
            stdin=stdin,
            stdout=out,
            stderr=terminal,
            check=False,
        )
    os.close(terminal)
    told = b""
    with os.fdopen(seen, "rb", buffering=0) as shown, contextlib.suppress(OSError):  # how a terminal ends
        while part := shown.read(4096):
            told += part
    assert done.returncode == 0
    assert (tmp_path / "out.en").read_text() == "".join(f"{line}\n" for line in TARGET)
    assert re.search(r"100%\|.*\| 5/5 \[\d\d:\d\d<\d\d:\d\d, .* lines/s\]", told.decode()), told


def test_translate_finds_its_model(five_run: FiveRun, tmp_path: Path) -> None:
    """By -m, by $NMT_MODEL, or the newest under runs/; a model file needs nothing else."""
    away = tmp_path / "model.safetensors"
    away.write_bytes(five_run.model_file.read_bytes())
    with safe_open(away, framework="numpy") as file:
        assert str(five_run.home) not in file.metadata()["nmt"], "no path of the machine is in it"

    home = tmp_path / "home"
    for name, mtime in (("old", 1_000_000_000), ("deep/new", 2_000_000_000), ("older", 900_000_000)):
        model = home / "runs" / name / "model.safetensors"
        model.parent.mkdir(parents=True)
        model.write_bytes(away.read_bytes() if name == "deep/new" else b"")
        os.utime(model, (mtime, mtime))
    named, newest = run_together(["translate", "-m", away, SOURCE[0]], ["translate", SOURCE[1]], cwd=home)
    assert out_lines(named) == [TARGET[0]]
    assert err_lines(named) == []
    assert err_lines(newest) == ["model: runs/deep/new"]
    assert out_lines(newest) == [TARGET[1]]

    by_variable = run_nmt("translate", SOURCE[2], cwd=home, env={"NMT_MODEL": str(five_run.run)})
    assert out_lines(by_variable) == [TARGET[2]]
    assert err_lines(by_variable) == []


def test_translate_writes_to_what_is_no_file(five_run: FiveRun, tmp_path: Path) -> None:
    """-o may name a pipe, as in `-o >(gzip > out.gz)`: it is written to, not replaced by a file."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = run_nmt("translate", "-m", five_run.run, "-o", fifo, SOURCE[0])
        with contextlib.suppress(BlockingIOError):
            assert os.read(reader, 1000).decode() == f"{TARGET[0]}\n"
    finally:
        os.close(reader)
    assert done.returncode == 0, done.stderr.decode()
    assert fifo.is_fifo()


# --- eval -------------------------------------------------------------------------------------------------

SIGNATURES = {
    "BLEU": "nrefs:{n}|{bs}case:{case}|eff:no|tok:{tok}|smooth:exp|version:",
    "chrF2": "nrefs:{n}|{bs}case:{case}|eff:yes|nc:6|nw:0|space:no|version:",
    "TER": "nrefs:{n}|{bs}case:{case}|tok:tercom|norm:no|punct:yes|asian:no|version:",
}


def test_eval_scores_the_newest_run_on_its_test_set(five_run: FiveRun, tmp_path: Path) -> None:
    out = tmp_path / "out.en"
    done = run_nmt("eval", "--show", 2, "-o", out, cwd=five_run.home)
    assert err_lines(done) == ["model: runs/five"]
    named, two = run_together(*(["eval", "--json", *(["-m", five_run.run] * n)] for n in (1, 2)), cwd=five_run.home)
    assert err_lines(named) == [f"model: {five_run.run}"]
    assert err_lines(two) == [f"ensemble: {five_run.run} and {five_run.run}"]
    assert json.loads(two.stdout)["models"] == [str(five_run.run)] * 2
    assert out.read_bytes() == five_run.target_file.read_bytes()
    lines = out_lines(done)
    for n, at in ((0, 0), (1, 2)):
        assert lines[4 * n : 4 * n + 4] == [
            f"source       {SOURCE[at]}",
            f"reference    {TARGET[at]}",
            f"translation  {TARGET[at]}",
            "",
        ]
    perfect = {"BLEU": ("100.00", "100.0"), "chrF2": ("100.00", "100.0"), "TER": ("0.00", "0.0")}
    for line, (name, signature) in zip(lines[8:11], SIGNATURES.items(), strict=True):
        value, bound = perfect[name]
        recipe = signature.format(n=1, bs="bs:1000|seed:12345|", case="mixed", tok="13a")
        assert line.startswith(f"{name} = {value}  (95 %: {bound} to {bound})  {recipe}")
    assert lines[11].startswith("perplexity of the references = 1.")
    assert len(lines) == 12


def test_eval_json_with_several_references(five_run: FiveRun, tmp_path: Path) -> None:
    reference, other = tmp_path / "ref.en.gz", tmp_path / "other.en"
    reference.write_bytes(gzip.compress(five_run.target_file.read_bytes()))
    other.write_text("".join(f"{line}\n" for line in reversed(TARGET)))
    common = ["-m", five_run.model_file, "--beam", 1]
    evaluation, translation = run_together(
        ["eval", *common, "--src", five_run.source_file, "--ref", reference, "--ref", other, "--json"],
        ["translate", *common, "-i", five_run.source_file, "--json"],
    )
    (line,) = out_lines(evaluation)
    figures = json.loads(line)
    assert figures["n_lines"] == 5
    assert figures["beam"] == 1
    assert [score["name"] for score in figures["scores"]] == list(SIGNATURES)
    assert [round(score["value"], 6) for score in figures["scores"]] == [100, 100, 0]
    assert all(score["signature"].startswith("nrefs:2|bs:1000|") for score in figures["scores"])
    assert all(score["low"] <= score["value"] + 1e-9 <= score["high"] + 1e-6 for score in figures["scores"])

    # each translation is its reference, so its own log-probability is the reference's
    found = [json.loads(line)["hypotheses"][0] for line in out_lines(translation)]
    mean = sum(one["log_prob"] for one in found) / sum(len(one["pieces"]) for one in found)
    assert math.isclose(figures["perplexity"], math.exp(-mean), rel_tol=1e-4)


def test_eval_by_minimum_bayes_risk_with_the_heads(five_run: FiveRun) -> None:
    common = ["eval", "--mbr", "bleu", "--samples", 4, "--temperature", 0.2, "--bootstrap", 0, "--heads"]
    told, as_json = run_together(common, [*common, "--json"], cwd=five_run.home)
    lines = out_lines(told)
    assert lines[0].startswith("BLEU = 100.00")
    assert lines[4:6] == ["", next(line for line in lines if line.startswith("part"))]
    (line,) = out_lines(as_json)
    figures = json.loads(line)
    assert (figures["mbr"], figures["n_samples"]) == ("bleu", 4)
    assert "beam" not in figures
    assert len(figures["heads"]) == len(lines[6:]) == 3 * 2 * 4
    for row, head in zip(lines[6:], figures["heads"], strict=True):
        assert row.split()[:4] == [
            head["part"],
            *map(str, (head["layer"], head["head"])),
            f"{head['entropy']:.3f}",
        ]


def test_eval_of_given_translations_needs_no_model_and_no_torch(tmp_path: Path) -> None:
    hypotheses = ["a Cat sat on the mat .", "it is raining today", "他今天在学校。"]
    references = [
        ["A cat sat on the mat .", "it rained a lot today", "他今天在家。"],
        ["the cat sat on a mat .", "today it is raining", "今天他在学校。"],
    ]
    (tmp_path / "hyp").write_text("\n".join(hypotheses))
    for name, lines in zip(("one.zh", "two.zh"), references, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    given_files = ["eval", "--hyp", "hyp", "--ref", "one.zh", "--ref", "two.zh"]

    done = run_nmt(*given_files, cwd=tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert not any(line.split("|")[-1].strip() == "torch" for line in err_lines(done))
    default = out_lines(done)
    assert len(default) == 3, "no model, no perplexity"
    assert default[0].startswith(f"BLEU = {BLEU(tokenize='zh').corpus_score(hypotheses, references).score:.2f}  (")
    assert SIGNATURES["BLEU"].format(n=2, bs="bs:1000|seed:12345|", case="mixed", tok="zh") in default[0]

    done = run_nmt(*given_files, "--lowercase", "--tokenize", "char", "--bootstrap", 0, cwd=tmp_path)
    assert err_lines(done) == []
    metrics = [BLEU(lowercase=True, tokenize="char"), CHRF(lowercase=True), TER(case_sensitive=False)]
    for line, metric, (name, signature) in zip(out_lines(done), metrics, SIGNATURES.items(), strict=True):
        score = metric.corpus_score(hypotheses, references).score
        assert line.startswith(f"{name} = {score:.2f}  {signature.format(n=2, bs='', case='lc', tok='char')}")

    interval = json.loads(out_lines(run_nmt(*given_files, "--json", cwd=tmp_path))[0])["scores"][0]
    assert interval["low"] < interval["value"] < interval["high"]
    assert set(interval) == {"name", "value", "low", "high", "signature"}
