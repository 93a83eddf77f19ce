"""Information about a run, a model file or an export: architecture, parameters, data, training, scores, commands."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from nmt.config import Config, language
from nmt.errors import ModelError
from nmt.files import hash_file
from nmt.insight.curves import is_finite
from nmt.run.checkpoint import read_checkpoint, shapes_of
from nmt.run.directory import RunDirectory
from nmt.text.tokenizer import Tokenizers
from nmt.train.corpora import all_corpora, corpus_paths
from nmt.translate.loading import is_export, needs_torch

# Key: name of a module of the model, without "source_" or "target_"; value: name of the module's parameters in the
# output.
BLOCKS = {"embedding": "embeddings", "look": "attention", "projection": "output"}
PROGRESS = {  # key: name in the output; value: name in the progress of a checkpoint
    "steps": "step",
    "epochs": "epoch",
    "target_tokens": "n_tokens",
    "seconds": "elapsed_s",
    "best": "best_figures",
}
# The output has the values of these keys of manifest.json.
ORIGIN = ("command", "started", "python", "machine", "versions", "imported")


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
    use = commands(path, facts.get("languages"))
    return {"path": str(path), **facts, "use": use}


def commands(path: Path, languages: object) -> dict[str, str]:
    """Return examples of how to use a model.

    If the model has several directions, `languages` is a list of them, and the examples choose the first direction.
    """
    # On the command line, an option chooses the direction; in Python, a method call does.
    option = ""
    method = ""
    if isinstance(languages, list):
        option = f" -l {languages[0]}"
        method = f".to({languages[0]!r})"
    name = quote(str(path))
    return {
        "translate": f'nmt translate -m {name}{option} "…"',
        "serve": f"nmt serve -m {name}",
        "python": f"import nmt; print(nmt.load({str(path)!r}){method}.translate(['…']))",
    }


def model_file_facts(path: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(path, prefixes=("model",))
    config = checkpoint.config
    progress = checkpoint.progress
    training = {name: progress[key] for name, key in PROGRESS.items() if progress.get(key)}
    training["seed"] = config.seed
    reason = needs_torch([config], engine=config.decode.engine)
    facts = model_facts(config, checkpoint.tokenizers)
    facts["engine"] = f"torch: {reason}" if reason else "ctranslate2"
    return {**facts, "file": file_facts(path), "training": training}


def file_facts(path: Path) -> dict[str, Any]:
    status = path.stat()
    written = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(status.st_mtime))
    return {"bytes": status.st_size, "sha256": hash_file(path), "written": written}


def model_facts(config: Config, tokenizers: Tokenizers) -> dict[str, Any]:
    """Return the languages, the architecture, the numbers of parameters, the tokenizer and the search settings."""
    # 1. Count parameters by block: source_embedding.weight and target_embedding.weight both belong to "embeddings".
    parameters: Counter[str] = Counter()
    for name, shape in shapes_of(config, tokenizers).items():
        module = name.partition(".")[0].removesuffix("_norm")
        part = module.removeprefix("source_").removeprefix("target_")
        parameters[BLOCKS.get(part, part)] += math.prod(shape)

    # 2. Collect the settings.
    languages: object = config.data.directions
    if not languages:
        languages = {side: language(config.data, side) for side in ("source", "target")}
    tokenizer = config.tokenizer.model_dump(include={"type", "joint", "byte_fallback"})
    tokenizer |= config.data.model_dump(include={"nfkc_source", "target_tag"})
    tokenizer["pieces"] = {"source": len(tokenizers.source), "target": len(tokenizers.target)}
    return {
        "languages": languages,
        "architecture": config.model.model_dump(),
        "parameters": {"total": parameters.total(), **parameters},
        "tokenizer": tokenizer,
        "search": config.decode.model_dump(),
    }


def export_facts(path: Path) -> dict[str, Any]:
    run = RunDirectory(path)
    config = run.read_config()
    tokenizers = run.read_tokenizers(config)
    if tokenizers is None:
        raise ModelError(f"{path} has no tokenizer", hint="export the model again")
    return {**model_facts(config, tokenizers), "file": file_facts(path / "model.bin")}


def run_facts(run: RunDirectory) -> dict[str, Any]:
    """Return information from the files of a run. If the training has just begun, model or tokenizer may be missing."""
    config = run.read_config()
    manifest = run.read_manifest()
    tokenizers = run.read_tokenizers(config)
    # 1. Describe the model.
    facts: dict[str, Any] = {"training": {}}
    if run.model_file.exists():
        facts = model_file_facts(run.model_file)
        facts["training"]["model_step"] = facts["training"].pop("steps", 0)
    elif tokenizers is not None:
        facts |= model_facts(config, tokenizers)

    # 2. Describe the training by metrics.jsonl: the training may have continued after the step of the model file.
    lines = run.read_metrics()
    training = facts["training"]
    training["steps"] = max(numbers(lines, "step"), default=0)
    training["epochs"] = max(numbers(lines, "epoch"), default=0)
    training["target_tokens"] = sum(numbers(lines, "n_tokens"))
    training["seconds"] = max(numbers(lines, "elapsed_s"), default=0.0)
    training["checkpoints"] = run.checkpoint_steps()

    # 3. Describe the data.
    files = {}
    if "imported" not in manifest:  # the data of an imported model is unknown
        for corpus, corpus_files in all_corpora(config).items():
            sources, targets = corpus_paths(config, corpus_files)
            files[f"{corpus}.source"] = list(map(str, sources))
            files[f"{corpus}.target"] = list(map(str, targets))
    hashes = manifest.get("data", {})
    n_pairs = manifest.get("n_pairs", {})
    facts["data"] = {"files": files, "sha256": hashes, "pairs": n_pairs}
    known = {key: manifest.get(key) for key in ORIGIN}
    facts["origin"] = {key: value for key, value in known.items() if value not in (None, "")}

    # 4. Keep the newest scores for each combination of a test set and search settings.
    model_hash = facts.get("file", {}).get("sha256")
    newest = {}
    for line in run.read_scores():
        test = str(line.get("source_sha256")), str(line.get("search"))
        newest[test] = {**line, "is_of_this_model": line.get("model_sha256") == model_hash}
    facts["scores"] = list(newest.values())
    return facts


def numbers(lines: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [line[key] for line in lines if is_finite(line.get(key))]


def as_text(facts: Mapping[str, Any]) -> str:
    """Return the information as YAML, which escapes control characters. Each command in `use` is on a separate line."""
    dump = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True)
    rest = {key: value for key, value in facts.items() if key != "use"}
    use = {"use": facts["use"]}
    return f"{dump(rest, default_flow_style=None, width=120)}{dump(use, default_flow_style=False, width=10_000)}"
