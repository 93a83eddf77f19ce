"""Import of damaged and malicious directories: one clear error each, nothing is executed, nothing is written."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import one_clear_error, run_nmt
from safetensors.torch import load_file, save_file

from nmt.errors import InputError, NmtError
from nmt.interchange.hub import model_directory
from nmt.interchange.marian import import_marian

pytest.importorskip("transformers", reason="pip install 'nmt-trainer[huggingface]'")
from marian_models import write_marian

Mutation = Callable[[Path], object]

REQUIRED = ["model_type", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "vocab_size"]
REQUIRED += ["decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "pad_token_id", "eos_token_id"]
REQUIRED += ["decoder_start_token_id"]
NUMBERS = [key for key in REQUIRED if key != "model_type"] + ["max_position_embeddings"]
NO_NUMBERS: dict[str, Any] = {
    "huge": 10**30,
    "negative": -1,
    "infinite": float("inf"),
    "not a number": float("nan"),
    "text": "512",
    "a list": [[]],
    "an object": {"a": 1},
    "true": True,
    "a fraction": 7.5,
}
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "no UTF-8": b'{"d_model": "\xff\xfe"}',
    "a number of a million digits": b'{"d_model": ' + b"9" * 1_000_000 + b"}",
    "YAML": b"!!python/object/apply:os.system ['touch executed']",
}


class Payload:
    """An object that writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("executed"),)


def edited(name: str, edit: Callable[[dict[str, Any]], object]) -> Mutation:
    def mutate(path: Path) -> None:
        content = json.loads((path / name).read_text())
        edit(content)
        (path / name).write_text(json.dumps(content))

    return mutate


def with_value(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.update({key: value})


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.pop(key)


def tensors_edited(edit: Callable[[dict[str, torch.Tensor]], object]) -> Mutation:
    def mutate(path: Path) -> None:
        tensors = {name: x.clone() for name, x in load_file(path / "model.safetensors").items()}
        edit(tensors)
        save_file(tensors, path / "model.safetensors")

    return mutate


def replaced(name: str, content: bytes) -> Mutation:
    return lambda path: (path / name).write_bytes(content)


def cut(name: str, keep: float) -> Mutation:
    def mutate(path: Path) -> None:
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: int(keep * len(content))])

    return mutate


def instead(name: str, make: Callable[[Path], object]) -> Mutation:
    def mutate(path: Path) -> None:
        (path / name).unlink()
        make(path / name)

    return mutate


def pickled(path: Path) -> None:
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))


def mutations() -> Iterator[tuple[str, Mutation]]:
    for key in REQUIRED:
        yield f"config without {key}", edited("config.json", without(key))
    for key in NUMBERS:
        for name, value in NO_NUMBERS.items() if key == "d_model" else [*NO_NUMBERS.items()][:2]:
            yield f"{key} is {name}", edited("config.json", with_value(key, value))
    for key in ("d_model", "encoder_ffn_dim", "vocab_size"):
        yield f"{key} is other than the weights'", edited("config.json", with_value(key, 16))
    for name in ("config.json", "vocab.json", "tokenizer_config.json", "generation_config.json"):
        for kind, content in TEXTS.items() if name == "config.json" else [*TEXTS.items()][:2]:
            yield f"{name} is {kind}", replaced(name, content)
    yield from files()
    yield from vocabularies()
    yield from weights()
    for key, value in (
        *(("activation_function", "quick_gelu"), ("activation_function", 3), ("dropout", 1.5), ("dropout", "0")),
        *(("scale_embedding", "yes"), ("tie_word_embeddings", 1), ("share_encoder_decoder_embeddings", None)),
        *(("model_type", "bart"), ("model_type", {"a": 1}), ("model_type", "x" * 100_000), ("encoder_layers", 99)),
        *(("decoder_attention_heads", 8), ("encoder_attention_heads", 5), ("decoder_vocab_size", 9)),
    ):
        if value is not None:
            yield (
                f"{key} is {value!r:.20}",
                edited("config.json", with_value(key, value)),
            )
    yield "pickled weights", pickled


