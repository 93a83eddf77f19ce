"""Checkpoints: safetensors files with weights, tokenizers, settings and optimizer moments.

    model.<name>               weights, float32; tied weights are stored once
    average.<name>             moving average of the weights, if training computes one
    optimizer.<name>.<moment>  moments of the optimizers, float32; a resumed training needs them
    tokenizer.source           serialized SentencePiece model, uint8
    tokenizer.target           the same for the target side; missing if both sides share a model
    metadata "nmt"             see `nmt.run.header`

A model file is a checkpoint with the best weights and no moments. Translation needs no other file. Reading a file
unpickles nothing.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import safetensors.torch
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nmt.config import Config, ModelSettings, as_corpora
from nmt.errors import ConfigError, ModelError
from nmt.files import atomic_write
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer
from nmt.run.directory import RunDirectory
from nmt.run.header import FORMAT_VERSION, HINT, check_header_size, checked_header, errors_as_model_error, hash_of
from nmt.text.tokenizer import Tokenizers

# The start of the name of a weight in a Transformer layer, such as `encoder.0.`.
LAYER = re.compile(r"(?P<side>encoder|decoder)\.(?P<number>\d+)\.")
PARTS = ("model", "average", "optimizer")  # prefixes of tensor names; "tokenizer" is read separately


@dataclass(frozen=True)
class Checkpoint:
    config: Config  # contains no paths if the checkpoint was read from a file
    tensors: dict[str, Tensor]  # keys: names of tensors, such as `model.projection.weight`
    tokenizers: Tokenizers
    progress: dict[str, Any] = field(default_factory=dict)  # fields of `Progress`

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors of one of `PARTS`, with the prefix removed from their names."""
        start = f"{prefix}."
        return {name.removeprefix(start): x for name, x in self.tensors.items() if name.startswith(start)}

    def model(self) -> Seq2Seq:
        """Return the model with its weights, in eval mode."""
        model = new_model(self.config, self.tokenizers)
        load_weights(model, self.part("model"))
        return model.eval()


class Newest(NamedTuple):
    """The newest checkpoint that can be read."""

    step: int
    checkpoint: Checkpoint
    damaged: dict[int, ModelError]  # errors of the newer checkpoints; keys are steps


def new_model(config: Config, tokenizers: Tokenizers) -> Seq2Seq:
    """Return a new model with the architecture and sizes of the config. Its weights are random."""
    model_class = Transformer if config.model.architecture == "transformer" else RecurrentModel
    return model_class(config.model, len(tokenizers.source), len(tokenizers.target))


class _SkipNormal(TorchFunctionMode):
    """A mode that skips `normal_`. On the meta device, `normal_` would spend a second on imports."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        return None if func is torch.nn.init.normal_ else func(*args, **(kwargs or {}))


def shapes_of(config: Config, tokenizers: Tokenizers) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a model. The weights are not allocated."""
    model = meta_model(config, tokenizers)
    return {name: tuple(x.shape) for name, x in weights_of(model).items()}


def meta_model(config: Config, tokenizers: Tokenizers) -> Seq2Seq:
    """Return a model on the meta device: its weights have shapes, but no memory."""
    if config.model.positions != "learned":  # computing positions takes long, and they have no weights
        without_positions = config.model.model_copy(update={"positions": "none"})
        config = config.model_copy(update={"model": without_positions})
    with torch.device("meta"), _SkipNormal():
        return new_model(config, tokenizers)


