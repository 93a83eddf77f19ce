"""Checkpoints: one safetensors file with weights, tokenizers, settings and, to resume, the optimizer's moments.

    model.<name>      weights, float32 (bfloat16 in a snapshot); tied weights are stored once
    average.<name>    their moving average, if there is one
    optimizer.<name>.<moment>
    tokenizer.source, tokenizer.target   serialized, uint8; target only if it differs from source
    metadata "nmt"    see `nmt.run.header`

Translation needs no other file than the model file, which contains no paths of the machine. Nothing is unpickled.
Before a model is built, names and shapes of the tensors are checked against the settings.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import safetensors.torch
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nmt.config import Config, ModelSettings, check_config
from nmt.errors import ConfigError, ModelError
from nmt.files import atomic_write
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer
from nmt.run.directory import RunDirectory
from nmt.run.header import FORMAT_VERSION, HINT, check_header_size, errors_as_model_error, hash_of, parse
from nmt.text.tokenizer import Tokenizers

LAYER = re.compile(r"(encoder|decoder)\.(\d+)\.")  # start of the name of a Transformer layer's weights
PARTS = ("model", "average", "optimizer")  # prefixes of the names of tensors, besides "tokenizer"


@dataclass(frozen=True)
class Checkpoint:
    config: Config  # without paths if it was read from a file
    tensors: dict[str, Tensor]  # all but the tokenizers, by full name
    tokenizers: Tokenizers
    progress: dict[str, Any] = field(default_factory=dict)  # JSON values: steps, scores, times

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors of one of `PARTS`, by their names without this prefix."""
        start = prefix + "."
        return {name.removeprefix(start): x for name, x in self.tensors.items() if name.startswith(start)}

    def model(self) -> Seq2Seq:
        """The model with its weights, in eval mode."""
        model = new_model(self.config, self.tokenizers)
        load_weights(model, self.part("model"))
        return model.eval()


class Newest(NamedTuple):
    step: int
    checkpoint: Checkpoint
    damaged: dict[int, ModelError]  # newer checkpoints that cannot be read, by step


def new_model(config: Config, tokenizers: Tokenizers) -> Seq2Seq:
    """A model with the architecture and sizes of the config, and new weights."""
    model_class = Transformer if config.model.architecture == "transformer" else RecurrentModel
    return model_class(config.model, len(tokenizers.source), len(tokenizers.target))


class _SkipNormal(TorchFunctionMode):
    """Skip `normal_`: on the meta device, it would first import modules, which takes a second."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        return None if func is torch.nn.init.normal_ else func(*args, **(kwargs or {}))


def shapes_of(config: Config, tokenizers: Tokenizers) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of a model, computed without allocating them."""
    if config.model.positions != "learned":  # others have no weights and are slow to compute on the meta device
        config = config.model_copy(update={"model": config.model.model_copy(update={"positions": "none"})})
    with torch.device("meta"), _SkipNormal():
        model = new_model(config, tokenizers)
    return {name: tuple(x.shape) for name, x in weights_of(model).items()}


def weights_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """A model's weights by name; tied weights once, under their first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; tied weights stay tied. Raises ModelError if names or shapes differ."""
    own = weights_of(model)
    if own.keys() != weights.keys():
        raise ModelError("the weights are not those of this model", hint="were architecture settings changed?")
    for name, x in own.items():
        if x.shape != weights[name].shape:
            reason = f"{name} is {tuple(weights[name].shape)}, this model's is {tuple(x.shape)}"
            raise ModelError(reason, hint="architecture and vocabulary must be those of the trained model")
        x.copy_(weights[name])


def first_layers(weights: Mapping[str, Tensor], settings: ModelSettings) -> dict[str, Tensor]:
    """Return the weights without the layers of encoder and decoder that a shallower model with `settings` lacks.

    A student starts well from the first layers of its teacher (Shleifer and Rush 2020).
    """
    depths = {"encoder": settings.n_encoder_layers, "decoder": settings.n_decoder_layers}
    layers = {name: LAYER.match(name) for name in weights}
    return {name: weights[name] for name, layer in layers.items() if not layer or int(layer[2]) < depths[layer[1]]}


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically. Raises OutputError on failure."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    for side in ("source",) if checkpoint.tokenizers.joint else ("source", "target"):
        model = bytearray(getattr(checkpoint.tokenizers, side).model)
        tensors[f"tokenizer.{side}"] = torch.frombuffer(model, dtype=torch.uint8)
    header: dict[str, Any] = {"format_version": FORMAT_VERSION, "config": without_paths(checkpoint.config)}
    header["progress"] = checkpoint.progress
    if (learned := checkpoint.tokenizers.source.learned) is not None:
        header["learned_characters"] = learned
    header["header_sha256"] = hash_of(header)
    header["tensors_sha256"] = _hash_parts(tensors)
    atomic_write(path, safetensors.torch.save(tensors, {"nmt": json.dumps(header, ensure_ascii=False)}))


