"""Shards: line ranges, file names, and joining, which detects missing, mismatched and damaged shards."""

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.cli.shards import Shard, find_shards, join_shards
from nmt.cli.streams import count_lines
from nmt.errors import DataError, InputError
from nmt.text.lines import iter_lines

ORIGIN = {"input": "a", "model": "b", "option": "c"}


def write(output: Path, shard: Shard, lines: list[str], **changes: object) -> Path:
    """Write a complete shard; `changes` override fields of its header."""
    path = shard.file(output)
    header = {**shard.origin(ORIGIN), "lines": str(len(lines)), **changes}
    path.write_text("".join(f"{line}\n" for line in [json.dumps(header), *lines]), encoding="utf-8")
    return path


def joined(paths: list[Path]) -> str:
    out = io.BytesIO()
    n_lines = join_shards(paths, out)
    assert n_lines == out.getvalue().count(b"\n")
    return out.getvalue().decode()


@given(st.integers(0, 1000), st.integers(1, 50))
def test_shards_cover_the_lines_in_order_and_are_equally_long(n_lines: int, n_shards: int) -> None:
    spans = [Shard(i, n_shards).span(n_lines) for i in range(n_shards)]
    assert [line for span in spans for line in span] == list(range(n_lines))
    assert max(map(len, spans)) - min(map(len, spans)) <= 1


@pytest.mark.parametrize("text", ["", "1", "3/", "3/3", "-1/3", "0/0", "0/1\n", "٣/٥", "0/9999999"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a shard I/N"):
        Shard.parse(text)


def test_a_shard_is_read_and_names_its_file(tmp_path: Path) -> None:
    assert Shard.parse("3/10") == Shard(3, 10)
    assert str(Shard(3, 10)) == "3/10"
    assert Shard(3, 1000).file(tmp_path / "out.en") == tmp_path / "out.en.shard-003-of-1000"


def test_lines_are_counted_as_they_are_read(tmp_path: Path) -> None:
    for content in (b"", b"\n", b"a", b"a\nb", b"a\r\nb\n", b"\xff\n\n\x85\n"):
        (tmp_path / "in").write_bytes(content)
        assert count_lines(tmp_path / "in") == len(list(iter_lines([tmp_path / "in"])))
    with pytest.raises(DataError, match="cannot read"):
        count_lines(tmp_path / "absent")


def test_shards_are_found_and_joined_in_order(tmp_path: Path) -> None:
    output = tmp_path / "out [1]"
    texts = {2: ["e"], 0: ["a", ""], 1: []}
    paths = [write(output, Shard(i, 3), lines) for i, lines in texts.items()]
    for name in ("out [1].shard-000-of-003.part", "other.shard-000-of-003"):
        (tmp_path / name).write_text("no shard\n")
    assert find_shards(output) == sorted(paths)
    assert joined(find_shards(output)) == joined(paths) == "a\n\ne\n"


def test_missing_shards_are_named(tmp_path: Path) -> None:
    output = tmp_path / "out"
    for absent in (output, tmp_path / "absent" / "out"):
        with pytest.raises(InputError, match="there are no shards of"):
            find_shards(absent)
    paths = [write(output, Shard(i, 20), []) for i in (0, 1, 19)]
    with pytest.raises(InputError, match=r"17 of 20 shards are missing: 2/20, .*11/20, …$") as caught:
        joined(paths)
    assert caught.value.hint == "repeat the command with --shard 2/20; what was begun continues"
    with pytest.raises(InputError, match=r"1 of 2 shards is missing: 0/2"):
        joined([write(output, Shard(1, 2), [])])


def test_shards_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "out"
    first = write(output, Shard(0, 2), ["a"])
    for name in ORIGIN:
        other = write(output, Shard(1, 2), ["b"], **{name: "x"})
        with pytest.raises(InputError) as caught:
            joined([first, other])
        assert str(caught.value) == f"{other} was made from another {name} than {first}"
    with pytest.raises(InputError, match="was made from another division than"):
        joined([first, write(output, Shard(1, 3), ["b"])])
    with pytest.raises(InputError, match="1 of 2 shards is missing: 1/2"):
        joined([first, write(tmp_path / "copy", Shard(0, 2), ["a"])])


def test_damaged_files_and_other_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "out", Shard(0, 1), ["a", "b"])
    whole = path.read_bytes()
    for content, n_lines in ((whole[:-2], 1), (whole[:-1], 1), (whole + b"c\n", 3)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"is damaged: it has {n_lines} complete lines, not 2"):
            joined([path])
    for content in (b"", b"[]\n", b'{"shard": "0/1"}\n', b'{"shard": "1/1", "lines": "0"}\n', b"\xff"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not a shard"):
            joined([path])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match=rf"cannot read {path}: not a file"):
        joined(find_shards(tmp_path / "out"))
