"""Loads the models of a server, and loads them again while it answers.

A request is answered by the model that was loaded when it arrived. A model is loaded beside the old one, in a thread,
and then takes its place. If it cannot be loaded, the old one stays, and the log says why.
"""

import asyncio
import logging
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import ModelError, NmtError, OutputError, os_errors_as
from nmt.files import TEMP_MARK, hash_file, sweep_temps
from nmt.run.header import read_header
from nmt.translate.loading import is_export, model_file
from nmt.translate.translator import Translator

if TYPE_CHECKING:
    from nmt.serve.api import Api

log = logging.getLogger("nmt")

COPIES = "nmt-serve"  # begins the names of the folders with copies of model files
LOOK_S = 1.0  # a file that is watched is looked at so often, and loaded if it has not changed since the last look
WHOLE_WITHIN_S = 10.0  # a file that cannot be read may still be being written; after this time it is an error

Stamp = tuple[int, int, int]  # inode, time of the last change and size of a file


@dataclass(frozen=True)
class LoadedModel:
    """The translators of a model, one for each direction, and the file they were loaded from."""

    translators: Sequence[Translator]
    sha256: str = ""
    stamp: Stamp | None = None


def load_model(path: Path, load: Callable[[Path], Sequence[Translator]]) -> LoadedModel:
    """Load the model of a run, of a model file or of an export, from a private copy if it is one file.

    Explanations and streams load the weights for torch when they are first needed. From the copy, these are those of
    the model that translates, whatever has happened to the file. `load` returns the translator of each direction.
    Raises NmtError.
    """
    file = weights_file(path)
    if is_export(path):  # the engine reads all of it at once
        stamp = stamp_of(file)
        return LoadedModel(load(path), hash_file(file), stamp)
    # 1. Copy the file. The name of the folder tells which process needs it.
    sweep_temps(Path(tempfile.gettempdir()), COPIES)  # those of servers that were killed
    folder = Path(tempfile.mkdtemp(prefix=f"{COPIES}{TEMP_MARK}", suffix=f"{TEMP_MARK}{os.getpid()}"))
    copy = folder / file.name
    try:
        with os_errors_as(OutputError, f"copy {file} to {folder}", hint="TMPDIR names a directory with more room"):
            stamp = stamp_of(file)  # before, so that a later change is noticed
            shutil.copyfile(file, copy)
        # 2. Load the copy.
        translators = load(copy)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, NmtError):  # name the user's file
            lines = [line.replace(str(copy), str(file)) for line in error.lines]
            raise type(error)(*lines, hint=error.hint) from error
        raise
    # 3. The copy is needed as long as the engine, which all directions share.
    weakref.finalize(translators[0].engine, shutil.rmtree, folder, ignore_errors=True)
    return LoadedModel(translators, hash_file(copy), stamp)


def weights_file(path: Path) -> Path:
    """Return the file with the weights of a run, a model file or an export. Raises ModelError if there is none."""
    return path / "model.bin" if is_export(path) else model_file(path)


def stamp_of(file: Path) -> Stamp:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(eq=False)
class Reloader:
    """Replaces the models and keys of an API. All methods are for the event loop.

    `paths` are those of `api.served.loaded`, in the same order; `load` is called in a thread.
    """

    api: "Api"
    paths: Sequence[Path]
    load: Callable[[Path], LoadedModel]
    read_keys: Callable[[], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        self.wanted: set[int] = set()  # indices of the models to load
        self.task: asyncio.Task[None] | None = None  # loads them

    def reload(self) -> None:
        """Read the keys at once, and begin to load all models."""
        if self.read_keys:
            try:
                self.api.set_keys(self.read_keys())
            except NmtError as error:
                log.error("%s; the keys stay as they were", error)
            else:
                log.info("keys read again")
        self.load_soon(range(len(self.paths)))

    def load_soon(self, indices: Sequence[int]) -> None:
        """Load models, those that are being loaded now once more: their files may have changed since."""
        self.wanted.update(indices)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._load_wanted())

    async def _load_wanted(self) -> None:
        while self.wanted:
            index = min(self.wanted)
            self.wanted.discard(index)
            path = self.paths[index]
            try:
                loaded = await asyncio.to_thread(self.load, path)
                self.api.served.replace(index, loaded)
            except NmtError as error:
                log.error("%s; the model that was loaded before stays", error)
            except Exception as error:  # a library's: the server must go on
                log.error("cannot load %s: %r; the model that was loaded before stays", path, error)
            else:
                log.info("loaded %s, %.12s", path, loaded.sha256)

    async def watch(self) -> None:
        """Load each model whose file has changed and is whole, for as long as the server runs."""
        now = time.monotonic()
        files = []
        for path, loaded in zip(self.paths, self.api.served.loaded, strict=True):
            files.append(WatchedFile(path, loaded.stamp, now, loaded.stamp))
        while True:
            await asyncio.sleep(LOOK_S)
            for index, file in enumerate(files):
                if await file.has_settled():
                    file.tried = file.seen
                    self.load_soon([index])


@dataclass
class WatchedFile:
    """What has been seen of a model's file."""

    path: Path
    seen: Stamp | None  # at the last look
    since: float  # when it was first seen so
    tried: Stamp | None  # when it was last loaded

    async def has_settled(self) -> bool:
        """Look at the file. Return whether it is to be loaded: new, as it was at the last look, and whole."""
        stamp = current_stamp(self.path)
        if stamp != self.seen:
            self.seen = stamp
            self.since = time.monotonic()
            return False
        if stamp in (None, self.tried):  # it is missing, or is loaded
            return False
        # A file that never becomes whole is tried, so that the log tells of it.
        is_late = time.monotonic() - self.since > WHOLE_WITHIN_S
        return is_late or await asyncio.to_thread(is_whole, self.path)


def current_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a model's file; None if it is missing, as it may be for a moment while it is replaced."""
    try:
        return stamp_of(weights_file(path))
    except (ModelError, OSError):
        return None


def is_whole(path: Path) -> bool:
    """Return whether a model file has all that its header names; an export has no header."""
    if is_export(path):
        return True
    try:
        read_header(model_file(path))
    except NmtError:
        return False
    return True
