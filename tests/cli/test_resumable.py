"""Resumable output; tests/reliability/test_lines.py has how it goes on."""

import os
from pathlib import Path

import pytest

from nmt.cli.resumable import resumed_output
from nmt.errors import InputError, OutputError

ORIGIN = {"input": "a", "model": "b"}


def test_a_part_file_that_is_in_use_or_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out"
    first, again = resumed_output(path, ORIGIN), resumed_output(path, ORIGIN)
    with first, pytest.raises(InputError, match=r"another command is writing .*out\.part"), again:
        pass
    absent = resumed_output(tmp_path / "absent" / "out", ORIGIN)
    with pytest.raises(OutputError, match=r"cannot write .*out\.part: No such file") as caught, absent:
        pass
    assert caught.value.hint
    path.unlink()
    (tmp_path / "out.part").write_bytes(b"a line of another program, without an end")
    with pytest.raises(InputError, match="was started with another input"), resumed_output(path, ORIGIN):
        pass
    (tmp_path / "out.part").unlink()
    os.mkfifo(tmp_path / "out.part")
    blocked = pytest.raises(OutputError, match=r"cannot write .*out\.part: File or stream is not seekable")
    with blocked, resumed_output(path, ORIGIN):
        pass
