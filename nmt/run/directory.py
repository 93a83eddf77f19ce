"""A run directory: its layout, and the code that reads and writes its small files. Imports no torch.

config.yaml         all settings, resolved
manifest.json       versions, data hashes, seed, command, git commit
tokenizer.model     or tokenizer.src.model and tokenizer.tgt.model
model.safetensors   the best model or average of models: what `nmt translate` loads
checkpoints/        step-N.safetensors; step-N.damaged if it could not be read; snapshot-N.safetensors (train.snapshots)
metrics.jsonl       figures of training and validation, one line each
train.log           messages of every `nmt train` on stderr, with times
lock                held during training
scores.jsonl        results of `nmt eval`, one line each; only after `nmt eval`
growth.html         a sentence along training; only after `nmt explain --growth`

README.md beside this file lists the keys of the .jsonl files.
"""

import contextlib
import json
import os
import platform
import re
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from nmt.config import Config, check_config, dump_config, read_yaml
from nmt.errors import ConfigError, ModelError, OutputError, os_errors_as
from nmt.files import append_whole, atomic_write, hash_file, locked, parse_json, read_capped, sha256, sweep_temps
from nmt.text.lines import raw_lines, reading
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers

MAX_MANIFEST_BYTES = 10_000_000


class RunDirectory:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.real_path = Path(os.path.realpath(path))  # unlike `resolve`, does not fail on a loop of links
        self.config_file = self.path / "config.yaml"
        self.manifest_file = self.path / "manifest.json"
        self.model_file = self.path / "model.safetensors"
        self.checkpoints = self.path / "checkpoints"
        self.metrics_file = self.path / "metrics.jsonl"
        self.log_file = self.path / "train.log"
        self.scores_file = self.path / "scores.jsonl"
        self.report_file = self.path / "report.html"
        self.growth_file = self.path / "growth.html"

    def create(self) -> None:
        """Make the directory, or the directory that `path` links to."""
        with os_errors_as(OutputError, f"make the run's directory {self.path}", hint="choose another with run=PATH"):
            (self.real_path / self.checkpoints.name).mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for training; remove unfinished writes of a killed training. Raises InputError if in use."""
        self.create()
        self._check_links()
        with locked(self.path / "lock", holder="training", setting="run=PATH"):
            for directory in (self.path, self.checkpoints):
                sweep_temps(directory)  # only under the lock: a training on another machine may be writing them
            yield

    def check_movable(self) -> None:
        """Raise ConfigError if the run is or contains the working directory: this process would stay in it."""
        if Path.cwd().resolve().is_relative_to(self.real_path):
            reason = f"run={self.path} cannot be moved aside: it is the working directory or contains it"
            raise ConfigError(reason, hint="choose another with run=PATH, or start nmt from another directory")

    def move_aside(self) -> Path | None:
        """Rename an existing run to the first free of NAME.1, NAME.2, …

        Returns its new absolute path, or None if there is no run. If `path` is a link, its target is renamed and the
        link stays, so that the new run is on the same disk.
        """
        if not self.path.exists():
            return None
        self.check_movable()
        self._check_links()
        with locked(self.path / "lock", holder="training", setting="run=PATH"):
            n = 1
            while os.path.lexists(aside := self.real_path.with_name(f"{self.real_path.name}.{n}")):
                n += 1
            with os_errors_as(OutputError, f"move {self.path} aside", hint="choose another with run=PATH"):
                return self.real_path.rename(aside)

    def _check_links(self) -> None:
        """Make sure that writing into the run changes no files outside of it; its source may be untrusted."""
        for entry in (*self.path.glob("*"), *self.checkpoints.glob("*")):  # nothing is written deeper
            if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(self.real_path):
                raise ModelError(f"{entry} is a link that leads out of the run", hint="replace it by its target")
            with contextlib.suppress(OSError):  # renamed by another training meanwhile, or a loop of links
                mode = entry.stat().st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                    raise ModelError(f"{entry} is neither a file nor a directory", hint="remove it")

    def write_config(self, config: Config) -> None:
        atomic_write(self.config_file, dump_config(config))

    def read_config(self) -> Config:
        """The resolved settings. Raises ModelError if this is not a run."""
        if not self.config_file.is_file():
            raise ModelError(f"{self.path} is not a run: it has no config.yaml", hint="train one with `nmt train`")
        return check_config(*read_yaml(self.config_file), str(self.config_file))

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        atomic_write(self.manifest_file, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; empty if it is not written yet. Raises ModelError if it is damaged."""
        manifest: Any = None if self.manifest_file.exists() else {}
        with contextlib.suppress(OSError, ValueError):
            manifest = parse_json(read_capped(self.manifest_file, MAX_MANIFEST_BYTES))
        if not isinstance(manifest, dict) or not isinstance(manifest.get("data", {}), dict):
            raise ModelError(f"{self.manifest_file} is damaged", hint="delete it, or begin anew with --fresh")
        return manifest

    def tokenizer_files(self, joint: bool) -> list[Path]:
        """The files of the source's and the target's tokenizer; the same file if joint."""
        names = ("tokenizer.model", "tokenizer.model") if joint else ("tokenizer.src.model", "tokenizer.tgt.model")
        return [self.path / name for name in names]

    def write_tokenizers(self, tokenizers: Tokenizers, joint: bool) -> None:
        """Write one file if `joint` is true and both sides have the same model, else one file per side."""
        for file, side in zip(self.tokenizer_files(joint and tokenizers.joint), tokenizers, strict=True):
            atomic_write(file, side.model)

    def read_tokenizers(self, config: Config) -> Tokenizers | None:
        """The run's tokenizers; None if they are not trained yet. Raises ModelError if a file is not a tokenizer."""
        joint, data = config.tokenizer.joint, config.data
        files = self.tokenizer_files(joint and self.tokenizer_files(True)[0].exists())
        if not all(file.is_file() for file in files):
            return None
        sides = []
        for file, nfkc, tag in zip(files, (data.nfkc_source, False), (data.target_tag, None), strict=True):
            try:
                sides.append(Tokenizer(read_capped(file, MAX_MODEL_BYTES), nfkc=nfkc, target_tag=tag))
            except (OSError, ModelError) as error:
                hint = f"delete it and run `nmt tokenize {shlex.quote(str(self.config_file))}`"
                raise ModelError(f"{file}: {getattr(error, 'strerror', error)}", hint=hint) from error
        tokenizers = Tokenizers(*sides)
        return tokenizers if tokenizers.one_vocabulary or not joint else None  # else they are from earlier settings

    def checkpoint_file(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}.safetensors"

    def checkpoint_steps(self) -> list[int]:
        """The steps of all checkpoints, oldest first."""
        return self._steps("step-")

    def snapshot_file(self, step: int) -> Path:
        return self.checkpoints / f"snapshot-{step}.safetensors"

    def snapshot_steps(self) -> list[int]:
        """The steps of all snapshots, oldest first."""
        return self._steps("snapshot-")

    def cut_snapshots(self, step: int) -> None:
        """Delete the snapshots after `step`, which a resumed run will write again."""
        for later in self.snapshot_steps():
            if later > step:
                self.snapshot_file(later).unlink(missing_ok=True)

    def _steps(self, prefix: str) -> list[int]:
        stems = (file.stem.removeprefix(prefix) for file in self.checkpoints.glob(f"{prefix}*.safetensors"))
        return sorted(int(stem) for stem in stems if re.fullmatch("0|[1-9][0-9]*", stem))

    def newest_step(self) -> int | None:
        return max(self.checkpoint_steps(), default=None)

    def holds_training(self) -> bool:
        """Whether a training has saved something here, even if checkpoints and model were deleted.

        A run that was killed before its first save does not count: it has metrics of steps but not of a validation,
        and starting over gives the same figures.
        """
        has_weights = self.newest_step() is not None or self.model_file.exists()
        return has_weights or any("dev_loss" in line for line in self.read_metrics())

    def set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint, so that it is no longer listed."""
        return self.checkpoint_file(step).rename(self.checkpoints / f"step-{step}.damaged")

    def prune_checkpoints(self, keep: Sequence[int]) -> None:
        for step in set(self.checkpoint_steps()) - set(keep):
            self.checkpoint_file(step).unlink(missing_ok=True)

    def append_metrics(self, *lines: dict[str, Any]) -> None:
        """Append lines of figures, all or none."""
        append_whole(self.metrics_file, b"".join(map(_json_line, lines)))

    def cut_metrics(self, step: int) -> list[dict[str, Any]]:
        """Drop the lines after `step`, which a resumed run will write again; return the other lines."""
        kept = [line for line in self.read_metrics() if line.get("step", 0) <= step]
        if self.metrics_file.exists():
            atomic_write(self.metrics_file, b"".join(map(_json_line, kept)))
        return kept

    def read_metrics(self) -> list[dict[str, Any]]:
        return list(json_lines(self.metrics_file))

    def append_scores(self, line: dict[str, Any]) -> None:
        self._check_links()
        append_whole(self.scores_file, _json_line(line))

    def read_scores(self) -> list[dict[str, Any]]:
        """The results of all evaluations of the run's models, oldest first."""
        return list(json_lines(self.scores_file))


