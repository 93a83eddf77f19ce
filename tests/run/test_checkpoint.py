"""A checkpoint is read back as written, contains no paths, and damaged or foreign files are refused."""

import json
import os
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from conftest import rows_of
from hypothesis import given
from hypothesis import strategies as st
from models import RNNS, RUNGS, Parts
from models import name as name_of
from torch import Tensor

from nmt.config import Config, check_config
from nmt.errors import ModelError
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import (
    Checkpoint,
    hash_tensors,
    load_weights,
    new_model,
    read_checkpoint,
    save_checkpoint,
    weights_of,
)
from nmt.run.header import FORMAT_VERSION, MAX_HEADER_BYTES, MAX_TENSORS, read_header
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

SECRET = "secret-place"  # part of every path in the settings
LINES = ["the cat sat on the mat", "a dog runs through the park", "ein Hund läuft"]
TREE: dict[str, Any] = yaml.safe_load("""
run: /secret-place/runs/mine
data:
  root: /secret-place/data
  train: {source: [/secret-place/a.de, secret-place/b.de], target: ../secret-place/a.en}
  dev: {source: secret-place/d.de, target: secret-place/d.en}
  nfkc_source: true
tokenizer: {vocab_size: 283}
model: {d_model: 8, n_heads: 2, d_ff: 8, n_encoder_layers: 1, n_decoder_layers: 1}
train: {init_from: /secret-place/old/model.safetensors}
""")


def config_of(**changes: Any) -> Config:
    """Return the config of `TREE` with changed settings, by section."""
    tree = {**TREE}
    for section, values in changes.items():
        tree[section] = {**tree[section], **values}
    return check_config(tree, {}, "test")


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    model = train_tokenizer(LINES, config_of().tokenizer)
    return Tokenizers.from_models(model, model, nfkc_source=True)


@pytest.fixture(scope="module")
def checkpoint(tokenizers: Tokenizers) -> Checkpoint:
    torch.manual_seed(5)
    tensors: dict[str, Tensor] = {}
    weights = weights_of(new_model(config_of(), tokenizers))
    for name, weight in weights.items():
        tensors[f"model.{name}"] = weight
        tensors[f"average.{name}"] = weight + 1
        tensors[f"optimizer.{name}.exp_avg"] = weight * 2
        tensors[f"optimizer.{name}.step"] = torch.tensor(3.0)
    progress = {"step": 3, "best": 1.5, "history": [{"step": 3, "dev_bleu": 1.5}]}
    return Checkpoint(config_of(), tensors, tokenizers, progress)


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


# --- written and read


def test_tensors_are_read_back_as_written(checkpoint: Checkpoint, written: Path) -> None:
    tensors = read_checkpoint(written).tensors
    assert hash_tensors(tensors) == hash_tensors(checkpoint.tensors)


def test_progress_is_read_back_as_written(checkpoint: Checkpoint, written: Path) -> None:
    assert read_checkpoint(written).progress == checkpoint.progress


def test_tokenizers_are_read_back_as_written(checkpoint: Checkpoint, written: Path) -> None:
    tokenizers = read_checkpoint(written).tokenizers
    assert tokenizers.source.model == checkpoint.tokenizers.source.model
    assert tokenizers.source.nfkc
    assert tokenizers.joint


def test_a_setting_that_is_gone_may_have_a_value_without_effect(written: Path, scratch: Path) -> None:
    parts = Parts.of(written)
    parts.header["config"]["data"]["context"] = 0
    parts.header["config"]["decode"]["length_penalty"] = "average"
    scratch.write_bytes(parts.joined())
    assert read_checkpoint(scratch).config == read_checkpoint(written).config
    assert read_header(scratch) == read_header(written)


@pytest.mark.parametrize("setting", ["data.context=1", "decode.length_penalty=gnmt"])
def test_a_setting_that_is_gone_and_has_an_effect_is_refused(written: Path, scratch: Path, setting: str) -> None:
    parts = Parts.of(written)
    section, key, value = re.split("[.=]", setting)
    parts.header["config"][section][key] = value
    scratch.write_bytes(parts.joined())
    message = f"not a model file of this version: its settings: unknown key '{section}.{key}'"
    assert message in str(refused(scratch))
    with pytest.raises(ModelError, match=message):
        read_header(scratch)


def test_a_config_is_read_back_with_names_in_place_of_paths(written: Path) -> None:
    config = read_checkpoint(written).config
    train = {"source": ["a.de", "b.de"], "target": "a.en"}
    dev = {"source": "d.de", "target": "d.en"}
    data = {"root": "", "train": train, "dev": dev}
    expected = config_of(data=data, train={"init_from": "model.safetensors"})
    assert config == expected.model_copy(update={"run": "mine"})


