"""Any input has as many output lines as input lines, however they are read; --resume continues a long file."""

import gzip
import random
import signal
import subprocess
import sys
from pathlib import Path

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

N_LINES = soak(300, 10_000)
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


def translated(run: Path, content: bytes, *args: object) -> tuple[bytes, list[str], int]:
    """Run `nmt translate`; return its output, its messages and its peak memory in MB."""
    command = [sys.executable, "-c", RUN_AND_TELL_PEAK, "translate", "-m", run, "--beam", 1, *args]
    done = subprocess.run(
        list(map(str, command)), input=content, env=environment(), capture_output=True, timeout=600, check=False
    )
    *messages, peak_kb = done.stderr.decode().splitlines()
    assert done.returncode == 0, messages[-5:]
    return done.stdout, messages, int(peak_kb) // 1000


def test_hostile_lines_come_out_as_many_as_they_went_in(five_run: FiveRun) -> None:
    draw = random.Random(0)
    noise = [draw.randbytes(draw.randrange(16)).replace(b"\n", b"") for _ in range(N_LINES // 3)]
    text = [line.encode(errors="replace").replace(b"\n", b"") for line in hostile_lines(2 * N_LINES // 3)]
    lines = [*ODD, *(line + draw.choice([b"", *ODD]) for line in (*text, *noise))]
    draw.shuffle(lines)
    lines += [b"Beijing " * soak(5_000, 125_000), b"x" * soak(5_000, 1_000_000)]
    options = ["--max-length", 12, "--batch-size", 256]
    out, messages, peak = translated(five_run.run, b"".join(line + b"\n" for line in lines), *options)
    assert out.count(b"\n") == len(lines)
    assert out.endswith(b"\n")
    out.decode()  # all of it is UTF-8
    assert [line for line in messages if not line.startswith("nmt: warning: ")] == []
    assert all(line.isprintable() for line in messages)
    *_, one = translated(five_run.run, SOURCE[0].encode(), *options)
    print(f"peak {peak} MB, of one line {one} MB")
    assert peak < one + 500


def test_resume_goes_on_after_the_last_complete_line(five_run: FiveRun, tmp_path: Path) -> None:
    """The command is stopped halfway by SIGKILL; `make soak`: and by Ctrl-C."""
    words = " ".join(SOURCE).split()
    lines = [" ".join(words[n % len(words) :][: n % 5 + 1]) for n in range(soak(2_000, 4_500))]  # several windows
    source, out, part = tmp_path / "in.gz", tmp_path / "out", tmp_path / "out.part"
    source.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    args = ["translate", "-m", five_run.run, "-i", source, "--beam", 1, "--max-length", 8]
    expected = out_lines(run_nmt(*args))
    n_done = 0
    for how in (signal.SIGKILL, signal.SIGINT)[: soak(1, 2)]:
        with started_nmt(*args, "--resume", "-o", out, cwd=tmp_path, stdin=subprocess.DEVNULL) as process:
            wait_until(lambda: part.exists() and part.read_bytes().count(b"\n") > n_done + 1, running=process)  # noqa: B023
            process.send_signal(how)
            process.wait(PATIENCE_S)
        n_done = part.read_bytes().count(b"\n") - 1
        assert 0 < n_done < len(lines)
        assert not out.exists()
    with part.open("ab") as file:
        file.write(b"a line cut sh")

    other = run_nmt(*args, "--alpha", 2, "--resume", "-o", out)
    one_clear_error(other, 2, f"{part} was started with another input, model or option")
    last = run_nmt(*args, "--resume", "-o", out)
    assert f"{part}: resuming after {n_done} lines" in err_lines(last)
    assert out.read_text(encoding="utf-8").split("\n")[:-1] == expected
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.gz", "out"]
