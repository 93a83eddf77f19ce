"""Checks before a training: memory, disk, threads, and whether a resumed run is still the same."""

import logging
import math
import os
from typing import Any

import torch

from nmt.config import Config
from nmt.errors import ConfigError, DataError, OutputError
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import shapes_of
from nmt.run.directory import RunDirectory
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

# Settings that may change on resume. Paths may change, contents may not: hashes are compared.
MAY_CHANGE = (
    *("run", "decode.", "data.root", "data.train", "data.dev", "data.test", "train.max_", "train.patience"),
    *("train.metric", "train.validate_every", "train.keep", "train.n_average", "train.init_from"),
    "data.allow_bad_utf8",
)
MAY_CHANGE_WITH_WARNING = ("train.",)


def check_memory(config: Config, tokenizers: Tokenizers, device: torch.device) -> None:
    """Check that the device can hold the weights, their gradient and the optimizer's moments.

    Raises:
        ConfigError: it cannot.
    """
    n_parameters = sum(map(math.prod, shapes_of(config, tokenizers).values()))
    needed = 4 * n_parameters * (5 if config.train.average == "ema" else 4)  # bytes
    if device.type == "cuda":
        available = torch.cuda.get_device_properties(device).total_memory
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:  # Windows
        return
    if needed > available:
        raise ConfigError(
            f"{n_parameters / 1e6:,.0f}M parameters need {needed / 1e9:.1f} GB to train, "
            f"{device} has {available / 1e9:.1f} GB",
            hint="lower model.d_model, model.d_ff, the number of layers or tokenizer.vocab_size",
        )


def check_disk(run: RunDirectory, model: Seq2Seq, config: Config) -> None:
    """Check that the checkpoints will fit on the disk.

    Raises:
        OutputError: they will not.
    """
    size = 4 * sum(p.numel() for p in model.parameters())  # bytes
    n_copies = 4 if config.train.average == "ema" else 3  # weights, two moments, moving average
    n_files = config.train.keep + 1 + (config.train.n_average if config.train.average in ("best", "last") else 0)
    needed, free = size * (n_copies * n_files + 1), run.free_bytes()
    if free < needed:
        raise OutputError(
            f"the checkpoints need {needed / 1e9:.1f} GB, the disk of {run.path} has {free / 1e9:.1f} GB free",
            hint="lower train.keep or train.n_average, or choose another place with run=PATH",
        )


def check_threads(n_threads: int, device: torch.device) -> None:
    """Check that so many threads can share a step.

    Raises:
        ConfigError: they cannot.
    """
    if n_threads > 1 and device.type != "cpu":
        raise ConfigError("--workers share a CPU", hint="for several GPUs: torchrun -m nmt train …")
    if n_threads > torch.get_num_threads():
        raise ConfigError(
            f"--workers {n_threads} on {torch.get_num_threads()} threads", hint="fewer, or more --threads"
        )


def check_same_run(run: RunDirectory, config: Config, hashes: dict[str, str]) -> None:
    """Check that a resumed run has the same data, architecture and seed; `train` settings that differ are logged.

    Raises:
        ConfigError: settings changed; names each, old and new.
        DataError: files changed.
    """
    before, now = run.read_config().model_dump(), config.model_dump()
    changes = {
        key: f"{key} was {old!r}, is {new!r}"
        for section in before
        for key, old, new in changed(before[section], now[section], section)
        if not key.startswith(MAY_CHANGE)
    }
    if refused := [text for key, text in changes.items() if not key.startswith(MAY_CHANGE_WITH_WARNING)]:
        raise ConfigError(
            f"{run.path} was begun with other settings: {'; '.join(refused)}",
            hint="set them back, choose another run=PATH, or begin anew with --fresh (the old run is kept)",
        )
    if changes:
        log.warning("%s goes on otherwise than it was begun: %s", run.path, "; ".join(changes.values()))
    known = run.read_manifest().get("data", hashes)  # the user may have deleted a damaged manifest
    if ("dev.source" in known) != ("dev.source" in hashes):
        raise DataError(
            f"{run.path} was begun {'with' if 'dev.source' in known else 'without'} data.dev",
            hint="without data.dev, pairs of train are held out: set it back, choose another run=PATH, or begin "
            "anew with --fresh (the old run is kept)",
        )
    if other := [name for name in hashes if not name.startswith("test.") and known.get(name) != hashes[name]]:
        raise DataError(
            f"the files of {', '.join(other)} are not those that {run.path} was begun with",
            hint="bring the old files back, choose another run=PATH, or begin anew with --fresh",
        )


def changed(before: Any, now: Any, name: str) -> list[tuple[str, Any, Any]]:
    """Every setting below `name` that differs, as (dotted key, old, new)."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = {**before, **now}
        return [found for key in keys for found in changed(before.get(key), now.get(key), f"{name}.{key}")]
    return [] if before == now else [(name, before, now)]
