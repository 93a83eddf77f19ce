"""Shared by all exports: checks of model and directory, biases, positions, and what engines are compared on."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmt.decode.engines.ctranslate2_engine import unsupported
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.errors import InputError, NmtError, os_errors_as
from nmt.files import read_capped
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.batches import pad_source
from nmt.translate.translator import Translator

CHECKED_LENGTHS = (1, 5, 20)  # pieces of the random sentences on which engines are compared
BAN = -1e4  # bias of pieces that are never generated: representable in float16, and exp(BAN) is 0


def check_replaceable(path: Path, names: Collection[str], needed: Sequence[str], words: str) -> None:
    """Refuse to replace anything but an empty directory or an export of ours.

    An export has all files in `needed` and none outside of `names`, and its file `needed[0]` contains `words`.
    """
    real = Path(os.path.realpath(path))  # unlike `resolve`, does not fail on a loop of links
    if real == Path.cwd() or path.is_mount():
        raise InputError(f"{path} cannot be replaced: it is in use", hint="name a directory in it")
    # Nothing, or a link to nothing, is replaced.
    if not os.path.lexists(real):
        return
    # An export is replaced.
    present = {entry.name for entry in path.iterdir()} if path.is_dir() else None
    if present is not None and set(needed) <= present <= set(names):
        with os_errors_as(InputError, f"read {path / needed[0]}", hint="name another directory"):
            content = read_capped(path / needed[0], 1_000_000)
        if words.encode() in content:
            return
    # An empty directory is replaced, too.
    if present != set():
        raise InputError(f"{path} exists and is not an export", hint="name another directory, or delete it")


def exportable_model(translator: Translator, tool: str, supported: Mapping[str, Sequence[object]]) -> Transformer:
    """Return the translator's model. Raises InputError unless it is one Transformer that `tool` supports.

    `supported` has the supported values of `model.*` settings, by key; other settings may have any value.
    """
    engine = translator.engine.torch_engine("weights to export")
    assert isinstance(engine, TorchEngine)
    if len(engine.models) > 1:
        raise InputError("an ensemble cannot be exported as one model", hint="export each model by itself")
    if setting := unsupported(translator.config.model, supported):
        raise InputError(f"{tool} does not support {setting}", hint="translate with nmt itself")
    (model,) = engine.models
    assert isinstance(model, Transformer)
    return model


def output_bias(model: Transformer) -> Tensor:
    """Return a bias (V,): `BAN` for PAD, UNK and BOS, which are never generated, else 0."""
    bias = torch.zeros(model.projection.out_features)  # (V,)
    bias[[PAD, UNK, BOS]] = BAN
    return bias


def logits_bias(model: Transformer) -> Tensor:
    """Return the bias (V,) of the exported projection: the model's, if it has one, plus `output_bias`."""
    bias = output_bias(model)
    if model.settings.projection_bias:
        bias += model.projection.bias.detach()
    return bias


def log_probs_of(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Return the log-probabilities (T + 1, V) at each position of `target` and after its end, without banned pieces."""
    tgt_in = torch.tensor([[BOS, *target]])
    with torch.inference_mode():
        logits: Tensor = model(pad_source([source]), tgt_in)[0]  # (T + 1, V)
    return (logits + output_bias(model)).log_softmax(-1)


def position_table(model: Transformer, learned: Tensor | None) -> Tensor:
    """Return the positional encodings (P, D) that are added to embeddings; zeros for a model without positions."""
    if learned is not None:
        return learned
    if model.sinusoids is not None:
        return model.sinusoids
    return torch.zeros(model.settings.max_positions, model.settings.d_model)


def random_pairs(max_length: int, n_source: int, n_target: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield source and target tokens of random sentences of `CHECKED_LENGTHS`, to compare log-probabilities on."""
    generator = torch.Generator().manual_seed(1)
    for length in CHECKED_LENGTHS:
        shape = (min(length, max_length - 1),)  # EOS or BOS comes to it
        source = torch.randint(EOS + 1, n_source, shape, generator=generator)
        target = torch.randint(EOS + 1, n_target, shape, generator=generator)
        yield source.tolist(), target.tolist()


def check_difference(differences: Iterable[Tensor], tolerance: float, tool: str) -> float:
    """Return the largest absolute difference between our log-probabilities and those of `tool`, in nats.

    Raises NmtError if it is NaN or above `tolerance`.
    """
    largest_by_sentence = torch.stack([x.abs().max() for x in differences])
    largest = float(largest_by_sentence.max())
    if not largest <= tolerance:  # also true for NaN
        message = f"{tool} log-probabilities differ from the model's by {largest:.2g} nats"
        raise NmtError(message, hint="check that the model translates, or try another version of the tool")
    return largest
