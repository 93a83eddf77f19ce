"""The command `nmt train`."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.streams import log
from nmt.distributed import launched
from nmt.errors import NmtError, OutputError
from nmt.files import append_whole, atomic_write
from nmt.processes import prepare_torch


def train(
    config: options.ConfigFile,
    overrides: options.Overrides = None,
    fresh: Annotated[bool, typer.Option(help="Start anew; an old run is moved aside, never deleted.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Check everything, estimate the cost, write nothing.")] = False,
    replicas: Annotated[int, typer.Option(min=0, max=1024, help="Processes that share a step on a CPU; 0: auto.")] = 0,
    device: options.Device = "auto",
) -> None:
    """Train a model, or resume training.

    Repeat the command to resume. Stops at train.max_steps, max_epochs, max_minutes or patience. Several GPUs or
    machines: torchrun --nproc-per-node 2 -m nmt train CONFIG. All settings: `nmt config`.
    """
    from nmt.config import load_config
    from nmt.run.directory import RunDirectory

    settings = load_config(config, overrides or [])
    prepare_torch()
    from nmt.train import dry_run as measurement
    from nmt.train import session

    # Only the first rank writes files. The others only take part in the training.
    if launched().rank > 0:
        if not dry_run:
            session.train_along(settings, device=device)
        return
    if dry_run:
        prepared = session.prepare(settings, device=device, fresh=fresh)
        session.check_replicas(replicas, prepared.model.device)
        streams.print_lines([measurement.dry_run(prepared, replicas or None)])
        return
    # Train, and write train.log and report.html.
    with kept_log(RunDirectory(settings.run).log_file) as open_log:
        prepared = session.prepare(settings, device=device, fresh=fresh)
        session.check_replicas(replicas, prepared.model.device)
        # Open the log when the run has been locked.
        prepared.on_start = open_log
        # Write the report again after each validation.
        if settings.train.report:
            prepared.on_validation = partial(write_report, Path(settings.run))
        session.train(prepared, n_replicas=replicas or None)


def write_report(run: Path) -> None:
    """Write report.html. If this fails, only log a warning, so that training goes on."""
    from nmt.insight.report import as_page, read_report
    from nmt.run.directory import RunDirectory

    try:
        atomic_write(RunDirectory(run).report_file, as_page([read_report(run)]))
    except (NmtError, OSError) as error:
        log.warning("no report: %s; training goes on", error)


class RunLog(logging.Handler):
    """A handler that copies the log to RUN/train.log.

    Lines are kept in memory until `open` is called, because only the process with the run's lock may write there.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        # A line looks like this: 2026-11-22T10:00:05+0000 INFO message
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
        self.file = file
        self.is_open = False
        self.lines = ""

    def open(self) -> None:
        # Write the lines that were logged before the run was locked.
        self.is_open = True
        self.write()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += f"{streams.printable(self.format(record))}\n"
        if self.is_open:
            self.write()

    def write(self) -> None:
        """Append the lines in memory to the file. If this fails, log a warning and remove this handler."""
        lines, self.lines = self.lines, ""
        try:
            append_whole(self.file, lines.encode())
        except OutputError as error:
            log.removeHandler(self)
            log.warning("%s; training goes on without this log", error)


@contextlib.contextmanager
def kept_log(file: Path) -> Iterator[Callable[[], None]]:
    """Copy the log of the `with` block to `file`. Yield the function that opens the file.

    If an NmtError ends the block, its message is copied, too.
    """
    handler = RunLog(file)
    log.addHandler(handler)
    try:
        yield handler.open
    except NmtError as error:
        for line in error.lines:
            handler.emit(logging.makeLogRecord({"levelname": "ERROR", "msg": f"{type(error).__name__}: {line}"}))
        raise
    finally:
        log.removeHandler(handler)
