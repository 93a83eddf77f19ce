"""Resumable output: a part file keeps its complete lines and resumes only with the same origin."""

import os
from pathlib import Path

import pytest

from nmt.cli.resumable import resumed_output
from nmt.errors import InputError, OutputError

ORIGIN = {"input": "a", "model": "b"}


def write(path: Path, lines: list[bytes], *, stop: bool, origin: dict[str, str] = ORIGIN) -> int:
    """Append lines, then stop or succeed. Returns the number of lines before."""
    try:
        with resumed_output(path, origin) as (out, n_lines):
            for line in lines:
                out.write(line)
            if stop:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert stop
    return n_lines


def test_output_resumes_after_the_last_complete_line_and_becomes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert write(path, [], stop=True) == 0
    assert write(path, [b"1\n", b"2\n", b"cut sh"], stop=True) == 0
    assert not path.exists()
    assert write(path, [b"3\n"], stop=True) == 2
    assert write(path, [b"4\n"], stop=False) == 3
    assert path.read_bytes() == b"1\n2\n3\n4\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert write(path, [b"new\n"], stop=False) == 0, "a complete file is not resumed"


def test_part_file_of_another_origin_is_refused_and_kept(tmp_path: Path) -> None:
    path, part = tmp_path / "out", tmp_path / "out.part"
    write(path, [b"1\n"], stop=True)
    before = part.read_bytes()
    with pytest.raises(InputError) as caught:
        write(path, [], stop=False, origin={"input": "x", "model": "y"})
    assert str(caught.value) == f"{part} was started with another input, model or option"
    assert caught.value.hint == "restore it, or delete the part file to start over"
    assert part.read_bytes() == before
    part.write_bytes(b"not ours\n")
    with pytest.raises(InputError, match="was started with another input"):
        write(path, [], stop=False)
    assert part.read_bytes() == b"not ours\n"


def test_a_part_file_that_is_in_use_or_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with resumed_output(path, ORIGIN), pytest.raises(InputError, match=r"another command is writing .*out\.part"):
        write(path, [], stop=False)
    with pytest.raises(OutputError, match=r"cannot write .*out\.part: No such file") as caught:
        write(tmp_path / "absent" / "out", [], stop=False)
    assert caught.value.hint
    path.unlink()
    os.mkfifo(tmp_path / "out.part")
    with pytest.raises(OutputError, match=r"cannot write .*out\.part: File or stream is not seekable"):
        write(path, [], stop=False)
