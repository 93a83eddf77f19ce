"""Shards: independent commands translate contiguous ranges of a file's lines, and `nmt merge` joins their outputs.

Each shard has its own output file, which keeps the header of `nmt.cli.resumable`. It contains the shard and its number
of lines, too, so that `nmt merge` can check that all shards are present and complete and have the same origin.
"""

import glob
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nmt.cli.resumable import Origin, changed, complete_lines, read_origin
from nmt.errors import InputError
from nmt.files import open_file
from nmt.text.lines import reading

NAMES = ".shard-*-of-*[0-9]"  # what the name of a shard has after that of the output, as a glob pattern
OWN = ("shard", "lines")  # keys of the header that differ between the shards of an output


class Shard(NamedTuple):
    """One of `n_shards` contiguous ranges of lines; `number` counts from 0."""

    number: int
    n_shards: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse `I/N`. Raises InputError if the text has another form, or I is not in 0 to N-1."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if not found or not int(found[1]) < int(found[2]):
            raise InputError(f"'{text}' is not a shard I/N", hint="shards count from 0: 0/10 to 9/10")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.n_shards}"

    def span(self, n_lines: int) -> range:
        """Indices, from 0, of this shard's lines in a file of `n_lines`. Shard lengths differ by at most one line."""
        return range(n_lines * self.number // self.n_shards, n_lines * (self.number + 1) // self.n_shards)

    def file(self, output: Path) -> Path:
        """The path of this shard of `output`."""
        return output.with_name(f"{output.name}.shard-{self.number:03}-of-{self.n_shards:03}")

    def origin(self, origin: Origin) -> dict[str, str]:
        """The header of this shard, without its number of lines."""
        return {**origin, "division": str(self.n_shards), "shard": str(self)}


def find_shards(output: Path) -> list[Path]:
    """Find the complete shards of an output. Raises InputError if there are none."""
    shards = sorted(output.parent.glob(f"{glob.escape(output.name)}{NAMES}"))
    if not shards:
        hint = f"copy them to one place; they are named like {Shard(0, 10).file(Path(output.name))}"
        raise InputError(f"there are no shards of {output}", hint=hint)
    return shards


def join_shards(paths: Sequence[Path], out: BinaryIO) -> int:
    """Write the lines of all shards in order, and return their number. Raises InputError unless they are one output."""
    checked, by_number = [_check_shard(path) for path in paths], dict[int, Path]()
    (_, n_shards), first, _ = checked[0]
    for path, (shard, origin, _) in zip(paths, checked, strict=True):
        if origin != first:
            hint = "all need the same input, model and options: translate one of them again"
            raise InputError(f"{path} was made from another {changed(first, origin)} than {paths[0]}", hint=hint)
        by_number[shard.number] = path
    if missing := [str(Shard(i, n_shards)) for i in range(n_shards) if i not in by_number]:
        named = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        reason = f"{len(missing)} of {n_shards} shards {'is' if len(missing) == 1 else 'are'} missing: {named}"
        raise InputError(reason, hint=f"repeat the command with --shard {missing[0]}; what was begun continues")
    for i in range(n_shards):
        with open_file(by_number[i]) as file:
            file.readline()
            shutil.copyfileobj(file, out)
    return sum(n_lines for _, _, n_lines in checked)


def _check_shard(path: Path) -> tuple[Shard, dict[str, str], int]:
    """Return a shard, what all shards of its output have in common, and its number of lines; InputError if damaged."""
    with reading(str(path)), open_file(path) as file:
        header = read_origin(file) or {}
        try:
            shard, n_lines = Shard.parse(header["shard"]), int(header["lines"])
        except (ValueError, KeyError, InputError) as error:
            raise InputError(f"{path} is not a shard", hint="give files that --shard I/N has written") from error
        if (n_found := complete_lines(file)[0]) != n_lines:
            hint = f"delete it, and repeat the command with --shard {shard}"
            raise InputError(f"{path} is damaged: it has {n_found} complete lines, not {n_lines}", hint=hint)
    return shard, {name: value for name, value in header.items() if name not in OWN}, n_lines
