"""Import of damaged and malicious directories: one clear error each, nothing is executed, nothing is written."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from models import random_translator
from reliability.test_untrusted import Bomb
from safetensors.torch import load_file, save_file

from nmt.errors import DownloadError, InputError, NmtError
from nmt.interchange.huggingface import to_huggingface
from nmt.interchange.huggingface_import import model_directory, read_huggingface
from nmt.interchange.importing import import_model

PICKLED = pickle.dumps(Bomb(Path("executed")))
FC1 = "model.encoder.layers.0.fc1.weight"
REQUIRED = ("config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors")
MODEL = Path("model")

# Keys of config.json; None: removed.
WRONG_SETTINGS = [
    ({"d_model": None}, "d_model: field required"),
    ({"d_model": 10**30}, "d_model': input should be"),
    ({"encoder_layers": "2"}, "encoder_layers: input should be"),
    ({"vocab_size": True}, "vocab_size: input should be"),
    ({"model_type": "bart"}, "model_type: input should be 'marian', got 'bart'"),
    ({"model_type": "x" * 100_000}, "model_type: input should be"),
    ({"activation_function": "quick_gelu"}, "activation_function"),
    ({"scale_embedding": False}, "scale_embedding: input should be True"),
    ({"decoder_attention_heads": 8}, "encoder_attention_heads is not dec"),
    ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "is not divisible by"),
    ({"vocab_size": 16}, "is 16, the model has 0 to 15"),
    ({"encoder_layers": 9}, "layers.2.self_attn.q_proj.weight is missing"),
    ({"decoder_start_token_id": 9999}, "has no id 9999"),
]
# Pieces of vocab.json and their ids; None: removed.
WRONG_PIECES = [
    ({"<unk>": None}, "vocab.json has no <unk>"),
    ({"e": 5, "a": 5}, "have the same id"),
    ({"e": 10**20}, "the id of 'e' is 1000000"),
    ({"e": True}, "the id of 'e' is True"),
]
NO_JSON_OBJECT = {
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "a million digits": b'{"a":%s}' % (b"9" * 10**6),
    "no UTF-8": b'{"a": "\xff\xfe"}',
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid model, as nmt exports it. Transformers, which takes seconds to load, compares nothing here."""
    home = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        to_huggingface(random_translator(norm="post", activation="silu"), home / "original")
        import_model(read_huggingface(home / "original"), home / "run")
    return home / "original"


