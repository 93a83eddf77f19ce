"""Translate a file, or all files of a directory or bucket, on a Ray cluster. Needs the extra `ray`.

    paths -> blocks of lines -> translated blocks -> output files
    (driver) (Ray tasks)        (actors)             (driver)

Ray Data keeps the order of the blocks and repeats blocks whose worker was lost. Blocks are read while others are
translated, so that memory does not grow with the files. Workers read the input by its path and get the model from the
driver; `nmt` must be installed on their machines. Only `nmt translate --ray` imports this module.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

import fsspec
import ray
from fsspec.implementations.local import LocalFileSystem
from ray.exceptions import RayError

from nmt.decode import EngineName, Precision
from nmt.decode.options import SearchOptions
from nmt.decode.segments import Translation
from nmt.decode.translator import is_export, load, model_files
from nmt.errors import InputError, LostRankError, NmtError
from nmt.files import atomic_writer
from nmt.processes import child_variables, environment, set_environment_variables
from nmt.text.lines import decode_lines, raw_lines, reading

log = logging.getLogger("nmt")

BLOCK_LINES = 250  # lines per block; if a worker is lost, its blocks are translated again


@dataclass(frozen=True)
class Job:
    """How each worker translates."""

    models: list[Path]
    device: str
    precision: Precision | None
    engine: EngineName | None
    threads: int  # CPU threads of a worker
    options: SearchOptions
    batch_size: int | None
    prefix: str
    render: Callable[[Translation], str]  # formats an output line; workers must be able to import it


class Task(NamedTuple):
    """A file to translate."""

    url: str  # URL that workers read the file from
    output: str  # path in the file system of the outputs


# --- in the workers ---------------------------------------------------------------------------------------


def read_blocks(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file in blocks; `row` contains the file's `url` and its index, `file`."""
    url = row["url"]
    compression = "gzip" if url.endswith(".gz") else None
    with reading(url), fsspec.open(url, "rb", compression=compression) as stream:
        lines = decode_lines(raw_lines(stream, url), url)
        first = 1
        while block := list(islice(lines, BLOCK_LINES)):
            yield {"file": row["file"], "first": first, "text": "\n".join(block)}
            first += len(block)


class BlockTranslator:
    """A translator in a Ray actor."""

    def __init__(self, job: Job, models: "ray.ObjectRef[list[dict[str, bytes]]]") -> None:
        self.job = job
        set_environment_variables(job.threads)
        with TemporaryDirectory() as home:
            paths = [unpack(files, Path(home) / str(i)) for i, files in enumerate(ray.get(models))]
            self.translator = load(paths, job.device, job.precision, job.engine)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        job = self.job
        translations = self.translator.translate_lines(
            row["text"].split("\n"), job.options, batch_size=job.batch_size, prefix=job.prefix, first=int(row["first"])
        )
        return {"file": row["file"], "text": "\n".join(map(job.render, translations))}


def pack(path: Path) -> dict[str, bytes]:
    """Read the files of a model: {name: content}."""
    return {file.name: file.read_bytes() for file in model_files(path)}


def unpack(files: dict[str, bytes], home: Path) -> Path:
    """Write the files of a model into a new directory. Returns the path to `load` the model from."""
    home.mkdir()
    for name, content in files.items():
        (home / name).write_bytes(content)
    return home if is_export(home) else home / name


# --- in the driver ----------------------------------------------------------------------------------------


def find_tasks(source: str, output: str) -> tuple[list[Task], Any]:
    """Return a task for each file below a path or URL, and the file system of the outputs.

    Raises:
        InputError: there are no files, two have the same output, the output directory is inside the source, or a path
            cannot be used.
    """
    try:
        (system, root), (out_system, out_root) = fsspec.url_to_fs(source), fsspec.url_to_fs(output)
        if system.isfile(root):
            return [Task(system.unstrip_protocol(root), out_root)], out_system
        files = sorted(system.find(root))
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"cannot use {source} or {output}: {error}", hint="check the paths") from error
    names = [path.removeprefix(root).lstrip("/") for path in files]
    if not files:
        raise InputError(f"there are no files in {source}", hint="give a file, or a directory of text files")
    if type(out_system) is type(system) and f"{out_root}/".startswith(f"{root}/"):
        raise InputError(f"{output} is inside of {source}", hint="give a directory beside it")
    outputs = [f"{out_root}/{name.removesuffix('.gz')}" for name in names]
    if len(set(outputs)) < len(outputs):
        twice = next(name for name in outputs if outputs.count(name) > 1)
        raise InputError(f"{source} has a file both as text and as .gz: {twice}", hint="keep one of them")
    return [Task(system.unstrip_protocol(path), out) for path, out in zip(files, outputs, strict=True)], out_system


