"""Information about a run, a model file or an export: config, parameters, training, manifest and scores."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from nmt.config import Config, language
from nmt.errors import ModelError
from nmt.files import hash_file
from nmt.run.checkpoint import read_checkpoint, shapes_of
from nmt.run.directory import RunDirectory
from nmt.text.tokenizer import Tokenizers
from nmt.translate.loading import is_export, needs_torch

# These fields of a checkpoint's progress are shown.
PROGRESS = ("step", "epoch", "n_tokens", "elapsed_s", "best_figures")


def information(path: Path) -> dict[str, Any]:
    """Return information about a run, a model file or an export, as JSON values.

    Raises ModelError if `path` is none of the three, or does not exist.
    """
    if is_export(path):
        facts = {"kind": "CTranslate2 export", **export_facts(path)}
    elif path.is_dir():
        facts = {"kind": "run", **run_facts(RunDirectory(path))}
    elif path.exists():
        facts = {"kind": "model file", **model_file_facts(path)}
    else:
        raise ModelError(f"no model at {path}", hint="give a run, its model.safetensors, or an export")
    return {"path": str(path), **facts}


def model_facts(config: Config, tokenizers: Tokenizers) -> dict[str, Any]:
    """Return the languages, the numbers of parameters and pieces, and the config."""
    languages: object = config.data.directions
    if not languages:
        languages = {side: language(config.data, side) for side in ("source", "target")}
    # Count the parameters of each module of the model.
    parameters: Counter[str] = Counter()
    for name, shape in shapes_of(config, tokenizers).items():
        parameters[name.partition(".")[0]] += math.prod(shape)
    return {
        "languages": languages,
        "parameters": {"total": parameters.total(), **parameters},
        "pieces": {"source": len(tokenizers.source), "target": len(tokenizers.target)},
        "config": settings_of(config),
    }


def settings_of(config: Config) -> dict[str, Any]:
    """Return all settings except the long section `train`."""
    return config.model_dump(mode="json", exclude={"train"})


def model_file_facts(path: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(path, prefixes=("model",))
    config = checkpoint.config
    facts = model_facts(config, checkpoint.tokenizers)
    reason = needs_torch([config], engine=config.decode.engine)
    facts["engine"] = f"torch: {reason}" if reason else "ctranslate2"
    facts["file"] = file_facts(path)
    facts["training"] = {key: checkpoint.progress.get(key) for key in PROGRESS}
    return facts


def file_facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def export_facts(path: Path) -> dict[str, Any]:
    config, tokenizers = RunDirectory(path).read_export()
    return {**model_facts(config, tokenizers), "file": file_facts(path / "model.bin")}


def run_facts(run: RunDirectory) -> dict[str, Any]:
    """Return information from the files of a run. If the training has just begun, model or tokenizer may be missing."""
    config = run.read_config()
    tokenizers = run.read_tokenizers(config)
    facts: dict[str, Any] = {}
    if run.model_file.exists():
        facts = model_file_facts(run.model_file)
    elif tokenizers is not None:
        facts = model_facts(config, tokenizers)
    # The run's config has the paths of the corpora, which a model file does not have.
    facts["config"] = settings_of(config)
    facts["checkpoints"] = run.checkpoint_steps()
    facts["manifest"] = run.read_manifest()

    facts["scores"] = run.read_scores()
    model_hash = facts.get("file", {}).get("sha256")
    for line in facts["scores"]:
        line["is_of_this_model"] = line.get("model_sha256") == model_hash
    return facts


def as_text(facts: dict[str, Any]) -> str:
    """Return the information as YAML, which escapes control characters."""
    return yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
