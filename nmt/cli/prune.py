"""The command `nmt prune`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.streams import log
from nmt.processes import prepare_torch


def prune(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs that are not being trained.")],
) -> None:
    """Delete checkpoints that are no longer needed.

    Keeps the best model and the newest checkpoint, so that the run can still translate and resume. Reads the model and
    the newest checkpoint first. If the newest checkpoint is damaged, keeps the newest one that is not.
    """
    prepare_torch()
    from nmt.train import upkeep

    for run in runs:
        pruned = upkeep.prune(run)
        for file in pruned.files:
            log.debug("deleted %s", file)
        message = "%s: deleted %d checkpoint(s), %.1f MB; the model and step %d stay"
        log.info(message, run, len(pruned.files), pruned.n_bytes / 1e6, pruned.kept)
