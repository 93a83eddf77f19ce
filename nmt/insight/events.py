"""Conversion of a run's metrics.jsonl to TensorBoard events (extra: tensorboard)."""

from typing import Any

from nmt.errors import InputError
from nmt.run.directory import RunDirectory

NOT_FIGURES = {"step", "time", "elapsed_s", "epoch"}


class EventWriter:
    """Writes RUN/tensorboard. Each call writes the lines that metrics.jsonl has gained since the last call."""

    def __init__(self, run: RunDirectory) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("TensorBoard is not installed", hint="pip install 'nmt-trainer[tensorboard]'") from error
        self.run, self.new_writer = run, SummaryWriter
        self.writer: Any = None
        self.written: list[dict[str, Any]] = []

    def __call__(self) -> None:
        lines, n_written = self.run.read_metrics(), len(self.written)
        if self.writer is None or lines[:n_written] != self.written:  # training went back to an earlier step
            if self.writer is not None:
                self.writer.close()
            # With purge_step=0, TensorBoard discards the events of earlier writers.
            self.writer, n_written = self.new_writer(str(self.run.path / "tensorboard"), purge_step=0), 0
        for line in lines[n_written:]:
            for name, value in line.items():
                if name not in NOT_FIGURES and isinstance(value, int | float):
                    group = "dev" if name.startswith("dev_") else "train"
                    name = f"{group}/{name.removeprefix('dev_')}"
                    self.writer.add_scalar(name, value, line["step"], line.get("time"))
        self.writer.flush()
        self.written = lines
