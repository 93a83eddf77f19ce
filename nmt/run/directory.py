"""A run directory: its layout, and the code that reads and writes its small files.

config.yaml         all settings, including those that training has chosen
manifest.json       versions, data hashes, seed, command
tokenizer.model     tokenizer of both sides; or tokenizer.src.model and tokenizer.tgt.model
model.safetensors   the best model, which `nmt translate` loads
checkpoints/        step-N.safetensors, or step-N.damaged if the checkpoint could not be read
metrics.jsonl       figures: one line for each step and for each validation
report.html         figures as a page for the browser, if train.report is set
train.log           messages of all `nmt train` commands, with times
lock                lock file, held during training
scores.jsonl        results: one line for each `nmt eval`

README.md beside this file lists the keys of the .jsonl files.
"""

import contextlib
import itertools
import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

from nmt.config import Config, check_config, dump_config, read_yaml
from nmt.errors import ConfigError, ModelError, OutputError, os_errors_as
from nmt.files import (
    append_whole,
    atomic_write,
    hash_file,
    is_special,
    locked,
    parse_json,
    read_capped,
    sha256,
    sweep_temps,
    write_json,
)
from nmt.text.lines import raw_lines, reading
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers

MAX_MANIFEST_BYTES = 10_000_000
# The manifest lists the versions of these packages.
PACKAGES = ("nmt-trainer", "torch", "sentencepiece", "sacrebleu", "safetensors")


