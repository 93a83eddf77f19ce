"""A checkpoint: one safetensors file with weights, tokenizer, settings and, to resume, the optimiser's moments.

A model file translates anywhere by itself, and no path of the machine is in it. Nothing is unpickled: the
header is JSON; names, shapes and counts in it are checked against the settings before a weight is made.

    model.<name>      weights, tied ones once
    average.<name>    their moving average, where there is one
    optimizer.<name>.<moment>
    tokenizer.source, tokenizer.target   uint8; the target's only where the sides have one each
    metadata "nmt"    JSON: format_version, config, scores, progress
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nmt.config import Config, check_config
from nmt.errors import ConfigError, ModelError
from nmt.files import atomic_write
from nmt.model.base import Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer
from nmt.run.directory import RunDirectory
from nmt.text.tokenizer import Tokenizers

FORMAT_VERSION = 2
MAX_TENSORS = 25_000  # 100 layers a side have 4,200 weights, in training five times over
MAX_HEADER_BYTES = 10_000_000


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint file holds.

    Attributes:
        config: the settings of the run, its paths taken out.
        tensors: everything but the tokenizer, by full name.
        tokenizers: of both sides.
        progress: where training stands (steps, scores, clocks); JSON values.
    """

    config: Config
    tensors: dict[str, Tensor]
    tokenizers: Tokenizers
    progress: dict[str, Any] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under a prefix (`model`, `average`, `optimizer`), by the rest of their names."""
        start = prefix + "."
        return {name.removeprefix(start): x for name, x in self.tensors.items() if name.startswith(start)}

    def model(self) -> Seq2Seq:
        """The model with its weights, in eval mode."""
        model = new_model(self.config, self.tokenizers)
        load_weights(model, self.part("model"))
        return model.eval()


def new_model(config: Config, tokenizers: Tokenizers) -> Seq2Seq:
    """A model of the config's architecture and sizes, with fresh weights."""
    kind = Transformer if config.model.architecture == "transformer" else RecurrentModel
    return kind(config.model, len(tokenizers.source), len(tokenizers.target))


def weights_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """A model's weights by name, tied ones once (under the first of their names)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model of the same shape; ties stay ties."""
    own = weights_of(model)
    if own.keys() != weights.keys():
        raise ModelError("the weights are not those of this model", hint="were architecture settings changed?")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != weights[name].shape:
                raise ModelError(
                    f"{name} is {tuple(weights[name].shape)}, this model's is {tuple(parameter.shape)}",
                    hint="architecture and vocabulary must be those that the weights were trained with",
                )
            parameter.copy_(weights[name])


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    tokenizers = checkpoint.tokenizers
    tensors = {name: tensor.cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    tensors["tokenizer.source"] = _as_tensor(tokenizers.source.model)
    if not tokenizers.joint:
        tensors["tokenizer.target"] = _as_tensor(tokenizers.target.model)
    header: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "config": without_paths(checkpoint.config),
        "progress": checkpoint.progress,
    }
    header["header_sha256"] = _hash_header(header)
    header["tensors_sha256"] = {part: hash_tensors(x) for part, x in _by_part(tensors).items()}
    atomic_write(path, safetensors.torch.save(tensors, {"nmt": json.dumps(header, ensure_ascii=False)}))


def read_checkpoint(path: Path, *, prefixes: tuple[str, ...] = ("model", "average", "optimizer")) -> Checkpoint:
    """Read and check a checkpoint.

    Args:
        path: the file.
        prefixes: which tensors to load; translating needs `model` alone.
    Raises:
        ModelError: the file is missing, no checkpoint, damaged, or of another format version.
    """
    hint = "give a run's directory or its model.safetensors"
    foreign = ModelError(f"{path} is not a model file", hint=hint)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would be waited for
            raise foreign
        with path.open("rb") as file:
            n_bytes = int.from_bytes(file.read(8), "little")
            top = file.read(n_bytes) if n_bytes <= MAX_HEADER_BYTES else b""
        # each tensor has a brace, and few commas: counted before a library makes something of each of them
        n_braces, n_commas = top.count(b"{"), top.count(b",")
        if n_bytes > MAX_HEADER_BYTES or n_braces > MAX_TENSORS or n_commas > 50 * n_braces + 10_000:
            raise foreign
        with safetensors.safe_open(path, framework="pt") as file:
            header = _header(path, (file.metadata() or {}).get("nmt"))
            shapes = {name: _shape(path, file.get_slice(name)) for name in file.keys()}  # noqa: SIM118 - no dict
            stored = {name: file.get_tensor(name) for name in shapes if name.startswith("tokenizer.")}
            _check_hashes(path, header, stored)
            config, tokenizers = _settings(path, header, stored)
            _check_shapes(path, shapes, config, tokenizers)
            wanted = tuple(f"{prefix}." for prefix in prefixes)
            tensors = {name: file.get_tensor(name) for name in shapes if name.startswith(wanted)}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=hint) from error
    except safetensors.SafetensorError as error:
        raise ModelError(f"{path} is not a model file, or is damaged", hint="give a file that nmt wrote") from error
    _check_hashes(path, header, tensors)
    return Checkpoint(config, tensors, tokenizers, header["progress"])


class Newest(NamedTuple):
    """The newest checkpoint of a run that can be read.

    Attributes:
        step: its step.
        checkpoint: what it holds.
        damaged: the newer ones that cannot be read, by step, and why.
    """

    step: int
    checkpoint: Checkpoint
    damaged: dict[int, ModelError]


