"""Information about a run, a model file or an export: architecture, parameters, data, training, scores, use."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

from nmt.config import Config, language
from nmt.decode.translator import is_export, needs_torch
from nmt.errors import ModelError
from nmt.files import hash_file
from nmt.insight.curves import is_finite
from nmt.run.checkpoint import read_checkpoint, shapes_of
from nmt.run.directory import RunDirectory
from nmt.text.tokenizer import Tokenizers
from nmt.train.preparation import all_corpora, corpus_paths

IGNORED_BY_RNN = {"n_heads", "d_ff", "norm", "positions", "activation", "padding_mask"}
BLOCKS = {"embedding": "embeddings", "look": "attention", "projection": "output"}  # last part of a name: its block
MODEL = ("languages", "architecture", "parameters", "tokenizer", "search")  # keys of one section of the text

Rows = list[tuple[str, str]]  # name and text


def information(path: Path) -> dict[str, Any]:
    """Return information about a run, a model file or a CTranslate2 export, as JSON-serializable values.

    Raises:
        ModelError: the path is none of these, or a file is damaged.
    """
    if is_export(path):
        kind, found = "CTranslate2 export", _of_export(path)
    elif path.is_dir():
        kind, found = "run", _of_run(RunDirectory(path))
    elif path.exists():
        kind, found = "model file", _of_model_file(path)
    else:
        raise ModelError(f"no model at {path}", hint="give a run, its model.safetensors, or an export")
    name, python = quote(str(path)), f"import nmt; print(nmt.load({str(path)!r}).translate(['…']))"
    use = {"translate": f'nmt translate -m {name} "…"', "serve": f"nmt serve -m {name}", "python": python}
    return {"path": str(path), "kind": kind, **found, "use": use}


def _of_model_file(path: Path) -> dict[str, Any]:
    found = read_checkpoint(path, prefixes=("model",))
    progress = found.progress
    keys = {"steps": "step", "epochs": "epoch", "target_tokens": "n_tokens", "seconds": "elapsed_s"}
    training = {name: progress[key] for name, key in keys.items() if is_finite(progress.get(key))}
    training["seed"] = found.config.seed
    others = {"averaged_steps": progress.get("averaged_steps"), "best": progress.get("best_figures")}
    training |= {name: value for name, value in others.items() if value}
    reason = needs_torch([found.config], engine=found.config.decode.engine)
    about = {**_of_model(found.config, found.tokenizers), "engine": f"torch: {reason}" if reason else "ctranslate2"}
    return {**about, "file": _of_file(path), "training": training}


def _of_file(path: Path) -> dict[str, Any]:
    status = path.stat()
    written = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(status.st_mtime))
    return {"bytes": status.st_size, "sha256": hash_file(path), "written": written}


def _of_model(config: Config, tokenizers: Tokenizers) -> dict[str, Any]:
    """Architecture, parameters, languages and tokenizer."""
    model = config.model.model_dump()
    if config.model.architecture == "rnn":
        model = {key: value for key, value in model.items() if key not in IGNORED_BY_RNN}
    else:
        del model["cell"]
    blocks: Counter[str] = Counter()
    for name, shape in shapes_of(config, tokenizers).items():
        part = name.partition(".")[0].removeprefix("source_").removeprefix("target_").removesuffix("_norm")
        blocks[BLOCKS.get(part, part)] += math.prod(shape)
    return {
        "languages": {side: language(config.data, side) for side in ("source", "target")},
        "architecture": model,
        "parameters": {"total": blocks.total(), **blocks},
        "tokenizer": {
            **config.tokenizer.model_dump(include={"type", "joint", "byte_fallback", "sampling_alpha"}),
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
    found = {**_of_model(config, tokenizers), "file": _of_file(path / "model.bin")}
    if find_spec("ctranslate2"):
        from nmt.decode.engines.ctranslate2_engine import load_export

        engine, *_ = load_export(path, "cpu", None)
        found["compute_type"] = str(engine.engine.compute_type)
    return found


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
    hashes, n_pairs = manifest.get("data", {}), manifest.get("n_pairs", {})  # older runs have no n_pairs
    found["data"] = {"files": names, "sha256": hashes, "pairs": n_pairs if isinstance(n_pairs, dict) else {}}
    keys = ("command", "started", "git_commit", "python", "machine", "versions", "reproducible", "imported")
    found["origin"] = {key: manifest[key] for key in keys if manifest.get(key) not in (None, "")}
    own = found.get("file", {}).get("sha256")
    scores = filter(_is_evaluation, run.read_scores())
    found["scores"] = [{**line, "is_of_this_model": line.get("model_sha256") == own} for line in scores]
    return found


def _is_evaluation(line: Mapping[str, Any]) -> bool:
    """Whether a line of scores.jsonl can be shown; the run may come from a stranger."""
    scores = line.get("scores")
    if not isinstance(scores, list) or not isinstance(line.get("search"), dict):
        return False
    return all(isinstance(s, dict) and is_finite(s.get("value")) and "name" in s for s in scores)


# --- text -------------------------------------------------------------------------------------------------


def as_text(found: Mapping[str, Any]) -> list[str]:
    """The information as lines: a heading for each section, then its entries."""
    data = found.get("data", {})
    hashes = {f"{name} sha256": digest for name, digest in data.get("sha256", {}).items()}
    sections: dict[str, Rows] = {
        f"{found['path']}: {found['kind']}": _rows(found.get("file", {"model": "none yet"}))
        + _rows({key: found[key] for key in ("engine", "compute_type") if key in found}),
        "Model": _rows({key: found[key] for key in MODEL if key in found}),
        "Training": _rows(found.get("training", {})),
        "Data": _rows({"pairs": data.get("pairs", {}), **data.get("files", {}), **hashes}),
        "Scores": _score_rows(found.get("scores", [])),
        "Origin": _rows(found.get("origin", {})),
        "Use": _rows(found["use"]),
    }
    width = max(len(name) for rows in sections.values() for name, _ in rows) + 2
    lines = []
    for title, rows in sections.items():
        if rows:
            lines += ["", title, *(f"  {name:<{width}}{text}" for name, text in rows)]
    return lines[1:]


def _rows(entries: Mapping[str, Any]) -> Rows:
    texts = {name: _plain(value).removeprefix(f"{name} ") for name, value in entries.items()}
    return [(name.replace("_", " "), text) for name, text in texts.items() if text]


def _score_rows(lines: Sequence[Mapping[str, Any]]) -> Rows:
    rows: Rows = []
    newest = {(str(line.get("source_sha256")), str(line["search"])): line for line in lines}
    for line in newest.values():
        earlier = "" if line["is_of_this_model"] else "; by an earlier model of this run"
        rows.append((str(line.get("source")), f"{line.get('n_lines')} lines, {_plain(line['search'])}{earlier}"))
        rows += [("", f"{one['name']} = {one['value']:.2f}  {one.get('signature')}") for one in line["scores"]]
    return rows


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)
