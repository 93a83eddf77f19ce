"""Input and output of the command: prompts, pipes, files, progress, and streams that fail."""

import contextlib
import gzip
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from conftest import (
    NMT,
    PATIENCE_S,
    SOURCE,
    TARGET,
    Done,
    FiveCorpus,
    FiveRun,
    environment,
    one_clear_error,
    refused,
    run_in,
    run_nmt,
    started_nmt,
)


def read_line(process: subprocess.Popen[bytes], timeout: float = 120) -> bytes:
    """Return the next line of a command's stdout, or the part of the line that arrived within `timeout` seconds."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n") and select.select([process.stdout], [], [], timeout)[0]:
        if not (byte := process.stdout.read(1)):
            break
        line += byte
    return line


@pytest.mark.parametrize("option", ["--stream", "-q"])
def test_each_line_is_answered_until_ctrl_c(five_run: FiveRun, tmp_path: Path, option: str) -> None:
    """With -q, the lines that have come so far are translated after a pause."""
    with started_nmt("translate", "-m", five_run.run, option, cwd=tmp_path) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for i in range(2):
            process.stdin.write(f"{SOURCE[i]}\n".encode())
            assert read_line(process).decode() == f"{TARGET[i]}\n", "before the next one is sent"
        # Ctrl-C
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 130
        assert process.stderr.read() == b""


def test_translate_prompts_on_a_terminal(five_run: FiveRun, tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    try:
        with (
            os.fdopen(terminal, "rb", buffering=0) as stdin,
            started_nmt("translate", "-m", five_run.run, cwd=tmp_path, stdin=stdin) as process,
        ):
            assert process.stderr is not None
            os.write(keyboard, f"{SOURCE[1]}\n".encode())
            assert read_line(process).decode() == f"{TARGET[1]}\n"
            os.write(keyboard, b"\x04")  # Ctrl-D
            assert process.wait(timeout=PATIENCE_S) == 0
            assert process.stderr.read() == b"one sentence per line; Ctrl-D ends\n> > \n"
    finally:
        os.close(keyboard)


def test_a_progress_bar_counts_the_lines_of_a_file(five_run: FiveRun, tmp_path: Path) -> None:
    command = [*NMT, "translate", "-m", str(five_run.run), "-o", "out.en"]
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    with five_run.source_file.open("rb") as stdin:
        subprocess.run(command, cwd=tmp_path, env=environment(), stdin=stdin, stderr=terminal, check=True)
    os.close(terminal)
    # The pseudo-terminal has kept what the command showed.
    shown = b""
    with os.fdopen(screen, "rb", buffering=0) as file, contextlib.suppress(OSError):  # at the end of the terminal
        while part := file.read(4096):
            shown += part
    result = (tmp_path / "out.en").read_bytes()
    assert result == five_run.target_file.read_bytes()
    assert re.search(r"100%\|.*\| 5/5 \[\d\d:\d\d<\d\d:\d\d, .* lines/s\]", shown.decode()), shown


UNUSABLE = {  # arguments -> part of the error message
    "-i none.zh": "cannot read none.zh: No such file or directory",
    "-i cut.gz": "cannot read cut.gz",
}


@pytest.mark.parametrize("arguments", UNUSABLE)
def test_input_that_cannot_be_read_is_one_clear_error(five_run: FiveRun, tmp_path: Path, arguments: str) -> None:
    # Cut off in the checksum at the end.
    whole = gzip.compress(five_run.source_file.read_bytes())
    (tmp_path / "cut.gz").write_bytes(whole[:-20])
    stderr = refused(tmp_path, f"translate -m {five_run.run} {arguments}", UNUSABLE[arguments])
    assert "data.root" not in stderr


UNWRITABLE = {  # output -> part of the error message
    "none/out.en": "none/out.en: No such file or directory",
    ".": "cannot write .: Is a directory",
}


@pytest.mark.parametrize("output", UNWRITABLE)
def test_output_that_cannot_be_written_is_one_clear_error(five_run: FiveRun, tmp_path: Path, output: str) -> None:
    done = run_in(tmp_path, f"translate -m {five_run.run} 'a text' -o {output}")
    one_clear_error(done, 1, UNWRITABLE[output])
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_be_written_is_one_clear_error(five_corpus: FiveCorpus) -> None:
    done = run_in(five_corpus.home, "tokenize five.yaml run=five.yaml/run")
    one_clear_error(done, 1, "cannot make the run's directory five.yaml/run: Not a dir")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["translate TEXT", "config", "--help"])
def test_a_full_disk_is_one_clear_error(five_home: Path, command: str) -> None:
    with Path("/dev/full").open("wb") as out:
        done = run_nmt(*command.split(), cwd=five_home, stdout=out)
    # What is said at the start is not of interest.
    stderr = done.stderr.decode().replace("model: runs/five\n", "")
    assert stderr.startswith("nmt: error: cannot write the output: No space left on device\nhint: ")
    assert done.returncode == 1


def in_shell(line: str, cwd: Path, *, stdin: bytes = b"") -> Done:
    """Run a line of bash in which `nmt` is defined."""
    command = ["bash", "-c", f"nmt() {{ '{sys.executable}' -m nmt \"$@\"; }}\n{line}"]
    return subprocess.run(command, input=stdin, cwd=cwd, env=environment(), capture_output=True, check=False)


def test_a_closed_pipe_ends_quietly(five_home: Path) -> None:
    lines = f"{SOURCE[0]}\n".encode() * 1000  # their JSON is larger than a pipe's buffer
    command = "nmt translate -q -m runs/five --beam 1 --json | head -n 1; exit ${PIPESTATUS[0]}"
    done = in_shell(command, five_home, stdin=lines)
    assert done.stderr == b""
    (best, *_) = json.loads(done.stdout)["hypotheses"]
    assert best["text"] == TARGET[0]
    assert done.returncode == 0, "the reader closed the pipe; nothing failed"


@pytest.mark.parametrize("arguments", ["<&-", ">&- TEXT"])
def test_a_closed_stdin_or_stdout_causes_no_traceback(five_home: Path, arguments: str) -> None:
    done = in_shell(f"nmt translate -q -m runs/five {arguments}", five_home)
    for line in done.stderr.splitlines():
        assert line.startswith((b"nmt: error: ", b"hint: "))


@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-"])
def test_messages_for_a_closed_stderr_are_lost_and_reach_no_file(
    five_run: FiveRun, tmp_path: Path, closed: str
) -> None:
    (tmp_path / "in").write_bytes(SOURCE[0].encode() + b"\n\xff\n")  # a warning at its end
    translate = f"nmt translate -v -m {five_run.run} --device cpu -i in -o out {closed}; echo $?"
    done = in_shell(f"{translate}; nmt nothing {closed}; echo $?", tmp_path)
    assert done.stdout == b"0\n2\n"
    assert done.stderr == b""
    text = (tmp_path / "out").read_text()
    assert text.startswith(f"{TARGET[0]}\n")
    assert text.count("\n") == 2
