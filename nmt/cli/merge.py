"""`nmt merge`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import streams


def merge(output: Annotated[Path, typer.Argument(metavar="OUT", help="What -o named.")]) -> None:
    """Join the shards of a translation.

    nmt merge OUT joins OUT.shard-000-of-010, OUT.shard-001-of-010, ..., the files that nmt translate writes with
    --shard 0/10, --shard 1/10, ... All shards must exist, be complete, and have the same input, model and options.
    """
    from nmt.cli.shards import find_shards, join_shards

    shards = find_shards(output)
    with streams.open_output(output) as out:
        n_lines = join_shards(shards, out)
    streams.log.info("%d lines of %d shards written to %s", n_lines, len(shards), output)
