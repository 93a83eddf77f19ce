"""A run's directory: its layout, and the only code that reads and writes its small files. Imports no torch.

config.yaml         every setting, as resolved
manifest.json       versions, data hashes, seed, command, git commit
tokenizer.model     or tokenizer.src.model and tokenizer.tgt.model
model.safetensors   the best model, or the average that beat it: what `nmt translate` loads
checkpoints/        step-N.safetensors; step-N.damaged, which could not be read
last.json           which checkpoint is the newest, for programs that ask; replaced last
metrics.jsonl       figures of training and validations, a line each
lock                held while a training runs
"""

import contextlib
import errno
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from nmt.config import Config, dump_config, load_config
from nmt.errors import ConfigError, ModelError, OutputError
from nmt.files import atomic_write, hash_file, locked, read_capped, sha256, sweep_temps
from nmt.text.lines import raw_lines, reading
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers

MAX_JSON_BYTES = 10_000_000  # of a small file: far more than any has


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.manifest_file = self.path / "manifest.json"
        self.model_file = self.path / "model.safetensors"
        self.checkpoints = self.path / "checkpoints"
        self.last_file = self.path / "last.json"
        self.metrics_file = self.path / "metrics.jsonl"

    def create(self) -> None:
        """Make the directory; where `path` is a link, that is the directory it points to.

        Raises:
            OutputError: it cannot be made.
        """
        try:
            (self._real_path() / self.checkpoints.name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the run's directory {self.path}: {error.strerror}",
                hint="choose another with run=PATH",
            ) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second training out.

        Raises:
            InputError: there is one already.
        """
        self.create()
        self._stay_inside()
        with locked(self.path / "lock"):
            for directory in (self.path, self.checkpoints):
                sweep_temps(directory)  # not before the lock is held: they may be another's unfinished writes
            yield

    def check_movable(self) -> None:
        """Make sure that `move_aside` would not move the working directory: this process would stay in it.

        Raises:
            ConfigError: the run is the working directory, or contains it.
        """
        if Path.cwd().resolve().is_relative_to(self._real_path()):
            raise ConfigError(
                f"run={self.path} cannot be moved aside: it is the working directory or contains it",
                hint="give the new run a directory of its own with run=PATH, or start nmt from another directory",
            )

    def move_aside(self) -> Path | None:
        """Rename an existing run to NAME.1, NAME.2, …; what was trained is never deleted.

        Where `path` is a link, the directory it points to is renamed. The link stays, so the new run lies on the
        same disk as the old one.

        Returns:
            the absolute path of the old run; None if there is none.
        Raises:
            ConfigError: see `check_movable`.
            OutputError: it cannot be renamed.
        """
        if not self.path.exists():
            return None
        self.check_movable()
        path = self._real_path()
        self._stay_inside()
        with locked(path / "lock"):
            n = 1
            while (aside := path.with_name(f"{path.name}.{n}")).exists():
                n += 1
            try:
                path.rename(aside)
            except OSError as error:
                raise OutputError(
                    f"cannot move {self.path} aside: {error.strerror}",
                    hint="give the new run a directory of its own with run=PATH",
                ) from error
        return aside

    def _real_path(self) -> Path:
        """`path` without links; it need not exist."""
        return Path(os.path.realpath(self.path))

    def _stay_inside(self) -> None:
        """Make sure that writing into the run, which may come from a stranger, writes nowhere else.

        Raises:
            ModelError: a link leads out of it, or a pipe or a device lies in it.
        """
        top = self._real_path()
        for entry in (*self.path.glob("*"), *self.checkpoints.glob("*")):  # deeper nothing is written
            if entry.is_symlink() and not entry.resolve().is_relative_to(top):
                raise ModelError(
                    f"{entry} is a link that leads out of the run", hint="put what it leads to in its place"
                )
            if entry.exists() and not entry.is_file() and not entry.is_dir():
                raise ModelError(f"{entry} is neither a file nor a directory", hint="remove it")

    # --- settings -----------------------------------------------------------------------------------------

    def write_config(self, config: Config) -> None:
        atomic_write(self.config_file, dump_config(config))

    def read_config(self) -> Config:
        """The settings as the run resolved them.

        Raises:
            ModelError: this is no run.
        """
        if not self.config_file.is_file():
            raise ModelError(f"{self.path} is not a run: it has no config.yaml", hint="train one with `nmt train`")
        return load_config(self.config_file)

    def write_manifest(self, data_hashes: dict[str, str], seed: int, *, reproducible: bool) -> None:
        """Note what this run was made of and with, and whether another like it would come out the same."""
        manifest = {
            "command": sys.argv,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seed": seed,
            "reproducible": reproducible,
            "data": data_hashes,
            "git_commit": _git_commit(),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "versions": {
                "nmt": _version("nmt-trainer"),
                **{name: _version(name) for name in ("torch", "sentencepiece", "sacrebleu", "safetensors")},
            },
        }
        self._write_manifest(manifest)

    def mark_irreproducible(self) -> None:
        """Note that this run is one that the clock may end, from now on."""
        self._write_manifest({**self.read_manifest(), "reproducible": False})

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        atomic_write(self.manifest_file, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    def read_manifest(self) -> dict[str, Any]:
        """What `write_manifest` wrote; empty before it did."""
        manifest = _read_json(self.manifest_file) or {}
        if not isinstance(manifest.get("data", {}), dict):
            raise _damaged(self.manifest_file)
        return manifest

    # --- tokenizer ----------------------------------------------------------------------------------------

    def tokenizer_files(self, joint: bool) -> list[Path]:
        """Where the tokenizer of each side lies; for a joint one the same file twice."""
        names = ("tokenizer.model", "tokenizer.model") if joint else ("tokenizer.src.model", "tokenizer.tgt.model")
        return [self.path / name for name in names]

    def write_tokenizers(self, tokenizers: Tokenizers, joint: bool) -> None:
        for file, side in zip(self.tokenizer_files(joint), (tokenizers.source, tokenizers.target), strict=True):
            atomic_write(file, side.model)

    def read_tokenizers(self, config: Config) -> Tokenizers | None:
        """The run's tokenizers; None before they are trained.

        Raises:
            ModelError: a file is no tokenizer.
        """
        files = self.tokenizer_files(config.tokenizer.joint)
        if not all(file.is_file() for file in files):
            return None
        sides = []
        for file, nfkc in zip(files, (config.data.nfkc_source, False), strict=True):
            try:
                sides.append(Tokenizer(read_capped(file, MAX_MODEL_BYTES), nfkc=nfkc))
            except (OSError, ModelError) as error:
                raise ModelError(
                    f"{file}: {getattr(error, 'strerror', error)}",
                    hint=f"delete it and run `nmt tokenize {shlex.quote(str(self.config_file))}`",
                ) from error
        return Tokenizers(*sides)

    def check_tokenizers(self, tokenizers: Tokenizers) -> None:
        """Make sure that the tokenizer files, if there are any, are those that the model was trained with.

        Raises:
            ModelError: one was exchanged.
        """
        sides = (tokenizers.source, tokenizers.target)
        for file, side in zip(self.tokenizer_files(tokenizers.joint), sides, strict=True):
            same_size = file.is_file() and file.stat().st_size == len(side.model)
            if file.exists() and not (same_size and file.read_bytes() == side.model):
                raise ModelError(
                    f"{file} is not the tokenizer that the model was trained with",
                    hint="put the old one back, delete it (the model carries its own), or train anew with --fresh",
                )

    # --- checkpoints and figures --------------------------------------------------------------------------

    def checkpoint_file(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}.safetensors"

    def checkpoint_steps(self) -> list[int]:
        """The steps of all checkpoints there are, oldest first."""
        stems = (file.stem.removeprefix("step-") for file in self.checkpoints.glob("step-*.safetensors"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def write_last(self, step: int) -> None:
        atomic_write(self.last_file, json.dumps({"step": step}) + "\n")

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint; None if there is none."""
        return max(self.checkpoint_steps(), default=None)

    def holds_training(self) -> bool:
        """Whether a training has saved something here, which may have been deleted in part.

        metrics.jsonl alone does not count: a run killed before its first checkpoint has it. It starts over without
        a loss, since the same steps give the same figures. last.json is there from the first checkpoint on.
        """
        return self.newest_step() is not None or self.model_file.exists() or self.last_file.exists()

    def set_aside(self, step: int) -> Path:
        """Give a checkpoint that cannot be read another name, so that it counts as none."""
        return self.checkpoint_file(step).rename(self.checkpoints / f"step-{step}.damaged")

    def prune_checkpoints(self, keep: Sequence[int]) -> None:
        """Delete the checkpoints of all steps but those to keep."""
        for step in set(self.checkpoint_steps()) - set(keep):
            self.checkpoint_file(step).unlink(missing_ok=True)

    def append_metrics(self, *lines: dict[str, Any]) -> None:
        """Add lines of figures, all or none.

        Raises:
            OutputError: the disk is full, or fails.
        """
        content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        try:
            with self.metrics_file.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(content) < len(content):  # what a full disk had room for
                    file.truncate(size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise OutputError(
                f"cannot write {self.metrics_file}: {error.strerror or error}", hint="is the disk full?"
            ) from error

    def cut_metrics(self, step: int) -> None:
        """Drop the lines of steps that a resumed run will do again."""
        if self.metrics_file.exists():
            kept = [line for line in self.read_metrics() if line.get("step", 0) <= step]
            atomic_write(self.metrics_file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of figures; what is none, as a last one that a kill cut short, is left out."""
        lines = []
        if self.metrics_file.exists():
            with self.metrics_file.open("rb") as file:
                for text in raw_lines(file, str(self.metrics_file)):
                    with contextlib.suppress(ValueError, RecursionError):
                        line = json.loads(text)
                        if isinstance(line, dict) and isinstance(line.get("step", 0), int):
                            lines.append(line)
        return lines

    def free_bytes(self) -> int:
        """Room on the disk where the run lies, or will lie."""
        place = self._real_path()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free


def newest_model(root: Path = Path("runs")) -> Path | None:
    """The model file written last under `root`."""
    files = [file for file in root.glob("**/model.safetensors") if file.is_file()]
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def hash_files(paths: Sequence[Path], hint: str = "check the path") -> str:
    """SHA-256 over the content of files, one after the other.

    Raises:
        DataError: one cannot be read; with the hint.
    """
    digests = []
    for path in paths:
        with reading(str(path), hint):
            digests.append(hash_file(path))
    return sha256("".join(digests).encode())


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(read_capped(path, MAX_JSON_BYTES).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(content, dict):
        raise _damaged(path)
    return content


def _damaged(path: Path) -> ModelError:
    return ModelError(f"{path} is damaged", hint="delete it, or begin anew with --fresh")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _git_commit() -> str:
    with contextlib.suppress(OSError):
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""  # without a commit it prints HEAD
    return ""
