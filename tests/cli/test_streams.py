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
from conftest import NMT, PATIENCE_S, SOURCE, TARGET, Done, FiveRun, environment, one_clear_error, run_nmt, started_nmt


def read_line(process: subprocess.Popen[bytes], timeout: float = 120) -> bytes:
    """Return the next line of a command's stdout, or the part of the line that arrived within `timeout` seconds."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n") and select.select([process.stdout], [], [], timeout)[0]:
        if not (byte := process.stdout.read(1)):
            break
        line += byte
    return line


@pytest.mark.parametrize("options", [["--stream"], ["-q"]], ids=["while streaming", "while waiting for input"])
def test_each_line_is_answered_until_ctrl_c(five_run: FiveRun, tmp_path: Path, options: list[str]) -> None:
    with started_nmt("translate", "-m", five_run.run, *options, cwd=tmp_path) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for source, target in zip(SOURCE[:2], TARGET, strict=False):
            process.stdin.write(f"{source}\n".encode())
            assert read_line(process).decode() == f"{target}\n", "before the next one is sent"
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
            assert process.stderr.read().decode().splitlines() == ["one sentence per line; Ctrl-D ends", "> > "]
    finally:
        os.close(keyboard)


def test_a_progress_bar_counts_the_lines_of_a_file(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in.zh").write_text("".join(f"{line}\n" for line in SOURCE))
    command = [*NMT, "translate", "-m", str(five_run.run)]
    seen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    with (tmp_path / "in.zh").open("rb") as stdin, (tmp_path / "out.en").open("wb") as out:
        done = subprocess.run(command, env=environment(), stdin=stdin, stdout=out, stderr=terminal, check=False)
    os.close(terminal)
    screen = b""
    with os.fdopen(seen, "rb", buffering=0) as shown, contextlib.suppress(OSError):  # at the end of the terminal
        while part := shown.read(4096):
            screen += part
    assert done.returncode == 0
    assert (tmp_path / "out.en").read_text() == "".join(f"{line}\n" for line in TARGET)
    assert re.search(r"100%\|.*\| 5/5 \[\d\d:\d\d<\d\d:\d\d, .* lines/s\]", screen.decode()), screen


def test_input_and_output_that_cannot_be_used_are_one_clear_error(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(five_run.source_file.read_bytes())[:-20])
    before, translate = sorted(tmp_path.iterdir()), ["translate", "-m", five_run.run]
    for args, code, message in (
        ([*translate, "-i", "none.zh"], 2, "cannot read none.zh: No such file or directory"),
        ([*translate, "-i", "cut.gz"], 2, "cannot read cut.gz"),
        ([*translate, SOURCE[0], "-o", "none/out.en"], 1, "none/out.en: No such file or directory"),
        ([*translate, SOURCE[0], "-o", tmp_path], 1, f"cannot write {tmp_path}: Is a directory"),
        (["tokenize", five_run.config, "run=cut.gz/run"], 1, "cannot make the run's directory cut.gz/run: Not a dir"),
    ):
        assert "data.root" not in one_clear_error(run_nmt(*args, cwd=tmp_path), code, message)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_a_full_disk_is_one_clear_error(five_run: FiveRun) -> None:
    for args in (["translate", "-m", five_run.run, SOURCE[0]], ["config"], ["--help"]):
        with Path("/dev/full").open("wb") as out:
            done = run_nmt(*args, stdout=out)
        one_clear_error(done, 1, "cannot write the output: No space left on device")


def in_shell(line: str, cwd: Path, *, stdin: bytes = b"") -> Done:
    """Run a line of bash in which `nmt` is defined."""
    command = ["bash", "-c", f"nmt() {{ '{sys.executable}' -m nmt \"$@\"; }}\n{line}"]
    return subprocess.run(command, input=stdin, cwd=cwd, env=environment(), capture_output=True, check=False)


def test_a_closed_pipe_ends_quietly(five_run: FiveRun) -> None:
    lines = f"{SOURCE[0]}\n".encode() * 1000  # their JSON is larger than a pipe's buffer
    command = "nmt translate -q -m runs/five --beam 1 --json | head -n 1; exit ${PIPESTATUS[0]}"
    done = in_shell(command, five_run.home, stdin=lines)
    assert done.stderr == b""
    assert json.loads(done.stdout)["hypotheses"][0]["text"] == TARGET[0]
    assert done.returncode == 0, "the reader closed the pipe; nothing failed"


def test_a_closed_stdin_or_stdout_causes_no_traceback(five_run: FiveRun) -> None:
    done = in_shell("nmt translate -q -m runs/five <&- & nmt translate -q -m runs/five >&- TEXT; wait", five_run.home)
    assert b"Traceback" not in done.stderr
    assert all(line.startswith((b"nmt: error: ", b"hint: ")) for line in done.stderr.splitlines())


def test_messages_for_a_closed_stderr_are_lost_and_reach_no_file(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(SOURCE[0].encode() + b"\n\xff\n")  # a warning at its end
    options = f"-v -m {five_run.run} --device cpu -i in"
    for closed in ("2>&-", "2>&- <&-"):
        done = in_shell(f"nmt translate {options} -o out {closed}; echo $?; nmt nothing {closed}; echo $?", tmp_path)
        assert (done.stdout, done.stderr) == (b"0\n2\n", b"")
        assert (tmp_path / "out").read_text().split("\n")[::2] == [TARGET[0], ""]
