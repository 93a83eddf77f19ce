"""Functions and classes that load the models of a server, and reload them while the server runs.

The old model answers until the new one is loaded. If the new one cannot be loaded, the old one stays.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt.errors import NmtError, OutputError, os_errors_as
from nmt.files import TEMP_MARK, hash_file, sweep_temps
from nmt.run.directory import model_file
from nmt.run.header import read_header
from nmt.translate.loading import is_export
from nmt.translate.translator import Translator

if TYPE_CHECKING:
    from nmt.serve.api import Api

log = logging.getLogger("nmt")

COPIES = "nmt-serve"  # prefix of the folders for copies of model files


class LoadedModel(NamedTuple):
    """The translators of a model, one for each direction, and the hash of the model file."""

    translators: Sequence[Translator]
    sha256: str = ""


def load_model(path: Path, load: Callable[[Path], Sequence[Translator]]) -> LoadedModel:
    """Load a model from a run, a model file or an export. `load` returns the translator of each direction.

    A model file is loaded from a copy. Explanations and streams load torch's weights only later, and the file itself
    may have been replaced by then.

    Raises NmtError if the model cannot be loaded.
    """
    if is_export(path):  # an export needs no copy, because the engine reads the whole export at once
        return LoadedModel(load(path), hash_file(path / "model.bin"))
    # 1. Copy the file. The folder's name has the id of this process, so that other servers do not delete it.
    file = model_file(path)
    read_header(file)  # fails before the copy is made, so that the error names the user's file
    sweep_temps(Path(tempfile.gettempdir()), COPIES)  # deletes the copies of servers that were killed
    with contextlib.ExitStack() as stack:  # deletes the copy if the model cannot be loaded
        folder = tempfile.TemporaryDirectory(f"{TEMP_MARK}{os.getpid()}", f"{COPIES}{TEMP_MARK}")
        copy = Path(stack.enter_context(folder), file.name)
        with os_errors_as(OutputError, f"copy {file} to {copy}", hint="TMPDIR names a directory with more room"):
            shutil.copyfile(file, copy)
        # 2. Load the copy.
        translators = load(copy)
        # 3. Delete the copy when the engine is garbage-collected. All directions share one engine.
        weakref.finalize(translators[0].engine, stack.pop_all().close)
    return LoadedModel(translators, hash_file(copy))


@dataclass(eq=False)
class Reloader:
    """A reloader of the models and keys of an API. Its methods must be called in the event loop.

    `paths` has the path of each model, in the order of the API. `load` is called in a thread.
    """

    api: "Api"
    paths: Sequence[Path]
    load: Callable[[Path], LoadedModel]
    read_keys: Callable[[], Sequence[str]] | None = None
    task: asyncio.Task[None] | None = None  # the task of the last `_load_all`

    def reload(self) -> None:
        """Read the keys at once, and start to load all models in the background."""
        if self.read_keys:
            try:
                self.api.set_keys(self.read_keys())
            except NmtError as error:
                log.error("%s; the keys stay as they were", error)
            else:
                log.info("keys read again")
        self.task = asyncio.create_task(self._load_all(self.task))

    async def _load_all(self, previous: asyncio.Task[None] | None) -> None:
        """Load all models after the `previous` task. Files may have changed since that task read them."""
        if previous:
            await previous
        for index, path in enumerate(self.paths):
            try:
                loaded = await asyncio.to_thread(self.load, path)
                self.api.served.replace(index, loaded)
            except NmtError as error:
                log.error("%s; the model that was loaded before stays", error)
            except Exception as error:  # an error of a library must not stop the server
                log.error("cannot load %s: %r; the model that was loaded before stays", path, error)
            else:
                log.info("loaded %s, %.12s", path, loaded.sha256)
