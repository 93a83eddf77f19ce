"""A checkpoint is read back as written, contains no paths, and damaged or foreign files are refused."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from models import RNNS, RUNGS, Parts
from models import name as name_of
from torch import Tensor

from nmt.config import Config, check_config
from nmt.errors import ModelError
from nmt.run import checkpoint as module
from nmt.run.checkpoint import Checkpoint, new_model, read_checkpoint, save_checkpoint, weights_of
from nmt.run.header import FORMAT_VERSION, MAX_HEADER_BYTES, MAX_TENSORS, read_header
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

SECRET = "secret-place"
LINES = ["the cat sat on the mat", "a dog runs through the park", "ein Hund läuft"]


def config_of(**changes: Any) -> Config:
    tree: dict[str, Any] = {
        "run": f"/{SECRET}/runs/mine",
        "data": {
            "root": f"/{SECRET}/data",
            "train": {"source": [f"/{SECRET}/a.de", f"{SECRET}/b.de"], "target": f"../{SECRET}/a.en"},
            "dev": {"source": f"{SECRET}/d.de", "target": f"{SECRET}/d.en"},
            "nfkc_source": True,
        },
        "model": {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_encoder_layers": 1, "n_decoder_layers": 1},
        "train": {"init_from": f"/{SECRET}/old/model.safetensors"},
    }
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values}
    return check_config(tree, {}, "test")


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    model = train_tokenizer(LINES, config_of(tokenizer={"vocab_size": 283}).tokenizer).model
    return Tokenizers.from_models(model, model, nfkc_source=True)


@pytest.fixture(scope="module")
def checkpoint(tokenizers: Tokenizers) -> Checkpoint:
    torch.manual_seed(5)
    config = config_of()
    model = new_model(config, tokenizers)
    weights = weights_of(model)
    tensors = {f"model.{name}": x.clone() for name, x in weights.items()}
    tensors |= {f"average.{name}": x + 1 for name, x in weights.items()}
    tensors |= {f"optimizer.{name}.exp_avg": x * 2 for name, x in weights.items()}
    tensors |= {f"optimizer.{name}.step": torch.tensor(3.0) for name in weights}
    progress = {"step": 3, "best": 1.5, "history": [{"step": 3, "dev_bleu": 1.5, "bleu_signature": "tok:13a"}]}
    return Checkpoint(config, tensors, tokenizers, progress)


@pytest.fixture(scope="module")
def written(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "step-3.safetensors"
    save_checkpoint(path, checkpoint)
    return path


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "damaged.safetensors"


def refused(path: Path, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read_checkpoint(path, **options)
    assert caught.value.hint
    return caught.value


def test_a_checkpoint_is_read_back_as_written(checkpoint: Checkpoint, written: Path) -> None:
    found = read_checkpoint(written)
    assert read_header(written)[0] == found.config
    assert found.tensors.keys() == checkpoint.tensors.keys()
    for name, x in checkpoint.tensors.items():
        assert found.tensors[name].dtype == x.dtype
        assert torch.equal(found.tensors[name], x), name
    assert found.progress == checkpoint.progress
    assert found.tokenizers.source.model == checkpoint.tokenizers.source.model
    assert found.tokenizers.joint
    assert found.tokenizers.source.nfkc
    assert found.config.model_dump() == {
        **checkpoint.config.model_dump(),
        "run": "mine",
        "data": {
            **checkpoint.config.data.model_dump(),
            "root": "",
            "train": {"source": ("a.de", "b.de"), "target": ("a.en",), "root": "", "languages": ""},
            "dev": {"source": ("d.de",), "target": ("d.en",), "root": "", "languages": ""},
        },
        "train": {**checkpoint.config.train.model_dump(), "init_from": "model.safetensors"},
    }


def test_a_replaced_file_is_read_whole(checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training replaces its model file at any time."""
    path, other = tmp_path / "model.safetensors", tmp_path / "other"
    save_checkpoint(path, checkpoint)
    save_checkpoint(other, replace(checkpoint, tensors={name: x + 1 for name, x in checkpoint.tensors.items()}))
    from_file = torch.UntypedStorage.from_file

    def replacing(*args: Any, **options: Any) -> Any:
        other.replace(path)
        return from_file(*args, **options)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", replacing)
    found = read_checkpoint(path)
    assert not other.exists()
    assert all(torch.equal(x, checkpoint.tensors[name]) for name, x in found.tensors.items())