def weights_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model by name. Tied weights appear once, under the first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model. Tied weights stay tied. Raises ModelError if names or shapes differ."""
    # Names differ between architectures, shapes between model sizes.
    parameters = weights_of(model)
    if parameters.keys() != weights.keys():
        raise ModelError("the weights are not those of this model", hint="were architecture settings changed?")
    for name, parameter in parameters.items():
        weight = weights[name]
        if parameter.shape != weight.shape:
            raise ModelError(
                f"{name} is {tuple(weight.shape)}, this model's is {tuple(parameter.shape)}",
                hint="architecture and vocabulary must be those of the trained model",
            )
        parameter.copy_(weight)


def first_layers(weights: Mapping[str, Tensor], settings: ModelSettings) -> dict[str, Tensor]:
    """Return the weights for a model with `settings`. Layers beyond the depth of this model are left out.

    In distillation, a student can start from the first layers of its teacher (Shleifer and Rush 2020).
    """
    depths = {"encoder": settings.n_encoder_layers, "decoder": settings.n_decoder_layers}
    kept = {}
    for name, weight in weights.items():
        # Keep all weights outside of layers, such as embeddings.
        layer = LAYER.match(name)
        if layer is None or int(layer["number"]) < depths[layer["side"]]:
            kept[name] = weight
    return kept


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically. Raises OutputError on failure."""
    # 1. Collect the tensors. The tokenizers are tensors, too.
    source, target = checkpoint.tokenizers
    tensors = {name: tensor.cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    tensors["tokenizer.source"] = _as_tensor(source.model)
    if not checkpoint.tokenizers.joint:
        tensors["tokenizer.target"] = _as_tensor(target.model)
    # 2. Make the header with its hashes, and write the file.
    header = {
        "format_version": FORMAT_VERSION,
        "config": without_paths(checkpoint.config),
        "progress": checkpoint.progress,
    }
    if source.learned is not None:
        header["learned_characters"] = source.learned
    header["header_sha256"] = hash_of(header)
    header["tensors_sha256"] = _hash_parts(tensors)
    metadata = {"nmt": json.dumps(header, ensure_ascii=False)}
    atomic_write(path, safetensors.torch.save(tensors, metadata))


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _as_bytes(tensor: Tensor) -> bytes:
    return bytes(tensor.flatten().view(torch.uint8).numpy())


def without_paths(config: Config) -> dict[str, Any]:
    """Return the config with file names instead of paths. Paths would reveal directories of the user."""
    tree = config.model_dump(mode="json")
    data = tree["data"]
    data["root"] = ""
    # Shorten the paths of all corpora.
    corpora = list(data["mix"].values())
    for name in ("train", "dev", "test"):
        corpora += as_corpora(data[name])
    for corpus in corpora:
        corpus["root"] = ""
        for side in ("source", "target"):
            corpus[side] = [Path(path).name for path in corpus[side]]
    # Shorten the other paths.
    tree["run"] = Path(config.run).name or "run"
    tree["train"]["init_from"] = Path(config.train.init_from).name
    return tree


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return one SHA-256 of all tensors: of their names, shapes, dtypes and bytes.

    The order in which a file stores the tensors does not matter.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        # Equal bytes with another name or shape must give another hash.
        description = f"{name} {tuple(tensor.shape)} {tensor.dtype}\n"
        digest.update(description.encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _hash_parts(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return a hash of each part, so that a part can be checked alone."""
    parts = defaultdict[str, dict[str, Tensor]](dict)
    for name, x in tensors.items():
        parts[part_of(name)][name] = x
    return {part: hash_tensors(x) for part, x in parts.items()}


def part_of(name: str) -> str:
    """Return the part to which a tensor belongs: the prefix of its name."""
    return name.partition(".")[0]


def read_newest(run: RunDirectory, *, prefixes: tuple[str, ...] = PARTS) -> Newest | None:
    """Read the newest undamaged checkpoint. Return None if the run has no checkpoint.

    Only the parts in `prefixes` are loaded. Raises ModelError if all checkpoints are damaged.
    """
    # Begin with the newest checkpoint, and stop at the first undamaged one.
    damaged: dict[int, ModelError] = {}
    for step in reversed(run.checkpoint_steps()):
        try:
            return Newest(step, read_checkpoint(run.checkpoint_file(step), prefixes=prefixes), damaged)
        except ModelError as error:
            damaged[step] = error
    if not damaged:
        return None
    reasons = "; ".join(map(str, damaged.values()))
    raise ModelError(
        f"no checkpoint of {run.path} can be read: {reasons}", hint="begin anew with --fresh (the old run is kept)"
    )


def lasting_path(file: BinaryIO) -> Path:
    """Return a path that leads to this open file even if the file is replaced. On Windows, return the usual path.

    safetensors opens a path twice. In between, a training that finds a better model may replace the file.
    """
    path = Path(f"/dev/fd/{file.fileno()}")  # does not exist on Windows
    return path if path.exists() else Path(file.name)


def read_checkpoint(path: Path, *, prefixes: tuple[str, ...] = PARTS) -> Checkpoint:
    """Read and check a checkpoint. Only the parts in `prefixes` are loaded. Raises ModelError if it is damaged."""
    with errors_as_model_error(path):
        check_header_size(path)
        with path.open("rb") as held, safetensors.safe_open(lasting_path(held), framework="pt") as file:
            # 1. Read the header and the types of the tensors.
            header, config = checked_header(file.metadata())
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            _check_types(slices)
            # 2. Read the tokenizers. Their vocabulary sizes determine the shapes of the embeddings.
            serialized = {name: file.get_tensor(name) for name in slices if part_of(name) == "tokenizer"}
            _check_hashes(header, serialized)
            tokenizers = _tokenizers_of(serialized, config, header.get("learned_characters"))
            # 3. Check the shapes of the other tensors, and load them.
            _check_shapes({name: tuple(x.get_shape()) for name, x in slices.items()}, config, tokenizers)
            tensors = {name: file.get_tensor(name) for name in slices if part_of(name) in prefixes}
        _check_hashes(header, tensors)
        return Checkpoint(config, tensors, tokenizers, header["progress"])


def _check_types(slices: Mapping[str, Any]) -> None:
    """Raise ModelError if a tensor has a dtype that nmt does not write."""
    unknown = {x.get_dtype() for x in slices.values()} - {"F32", "BF16", "U8"}
    if unknown:
        raise ModelError(f"not a model file: it has {', '.join(sorted(unknown))}", hint=HINT)


def _tokenizers_of(serialized: Mapping[str, Tensor], config: Config, learned: str | None) -> Tokenizers:
    if "tokenizer.source" not in serialized:
        raise ConfigError("'tokenizer.source' is missing")
    source = serialized["tokenizer.source"]
    target = serialized.get("tokenizer.target", source)  # missing if both sides have the same tokenizer
    tokenizers = Tokenizers.from_models(
        _as_bytes(source),
        _as_bytes(target),
        nfkc_source=config.data.nfkc_source,
        target_tag=config.data.target_tag,
        learned=learned,
    )
    if config.tokenizer.joint and not tokenizers.one_vocabulary:
        raise ConfigError("tokenizer.joint=true, but there are two vocabularies")
    return tokenizers


def _check_hashes(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    if not _hash_parts(tensors).items() <= header["tensors_sha256"].items():
        raise ModelError("damaged: its tensors are not those that were written", hint="use another")


def _check_shapes(shapes: dict[str, tuple[int, ...]], config: Config, tokenizers: Tokenizers) -> None:
    """Raise ModelError if a tensor has an unexpected name or shape, or if a part is incomplete.

    A part may be missing as a whole.
    """
    # 1. Collect the shapes of all tensors that the file may have.
    weights = shapes_of(config, tokenizers)
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in weights.items():
        expected[f"model.{name}"] = expected[f"average.{name}"] = shape
        for moment in ("exp_avg", "exp_avg_sq", "momentum"):  # two moments of AdamW, one moment of Muon
            expected[f"optimizer.{name}.{moment}"] = shape  # fused AdamW does not check shapes itself
        expected[f"optimizer.{name}.step"] = ()
    # 2. Compare these shapes with the shapes of the tensors in the file.
    for name in sorted(shapes.keys() - {"tokenizer.source", "tokenizer.target"}):
        if shapes[name] != expected.get(name):
            reason = f"{name} is {shapes[name]}, in a model of its settings {expected.get(name, 'absent')}"
            raise ModelError(f"{reason:.300}", hint="train it again")  # truncated: a hostile file may have long names
    # 3. Check that each part has all weights of the model or none.
    for part in ("model", "average"):
        n_tensors = sum(part_of(name) == part for name in shapes)
        if n_tensors not in (0, len(weights)):
            raise ModelError("its weights are not those of its settings", hint="train it again")