@contextlib.contextmanager
def connected(address: str, n_cpus: int | None) -> Iterator[None]:
    """Connect to the Ray cluster at an address; `local` starts one on this machine for the duration of the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent
    own: dict[str, Any] = {"num_cpus": n_cpus, "include_dashboard": False} if address == "local" else {}
    with environment(child_variables()), contextlib.redirect_stdout(sys.stderr):  # where Ray's messages go
        try:
            ray.init(address, logging_level=logging.WARNING, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            hint = "start one with `ray start --head`, or use --ray local"
            raise InputError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}", hint=hint) from error
        try:
            yield
        finally:
            ray.shutdown()


def translate_files(address: str, job: Job, source: str, output: str, n_workers: int | None) -> Iterator[int]:
    """Translate files on a cluster; an output appears when it is complete. Yields the number of lines of each block.

    Args:
        address: `auto`, `local` or the address of a cluster.
        job: how workers translate.
        source: path or URL of a file or a directory of files.
        output: path or URL of the output file or directory.
        n_workers: number of actors; None is one per GPU, or one per `job.threads` CPUs, of the cluster.
    Raises:
        LostRankError: the cluster fails.
    """
    tasks, system = find_tasks(source, output)
    n_threads = max(job.threads, 1)
    with connected(address, n_workers * n_threads if n_workers else None):
        resources = ray.cluster_resources()
        on_gpu = job.device.startswith("cuda") or (job.device == "auto" and resources.get("GPU", 0) >= 1)
        n_fitting = resources.get("GPU", 0) if on_gpu else resources.get("CPU", 1) // n_threads
        n_actors = max(n_workers or int(n_fitting), 1)
        log.info("files: %d, processes: %d", len(tasks), n_actors)
        try:
            yield from write_files(tasks, system, translated(tasks, job, n_actors, n_threads, on_gpu))
        except RayError as error:
            if known := cause_of(error):
                raise known from error
            reason = str(error).strip().splitlines()[-1]
            raise LostRankError(f"the Ray cluster has failed: {reason}", hint="--verbose shows more") from error


def cause_of(error: BaseException) -> NmtError | None:
    """Return the NmtError of a worker that Ray's error wraps, if there is one."""
    cause: BaseException | None = error
    while isinstance(cause, RayError):  # Ray's wrapper may be an NmtError, too
        cause = getattr(cause, "cause", None) or cause.__cause__
    if not isinstance(cause, NmtError):
        return None
    return type(cause)(str(cause).partition("\n")[0], hint=cause.hint)  # Ray appends lines


def translated(tasks: list[Task], job: Job, n_actors: int, n_cpus: int, on_gpu: bool) -> Iterator[dict[str, Any]]:
    """Yield the translated blocks of all files, in order."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False  # nmt has its own, which counts lines
    context.target_max_block_size = 1  # byte: makes each block of lines a separate Ray block
    logging.getLogger("ray.data").setLevel(logging.WARNING if log.isEnabledFor(logging.DEBUG) else logging.CRITICAL)
    rows = [{"url": task.url, "file": i} for i, task in enumerate(tasks)]
    # One task reads all files in order, so that neighboring blocks are translated at about the same time.
    blocks = ray.data.from_items(rows, override_num_blocks=1).flat_map(read_blocks, num_cpus=0)
    models = ray.put([pack(path) for path in job.models])
    return iter(
        blocks.map(
            BlockTranslator,
            fn_constructor_args=(job, models),
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=n_actors, initial_size=n_actors),
            num_cpus=0 if on_gpu else n_cpus,
            num_gpus=1 if on_gpu else 0,
        ).iter_rows()
    )


def write_files(tasks: list[Task], system: Any, blocks: Iterable[dict[str, Any]]) -> Iterator[int]:
    """Write blocks, in the order of the tasks' files, to the outputs. Yields the number of lines of each block."""
    by_file = groupby(blocks, key=lambda block: int(block["file"]))
    current = next(by_file, None)
    for i, task in enumerate(tasks):
        n_lines = 0
        with whole_file(system, task.output) as out:
            if current and current[0] == i:  # else the file is empty
                for block in current[1]:
                    n_own = block["text"].count("\n") + 1
                    out.write(block["text"].encode() + b"\n")
                    n_lines += n_own
                    yield n_own
                current = next(by_file, None)
        log.info("%s: %d lines", task.output, n_lines)


@contextlib.contextmanager
def whole_file(system: Any, path: str) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at `path` only when the `with` block succeeds."""
    if isinstance(system, LocalFileSystem):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_writer(Path(path)) as out:
            yield out
        return
    system.makedirs(system._parent(path), exist_ok=True)
    with system.transaction, system.open(path, "wb") as out:
        yield out
