"""Export to Marian's own files: an export of an import is the original, bit by bit; what Marian lacks is refused."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from conftest import SOURCE, model_of, one_clear_error, rows_of, run_nmt
from marian_models import write_marian
from models import MARIAN, NOT_MARIAN, random_translator, write_run

import nmt
from nmt.errors import InputError
from nmt.interchange.export import log_probs_of
from nmt.interchange.importing import import_model
from nmt.interchange.marian import to_marian
from nmt.interchange.marian_import import read_marian
from nmt.model.transformer import Transformer
from nmt.text import EOS
from nmt.translate.translator import Translator

# What is tied, the number of tokenizers, and their ids of PAD, UNK, BOS and EOS.
SHAPES = rows_of("""
all     1 -1 1 -1 0
decoder 2 -1 1 -1 0
none    2 -1 1 -1 0
none    1 -1 1 -1 0
all     1  0 1  2 3
decoder 2 -1 0 -1 5
""")
OTHERS: dict[str, Any] = {**NOT_MARIAN, "attention": "dot"}


def imported(directory: Path, run: Path) -> Translator:
    import_model(read_marian(directory), run)
    return nmt.load(run, engine="torch")


@pytest.mark.parametrize("row", SHAPES)
def test_an_export_of_an_import_is_the_original(row: str, tmp_path: Path) -> None:
    tied, n_tokenizers, *ids = row.split()
    pad, unk, bos, eos = map(int, ids)
    special: dict[str, Any] = {"pad_id": pad, "unk_id": unk, "bos_id": bos, "eos_id": eos}
    directory = write_marian(tmp_path / "marian", tied=tied, separate=n_tokenizers == "2", **special)
    to_marian(imported(directory, tmp_path / "run"), tmp_path / "again")
    before, after = np.load(directory / "model.npz"), np.load(tmp_path / "again" / "model.npz")
    assert set(before.files) == set(after.files)
    for name in set(before.files) - {"special:model.yml"}:
        assert after[name].shape == before[name].shape
        assert after[name].tobytes() == before[name].tobytes(), name
    for file in directory.glob("*.spm"):
        exported = (tmp_path / "again" / file.name).read_bytes()
        assert exported == file.read_bytes()


def test_an_export_is_read_as_the_same_settings(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "marian")
    first = imported(directory, tmp_path / "run")
    to_marian(first, tmp_path / "again")
    again = imported(tmp_path / "again", tmp_path / "second")
    assert again.config.model == first.config.model
    assert again.config.decode == first.config.decode
    assert again.translate(SOURCE) == first.translate(SOURCE)


def test_an_own_model_is_exported_with_pad_and_bos_banned(tmp_path: Path) -> None:
    translator = random_translator(**MARIAN)
    to_marian(translator, tmp_path / "out")
    arrays = np.load(tmp_path / "out" / "model.npz")
    found = arrays["decoder_ff_logit_out_b"][0, :5].tolist()
    assert found == [-1e4, -1e4, -1e4, 0, 0]
    # Its log-probabilities are those of nmt without PAD, UNK and BOS.
    again = imported(tmp_path / "out", tmp_path / "run")
    source, target = translator.tokenizers
    src, tgt = source.ids(["e", "a"]), target.ids(["a", "e"])
    expected = log_probs_of(cast(Transformer, model_of(translator)), src, tgt)[range(3), [*tgt, EOS]]
    (result,) = again.engine.score([again.tokenizers.source.ids(["e", "a"])], [again.tokenizers.target.ids(["a", "e"])])
    assert result == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize("setting", OTHERS)
def test_a_setting_that_marian_lacks_is_refused_by_name(setting: str, tmp_path: Path) -> None:
    translator = random_translator(**MARIAN | {setting: OTHERS[setting]})
    with pytest.raises(InputError, match=rf"^Marian does not support model\.{setting}={str(OTHERS[setting]).lower()}$"):
        to_marian(translator, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    run = write_run(random_translator(**MARIAN), tmp_path / "run").path
    for _ in range(2):
        done = run_nmt("export", "-m", run, "--to", "marian", "-o", tmp_path / "out")
        assert done.returncode == 0
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"model.npz", "vocab.spm", "decoder.yml"}
    (tmp_path / "out" / "mine.txt").write_text("a")
    again = run_nmt("export", "-m", run, "--to", "marian", "-o", tmp_path / "out")
    one_clear_error(again, 2, "exists and is not an export")