def test_the_header_alone_has_the_config_and_progress(checkpoint: Checkpoint, written: Path) -> None:
    config, progress = read_header(written)
    assert config == read_checkpoint(written).config
    assert progress == checkpoint.progress


def test_no_path_of_the_machine_is_in_the_file(written: Path, tmp_path: Path) -> None:
    content = written.read_bytes()
    for path in (SECRET, Path.home(), tmp_path.parent, Path.cwd(), "/runs"):
        assert os.fsencode(path) not in content


def test_a_replaced_file_is_read_whole(checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training replaces its model file at any time."""
    path, newer = tmp_path / "model.safetensors", tmp_path / "newer"
    save_checkpoint(path, checkpoint)
    newer.write_bytes(b"")
    # safetensors opens the path for the header, then once more for the tensors, by this function.
    from_file = torch.UntypedStorage.from_file

    def replacing(*args: Any, **options: Any) -> Any:
        newer.replace(path)
        return from_file(*args, **options)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", replacing)
    tensors = read_checkpoint(path).tensors
    assert not newer.exists()
    assert hash_tensors(tensors) == hash_tensors(checkpoint.tensors)


def test_learned_characters_are_kept(checkpoint: Checkpoint, tmp_path: Path) -> None:
    taught = checkpoint.tokenizers.with_learned('€ə"\u2028')
    save_checkpoint(tmp_path / "taught", replace(checkpoint, tokenizers=taught))
    assert read_checkpoint(tmp_path / "taught").tokenizers.source.learned == '€ə"\u2028'


def test_a_model_need_not_have_learned_characters(written: Path) -> None:
    assert "learned_characters" not in Parts.of(written).header
    assert read_checkpoint(written).tokenizers.source.learned is None


def test_settings_that_a_file_lacks_have_their_defaults(written: Path, scratch: Path) -> None:
    # Such a file was written before lengths were fitted.
    parts = Parts.of(written)
    parts.header["config"]["decode"] = {}
    scratch.write_bytes(parts.joined())
    decode = read_checkpoint(scratch).config.decode
    assert decode.max_length_a == 1.5
    assert decode.max_length_b == 10


@pytest.mark.parametrize("part", ["model", "average", "optimizer"])
def test_only_tensors_with_the_given_prefixes_are_read(checkpoint: Checkpoint, written: Path, part: str) -> None:
    again = read_checkpoint(written, prefixes=(part,))
    result = again.part(part).keys()
    assert result == checkpoint.part(part).keys()
    assert len(again.tensors) == len(again.part(part))


def test_without_prefixes_no_tensor_is_read(written: Path) -> None:
    assert read_checkpoint(written, prefixes=()).tensors == {}


def named_weights(model: Seq2Seq) -> dict[str, Tensor]:
    """Return the weights of a model by their names in a checkpoint."""
    return {f"model.{name}": weight for name, weight in weights_of(model).items()}


@pytest.mark.parametrize("choices", [{}, *RNNS, *RUNGS], ids=name_of)
def test_every_architecture_is_read_back(tokenizers: Tokenizers, scratch: Path, choices: dict[str, Any]) -> None:
    config = config_of(model=choices)
    model = new_model(config, tokenizers).eval()
    save_checkpoint(scratch, Checkpoint(config, named_weights(model), tokenizers))
    again = read_checkpoint(scratch).model()
    token_ids = torch.tensor([[7, 8, 3]])
    assert torch.equal(again(token_ids, token_ids), model(token_ids, token_ids))


@pytest.mark.parametrize(("tied", "n_matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tied_weights_are_saved_once(tokenizers: Tokenizers, tmp_path: Path, tied: str, n_matrices: int) -> None:
    config = config_of(model={"tied_embeddings": tied})
    model = new_model(config, tokenizers)
    save_checkpoint(tmp_path / "it", Checkpoint(config, named_weights(model), tokenizers))
    saved = safetensors.torch.load_file(tmp_path / "it")
    matrix_shape = model.source_embedding.weight.shape
    result = [x.shape for x in saved.values()].count(matrix_shape)
    assert result == n_matrices
    again = read_checkpoint(tmp_path / "it").model()
    # In the model that is read, they are one tensor again.
    matrices = [again.source_embedding.weight, again.target_embedding.weight, again.projection.weight]
    found = len({matrix.data_ptr() for matrix in matrices})
    assert found == n_matrices


def test_the_tokenizer_of_both_sides_is_saved_once(written: Path, tokenizers: Tokenizers) -> None:
    result = written.read_bytes().count(tokenizers.source.model)
    assert result == 1


@pytest.fixture(scope="module")
def two_tokenizers(tokenizers: Tokenizers) -> Tokenizers:
    other = train_tokenizer(LINES[2:], config_of().tokenizer)
    return Tokenizers.from_models(tokenizers.source.model, other, nfkc_source=False)


def test_different_tokenizers_are_both_saved(two_tokenizers: Tokenizers, scratch: Path) -> None:
    config = config_of(tokenizer={"joint": False}, model={"tied_embeddings": "none"}, data={"nfkc_source": False})
    save_checkpoint(scratch, Checkpoint(config, {}, two_tokenizers))
    again = read_checkpoint(scratch).tokenizers
    assert again.source.model == two_tokenizers.source.model
    assert again.target.model == two_tokenizers.target.model
    assert not again.source.nfkc


def test_two_vocabularies_are_refused_where_the_settings_ask_for_one(two_tokenizers: Tokenizers, scratch: Path) -> None:
    save_checkpoint(scratch, Checkpoint(config_of(), {}, two_tokenizers))
    assert "tokenizer.joint=true" in str(refused(scratch))


# --- damaged and foreign files


def flipped(content: bytes, start: int, end: int, data: st.DataObject) -> bytes:
    """Return the content with one bit flipped between two offsets."""
    # One bit is the smallest damage that there is.
    offset = data.draw(st.integers(start, end - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(content)
    damaged[offset] ^= 1 << bit
    return bytes(damaged)


def end_of_header(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


@given(st.data())
def test_a_flipped_bit_in_the_header_is_detected(written: Path, scratch: Path, data: st.DataObject) -> None:
    """Settings determine what a model computes as much as its weights do."""
    content = written.read_bytes()
    scratch.write_bytes(flipped(content, 0, end_of_header(content), data))
    assert str(scratch) in str(refused(scratch))


@given(st.data())
def test_a_flipped_bit_in_the_tensors_is_detected(written: Path, scratch: Path, data: st.DataObject) -> None:
    content = written.read_bytes()
    start = end_of_header(content)
    scratch.write_bytes(flipped(content, start, len(content), data))
    assert str(refused(scratch)) == f"{scratch}: damaged: its tensors are not those that were written"


@given(st.data())
def test_a_flipped_bit_is_detected_where_only_the_weights_are_read(
    written: Path, scratch: Path, data: st.DataObject
) -> None:
    """Translating reads no more."""
    content = written.read_bytes()
    start = end_of_header(content)
    entries = json.loads(content[8:start])
    weights = [entry for name, entry in sorted(entries.items()) if name.startswith("model.")]
    weight = data.draw(st.sampled_from(weights))
    first, end = weight["data_offsets"]
    damaged = flipped(content, start + first, start + end, data)
    scratch.write_bytes(damaged)
    error = refused(scratch, prefixes=("model",))
    assert str(error) == f"{scratch}: damaged: its tensors are not those that were written"


# Tensors without elements cost nothing but their entries in the header.
NO_TENSORS = dict.fromkeys(map(str, range(MAX_TENSORS)), torch.zeros(0))
ONE_TENSOR = {"x": torch.zeros(2)}


FOREIGN_FILES = {
    "empty": b"",
    "YAML": b"run: r\ndata: {}\n",
    "pickle": pickle.dumps({"weights": [1.0]}),
    "long header": (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{",
    "many tensors": safetensors.torch.save(NO_TENSORS),
}


@pytest.mark.parametrize("kind", FOREIGN_FILES)
def test_a_foreign_file_is_refused(scratch: Path, kind: str) -> None:
    scratch.write_bytes(FOREIGN_FILES[kind])
    assert str(refused(scratch)).startswith(f"{scratch}: not a model file, or damaged")
    with pytest.raises(ModelError, match="not a model file, or damaged"):
        read_header(scratch)


OTHER_HEADERS = ["no JSON", "[]", '{"format_version": 1}', "[" * 100_000]


@pytest.mark.parametrize("metadata", [None, *({"nmt": header} for header in OTHER_HEADERS)], ids=range(5))
def test_a_header_that_is_not_ours_is_refused(scratch: Path, metadata: dict[str, str] | None) -> None:
    scratch.write_bytes(safetensors.torch.save(ONE_TENSOR, metadata))
    assert str(refused(scratch)) == f"{scratch}: not written by nmt"
    with pytest.raises(ModelError, match="not written by nmt"):
        read_header(scratch)


def test_learned_characters_that_are_no_text_are_refused(written: Path, scratch: Path) -> None:
    parts = Parts.of(written)
    parts.header["learned_characters"] = ["€"]
    scratch.write_bytes(parts.joined())
    assert str(refused(scratch)) == f"{scratch}: not written by nmt"


EIGHT = torch.zeros(8)
UNKNOWN_TENSORS = {
    "model.more": EIGHT,
    "tokenizer.third": EIGHT,
    "other.encoder_norm.weight": EIGHT,
    "average.encoder_norm.weight": EIGHT,  # a part that is not whole
    "optimizer.encoder_norm.weight.exp_avg": torch.zeros(9),  # a wrong shape
    "optimizer.encoder_norm.weight.step": EIGHT,  # no number
    "model.encoder_norm.bias": EIGHT.double(),
}


@pytest.mark.parametrize("name", UNKNOWN_TENSORS)
def test_tensors_that_the_model_lacks_are_refused(written: Path, scratch: Path, name: str) -> None:
    parts = Parts.of(written)
    needed = [key for key in parts.tensors if key.startswith(("model.", "tokenizer."))]
    tensors = {key: parts.tensors[key] for key in needed}
    tensors[name] = UNKNOWN_TENSORS[name]
    # The hashes are valid, as a hostile file's would be.
    scratch.write_bytes(Parts(tensors, parts.header).joined())
    assert str(refused(scratch, prefixes=())).startswith(str(scratch))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    result = str(refused(tmp_path / "absent"))
    assert result == f"cannot read {tmp_path}/absent: No such file or directory"


def test_a_pipe_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # reading it would block
    result = str(refused(tmp_path / "pipe"))
    assert result == f"cannot read {tmp_path}/pipe: not a file"


def test_a_directory_is_an_error(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert str(error) == f"cannot read {tmp_path}: Is a directory"
    assert error.hint == "give a run's directory or its model.safetensors"


def test_a_newer_format_is_refused(written: Path, scratch: Path) -> None:
    parts = Parts.of(written)
    parts.header["format_version"] = FORMAT_VERSION + 1
    scratch.write_bytes(parts.joined())
    error = refused(scratch)
    assert str(error) == f"{scratch}: format version {FORMAT_VERSION + 1}, this nmt reads {FORMAT_VERSION}"
    assert error.hint == "update nmt"


def test_settings_that_are_no_settings_are_refused(written: Path, scratch: Path) -> None:
    parts = Parts.of(written)
    parts.header["config"] = 5
    scratch.write_bytes(parts.joined())
    assert "not written by nmt" in str(refused(scratch))


OTHER_SETTINGS = """
d_model 7 d_model (7) is not divisible by n_heads (2)
n_encoder_layers 2 its weights are not those of its settings
d_ff 16 inner.bias is (8,), in a model of its settings (16,)
"""


@pytest.mark.parametrize("case", rows_of(OTHER_SETTINGS))
def test_settings_of_another_model_are_refused(written: Path, scratch: Path, case: str) -> None:
    key, value, reason = case.split(maxsplit=2)
    parts = Parts.of(written)
    parts.header["config"]["model"][key] = int(value)
    scratch.write_bytes(parts.joined())
    assert reason in str(refused(scratch))


def test_a_file_without_a_tokenizer_is_refused(written: Path, scratch: Path) -> None:
    parts = Parts.of(written)
    del parts.tensors["tokenizer.source"]
    scratch.write_bytes(parts.joined())
    assert "'tokenizer.source' is missing" in str(refused(scratch))


def test_weights_of_another_model_are_refused(checkpoint: Checkpoint) -> None:
    wider = new_model(config_of(model={"d_ff": 16}), checkpoint.tokenizers)
    with pytest.raises(ModelError, match=r"feed_forward.inner.weight is \(8, 8\), this model's is \(16, 8\)") as caught:
        load_weights(wider, checkpoint.part("model"))
    assert "architecture and vocabulary" in caught.value.hint


# --- hashes


def test_a_hash_does_not_depend_on_order_and_strides() -> None:
    x = torch.arange(6.0).view(2, 3)
    y = torch.tensor([1])
    transposed_in_memory = x.T.contiguous().T
    expected = hash_tensors({"x": x, "y": y})
    assert hash_tensors({"y": y, "x": transposed_in_memory}) == expected


ZEROS = torch.zeros(4)


OTHER_TENSORS: dict[str, dict[str, Tensor]] = {
    "name": {"z": ZEROS},
    "shape": {"x": ZEROS.view(2, 2)},
    "dtype": {"x": ZEROS.int()},
    "bytes": {"x": -ZEROS},
    "number": {"x": ZEROS, "y": torch.zeros(0)},
    "nothing": {},
}


@pytest.mark.parametrize("difference", OTHER_TENSORS)
def test_a_hash_depends_on_names_shapes_dtypes_and_bytes(difference: str) -> None:
    assert hash_tensors(OTHER_TENSORS[difference]) != hash_tensors({"x": ZEROS})