def test_learned_characters_are_kept(checkpoint: Checkpoint, tmp_path: Path) -> None:
    taught = replace(checkpoint, tokenizers=checkpoint.tokenizers.with_learned('€ə"\u2028'))
    save_checkpoint(tmp_path / "taught", taught)
    assert read_checkpoint(tmp_path / "taught").tokenizers.source.learned == '€ə"\u2028'


@pytest.mark.parametrize(
    ("section", "key", "without_effect", "with_effect"),
    [("data", "context", 0, 1), ("decode", "length_penalty", "average", "gnmt")],
)
def test_a_model_with_a_setting_that_is_gone_is_read_if_its_value_has_no_effect(
    section: str, key: str, without_effect: object, with_effect: object, written: Path, scratch: Path
) -> None:
    tensors, header = Parts.of(written)
    header["config"][section][key] = without_effect
    scratch.write_bytes(Parts(tensors, header).joined())
    assert read_checkpoint(scratch).config == read_checkpoint(written).config
    assert read_header(scratch) == read_header(written)

    header["config"][section][key] = with_effect
    scratch.write_bytes(Parts(tensors, header).joined())
    message = f"{scratch}: its settings: {section}.{key}={with_effect} is not supported any more"
    assert str(refused(scratch)) == message
    with pytest.raises(ModelError, match=f"{section}.{key}={with_effect} is not"):
        read_header(scratch)


def test_learned_characters_that_are_no_text_are_refused(written: Path, scratch: Path) -> None:
    tensors, header = Parts.of(written)
    scratch.write_bytes(Parts(tensors, {**header, "learned_characters": ["€"]}).joined())
    assert str(refused(scratch)) == f"{scratch}: not written by nmt"


def test_only_tensors_with_the_given_prefixes_are_read(checkpoint: Checkpoint, written: Path) -> None:
    names = {name.removeprefix("model.") for name in checkpoint.tensors if name.startswith("model.")}
    assert set(checkpoint.part("model")) == set(checkpoint.part("average")) == names
    assert set(checkpoint.part("optimizer")) == {f"{n}.{m}" for n in names for m in ("exp_avg", "step")}
    found = read_checkpoint(written, prefixes=("model",))
    assert set(found.tensors) == {f"model.{name}" for name in names}
    assert read_checkpoint(written, prefixes=()).tensors == {}
    assert found.part("average") == {}


@pytest.mark.parametrize("choices", [{}, *RNNS, *RUNGS], ids=name_of)
def test_every_architecture_is_read_back(tokenizers: Tokenizers, scratch: Path, choices: dict[str, Any]) -> None:
    config = config_of(model=choices)
    model = new_model(config, tokenizers)
    save_checkpoint(scratch, Checkpoint(config, {f"model.{k}": x for k, x in weights_of(model).items()}, tokenizers))
    src, tgt_in, found = torch.tensor([[7, 8, 3]]), torch.tensor([[2, 9]]), read_checkpoint(scratch).model()
    assert not found.training
    with torch.no_grad():
        assert torch.equal(found(src, tgt_in), model.eval()(src, tgt_in))