class RunDirectory:
    """A run directory and the paths of its files. The directory need not exist yet."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.real_path = Path(os.path.realpath(path))  # unlike `Path.resolve`, `realpath` accepts a loop of links
        # Files that a resumed training needs.
        self.config_file = self.path / "config.yaml"
        self.manifest_file = self.path / "manifest.json"
        self.model_file = self.path / "model.safetensors"
        self.checkpoints = self.path / "checkpoints"
        # Files for users and reports.
        self.metrics_file = self.path / "metrics.jsonl"
        self.log_file = self.path / "train.log"
        self.scores_file = self.path / "scores.jsonl"
        self.report_file = self.path / "report.html"

    # --- the directory as a whole

    def create(self) -> None:
        """Make the directory and its `checkpoints`. If `path` is a link, make its target."""
        with os_errors_as(OutputError, f"make the run's directory {self.path}", hint="choose another with run=PATH"):
            (self.real_path / "checkpoints").mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the run inside this block. A missing directory is made first.

        Unfinished files of a killed training are removed. Raises InputError if another training holds the lock.
        """
        self.create()
        with self._locked():
            # Remove unfinished files. Without the lock, another training might still write them.
            sweep_temps(self.path)
            sweep_temps(self.checkpoints)
            yield

    def move_aside(self) -> Path | None:
        """Rename an existing run NAME to the first free name of NAME.1, NAME.2, …

        If `path` is a link, its target is renamed and the link stays. So the new run is on the same disk.

        Returns:
            The new absolute path of the run, or None if there is no run.
        Raises:
            ConfigError: the run is or contains the working directory.
        """
        if not self.path.exists():
            return None
        if Path.cwd().resolve().is_relative_to(self.real_path):
            raise ConfigError(
                f"run={self.path} cannot be moved aside: it is the working directory or contains it",
                hint="choose another with run=PATH, or start nmt from another directory",
            )
        with self._locked():
            # Find the first name that is free.
            paths = (self.real_path.with_name(f"{self.real_path.name}.{n}") for n in itertools.count(1))
            aside = next(path for path in paths if not os.path.lexists(path))
            with os_errors_as(OutputError, f"move {self.path} aside", hint="choose another with run=PATH"):
                return self.real_path.rename(aside)

    def _locked(self) -> AbstractContextManager[None]:
        self._check_links()
        return locked(self.path / "lock", holder="training", setting="run=PATH")

    def _check_links(self) -> None:
        """Raise ModelError if the run has special files, or links that lead out of the run.

        A run may come from an untrusted source. Writing to such a link would change files elsewhere.
        """
        # nmt writes into these two directories only.
        for entry in (*self.path.glob("*"), *self.checkpoints.glob("*")):
            # Links to files within the run are harmless.
            target = Path(os.path.realpath(entry))
            if entry.is_symlink() and not target.is_relative_to(self.real_path):
                raise ModelError(f"{entry} is a link that leads out of the run", hint="replace it by its target")
            # Special files are refused: opening a pipe would block.
            if is_special(entry) and not entry.is_dir():
                raise ModelError(f"{entry} is neither a file nor a directory", hint="remove it")

    # --- settings and manifest

    def write_config(self, config: Config) -> None:
        atomic_write(self.config_file, dump_config(config))

    def read_config(self) -> Config:
        """Return the settings in config.yaml. Raises ModelError if the directory is not a run."""
        if not self.config_file.is_file():
            raise ModelError(f"{self.path} is not a run: it has no config.yaml", hint="train one with `nmt train`")
        return check_config(*read_yaml(self.config_file), str(self.config_file))

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        write_json(self.manifest_file, manifest)

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest, or an empty dict if there is no manifest. Raises ModelError if the file is damaged."""
        if not self.manifest_file.exists():
            return {}
        manifest: Any = None  # None is refused below
        with contextlib.suppress(OSError, ValueError):
            manifest = parse_json(read_capped(self.manifest_file, MAX_MANIFEST_BYTES))
        if not isinstance(manifest, dict) or not isinstance(manifest.get("data", {}), dict):
            raise ModelError(f"{self.manifest_file} is damaged", hint="delete it, or begin anew with --fresh")
        return manifest

    # --- tokenizers

    def tokenizer_files(self, joint: bool) -> list[Path]:
        """Return the files of the source and the target tokenizer. With `joint`, both are one file."""
        if joint:
            file = self.path / "tokenizer.model"
            return [file, file]
        return [self.path / "tokenizer.src.model", self.path / "tokenizer.tgt.model"]

    def write_tokenizers(self, tokenizers: Tokenizers, joint: bool) -> None:
        """Write one file if `joint` is true and both models are equal, otherwise one file per side."""
        for file, side in zip(self.tokenizer_files(joint and tokenizers.joint), tokenizers, strict=True):
            atomic_write(file, side.model)

    def read_tokenizers(self, config: Config) -> Tokenizers | None:
        """Return the tokenizers of the run, or None if one of their files is missing.

        Raises ModelError if a file is damaged.
        """
        # Even with `joint`, there may be two files: see `write_tokenizers`.
        is_joint = config.tokenizer.joint and (self.path / "tokenizer.model").exists()
        source_file, target_file = self.tokenizer_files(is_joint)
        if not (source_file.is_file() and target_file.is_file()):
            return None
        # Normalization and target tag apply to the source side only.
        source = self._read_tokenizer(source_file, nfkc=config.data.nfkc_source, target_tag=config.data.target_tag)
        return Tokenizers(source, self._read_tokenizer(target_file))

    def read_export(self) -> tuple[Config, Tokenizers]:
        """Return the config and the tokenizers of an export. Raises ModelError if there are no tokenizers."""
        config = self.read_config()
        tokenizers = self.read_tokenizers(config)
        if tokenizers is None:
            raise ModelError(f"{self.path} has no tokenizer", hint="export the model again")
        return config, tokenizers

    def _read_tokenizer(self, file: Path, *, nfkc: bool = False, target_tag: str | None = None) -> Tokenizer:
        try:
            return Tokenizer(read_capped(file, MAX_MODEL_BYTES), nfkc=nfkc, target_tag=target_tag)
        except (OSError, ModelError) as error:
            reason = getattr(error, "strerror", error)
            raise ModelError(
                f"{file}: {reason}", hint=f"delete it and run `nmt tokenize {shlex.quote(str(self.config_file))}`"
            ) from error

    # --- checkpoints

    def checkpoint_file(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}.safetensors"

    def checkpoint_steps(self) -> list[int]:
        """Return the steps of all checkpoints in ascending order."""
        stems = [file.stem.removeprefix("step-") for file in self.checkpoints.glob("step-*.safetensors")]
        # Ignore files that nmt did not write, such as step-007.
        return sorted(int(step) for step in stems if re.fullmatch("0|[1-9][0-9]*", step))

    def newest_step(self) -> int | None:
        return max(self.checkpoint_steps(), default=None)

    def holds_training(self) -> bool:
        """Return whether a checkpoint was ever saved here, even if it was deleted later.

        Metrics of a validation prove that there was a checkpoint. Metrics of steps do not.
        """
        if self.newest_step() is not None or self.model_file.exists():
            return True
        return any("dev_loss" in line for line in self.read_metrics())

    def set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint, so that `checkpoint_steps` ignores the file. Return the new path."""
        damaged = self.checkpoints / f"step-{step}.damaged"
        return self.checkpoint_file(step).rename(damaged)

    def prune_checkpoints(self, n_kept: int) -> None:
        """Delete all checkpoints except the newest `n_kept`."""
        for step in self.checkpoint_steps()[:-n_kept]:
            self.checkpoint_file(step).unlink(missing_ok=True)

    # --- metrics and scores: one JSON object per line

    def append_metrics(self, *lines: dict[str, Any]) -> None:
        """Append lines to metrics.jsonl. If writing fails, append none of them and raise OutputError."""
        append_whole(self.metrics_file, _joined_lines(lines))

    def cut_metrics(self, step: int) -> list[dict[str, Any]]:
        """Remove lines of steps after `step`, and return the kept lines.

        A run that resumes from `step` writes the removed lines again.
        """
        # Invalid lines are also removed: a killed process may have written half a line.
        kept = [line for line in self.read_metrics() if line.get("step", 0) <= step]
        if self.metrics_file.exists():
            atomic_write(self.metrics_file, _joined_lines(kept))
        return kept

    def read_metrics(self) -> list[dict[str, Any]]:
        return list(json_lines(self.metrics_file))

    def append_scores(self, line: dict[str, Any]) -> None:
        self._check_links()  # `nmt eval` does not take the lock, which would check the links
        append_whole(self.scores_file, _joined_lines([line]))

    def read_scores(self) -> list[dict[str, Any]]:
        """Return the lines of scores.jsonl, oldest first."""
        return list(json_lines(self.scores_file))


