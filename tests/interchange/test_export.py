"""Shared by all exports: the lines to compare engines on, and the directories that may be replaced."""

from pathlib import Path

import pytest
from conftest import SOURCE, FiveRun
from models import fresh_translator

from nmt.decode.translator import load
from nmt.errors import InputError
from nmt.interchange.export import check_replaceable, log_probs_of, real_lines
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS, PAD, UNK


def test_real_lines_are_of_the_test_set_or_random_pieces(five_run: FiveRun) -> None:
    translator = load(five_run.run)
    assert real_lines(translator, 3) == SOURCE[:3]
    assert real_lines(translator, 8) == SOURCE
    lines = real_lines(fresh_translator(), 4)  # random pieces
    assert len(lines) == 4
    assert all(line.strip() for line in lines)


def test_only_an_export_or_an_empty_directory_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_replaceable(tmp_path / "new", {"a", "b"}, "a")
    check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "b").write_text("")
    with pytest.raises(InputError, match="is not an export"):
        check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "a").write_text("")
    check_replaceable(tmp_path, {"a", "b"}, "a")
    with pytest.raises(InputError, match="is not an export"):
        check_replaceable(tmp_path / "a", {"a", "b"}, "a")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="is not an export"):
        check_replaceable(tmp_path / "loop", {"a", "b"}, "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="it is in use"):
        check_replaceable(Path(), {"a", "b"}, "a")


def test_log_probs_have_no_banned_pieces_and_sum_to_one() -> None:
    translator = fresh_translator()
    (model,) = getattr(translator.engine, "models")  # noqa: B009 - not in the protocol
    assert isinstance(model, Transformer)
    log_probs = log_probs_of(model, [5, 6], [7, 8, 9])
    assert log_probs.shape == (4, len(translator.tokenizers.target))
    assert (log_probs[:, [PAD, UNK, BOS]] < -1e3).all()
    assert log_probs.logsumexp(-1).abs().max() < 1e-5
    assert log_probs[:, EOS].isfinite().all()
