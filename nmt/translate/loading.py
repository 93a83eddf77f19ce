"""Functions that choose an engine for a model, and load a translator with this engine."""

import functools
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from nmt.config import Config
from nmt.decode import EngineName, Precision
from nmt.decode.options import Engine
from nmt.errors import ConfigError, InputError, ModelError, NmtError
from nmt.files import hash_file
from nmt.processes import prepare_torch
from nmt.run.directory import RunDirectory, model_file
from nmt.run.header import read_header
from nmt.translate.translator import Translator

log = logging.getLogger("nmt")


def is_export(path: Path) -> bool:
    """Return whether `path` is a directory that `nmt export` has written."""
    return (path / "model.bin").is_file()


def load(
    path: Path | str | Sequence[Path | str],
    device: str = "auto",
    precision: Precision | None = None,
    engine: EngineName | None = None,
) -> Translator:
    """Load a translator from a run directory, a model file or an export to CTranslate2.

    Args:
        path: a run, a model file or an export. A sequence of runs and model files forms an ensemble.
        device: `auto` is cuda if there is such a device, else mps, else cpu.
        precision: bf16 (on some hardware) and int8 (on CPUs) are faster but less exact. None is fp32, or the precision
            of an export.
        engine: `auto` is CTranslate2 on a CPU if it supports the model, else torch. None is the engine in the config of
            the model.
    Raises:
        ModelError: a model is missing, damaged or of another engine, or the tokenizers differ.
        ConfigError: the device is missing or does not support the precision.
    """
    paths = [Path(path)] if isinstance(path, Path | str) else [Path(model_path) for model_path in path]
    if not paths:
        raise ModelError("no model was named", hint="give the path of a run")
    # 1. Check the arguments, because Python code can pass any value.
    for name, value, choices in (("precision", precision, Precision), ("engine", engine, EngineName)):
        if value is not None and value not in get_args(choices):
            raise ConfigError(f"unknown {name} {value!r}", hint=f"choose one of {', '.join(get_args(choices))}")
    # 2. Load an export. It has no weights for torch, and cannot be part of an ensemble.
    exports = [model_path for model_path in paths if is_export(model_path)]
    if exports and (engine == "torch" or len(paths) > 1):
        raise ModelError(f"{exports[0]} is a CTranslate2 export", hint="give the run that was exported")
    if exports:
        from nmt.decode.engines.ctranslate2_engine import load_export

        return Translator(*load_export(paths[0], device, precision))
    # 3. Choose the engine by the settings of all models and by the device.
    headers = [read_header(model_file(model_path)) for model_path in paths]
    configs = [config for config, _ in headers]
    engine = engine or configs[0].decode.engine
    reason = needs_torch(configs, device, precision, engine)
    if not reason:
        # If CTranslate2 fails, torch takes over. But torch has no int8, and a chosen engine is not replaced.
        try:
            return load_converted(paths[0], precision or "fp32", headers[0][1])
        except NmtError as error:
            if engine == "ctranslate2" or precision == "int8":
                raise
            reason = str(error)
            log.warning("torch translates, because CTranslate2 cannot: %s", reason)
    elif engine == "ctranslate2":
        raise ConfigError(f"CTranslate2 cannot translate: {reason}", hint="use --engine auto or torch")
    # 4. Load the model for torch if CTranslate2 cannot translate, and log the reason.
    log.debug("engine: torch: %s", reason)
    return load_torch(paths, device, precision or "fp32")


def needs_torch(
    configs: Sequence[Config], device: str = "auto", precision: Precision | None = None, engine: EngineName = "auto"
) -> str:
    """Return the reason why models need the torch engine, or "" if CTranslate2 can translate.

    The arguments are the same as in `load`.
    """
    if engine == "torch":
        return "chosen"
    from nmt.decode.engines.ctranslate2_engine import import_ctranslate2, unsupported

    try:
        ctranslate2 = import_ctranslate2()
    except InputError:
        return "CTranslate2 is not installed"
    if len(configs) > 1:
        return "several models"
    if setting := unsupported(configs[0].model):
        return setting
    if precision == "bf16":
        return "precision bf16"
    if device == "cpu":
        return ""
    # Use torch on GPUs: CTranslate2 does not support Apple's GPUs, and has not been compared with torch on others.
    has_gpu = sys.platform == "darwin" or ctranslate2.get_cuda_device_count() > 0
    return "" if device == "auto" and not has_gpu else f"device {device}"


def load_converted(path: Path, precision: Precision, progress: Mapping[str, Any]) -> Translator:
    """Load a run or model file with CTranslate2. The model is converted, and the cache keeps the converted model.

    Raises NmtError if the model cannot be converted or loaded.
    """
    from nmt.decode.engines.ctranslate2_engine import converted, load_export

    file = model_file(path)
    export, digest = converted(file, precision)

    # Some options need torch. The torch model is loaded when such an option is used first.
    @functools.cache
    def load_reference() -> Engine:
        if hash_file(file) != digest:  # a training has replaced the file
            raise ModelError(f"{file} has been replaced since it was loaded", hint="start again to use the new model")
        return load_torch([path], "cpu", "fp32").engine

    run = RunDirectory(path) if path.is_dir() else None
    engine, tokenizers, config = load_export(export, "cpu", precision, load_reference)
    log.debug("engine: %s", engine.name)
    return Translator(engine, tokenizers, config, run, progress)


def load_torch(paths: Sequence[Path], device: str, precision: Precision) -> Translator:
    """Load runs or model files for torch; see `load`."""
    prepare_torch()  # if torch is already imported, `prepare_torch` affects only malloc
    from nmt.decode.engines.torch_engine import load_models

    return Translator(*load_models(paths, device, precision))