def without_paths(config: Config) -> dict[str, Any]:
    """The config with file names in place of paths, so that a shared model reveals no directories of its author."""
    tree = config.model_dump(mode="json")
    data = tree["data"]
    data["root"] = ""
    lists = [
        files if isinstance(files, list) else [files] for name in ("train", "dev", "test") if (files := data[name])
    ]
    for files in chain(*lists, data["mix"].values()):
        files["root"] = ""
        for side in ("source", "target"):
            files[side] = [Path(path).name for path in files[side]]
    tree["run"] = Path(tree["run"]).name or "run"
    tree["train"]["init_from"] = Path(tree["train"]["init_from"]).name
    return tree


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes, dtypes and bytes, sorted by name. (Safetensors files of equal tensors may differ.)"""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _hash_parts(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """`hash_tensors` of each part, so that a part can be checked without reading the others."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, x in tensors.items():
        parts.setdefault(name.partition(".")[0], {})[name] = x
    return {part: hash_tensors(x) for part, x in parts.items()}


def read_newest(run: RunDirectory, *, prefixes: tuple[str, ...] = PARTS) -> Newest | None:
    """Read the newest undamaged checkpoint; None if there is no checkpoint. Raises ModelError if all are damaged."""
    damaged: dict[int, ModelError] = {}
    for step in reversed(run.checkpoint_steps()):
        try:
            return Newest(step, read_checkpoint(run.checkpoint_file(step), prefixes=prefixes), damaged)
        except ModelError as error:
            damaged[step] = error
    if damaged:
        reason = f"no checkpoint of {run.path} can be read: {'; '.join(map(str, damaged.values()))}"
        raise ModelError(reason, hint="begin anew with --fresh (the old run is kept)")
    return None


def lasting_path(file: BinaryIO) -> Path:
    """A path that leads to an open file even after another file has replaced it, if the system has such paths.

    safetensors opens a path twice, and a training that finds a better model replaces its model file at any time.
    """
    path = Path(f"/dev/fd/{file.fileno()}")
    return path if path.exists() else Path(file.name)


def read_checkpoint(path: Path, *, prefixes: tuple[str, ...] = PARTS) -> Checkpoint:
    """Read and check a checkpoint; load only tensors with these prefixes. Raises ModelError if it is damaged."""
    with errors_as_model_error(path):
        check_header_size(path)
        with path.open("rb") as held, safetensors.safe_open(lasting_path(held), framework="pt") as file:
            header = parse((file.metadata() or {}).get("nmt"))
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            if others := {x.get_dtype() for x in slices.values()} - {"F32", "BF16", "U8"}:
                raise ModelError(f"not a model file: it has {', '.join(sorted(others))}", hint=HINT)
            models = {name: file.get_tensor(name) for name in slices if name.startswith("tokenizer.")}
            _check_hashes(header, models)
            config = check_config(header["config"], {}, "its settings")
            if "tokenizer.source" not in models:
                raise ConfigError("'tokenizer.source' is missing")
            contents = {name: x.flatten().view(torch.uint8).numpy().tobytes() for name, x in models.items()}
            source = contents["tokenizer.source"]
            options = config.data.model_dump(include={"nfkc_source", "target_tag"})
            options["learned"] = header.get("learned_characters")
            tokenizers = Tokenizers.from_models(source, contents.get("tokenizer.target", source), **options)
            if config.tokenizer.joint and not tokenizers.one_vocabulary:
                raise ConfigError("tokenizer.joint=true, but there are two vocabularies")
            _check_shapes({name: tuple(x.get_shape()) for name, x in slices.items()}, config, tokenizers)
            tensors = {name: file.get_tensor(name) for name in slices if name.partition(".")[0] in prefixes}
        _check_hashes(header, tensors)
        return Checkpoint(config, tensors, tokenizers, header["progress"])


def _check_hashes(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    if not _hash_parts(tensors).items() <= header["tensors_sha256"].items():
        raise ModelError("damaged: its tensors are not those that were written", hint="use another")


def _check_shapes(shapes: dict[str, tuple[int, ...]], config: Config, tokenizers: Tokenizers) -> None:
    """Raise ModelError if the tensors do not fit a model of these settings. A part may be missing as a whole."""
    mismatch = ModelError("its weights are not those of its settings", hint="train it again")
    if config.model.n_encoder_layers + config.model.n_decoder_layers > len(shapes):  # `shapes_of` would take long
        raise mismatch
    weights = shapes_of(config, tokenizers)
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in weights.items():
        expected |= dict.fromkeys((f"model.{name}", f"average.{name}"), shape)
        moments = ("exp_avg", "exp_avg_sq", "momentum")  # of AdamW, of Muon
        expected |= {f"optimizer.{name}.{moment}": shape for moment in moments}
        expected[f"optimizer.{name}.step"] = ()
    for name in sorted(shapes.keys() - {"tokenizer.source", "tokenizer.target"}):
        if shapes[name] != expected.get(name):  # moments, too: the fused optimizer does not check shapes
            reason = f"{name} is {shapes[name]}, in a model of its settings {expected.get(name, 'absent')}"
            raise ModelError(f"{reason:.300}", hint="train it again")  # names in a hostile file may be long
    for part in ("model.", "average."):
        if sum(name.startswith(part) for name in shapes) not in (0, len(weights)):
            raise mismatch
