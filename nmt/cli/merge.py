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
    from nmt.cli.shards import find_shards, join_shards, output_of

    target = output_of(files)
    shards = files
    if target is None and len(files) == 1:
        target, shards = files[0], find_shards(files[0])
    if (output := output or target) is None:
        raise InputError("the files are not all shards of one output", hint="nmt merge SHARD... -o OUT")
    with streams.open_output(output) as (out, _):
        n_lines = join_shards(shards, out)
    streams.log.info("%d lines of %d shards written to %s", n_lines, len(shards), output)
