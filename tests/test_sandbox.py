"""An untrusted file is loaded by a child process first, once per file."""

import os
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nmt import sandbox
from nmt.config import TokenizerSettings
from nmt.errors import ModelError
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizer_training import train_tokenizer

LINES = ["the cat sat on the mat", "a dog runs through the park"] * 3


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> mock.Mock:
    """Counts child processes."""
    counted = mock.Mock(wraps=subprocess.run)
    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return counted


@pytest.fixture
def model(children: mock.Mock) -> bytes:
    """A tokenizer that nmt has trained, with the cache of `children`."""
    return train_tokenizer(LINES, TokenizerSettings(vocab_size=300))


def test_unknown_tokenizers_are_checked(
    model: bytes, children: mock.Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of another"))  # where the model is unknown
    Tokenizer(model)
    Tokenizer(model)
    assert children.call_count == 1


def test_a_tokenizer_that_nmt_has_trained_needs_no_check(model: bytes, children: mock.Mock) -> None:
    Tokenizer(model)
    assert not children.called


def test_an_unsafe_cache_is_not_trusted(
    model: bytes, children: mock.Mock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache" / "nmt").chmod(0o777)  # others could mark a file as checked there
    Tokenizer(model)
    Tokenizer(model)
    assert children.call_count == 2
    for message in caplog.messages:
        assert message.endswith("is no safe cache: others may write there; nothing is remembered")


DAMAGED = "is damaged or not in the format of sentencepiece"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("import os; os.abort()", DAMAGED),
        ("raise ValueError", DAMAGED),
        ("bytearray(10**10)", DAMAGED),
        ("import time; time.sleep(60)", "takes over 1 s to load"),
    ],
)
def test_a_tokenizer_that_crashes_or_hangs_does_so_in_the_child(
    children: mock.Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, statement: str, message: str
) -> None:
    """With a fake sentencepiece, because no model is known that crashes this version of the real one."""
    (tmp_path / "sentencepiece.py").write_text(f"def SentencePieceProcessor(model_proto):\n    {statement}\n")
    if "sleep" in statement:
        monkeypatch.setattr(sandbox, "TIMEOUT_S", 1)
    run: Any = subprocess.run

    def with_fake(*args: Any, env: dict[str, str], **options: Any) -> Any:
        env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
        return run(*args, env=env, **options)

    monkeypatch.setattr(subprocess, "run", with_fake)
    with pytest.raises(ModelError) as caught:
        Tokenizer(b"hostile")
    assert str(caught.value).startswith(f"the tokenizer {message}")
    assert caught.value.hint
    assert children.called


def test_a_failure_is_not_remembered(children: mock.Mock) -> None:
    for _ in range(2):
        with pytest.raises(ModelError):
            Tokenizer(b"damaged")
    assert children.call_count == 2