def files() -> Iterator[tuple[str, Mutation]]:
    required = ("config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors")
    for name in required:
        yield f"{name} is missing", instead(name, str)
    for name in (*required, "tokenizer_config.json", "generation_config.json"):
        yield f"{name} is a dangling link", instead(name, lambda path: path.symlink_to("nowhere"))
        yield f"{name} is a link to a device", instead(name, lambda path: path.symlink_to("/dev/zero"))
        yield f"{name} is a pipe", instead(name, os.mkfifo)
        yield f"{name} is half", cut(name, 0.5)
    for name in ("source.spm", "target.spm"):
        yield f"{name} is empty", cut(name, 0)
        yield f"{name} is a link to the weights", instead(name, lambda path: path.symlink_to("model.safetensors"))


def vocabularies() -> Iterator[tuple[str, Mutation]]:
    edits: dict[str, Callable[[dict[str, Any]], object]] = {
        "lacks <unk>": lambda v: v.pop("<unk>"),
        "has PAD at UNK": lambda v: v.update({"<pad>": v.pop("<unk>")}),
        "has an id twice": lambda v: v.update({"e": v["a"]}),
        "has a huge id": lambda v: v.update({"e": 10**20}),
        "has an id too many": lambda v: v.update({"new": len(v)}),
        "has a list for an id": lambda v: v.update({"e": [7]}),
        "has true for an id": lambda v: v.update({"e": True}),
        "has half of a surrogate pair": lambda v: v.update({"\ud800": v.pop("e")}),
        "is of another model": lambda v: [v.update({f"w{i}": v.pop(piece)}) for piece, i in [*v.items()][2:-1]],
    }
    for name, edit in edits.items():
        yield f"vocab.json {name}", edited("vocab.json", edit)


def weights() -> Iterator[tuple[str, Mutation]]:
    layer = "model.encoder.layers.0"
    edits: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
        "lack a matrix": lambda t: t.pop(f"{layer}.fc1.weight"),
        "lack a norm": lambda t: t.pop(f"{layer}.final_layer_norm.bias"),
        "have a layer more": lambda t: t.update({f"{layer}9.fc1.weight": torch.zeros(3)}),
        "have an escape sequence": lambda t: t.update({"\x1b[31m\nerror": torch.zeros(3)}),
        "have another shape": lambda t: t.update({f"{layer}.fc1.weight": torch.zeros(4, 4)}),
        "have no rows": lambda t: t.update({f"{layer}.fc1.weight": torch.zeros(0, 32)}),
        "are int64": lambda t: t.update({f"{layer}.fc1.bias": t[f"{layer}.fc1.bias"].long()}),
        "are NaN": lambda t: t[f"{layer}.fc1.bias"].fill_(float("nan")),
        "have two embeddings": lambda t: t.update({"lm_head.weight": t["model.shared.weight"] + 1}),
        "have no position": lambda t: t.update({"model.encoder.embed_positions.weight": torch.ones(0, 32)}),
    }
    for name, edit in edits.items():
        yield f"weights {name}", tensors_edited(edit)
    yield "weights are pickled under this name", replaced("model.safetensors", pickle.dumps(Payload()))


MUTATIONS = dict(mutations())


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid model. It is imported once, so that later imports need not check again whether its tokenizers load."""
    home = tmp_path_factory.mktemp("hostile")
    path = write_marian(home / "original")
    import_marian(path, home / "run")
    return path


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_directory_is_refused(
    name: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copytree(original, tmp_path / "model"))
    MUTATIONS[name](path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NmtError) as caught:
        import_marian(model_directory("model"), Path("runs/x"))
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 700
    assert "has no model.safetensors" not in message or name in ("model.safetensors is missing", "pickled weights")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_that_leads_nowhere_is_no_id_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    for name, to in (("loop", "loop"), ("dangling", "nowhere")):
        Path("models", name).symlink_to(to)
        with pytest.raises(InputError, match=f"^models/{name} is not a directory$"):
            model_directory(f"models/{name}")


@pytest.mark.parametrize("name", ["pickled weights", "source.spm is half"])
def test_the_command_says_it_in_one_line(name: str, original: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(original, tmp_path / "model"))
    MUTATIONS[name](path)
    before = sorted(tmp_path.rglob("*"))
    stderr = one_clear_error(run_nmt("import", "model", "-o", "runs/x", cwd=tmp_path), 2, "model/")
    assert ("save_pretrained" in stderr) == (name == "pickled weights")
    assert sorted(tmp_path.rglob("*")) == before
