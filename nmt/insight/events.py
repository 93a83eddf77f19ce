"""The figures of a run as TensorBoard events (extra: tensorboard), from metrics.jsonl."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from nmt.errors import InputError
from nmt.run.directory import RunDirectory

NOT_FIGURES = {"step", "time", "elapsed_s", "epoch"}


class EventWriter:
    """Writes RUN/tensorboard. Each call writes the lines that metrics.jsonl has gained since the last call.

    Raises:
        InputError: tensorboard is not installed.
    """

    def __init__(self, run: RunDirectory) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("TensorBoard is not installed", hint="pip install 'nmt-trainer[tensorboard]'") from error
        self.run = run
        self.written: list[dict[str, Any]] = []  # the last line that was written, if any
        self.n_written = 0
        self.started = 0.0
        # With purge_step=0, TensorBoard discards the events of earlier writers.
        self.new_writer: Callable[[], Any] = partial(SummaryWriter, str(run.path / "tensorboard"), purge_step=0)
        self.writer: Any = None

    def __call__(self) -> None:
        lines = self.run.read_metrics()
        if self.writer is None or lines[: self.n_written][-1:] != self.written:  # or training went back to a checkpoint
            if self.writer is not None:
                self.writer.close()
            self.writer, self.n_written = self.new_writer(), 0
            self.started = time.time() - max((line.get("elapsed_s", 0.0) for line in lines), default=0.0)
        for line in lines[self.n_written :]:
            walltime = line.get("time", self.started + line.get("elapsed_s", 0.0))
            for name, value in line.items():
                if name not in NOT_FIGURES and isinstance(value, int | float):
                    group = "dev" if name.startswith("dev_") else "train"
                    self.writer.add_scalar(f"{group}/{name.removeprefix('dev_')}", value, line["step"], walltime)
        self.n_written, self.written = len(lines), lines[-1:]
        self.writer.flush()