@pytest.mark.parametrize(("tied", "n_matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tied_weights_are_saved_once(tokenizers: Tokenizers, tmp_path: Path, tied: str, n_matrices: int) -> None:
    config = config_of(model={"tied_embeddings": tied})
    model = new_model(config, tokenizers)
    tensors = {f"model.{name}": x for name, x in weights_of(model).items()}
    save_checkpoint(tmp_path / "it", Checkpoint(config, tensors, tokenizers))
    in_file = safetensors.torch.load_file(tmp_path / "it")
    shape = (len(tokenizers.source), 8)
    assert sum(x.shape == shape for x in in_file.values()) == n_matrices
    again = read_checkpoint(tmp_path / "it").model()
    matrices = (again.source_embedding.weight, again.target_embedding.weight, again.projection.weight)
    assert len({x.data_ptr() for x in matrices}) == n_matrices


def test_tokenizers_are_saved_once_or_both(written: Path, tokenizers: Tokenizers, tmp_path: Path) -> None:
    assert written.read_bytes().count(tokenizers.source.model) == 1
    other = train_tokenizer(LINES[2:], config_of(tokenizer={"vocab_size": 283}).tokenizer).model
    both = Tokenizers.from_models(tokenizers.source.model, other, nfkc_source=False)
    config = config_of(tokenizer={"joint": False}, model={"tied_embeddings": "none"}, data={"nfkc_source": False})
    save_checkpoint(tmp_path / "it", Checkpoint(config, {}, both))
    found = read_checkpoint(tmp_path / "it").tokenizers
    assert (found.source.model, found.target.model) == (tokenizers.source.model, other)
    assert not found.source.nfkc
    save_checkpoint(tmp_path / "it", Checkpoint(config_of(), {}, both))
    assert "tokenizer.joint=true" in str(refused(tmp_path / "it")), "the settings ask for one"


def test_no_path_of_the_machine_is_in_the_file(written: Path, tmp_path: Path) -> None:
    content = written.read_bytes()
    for part in (SECRET, str(Path.home()), str(tmp_path.parent), str(Path.cwd()), "/runs"):
        assert part.encode() not in content


@hypothesis_settings(max_examples=60)
@given(st.data())
def test_a_flipped_bit_is_detected_in_header_and_tensors(written: Path, scratch: Path, data: st.DataObject) -> None:
    """Settings determine what a model computes as much as its weights do. Translating reads only the weights."""
    content = written.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    offsets = json.loads(content[8:start])
    name = data.draw(st.sampled_from(sorted(name for name in offsets if name.startswith("model."))))
    low, high = offsets[name]["data_offsets"]
    for first, end, prefixes in (
        (0, start, None),
        (start, len(content), None),
        (start + low, start + high, ("model",)),
    ):
        flipped = bytearray(content)
        flipped[data.draw(st.integers(first, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
        scratch.write_bytes(flipped)
        error = refused(scratch, **({"prefixes": prefixes} if prefixes else {}))
        assert str(scratch) in str(error)
        assert not first or str(error) == f"{scratch}: damaged: its tensors are not those that were written"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a model file, or damaged"),
        (b"run: r\ndata: {}\n", "not a model file"),
        (pickle.dumps({"weights": [1.0]}), "not a model file"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{", "not a model file"),
        (safetensors.torch.save({str(i): torch.zeros(0) for i in range(MAX_TENSORS)}), "not a model file, or damaged"),
        (safetensors.torch.save({"x": torch.zeros(2)}), "not written by nmt"),
        *(
            (safetensors.torch.save({"x": torch.zeros(2)}, {"nmt": text}), "not written by nmt")
            for text in ("no JSON", "[]", '{"format_version": 1}', "[" * 100_000)
        ),
    ],
)
def test_a_foreign_file_is_refused(scratch: Path, content: bytes, words: str) -> None:
    scratch.write_bytes(content)
    assert str(refused(scratch)).startswith(f"{scratch}: {words}")
    with pytest.raises(ModelError, match=words):
        read_header(scratch)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("model.more", torch.zeros(1)),
        ("tokenizer.third", torch.zeros(1)),
        ("other.encoder_norm.weight", torch.zeros(8)),
        ("average.encoder_norm.weight", torch.zeros(8)),
        ("optimizer.encoder_norm.weight.exp_avg", torch.zeros(9)),
        ("optimizer.encoder_norm.weight.step", torch.zeros(8)),
        ("model.encoder_norm.bias", torch.zeros(8, dtype=torch.float64)),
    ],
)
def test_tensors_the_model_lacks_are_refused(written: Path, scratch: Path, name: str, tensor: Tensor) -> None:
    parts = Parts.of(written)
    tensors = {key: x for key, x in parts.tensors.items() if key.startswith(("model.", "tokenizer."))}
    scratch.write_bytes(parts._replace(tensors={**tensors, name: tensor}).joined())
    assert str(refused(scratch, prefixes=())).startswith(str(scratch))


def test_a_missing_file_a_pipe_and_a_directory_are_errors(tmp_path: Path) -> None:
    assert str(refused(tmp_path / "absent")) == f"cannot read {tmp_path / 'absent'}: No such file or directory"
    os.mkfifo(tmp_path / "pipe")  # reading it would block
    assert str(refused(tmp_path / "pipe")) == f"cannot read {tmp_path / 'pipe'}: not a file"
    error = refused(tmp_path)
    assert str(error) == f"cannot read {tmp_path}: Is a directory"
    assert error.hint == "give a run's directory or its model.safetensors"


def test_another_version_settings_of_other_weights_and_no_tokenizer_are_refused(written: Path, scratch: Path) -> None:
    parts = Parts.of(written)
    own, model = parts.header["config"], parts.header["config"]["model"]
    newer = FORMAT_VERSION + 1
    cases: list[tuple[dict[str, Any], str]] = [
        ({"format_version": newer}, f"{scratch}: format version {newer}, this nmt reads {FORMAT_VERSION}; update nmt"),
        ({"config": 5}, "not a model file of this version"),
        ({"config": {**own, "model": {**model, "d_model": 7}}}, "d_model (7) is not divisible by n_heads (2)"),
        ({"config": {**own, "model": {**model, "n_encoder_layers": 2}}}, "its weights are not those of its settings"),
        ({"config": {**own, "model": {**model, "d_ff": 16}}}, "inner.bias is (8,), in a model of its settings (16,)"),
    ]
    for changed, reason in cases:
        scratch.write_bytes(parts._replace(header={**parts.header, **changed}).joined())
        error = refused(scratch)
        assert reason in f"{error}; {error.hint}"
    del parts.tensors["tokenizer.source"]
    scratch.write_bytes(parts.joined())
    assert "'tokenizer.source' is missing" in str(refused(scratch))


def test_weights_of_another_model_are_refused(checkpoint: Checkpoint) -> None:
    other = new_model(config_of(model={"d_ff": 16}), checkpoint.tokenizers)
    with pytest.raises(ModelError, match=r"feed_forward.inner.weight is \(8, 8\), this model's is \(16, 8\)") as caught:
        module.load_weights(other, checkpoint.part("model"))
    assert "architecture and vocabulary" in caught.value.hint


def test_a_hash_depends_on_names_shapes_dtypes_and_bytes_and_not_on_order_or_strides() -> None:
    x, y = torch.arange(6.0).view(2, 3), torch.tensor([1], dtype=torch.int64)
    assert module.hash_tensors({"x": x, "y": y}) == module.hash_tensors({"y": y, "x": x.T.contiguous().T})
    others: list[dict[str, Tensor]] = [
        {"z": torch.zeros(4)},
        {"x": torch.zeros(2, 2)},
        {"x": torch.zeros(4, dtype=torch.int32)},  # the same bytes
        {"x": torch.tensor([0.0, 0.0, 0.0, -0.0])},
        {"x": torch.zeros(4), "y": torch.zeros(0)},
        {},
    ]
    assert len({module.hash_tensors(one) for one in [{"x": torch.zeros(4)}, *others]}) == len(others) + 1