def read_newest(run: RunDirectory, *, prefixes: tuple[str, ...] = ("model", "average", "optimizer")) -> Newest | None:
    """Read the newest checkpoint that is not damaged; None before there is any.

    Raises:
        ModelError: all of them are.
    """
    damaged: dict[int, ModelError] = {}
    for step in reversed(run.checkpoint_steps()):
        try:
            return Newest(step, read_checkpoint(run.checkpoint_file(step), prefixes=prefixes), damaged)
        except ModelError as error:
            damaged[step] = error
    if damaged:
        raise ModelError(
            f"no checkpoint of {run.path} can be read: {'; '.join(map(str, damaged.values()))}",
            hint="begin anew with --fresh (the old run is kept)",
        )
    return None


def _check_hashes(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    if any(hash_tensors(x) != header["tensors_sha256"].get(part) for part, x in _by_part(tensors).items()):
        raise ModelError(f"{path} is damaged: its tensors are not those that were written", hint="use another")


def _shape(path: Path, stored: Any) -> tuple[int, ...]:
    """A tensor's shape, from the header alone."""
    if stored.get_dtype() not in ("F32", "U8"):
        raise ModelError(f"{path} is not a model file: it has {stored.get_dtype()}", hint="give one that nmt wrote")
    return tuple(stored.get_shape())


def _settings(path: Path, header: Mapping[str, Any], stored: Mapping[str, Tensor]) -> tuple[Config, Tokenizers]:
    """The settings and the tokenizers that all else is checked against."""
    for name, tensor in stored.items():
        if tensor.dtype != torch.uint8 or tensor.dim() != 1:
            raise ModelError(f"{path} is not a model file: {name} is not bytes", hint="train it again")
    try:
        config = check_config(header["config"], {}, str(path))
        source = stored["tokenizer.source"].numpy().tobytes()
        target = stored["tokenizer.target"].numpy().tobytes() if "tokenizer.target" in stored else source
        if config.tokenizer.joint and source != target:
            raise ConfigError("tokenizer.joint=true, but a tokenizer a side")
        return config, Tokenizers.from_models(source, target, nfkc_source=config.data.nfkc_source)
    except ModelError as error:
        raise ModelError(f"{path}: {error}", hint=error.hint) from error
    except (KeyError, ConfigError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{path} is not a model file of this version: {reason}", hint="train it again") from error


class _Undrawn(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return None if function is torch.nn.init.normal_ else function(*args, **(kwargs or {}))


def shapes_of(config: Config, tokenizers: Tokenizers) -> dict[str, tuple[int, ...]]:
    """The weights of a model of these settings by name and shape, without taking their memory.

    On the meta device, where drawing weights or computing positions would import for a second: neither is done.
    """
    if config.model.positions != "learned":  # others are no weights
        config = config.model_copy(update={"model": config.model.model_copy(update={"positions": "none"})})
    with torch.device("meta"), _Undrawn():
        model = new_model(config, tokenizers)
    return {name: tuple(x.shape) for name, x in weights_of(model).items()}


def _check_shapes(path: Path, shapes: Mapping[str, tuple[int, ...]], config: Config, tokenizers: Tokenizers) -> None:
    """Make sure that a file's tensors are those of a model of its settings; a part may be absent as a whole."""
    foreign = ModelError(f"{path}: its weights are not those of its settings", hint="train it again")
    if config.model.n_encoder_layers + config.model.n_decoder_layers > len(shapes):
        raise foreign
    own = shapes_of(config, tokenizers)
    found: dict[str, set[str]] = {"model": set(), "average": set()}
    for name, shape in shapes.items():
        part, _, weight = name.partition(".")
        moment = ""
        if part == "tokenizer" and weight in ("source", "target"):
            continue
        if part == "optimizer":
            weight, _, moment = weight.rpartition(".")
        else:
            found.setdefault(part, set()).add(weight)
        if part not in ("model", "average", "optimizer") or weight not in own:
            raise foreign
        if shape != (() if moment == "step" else own[weight]):  # the optimiser's own code does not look
            raise ModelError(
                f"{path}: {weight} is {shape}, in a model of its settings {own[weight]}", hint="train it again"
            )
    if any(names and names != own.keys() for names in found.values()):
        raise foreign


def _header(path: Path, text: str | None) -> dict[str, Any]:
    if text is None:
        raise ModelError(f"{path} was not written by nmt", hint="give a run's directory or its model.safetensors")
    try:
        header = json.loads(text)
        version = header["format_version"]
        header["config"], dict(header["progress"]), dict(header["tensors_sha256"]), header["header_sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} was not written by nmt", hint="give a run's directory or a model file") from error
    if version != FORMAT_VERSION:
        raise ModelError(f"{path} has format version {version}, this nmt reads {FORMAT_VERSION}", hint="update nmt")
    if header["header_sha256"] != _hash_header(header):
        raise ModelError(f"{path} is damaged: its settings are not those that were written", hint="use another")
    return dict(header)


def _hash_header(header: dict[str, Any]) -> str:
    covered = {key: header[key] for key in ("format_version", "config", "progress")}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _by_part(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {}
    for name, x in tensors.items():
        parts.setdefault(name.partition(".")[0], {})[name] = x
    return parts


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes, types and bytes, in the names' order; a file's own bytes are not stable."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def without_paths(config: Config) -> dict[str, Any]:
    """The config with bare file names for paths: a model that is passed on tells nothing of its maker's disk."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [bare(inner) for inner in value]
        return Path(value).name if isinstance(value, str) else value

    tree = config.model_dump(mode="json")
    tree["data"] = {**bare(tree["data"]), "root": ""}
    tree["run"] = Path(tree["run"]).name or "run"
    tree["train"]["init_from"] = Path(tree["train"]["init_from"]).name
    return tree


def average(checkpoints: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights."""
    return {name: torch.stack([c[name].float() for c in checkpoints]).mean(0) for name in checkpoints[0]}


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
