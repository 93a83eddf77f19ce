"""A file that may kill the process that loads it is loaded by a child first, and once."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt import probe
from nmt.config import TokenizerSettings
from nmt.errors import ModelError
from nmt.text.tokenizer import Tokenizer, train_tokenizer

LINES = ["the cat sat on the mat", "a dog runs through the park"] * 3


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The calls that start one, with an empty cache."""
    calls = []
    run = subprocess.run

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args[0])
        return run(*args, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def test_a_tokenizer_is_tried_out_once_and_one_trained_here_never(
    children: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = train_tokenizer(LINES, TokenizerSettings(vocab_size=300)).model
    Tokenizer(model)
    assert children == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of another"))
    assert Tokenizer(model).encode("the cat") == Tokenizer(model).encode("the cat")
    assert len(children) == 1


def test_where_nothing_can_be_remembered_safely_each_time_is_the_first(
    children: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = train_tokenizer(LINES, TokenizerSettings(vocab_size=300)).model
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    (tmp_path / "cache" / "nmt").chmod(0o777)  # where a stranger may have said that it has passed
    for _ in range(2):
        caplog.clear()
        Tokenizer(model)
        (message,) = caplog.messages
        assert message.endswith("is no safe cache: others may write there; nothing is remembered")
    assert len(children) == 2
    (tmp_path / "cache" / "nmt").chmod(0o700)
    Tokenizer(model)
    assert len(children) == 2


def test_a_cache_that_was_chosen_and_cannot_be_used_is_named(
    children: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = train_tokenizer(LINES, TokenizerSettings(vocab_size=300)).model
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    (tmp_path / "file").touch()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "file"))
    Tokenizer(model)
    (message,) = caplog.messages
    assert message == f"cannot write to NMT_CACHE={tmp_path}/file: File exists; nothing is remembered"
    assert len(children) == 1


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("import os; os.abort()", f"kills the process that loads it (exit code {-signal.SIGABRT})"),
        ("import os; os._exit(7)", "kills the process that loads it (exit code 7)"),
        ("raise ValueError", "is damaged, or nothing that sentencepiece reads"),
        ("bytearray(10**10)", "is damaged, or nothing that sentencepiece reads"),
        ("import time; time.sleep(60)", "takes over 1 s to load"),
    ],
)
def test_what_a_tokenizer_does_to_its_process_it_does_to_a_child(
    children: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, words: str
) -> None:
    """By a sentencepiece that does it, since no model is known that kills this version of the real one."""
    (tmp_path / "sentencepiece.py").write_text(f"def SentencePieceProcessor(model_proto):\n    {does}\n")
    monkeypatch.setattr(probe, "LIMIT_S", 1)
    run: Any = subprocess.run

    def with_ours(*args: Any, env: dict[str, str], **options: Any) -> Any:
        return run(*args, env={**env, "PYTHONPATH": f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"}, **options)

    monkeypatch.setattr(subprocess, "run", with_ours)
    for _ in range(2):  # it is not remembered
        with pytest.raises(ModelError) as caught:
            Tokenizer(b"hostile")
        assert str(caught.value).startswith(f"the tokenizer {words}")
        assert caught.value.hint
    assert len(children) == 2


def test_a_child_does_not_import_torch() -> None:
    code = "import sys; from nmt import probe; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in found.stdout.split()


def test_a_tokenizer_of_too_many_bytes_is_refused_unread(children: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.text.tokenizer.MAX_MODEL_BYTES", 5)
    with pytest.raises(ModelError, match="the tokenizer has 6 bytes, the limit is 5"):
        Tokenizer(b"abcdef")
    assert children == []
