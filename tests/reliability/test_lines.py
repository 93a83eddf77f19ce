"""Any input has as many output lines as input lines, however they are read; --resume continues a long file."""

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import (
    PATIENCE_S,
    SOURCE,
    FiveRun,
    environment,
    err_lines,
    one_clear_error,
    out_lines,
    run_nmt,
    started_nmt,
    wait_until,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.decode.translator import load

from .conftest import SOAK, soak

N_LINES = soak(300, 10_000)
ODD = [
    *(
        b"\r",
        b"a\r",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbfa",
        b"\0",
        b"a\0b",
        "a\x85b".encode(),
        "a\u2028b\u2029c".encode(),
    ),
    *(
        "👩‍👩‍👧 🏳️‍🌈".encode(),
        "שלום ‏עולם‎ مرحبا".encode(),
        b"\xff\xfe",
        b"\xe4\xb8",
        b"\xed\xa0\x80",
        b"\x1b[2J\x07",
    ),
    *(b"\x0b\x0c\x1c\x1d\x1e", "\u202eabc".encode(), b"e\xcc\x81" * 50, b"\t \t", b"<s></s><unk>"),
]
RUN_AND_TELL_PEAK = """
import atexit, sys
def tell():
    print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0], file=sys.stderr)
atexit.register(tell)
from nmt.cli import main
main()
"""


def hostile_lines(n_lines: int) -> list[bytes]:
    """Unusual lines: any Unicode text without surrogates, any bytes, and known edge cases; the same on each call.

    Hypothesis repeats short values, so it generates long blocks, which are cut into lines.
    """
    rng = random.Random(0)
    words = " ".join(SOURCE).split()
    lines: list[bytes] = []

    @settings(max_examples=n_lines // 25, derandomize=True, database=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=100, max_size=400) | st.binary(min_size=100))
    def collect(block: str | bytes) -> None:
        start = 0
        while start < len(block):
            size = rng.randrange(16)
            part = block[start : start + size]
            line = part.encode() if isinstance(part, str) else part
            known = " ".join(rng.choices(words, k=rng.randrange(4))).encode()
            lines.append((known + line + rng.choice([b"", b"", rng.choice(ODD)])).replace(b"\n", b""))
            start += size

    collect()
    assert len(lines) >= n_lines
    assert len(set(lines)) > 0.8 * len(lines)
    return [*ODD, *lines][:n_lines]


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
    lines = hostile_lines(N_LINES)
    lines[N_LINES // 2 : N_LINES // 2] = [b"Beijing " * soak(5_000, 125_000), b"x" * soak(5_000, 1_000_000)]
    options = ["--max-length", 12, "--batch-size", 256]
    out, messages, peak = translated(five_run.run, b"".join(line + b"\n" for line in lines), *options)
    assert out.count(b"\n") == N_LINES + 2
    assert out.endswith(b"\n")
    out.decode()  # all of it is UTF-8
    assert all(line.startswith("nmt: warning: ") for line in messages)
    assert all(line.isprintable() for line in messages)
    *_, one = translated(five_run.run, SOURCE[0].encode(), *options)
    print(f"peak {peak} MB, of one line {one} MB")
    assert peak < one + 500


@pytest.mark.skipif(not SOAK, reason="make soak")
def test_a_reader_that_stops_is_waited_for_in_bounded_memory(five_run: FiveRun, tmp_path: Path) -> None:
    """When the pipe is full, the command stops working; it continues when the pipe is read."""
    n_lines = 4_000
    (tmp_path / "in").write_text(f"{SOURCE[0]}\n" * n_lines, encoding="utf-8")
    args = ["translate", "-q", "-m", five_run.run, "--beam", 1, "--json", "-i", tmp_path / "in"]
    with started_nmt(*args, cwd=tmp_path, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)  # wait for the first output
        status = Path(f"/proc/{process.pid}/status")
        seconds = [0.0, -1.0]
        while seconds[-1] != seconds[-2]:  # until it uses no more CPU time
            time.sleep(1)
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            seconds.append(float(fields[11]) + float(fields[12]))
        assert process.poll() is None
        assert int(status.read_text().partition("VmHWM:")[2].split()[0]) < 1_000_000  # kB
        rest = b"".join(iter(lambda: process.stdout.read(1_000_000), b""))  # type: ignore[union-attr]
        assert process.wait(PATIENCE_S) == 0
    assert (first + rest).count(b"\n") == n_lines


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
    one_clear_error(other, 2, f"{part} was started with another option")
    last = run_nmt(*args, "--resume", "-o", out)
    assert f"{part}: resuming after {n_done} lines" in err_lines(last)
    assert out.read_text(encoding="utf-8").split("\n")[:-1] == expected
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.gz", "out"]


def test_batch_size_and_order_change_no_text(five_run: FiveRun) -> None:
    """`make soak` translates Multi30k's test_2016 with the model of its recipe; `make test`, generated sentences."""
    if SOAK:
        root = Path(__file__).parents[2]
        model = Path(os.environ.get("NMT_SOAK_MODEL", root / "runs/multi30k-de-en"))
        source = root.parent / "shared/data/multi30k/test_2016_flickr.de.gz"
        if not (model.exists() and source.exists()):
            pytest.skip("make pipeline CONFIG=configs/multi30k-de-en.yaml first, or set NMT_SOAK_MODEL")
        lines = gzip.decompress(source.read_bytes()).decode().split("\n")[:-1]
    else:
        model = five_run.run
        words = " ".join(SOURCE).split()
        lines = [*SOURCE, *(" ".join(words[(7 * n) % len(words) :][: n % 11]) for n in range(30))]
    translator = load(model, "cpu")
    order = random.Random(1).sample(range(len(lines)), len(lines))
    found = {size: [t.text for t in translator.translate_lines(lines, batch_size=size)] for size in (64, 1, 7)}
    shuffled = [t.text for t in translator.translate_lines([lines[i] for i in order])]
    found[0] = [text for _, text in sorted(zip(order, shuffled, strict=True))]
    different = {i for texts in found.values() for i, text in enumerate(texts) if text != found[64][i]}
    print(f"{len(lines)} lines, {len(different)} differ: {sorted(different)}")
    assert len(different) <= 2
    for i in different:
        texts = sorted({of_size[i] for of_size in found.values()})
        log_probs = translator.reference_log_probs([lines[i]] * len(texts), texts)
        scores = [sum(row) / translator.options.length_divisor(len(row)) for row in log_probs]
        assert max(scores) - min(scores) <= 1e-5, (texts, scores)
