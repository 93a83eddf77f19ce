"""Shared by all exports: what may be replaced, and the log-probabilities that engines are compared on."""

from pathlib import Path

import pytest
from conftest import model_of
from models import fresh_translator

from nmt.errors import InputError
from nmt.interchange.export import check_replaceable, log_probs_of
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS, PAD, UNK


def test_only_an_export_or_an_empty_directory_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_replaceable(tmp_path / "new", {"a", "b"}, "a")
    check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "b").write_text("")
    with pytest.raises(InputError, match="is not an export"):
        check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "a").write_text("")
    check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "loop").symlink_to("loop")
    for taken in ("a", "loop", ""):
        with pytest.raises(InputError, match="is not an export"):
            check_replaceable(tmp_path / taken, {"a", "b"}, "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="it is in use"):
        check_replaceable(Path(), {"a", "b"}, "a")


def test_log_probs_have_no_banned_pieces_and_sum_to_one() -> None:
    translator = fresh_translator()
    model = model_of(translator)
    assert isinstance(model, Transformer)
    log_probs = log_probs_of(model, [5, 6], [7, 8, 9])
    assert log_probs.shape == (4, len(translator.tokenizers.target))
    assert (log_probs[:, [PAD, UNK, BOS]] < -1e3).all()
    assert log_probs.logsumexp(-1).abs().max() < 1e-5
    assert log_probs[:, EOS].isfinite().all()