def _joined_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a line of JSON for each mapping, as UTF-8."""
    # File names that are not valid UTF-8 contain lone surrogates. Escape them.
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    return text.encode(errors="backslashreplace")


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each valid line of a file. If there is no file, yield nothing."""
    if not file.is_file():  # missing, or a special file: opening a pipe could block
        return
    with file.open("rb") as stream:
        for text in raw_lines(stream, str(file)):
            line: Any = None
            with contextlib.suppress(ValueError):  # a killed process may have left half a line
                line = parse_json(text)
            if isinstance(line, dict) and isinstance(line.get("step", 0), int):
                yield line


def model_file(path: Path) -> Path:
    """Return the model file of a run directory. A path that is no directory is returned as it is.

    Raises ModelError if the file does not exist.
    """
    file = RunDirectory(path).model_file if path.is_dir() else path
    if not file.exists():
        raise ModelError(f"no model at {file}", hint="train one with `nmt train CONFIG`, or name another")
    return file


def newest_run() -> Path:
    """Return the run under runs/ with the newest model file. Raises ModelError if there is no model."""
    files = [file for file in Path("runs").glob("**/model.safetensors") if file.is_file()]
    if not files:
        raise ModelError("no model under runs/", hint="train one with `nmt train CONFIG`, or name one")
    return max(files, key=lambda file: file.stat().st_mtime_ns).parent


def new_manifest(data_hashes: dict[str, str], n_pairs: dict[str, int], seed: int) -> dict[str, Any]:
    """Return the manifest of a new run: its command, data, seed and versions."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": seed,
        "data": data_hashes,
        "n_pairs": n_pairs,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "versions": versions,
    }


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return "not installed"  # such as nmt-trainer itself, if nmt runs from a clone


def hash_files(paths: Sequence[Path], hint: str = "check the path") -> str:
    """Return one SHA-256 of several files. Raises DataError with this hint if a file cannot be read."""
    digests = []
    for path in paths:
        with reading(str(path), hint):
            digests.append(hash_file(path))
    return sha256("".join(digests).encode())