def _json_line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file with one per line, none if there is no file. Leaves out invalid lines."""
    if not file.is_file():  # reading a pipe would block
        return
    with file.open("rb") as stream:
        for text in raw_lines(stream, str(file)):
            line: Any = None
            with contextlib.suppress(ValueError):  # a killed process may have left half a line
                line = parse_json(text)
            if isinstance(line, dict) and isinstance(line.get("step", 0), int):
                yield line


def newest_model(root: Path = Path("runs")) -> Path | None:
    """The most recently written model file under `root`."""
    files = [file for file in root.glob("**/model.safetensors") if file.is_file()]
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def new_manifest(
    data_hashes: dict[str, str], n_pairs: dict[str, int], seed: int, *, reproducible: bool
) -> dict[str, Any]:
    """How a run was made: data, versions, command, and whether the same command gives the same model."""
    libraries = ("torch", "sentencepiece", "sacrebleu", "safetensors")
    return {
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": seed,
        "reproducible": reproducible,
        "data": data_hashes,
        "n_pairs": n_pairs,
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "versions": {"nmt": _version("nmt-trainer"), **{name: _version(name) for name in libraries}},
    }


def hash_files(paths: Sequence[Path], hint: str = "check the path") -> str:
    """SHA-256 of the hashes of several files. Raises DataError, with the given hint, if a file cannot be read."""
    digests = []
    for path in paths:
        with reading(str(path), hint):
            digests.append(hash_file(path))
    return sha256("".join(digests).encode())


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return "not installed"


def _git_commit() -> str:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # no git, or no commit
        return subprocess.check_output(["git", "rev-parse", "HEAD"], stderr=subprocess.DEVNULL, text=True).strip()
    return ""
