"""Import of damaged and malicious directories: one clear error each, nothing is executed, nothing is written."""

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
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
from nmt.interchange.marian import import_marian
from nmt.interchange.marian_files import model_directory

Mutation = Callable[[Path], object]


def json_edited(name: str, edit: Callable[[dict[str, Any]], object]) -> Mutation:
    def mutate(path: Path) -> None:
        content = json.loads((path / name).read_text())
        edit(content)
        (path / name).write_text(json.dumps(content))

    return mutate


def with_setting(key: str, value: Any) -> Mutation:
    return json_edited("config.json", lambda content: content.update({key: value}))


def vocabulary(edit: Callable[[dict[str, Any]], object]) -> Mutation:
    return json_edited("vocab.json", edit)


def tensors(edit: Callable[[dict[str, torch.Tensor]], object]) -> Mutation:
    def mutate(path: Path) -> None:
        content = {name: x.clone() for name, x in load_file(path / "model.safetensors").items()}
        edit(content)
        save_file(content, path / "model.safetensors")

    return mutate


def replaced(name: str, content: bytes) -> Mutation:
    return lambda path: (path / name).write_bytes(content)


def instead(name: str, make: Callable[[Path], object]) -> Mutation:
    def mutate(path: Path) -> None:
        (path / name).unlink()
        make(path / name)

    return mutate


def half(name: str) -> Mutation:
    return lambda path: os.truncate(path / name, (path / name).stat().st_size // 2)


def pickled(path: Path) -> None:
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(PICKLED)


PICKLED = pickle.dumps(Bomb(Path("executed")))
FIVE_HEADS = [with_setting(f"{side}_attention_heads", 5) for side in ("encoder", "decoder")]
FC1 = "model.encoder.layers.0.fc1.weight"
REQUIRED = ("config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors")
MUTATIONS: dict[str, tuple[str, Mutation]] = {  # name -> words of the message, change of the directory
    "a setting is missing": ("d_model: field required", json_edited("config.json", lambda c: c.pop("d_model"))),
    "a setting is huge": ("d_model: input should be", with_setting("d_model", 10**30)),
    "a setting is text": ("encoder_layers: input should be", with_setting("encoder_layers", "2")),
    "a setting is true": ("vocab_size: input should be", with_setting("vocab_size", True)),
    "another architecture": ("model_type: input should be 'marian', got 'bart'", with_setting("model_type", "bart")),
    "a long architecture": ("model_type: input should be", with_setting("model_type", "x" * 100_000)),
    "another activation": ("activation_function", with_setting("activation_function", "quick_gelu")),
    "not scaled": ("scale_embedding: input should be True", with_setting("scale_embedding", False)),
    "sides differ": ("encoder_attention_heads is not dec", with_setting("decoder_attention_heads", 8)),
    "heads do not fit": ("is not divisible by", lambda path: [m(path) for m in FIVE_HEADS]),
    "settings of another model": ("by config.json (1, 16)", with_setting("vocab_size", 16)),
    "too few layers": ("by config.json absent", with_setting("encoder_layers", 1)),
    "too many layers": ("layers.2.self_attn.q_proj.weight is missing", with_setting("encoder_layers", 9)),
    "targets of another number": ("another number of pieces of the target", lambda path: more_targets(path)),
    "start is no piece": ("has no id 9999", with_setting("decoder_start_token_id", 9999)),
    "JSON is a list": ("vocab.json is not a JSON object", replaced("vocab.json", b"[]")),
    "JSON is deep": ("config.json is not a JSON object", replaced("config.json", b"[" * 100_000)),
    "JSON is no UTF-8": ("is not a JSON object", replaced("tokenizer_config.json", b'{"a": "\xff\xfe"}')),
    "JSON has a million digits": ("is not a JSON object", replaced("config.json", b'{"a":' + b"9" * 10**6 + b"}")),
    "no <unk>": ("vocab.json has no <unk>", vocabulary(lambda v: v.pop("<unk>"))),
    "an id twice": ("have the same id", vocabulary(lambda v: v.update({"e": v["a"]}))),
    "a huge id": ("the id of 'e' is 1000000", vocabulary(lambda v: v.update({"e": 10**20}))),
    "an id is true": ("the id of 'e' is True", vocabulary(lambda v: v.update({"e": True}))),
    "lone surrogates": ("is damaged", vocabulary(lambda v: v.update({"\ud800": v.pop("e"), "?": v.pop("a")}))),
    "a matrix is missing": ("fc1.weight is missing", tensors(lambda t: t.pop(FC1))),
    "an embedding is missing": ("model.shared.weight is missing", tensors(lambda t: t.pop("model.shared.weight"))),
    "an escape sequence": ("by config.json absent", tensors(lambda t: t.update({"\x1b[31m\nerror": torch.zeros(3)}))),
    "another shape": ("is (4, 4), by config.json (48, 32)", tensors(lambda t: t.update({FC1: torch.zeros(4, 4)}))),
    "a pickle under this name": ("safetensors file", replaced("model.safetensors", PICKLED)),
    "weights are half": ("is not a safetensors file, or damaged", half("model.safetensors")),
    "weights are pickled": ("has no model.safetensors", pickled),
    "a tokenizer is half": ("source.spm: the tokenizer", half("source.spm")),
    **{f"{name} is a pipe": (name, instead(name, os.mkfifo)) for name in REQUIRED},
    **{f"{name} is a dangling link": (name, instead(name, lambda to: to.symlink_to("nowhere"))) for name in REQUIRED},
    "endless": ("cannot read", instead("tokenizer_config.json", lambda path: path.symlink_to("/dev/zero"))),
}


def more_targets(path: Path) -> None:
    """Give the target more rows than vocab.json has pieces."""
    for key, value in (("share_encoder_decoder_embeddings", False), ("decoder_vocab_size", 500)):
        with_setting(key, value)(path)

    def edit(t: dict[str, torch.Tensor]) -> None:
        shared = t.pop("model.shared.weight")
        t.pop("lm_head.weight", None)
        t["model.encoder.embed_tokens.weight"] = shared
        t["model.decoder.embed_tokens.weight"], t["final_logits_bias"] = torch.zeros(500, 32), torch.zeros(1, 500)

    tensors(edit)(path)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid model, as nmt exports it. Transformers, which takes seconds to load, compares nothing here."""
    home = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        to_huggingface(random_translator(norm="post", activation="silu"), home / "original")
        import_marian(home / "original", home / "run")
    return home / "original"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_refused(name: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(shutil.copytree(original, tmp_path / "model"))
    words, mutate = MUTATIONS[name]
    mutate(path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NmtError) as caught:
        import_marian(model_directory("model"), Path("runs/x"))
    message = str(caught.value)
    assert words in message
    assert caught.value.hint
    assert name != "weights are pickled" or "save_pretrained" in caught.value.hint
    assert message.isprintable()
    assert len(message) < 700
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_neither_here_nor_on_the_hub_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="pip install 'nmt-trainer[huggingface]'")

    class HubError(Exception):
        """As huggingface_hub 2 has it: it is no OSError."""

    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/dangling").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"^models/dangling is not a directory$"):
        model_directory("models/dangling")
    with pytest.raises(InputError, match="--revision does not apply to the directory models"):
        model_directory("models", "refs/pr/5")
    monkeypatch.setattr("huggingface_hub.snapshot_download", mock.Mock(side_effect=HubError("404\nno such model")))
    with pytest.raises(DownloadError, match=r"^cannot get some/model: 404$"):
        model_directory("some/model")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="huggingface_hub is not installed"):
        model_directory("some/model")
