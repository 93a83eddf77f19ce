"""Information about a run, a model file or an export: architecture, parameters, data, training, scores, use."""

import math
import time
from collections import Counter
from collections.abc import Mapping
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

BLOCKS = {"embedding": "embeddings", "look": "attention", "projection": "output"}  # last part of a name: its block


def information(path: Path) -> dict[str, Any]:
    """Return information about a run, a model file or an export, as JSON values. Raises ModelError for other paths."""
    if is_export(path):
        kind, found = "CTranslate2 export", _of_export(path)
    elif path.is_dir():
        kind, found = "run", _of_run(RunDirectory(path))
    elif path.exists():
        kind, found = "model file", _of_model_file(path)
    else:
        raise ModelError(f"no model at {path}", hint="give a run, its model.safetensors, or an export")
    name, several = quote(str(path)), found["languages"] if isinstance(found.get("languages"), list) else []
    chosen, to = (f" -l {several[0]}", f".to({several[0]!r})") if several else ("", "")
    python = f"import nmt; print(nmt.load({str(path)!r}){to}.translate(['…']))"
    use = {"translate": f'nmt translate -m {name}{chosen} "…"', "serve": f"nmt serve -m {name}", "python": python}
    return {"path": str(path), "kind": kind, **found, "use": use}


def _of_model_file(path: Path) -> dict[str, Any]:
    found = read_checkpoint(path, prefixes=("model",))
    progress = found.progress
    keys = {"steps": "step", "epochs": "epoch", "target_tokens": "n_tokens", "seconds": "elapsed_s"}
    keys["best"] = "best_figures"
    training = {name: progress[key] for name, key in keys.items() if progress.get(key)}
    training["seed"] = found.config.seed
    reason = needs_torch([found.config], engine=found.config.decode.engine)
    about = {**_of_model(found.config, found.tokenizers), "engine": f"torch: {reason}" if reason else "ctranslate2"}
    return {**about, "file": _of_file(path), "training": training}


def _of_file(path: Path) -> dict[str, Any]:
    status = path.stat()
    written = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(status.st_mtime))
    return {"bytes": status.st_size, "sha256": hash_file(path), "written": written}


def _of_model(config: Config, tokenizers: Tokenizers) -> dict[str, Any]:
    """Architecture, parameters, languages and tokenizer."""
    blocks: Counter[str] = Counter()
    for name, shape in shapes_of(config, tokenizers).items():
        part = name.partition(".")[0].removeprefix("source_").removeprefix("target_").removesuffix("_norm")
        blocks[BLOCKS.get(part, part)] += math.prod(shape)
    return {
        "languages": config.data.directions or {side: language(config.data, side) for side in ("source", "target")},
        "architecture": config.model.model_dump(),
        "parameters": {"total": blocks.total(), **blocks},
        "tokenizer": {
            **config.tokenizer.model_dump(include={"type", "joint", "byte_fallback"}),
            **config.data.model_dump(include={"nfkc_source", "target_tag"}),
            "pieces": {"source": len(tokenizers.source), "target": len(tokenizers.target)},
        },
        "search": config.decode.model_dump(),
    }


def _of_export(path: Path) -> dict[str, Any]:
    run = RunDirectory(path)
    config = run.read_config()
    tokenizers = run.read_tokenizers(config)
    if tokenizers is None:
        raise ModelError(f"{path} has no tokenizer", hint="export the model again")
    return {**_of_model(config, tokenizers), "file": _of_file(path / "model.bin")}


def _of_run(run: RunDirectory) -> dict[str, Any]:
    config, manifest, lines = run.read_config(), run.read_manifest(), run.read_metrics()
    found: dict[str, Any] = {}
    if run.model_file.exists():
        found = _of_model_file(run.model_file)
        found["training"]["model_step"] = found["training"].pop("steps", 0)
    elif (tokenizers := run.read_tokenizers(config)) is not None:
        found = _of_model(config, tokenizers)

    def of_lines(key: str) -> list[float]:
        return [line[key] for line in lines if is_finite(line.get(key))]

    found.setdefault("training", {}).update(
        steps=max(of_lines("step"), default=0),
        epochs=max(of_lines("epoch"), default=0),
        target_tokens=sum(of_lines("n_tokens")),
        seconds=max(of_lines("elapsed_s"), default=0.0),
        checkpoints=run.checkpoint_steps(),
    )
    corpora = {} if "imported" in manifest else all_corpora(config)  # the data of an imported model is unknown
    names = {
        f"{corpus}.{side}": [*map(str, paths)]
        for corpus, files in corpora.items()
        for side, paths in zip(("source", "target"), corpus_paths(config, files), strict=True)
    }
    found["data"] = {"files": names, "sha256": manifest.get("data", {}), "pairs": manifest.get("n_pairs", {})}
    keys = ("command", "started", "git_commit", "python", "machine", "versions", "reproducible", "imported")
    found["origin"] = {key: manifest[key] for key in keys if manifest.get(key) not in (None, "")}
    own = found.get("file", {}).get("sha256")
    newest = {(str(line.get("source_sha256")), str(line.get("search"))): line for line in run.read_scores()}
    found["scores"] = [{**line, "is_of_this_model": line.get("model_sha256") == own} for line in newest.values()]
    return found


def as_text(found: Mapping[str, Any]) -> str:
    """The information as YAML, which escapes control characters; each command in `use` has a line of its own."""
    rest = {key: value for key, value in found.items() if key != "use"}
    return "".join(
        yaml.safe_dump(part, sort_keys=False, allow_unicode=True, default_flow_style=is_block, width=width)
        for part, is_block, width in ((rest, None, 120), ({"use": found["use"]}, False, 10_000))
    )
