"""Shards: independent commands translate contiguous ranges of a file's lines, and `nmt merge` joins their outputs.

Each shard has its own output file. The first line of this file, its header, contains the origin (input, model and
options), the shard and the number of lines, so that `nmt merge` can check that all shards are present and complete and
have the same origin.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nmt.errors import InputError
from nmt.files import open_file, parse_json
from nmt.text.lines import n_lines_left, reading

FILE_NAME = re.compile(r"(.+)\.shard-\d{3,}-of-\d{3,}", re.DOTALL)
MAX_HEADER_BYTES = 100_000


class Shard(NamedTuple):
    """One of `n_shards` contiguous ranges of lines; `number` counts from 0."""

    number: int
    n_shards: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse `I/N`. Raises InputError if the text has another form, or I is not in 0 to N-1."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if not found or not int(found[1]) < int(found[2]):
            last = f"0/{found[2]} to {int(found[2]) - 1}/{found[2]}" if found and int(found[2]) else "0/10 to 9/10"
            raise InputError(f"'{text}' is not a shard I/N", hint=f"shards count from 0: {last}")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.n_shards}"

    def span(self, n_lines: int) -> range:
        """Indices, from 0, of this shard's lines in a file of `n_lines`. Shard lengths differ by at most one line."""
        return range(n_lines * self.number // self.n_shards, n_lines * (self.number + 1) // self.n_shards)

    def file(self, output: Path) -> Path:
        """The path of this shard of `output`."""
        return output.with_name(f"{output.name}.shard-{self.number:03}-of-{self.n_shards:03}")


def output_of(shards: Sequence[Path]) -> Path | None:
    """Infer the output from the names of its shards. Returns None if a name is not a shard's, or the outputs differ."""
    names = {path.with_name(found[1]) if (found := FILE_NAME.fullmatch(path.name)) else None for path in shards}
    return names.pop() if len(names) == 1 else None


def find_shards(output: Path) -> list[Path]:
    """Find the complete shards of an output, in order. Raises InputError if there are none."""
    files = output.parent.iterdir() if output.parent.is_dir() else ()
    shards = sorted(path for path in files if output_of([path]) == output)
    if not shards:
        hint = f"they are named like {Shard(0, 10).file(Path(output.name))}; name them one by one if they are elsewhere"
        raise InputError(f"there are no shards of {output}", hint=hint)
    return shards


class _Written(NamedTuple):
    """A complete shard in a file."""

    path: Path
    shard: Shard
    origin: dict[str, str]  # header fields that must be equal in all shards
    n_lines: int


def join_shards(paths: Sequence[Path], out: BinaryIO) -> int:
    """Check shards and write their lines in order; returns the number of lines.

    Raises:
        InputError: a file is not a shard or is damaged, origins differ, or a shard is missing or given twice.
    """
    written = [_check_shard(path) for path in paths]
    first, by_number = written[0], dict[int, _Written]()
    for one in written:
        if one.origin != first.origin:
            changed = " and ".join(name for name in one.origin if one.origin[name] != first.origin.get(name))
            hint = "all need the same input, model and options: translate one of them again"
            raise InputError(f"{one.path} was made from another {changed or 'version'} than {first.path}", hint=hint)
        if (other := by_number.setdefault(one.shard.number, one)) is not one:
            raise InputError(f"{other.path} and {one.path} are both shard {one.shard}", hint="name one of them")
    n_shards = first.shard.n_shards
    if missing := [str(Shard(i, n_shards)) for i in range(n_shards) if i not in by_number]:
        named = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        reason = f"{len(missing)} of {n_shards} shards {'is' if len(missing) == 1 else 'are'} missing: {named}"
        raise InputError(reason, hint=f"repeat the command with --shard {missing[0]}; what was begun continues")
    for i in range(n_shards):
        with open_file(by_number[i].path) as file:
            file.readline()
            shutil.copyfileobj(file, out)
    return sum(one.n_lines for one in written)


def _check_shard(path: Path) -> _Written:
    """Read the header of a shard and count its lines. Raises InputError if the file is damaged or not a shard."""
    with reading(str(path)), open_file(path) as file:
        first = file.readline(MAX_HEADER_BYTES)
        try:
            header = {str(name): str(value) for name, value in parse_json(first).items()}
            shard, n_lines = Shard.parse(header.pop("shard")), int(header.pop("lines"))
        except (ValueError, KeyError, AttributeError, InputError) as error:
            raise InputError(f"{path} is not a shard", hint="give files that --shard I/N has written") from error
        n_found = n_lines_left(file)
        file.seek(-1, os.SEEK_END)
        is_whole = file.read() == b"\n"
    if n_found != n_lines or not is_whole:
        reason = f"it has {n_found} lines, not {n_lines}" if n_found != n_lines else "its last line is cut off"
        raise InputError(f"{path} is damaged: {reason}", hint=f"delete it, and repeat the command with --shard {shard}")
    return _Written(path, shard, {**header, "division": str(shard.n_shards)}, n_lines)
