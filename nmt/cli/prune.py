"""`nmt prune`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import streams
from nmt.processes import prepare_torch


def prune(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs that are not being trained.")],
    keep: Annotated[int, typer.Option(min=1, help="Number of the newest checkpoints to keep.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete checkpoints that are no longer needed.

    Keeps the best model and the newest checkpoint, so that the run can still translate and resume, and the checkpoints
    that an unfinished training will average. Reads the model and the newest checkpoint first. If the newest checkpoint
    is damaged, keeps the newest one that is not.
    """
    prepare_torch()
    from nmt.train import upkeep

    for run in runs:
        found = upkeep.prune(run, keep, dry_run=dry_run)
        for file in found.files:
            streams.log.debug("%s %s", "would delete" if dry_run else "deleted", file)
        message = "%s: %s %s, %.1f MB; the model and %s of step %s stay"
        kept = ", ".join(map(str, found.kept))
        would = "would delete" if dry_run else "deleted"
        noun = "the checkpoint" if len(found.kept) == 1 else "the checkpoints"
        n_files = f"{len(found.files)} checkpoint{'' if len(found.files) == 1 else 's'}"
        streams.log.info(message, run, would, n_files, found.n_bytes / 1e6, noun, kept)
