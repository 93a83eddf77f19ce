"""`nmt merge`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import streams
from nmt.errors import InputError


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="OUT|SHARD...", help="What -o named, or all its shards.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: OUT]; - is stdout.")] = None,
) -> None:
    """Join the shards of a translation.

    nmt merge OUT joins OUT.shard-000-of-010, OUT.shard-001-of-010, ..., the files that nmt translate writes with
    --shard 0/10, --shard 1/10, ... All shards must exist, be complete, and have the same input, model and options.
    """
    from nmt.cli.shards import find_shards, is_shard, join_shards

    if len(files) == 1 and not is_shard(files[0]):
        output, files = output or files[0], find_shards(files[0])
    elif output is None:
        raise InputError("shards that are named need -o", hint="nmt merge SHARD... -o OUT")
    with streams.open_output(output) as out:
        n_lines = join_shards(files, out)
    streams.log.info("%d lines of %d shards written to %s", n_lines, len(files), output)
