"""Any input has as many output lines as input lines, however they are read; --resume continues a long file."""

import gzip
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from conftest import (
    PATIENCE_S,
    SOURCE,
    FiveRun,
    environment,
    err_lines,
    one_clear_error,
    out_lines,
    run_nmt,
    soak,
    started_nmt,
    wait_until,
)
from models import hostile_lines

from nmt.cli.resumable import WINDOW

N_LINES = soak(100, 3_333)  # of each of three kinds
ODD = [b"\r", b"a\r", b"\xef\xbb\xbfa", b"a\0b", b"\xff\xfe", b"\xe4\xb8", b"\xed\xa0\x80", b"\x1b[2J\x07", b"\t \t"]
ODD += ["a\x85b\u2028c\u2029d".encode(), b"\x0b\x0c\x1c\x1d\x1e", "שלום ‏עולם‎ مرحبا".encode(), b"<s></s><unk>"]
RUN_AND_TELL_PEAK = """
import atexit, sys
def tell():
    print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0], file=sys.stderr)
atexit.register(tell)
from nmt.cli import main
main()
"""


class Translated(NamedTuple):
    out: bytes
    messages: list[str]
    peak_mb: int


def translated(run: Path, content: bytes) -> Translated:
    words = ["translate", "-m", str(run), "--beam", "1", "--max-length", "12", "--batch-size", "256"]
    command = [sys.executable, "-c", RUN_AND_TELL_PEAK, *words]
    done = subprocess.run(command, input=content, env=environment(), capture_output=True, timeout=600, check=False)
    *messages, peak_kb = done.stderr.decode().splitlines()
    assert done.returncode == 0, messages[-5:]
    return Translated(done.stdout, messages, int(peak_kb) // 1000)


def odd_lines() -> list[bytes]:
    """Text and random bytes, each followed by something odd."""
    draw = random.Random(0)
    lines = [line.encode(errors="replace") for line in hostile_lines(2 * N_LINES)]
    for _ in range(N_LINES):
        n_bytes = draw.randrange(16)
        lines.append(draw.randbytes(n_bytes))
    ends = draw.choices([b"", *ODD], k=len(lines))
    lines = [line.replace(b"\n", b"") + end for line, end in zip(lines, ends, strict=True)]
    lines += ODD
    draw.shuffle(lines)
    return lines


def test_hostile_lines_come_out_as_many_as_they_went_in(five_run: FiveRun) -> None:
    lines = odd_lines()
    lines.append(b"Beijing " * soak(5_000, 125_000))
    lines.append(b"x" * soak(5_000, 1_000_000))
    content = b"\n".join(lines) + b"\n"
    out, messages, peak_mb = translated(five_run.run, content)
    assert out.count(b"\n") == len(lines)
    assert out.endswith(b"\n")
    out.decode()  # all of it is UTF-8
    assert all(message.startswith("nmt: warning: ") for message in messages)
    assert all(message.isprintable() for message in messages)
    peak_of_one_line_mb = translated(five_run.run, SOURCE[0].encode()).peak_mb
    print(f"peak {peak_mb} MB, of one line {peak_of_one_line_mb} MB")
    assert peak_mb < peak_of_one_line_mb + 500


def n_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_resume_goes_on_after_the_last_complete_window(five_run: FiveRun, tmp_path: Path) -> None:
    """The command is stopped halfway by SIGKILL; `make soak`: and by Ctrl-C."""
    # 1. Several windows of lines.
    lines = soak(400, 900) * SOURCE
    source = tmp_path / "in.gz"
    out = tmp_path / "out"
    part = tmp_path / "out.part"
    source.write_bytes(gzip.compress("\n".join(lines).encode()))
    args = ["translate", "-m", five_run.run, "-i", source, "--beam", 1, "--max-length", 8]
    expected = out_lines(run_nmt(*args))

    # 2. Some are translated.
    n_done = 0
    for number in (signal.SIGKILL, signal.SIGINT)[: soak(1, 2)]:
        with started_nmt(*args, "--resume", "-o", out, cwd=tmp_path, stdin=subprocess.DEVNULL) as process:
            wait_until(lambda: n_lines(part) > n_done + WINDOW, running=process)  # noqa: B023
            process.send_signal(number)
            process.wait(PATIENCE_S)
        n_done = (n_lines(part) - 1) // WINDOW * WINDOW
        assert 0 < n_done < len(lines)
        assert not out.exists()
    with part.open("ab") as file:
        file.write(b"a line cut sh")

    # 3. The rest, with the same options.
    done = run_nmt(*args, "--alpha", 2, "--resume", "-o", out)
    one_clear_error(done, 2, f"{part} was started with another input, model or option")
    done = run_nmt(*args, "--resume", "-o", out)
    assert f"{part}: resuming after {n_done} lines" in err_lines(done)
    result = out.read_text().split("\n")[:-1]
    assert result == expected
    found = {file.name for file in tmp_path.iterdir()}
    assert found == {"in.gz", "out"}