@pytest.fixture(autouse=True)
def model(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the original, in the working directory; tests damage it."""
    shutil.copytree(original, tmp_path / MODEL)
    monkeypatch.chdir(tmp_path)


def refusal() -> NmtError:
    """Return the error of an import: its message is short and has no escape sequences, and nothing was written."""
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(NmtError) as caught:
        import_model(read_huggingface(model_directory("model")), Path("runs/x"))
    result = sorted(Path.cwd().rglob("*"))
    assert result == before
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 700
    assert caught.value.hint
    return caught.value


def edit_json(name: str, changes: dict[str, Any]) -> None:
    """Change the keys of a JSON file; those whose value is None are removed."""
    content = json.loads((MODEL / name).read_text()) | changes
    kept = {key: value for key, value in content.items() if value is not None}
    (MODEL / name).write_text(json.dumps(kept))


def edit_tensors(changes: dict[str, torch.Tensor | None]) -> None:
    """Change the weights by name; those whose value is None are removed."""
    weights = {**load_file(MODEL / "model.safetensors"), **changes}
    kept = {name: x.clone() for name, x in weights.items() if x is not None}
    save_file(kept, MODEL / "model.safetensors")


@pytest.mark.parametrize(
    ("settings", "message"),
    WRONG_SETTINGS,
    ids=lambda value: str(value)[:50],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    edit_json("config.json", settings)
    assert message in str(refusal())


def test_more_target_rows_than_pieces_are_refused() -> None:
    edit_json("config.json", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 500})
    shared = load_file(MODEL / "model.safetensors")["model.shared.weight"]
    edit_tensors({"model.shared.weight": None, "model.encoder.embed_tokens.weight": shared})
    edit_tensors({"model.decoder.embed_tokens.weight": torch.zeros(500, 32)})
    edit_tensors({"final_logits_bias": torch.zeros(1, 500)})
    assert "another number of pieces of the target" in str(refusal())


@pytest.mark.parametrize(
    ("pieces", "message"),
    WRONG_PIECES,
    ids=str,
)
def test_a_wrong_vocabulary_is_refused(pieces: dict[str, Any], message: str) -> None:
    edit_json("vocab.json", pieces)
    assert message in str(refusal())


def test_a_lone_surrogate_is_the_piece_that_replaces_it() -> None:
    vocabulary = json.loads((MODEL / "vocab.json").read_text())
    edit_json("vocab.json", {"e": None, "\ud800": vocabulary["e"]})
    edit_json("vocab.json", {"a": None, "?": vocabulary["a"]})
    assert "is damaged" in str(refusal()), "? is there twice"


@pytest.mark.parametrize("name", [FC1, "model.shared.weight"])
def test_missing_weights_are_refused(name: str) -> None:
    edit_tensors({name: None})
    assert f"{name} is missing" in str(refusal())


def test_weights_of_another_shape_are_refused() -> None:
    edit_tensors({FC1: torch.zeros(4, 4)})
    assert "is (4, 4), by its settings (48, 32)" in str(refusal())


def test_weights_with_an_escape_sequence_as_name_are_refused() -> None:
    edit_tensors({"\x1b[31m\nerror": torch.zeros(3)})
    assert "by its settings absent" in str(refusal())


@pytest.mark.parametrize("name", ["vocab.json", "config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kind", NO_JSON_OBJECT)
def test_what_is_no_json_object_is_refused(name: str, kind: str) -> None:
    (MODEL / name).write_bytes(NO_JSON_OBJECT[kind])
    assert f"{name} is not a JSON object" in str(refusal())


def test_a_pickle_under_the_name_of_the_weights_is_refused() -> None:
    (MODEL / "model.safetensors").write_bytes(PICKLED)
    assert "safetensors file" in str(refusal())


def test_half_of_a_tokenizer_is_refused() -> None:
    os.truncate(MODEL / "source.spm", 2000)
    assert "source.spm: the tokenizer" in str(refusal())


def test_pickled_weights_are_not_read_and_the_hint_tells_how_to_convert_them() -> None:
    (MODEL / "model.safetensors").unlink()
    (MODEL / "pytorch_model.bin").write_bytes(PICKLED)
    error = refusal()
    assert "has no model.safetensors" in str(error)
    assert "save_pretrained" in str(error.hint)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_pipe_does_not_block(name: str) -> None:
    file = MODEL / name
    file.unlink()
    os.mkfifo(file)
    assert name in str(refusal())


@pytest.mark.parametrize("name", REQUIRED)
def test_a_dangling_link_is_refused(name: str) -> None:
    file = MODEL / name
    file.unlink()
    file.symlink_to("nowhere")
    assert name in str(refusal())


def test_an_endless_file_is_refused() -> None:
    file = MODEL / "tokenizer_config.json"
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "cannot read" in str(refusal())


def test_a_link_to_nothing_is_no_id_on_the_hub() -> None:
    Path("models").mkdir()
    Path("models/dangling").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"^models/dangling is not a directory$"):
        model_directory("models/dangling")


def test_a_directory_has_no_revision() -> None:
    with pytest.raises(InputError, match="--revision does not apply to the directory model"):
        model_directory("model", "refs/pr/5")


def test_what_the_hub_does_not_have_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="pip install 'nmt-trainer[huggingface]'")

    class HubError(Exception):
        """As huggingface_hub 2 has it: it is no OSError."""

    download = mock.Mock(side_effect=HubError("404\nno such model"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(DownloadError, match=r"^cannot get some/model: 404$"):
        model_directory("some/model")


def test_an_id_without_huggingface_hub_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="huggingface_hub is not installed"):
        model_directory("some/model")
