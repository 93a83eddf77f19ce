"""Functions that load the models of a server, and a reloader that replaces models while the server runs.

A request is answered by the model that is loaded when the request arrives. A new model is loaded in a thread while the
old model still answers; then the new model replaces the old one. If the new model cannot be loaded, the old model stays
and the log says why.
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

COPIES = "nmt-serve"  # prefix of the names of the folders with copies of model files
# Seconds between two looks at a watched file. A changed file is loaded if it is the same at two consecutive looks.
LOOK_S = 1.0
# A file that cannot be read may be incomplete, because another process is still writing it. After this many seconds
# without a change, the server loads the file anyway, so that the error is logged.
WHOLE_WITHIN_S = 10.0

Stamp = tuple[int, int, int]  # inode, modification time in nanoseconds, and size of a file


@dataclass(frozen=True)
class LoadedModel:
    """The translators of a model, one for each direction, with the hash and the stamp of the model file."""

    translators: Sequence[Translator]
    sha256: str = ""  # hash of the model file
    stamp: Stamp | None = None  # stamp of the model file when the model was loaded


def load_model(path: Path, load: Callable[[Path], Sequence[Translator]]) -> LoadedModel:
    """Load a model from a run, a model file or an export. `load` returns the translator of each direction.

    The model file of a run, or a model file that is given itself, is copied first, and the model is loaded from the
    copy. The torch engine, which explanations and streams need, loads its weights only on first use. Because the
    torch engine reads the copy, it always has the same weights as the engine that translates, even if the model file
    has been replaced or deleted since. Raises NmtError if the model cannot be loaded.
    """
    file = weights_file(path)
    if is_export(path):  # an export needs no copy, because the engine reads the whole export at once
        stamp = stamp_of(file)
        return LoadedModel(load(path), hash_file(file), stamp)
    # 1. Copy the file. The name of the folder has the id of this process, so that other servers do not delete it.
    sweep_temps(Path(tempfile.gettempdir()), COPIES)  # deletes the copies of servers that were killed
    folder = Path(tempfile.mkdtemp(prefix=f"{COPIES}{TEMP_MARK}", suffix=f"{TEMP_MARK}{os.getpid()}"))
    copy = folder / file.name
    try:
        with os_errors_as(OutputError, f"copy {file} to {folder}", hint="TMPDIR names a directory with more room"):
            stamp = stamp_of(file)  # read before copying, so that a change during or after the copy is noticed
            shutil.copyfile(file, copy)
        # 2. Load the copy.
        translators = load(copy)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, NmtError):  # in the message, name the user's file instead of the copy
            lines = [line.replace(str(copy), str(file)) for line in error.lines]
            raise type(error)(*lines, hint=error.hint) from error
        raise
    # 3. Delete the copy when the engine is garbage-collected. All directions share one engine.
    weakref.finalize(translators[0].engine, shutil.rmtree, folder, ignore_errors=True)
    return LoadedModel(translators, hash_file(copy), stamp)


def weights_file(path: Path) -> Path:
    """Return the weights file of a run, a model file or an export. Raises ModelError if there is no such file."""
    return path / "model.bin" if is_export(path) else model_file(path)


def stamp_of(file: Path) -> Stamp:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(eq=False)
class Reloader:
    """Reloads the models and keys of an API. All methods must be called in the event loop.

    `paths` are the paths of the models in `api.served.loaded`, in the same order. `load` is called in a thread.
    """

    api: "Api"
    paths: Sequence[Path]
    load: Callable[[Path], LoadedModel]
    read_keys: Callable[[], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        self.wanted: set[int] = set()  # indices in `paths` of the models to load
        self.task: asyncio.Task[None] | None = None  # the task of `_load_wanted`

    def reload(self) -> None:
        """Read the keys at once, and start to load all models in the background."""
        if self.read_keys:
            try:
                self.api.set_keys(self.read_keys())
            except NmtError as error:
                log.error("%s; the keys stay as they were", error)
            else:
                log.info("keys read again")
        self.load_soon(range(len(self.paths)))

    def load_soon(self, indices: Sequence[int]) -> None:
        """Start to load models in the background.

        A model that is already being loaded is loaded once more, because its file may have changed in the meantime.
        """
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
            except Exception as error:  # an error of a library must not stop the server
                log.error("cannot load %s: %r; the model that was loaded before stays", path, error)
            else:
                log.info("loaded %s, %.12s", path, loaded.sha256)

    async def watch(self) -> None:
        """Until the server stops, load a model again whenever its file has changed and is complete."""
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
    """The state of a model's file as it was last seen. A stamp is None if the file is missing."""

    path: Path
    seen: Stamp | None  # the stamp at the last look
    since: float  # time when the file was first seen with this stamp
    tried: Stamp | None  # the stamp when the server last loaded, or tried to load, the file

    async def has_settled(self) -> bool:
        """Look at the file and return whether it must be loaded.

        The file must be loaded if it has changed since the last load but not since the last look, and if it is
        complete. An incomplete file must be loaded if it has not changed for `WHOLE_WITHIN_S`.
        """
        stamp = current_stamp(self.path)
        if stamp != self.seen:
            self.seen = stamp
            self.since = time.monotonic()
            return False
        if stamp in (None, self.tried):  # the file is missing, or has already been loaded or tried
            return False
        is_late = time.monotonic() - self.since > WHOLE_WITHIN_S
        return is_late or await asyncio.to_thread(is_whole, self.path)


def current_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a model's file, or None if the file is missing, for example while it is being replaced."""
    try:
        return stamp_of(weights_file(path))
    except (ModelError, OSError):
        return None


def is_whole(path: Path) -> bool:
    """Return whether a model file is complete according to its header. An export has no header: return True."""
    if is_export(path):
        return True
    try:
        read_header(model_file(path))
    except NmtError:
        return False
    return True
