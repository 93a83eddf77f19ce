"""Several ranks have the same losses and translations as one process, and end together."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fifty_steps
import pytest
from conftest import (
    PATIENCE_S,
    SOURCE,
    TARGET,
    FiveCorpus,
    FiveRun,
    environment,
    err_lines,
    one_clear_error,
    out_lines,
    run_nmt,
    started_nmt,
    wait_until,
)

from nmt import distributed
from nmt.decode.translator import load
from nmt.distributed import ALONE, Launch, gather, gather_numbers, launched, merged, mine, n_ranks, rank, summed
from nmt.errors import ConfigError
from nmt.run.checkpoint import hash_tensors, read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.lines import read_lines

FIFTY_STEPS = Path(fifty_steps.__file__)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
soak = pytest.mark.skipif("NMT_SOAK" not in os.environ, reason="make soak")
TWO_THREADS = {"OMP_NUM_THREADS": "2"}


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment(ONE_THREAD),
        capture_output=True,
        timeout=240,
        check=False,
    )


def weights_hash(path: Path) -> str:
    """Hash of the newest checkpoint's weights and moments, and of the best model's weights."""
    directory = RunDirectory(path)
    step = directory.newest_step()
    assert step is not None
    newest = read_checkpoint(directory.checkpoint_file(step)).tensors
    return hash_tensors(newest) + hash_tensors(read_checkpoint(directory.model_file).tensors)


# --- one process, and the shares of ranks -------------------------------------------------------------------


def test_one_process_is_the_case_of_one_rank() -> None:
    assert (rank(), n_ranks()) == (0, 1)
    assert gather(b"abc") == [b"abc"]
    assert gather_numbers(1, 2.5) == [[1, 2.5]]
    assert summed(1, 2.5) == [1, 2.5]
    assert mine([1, 2, 3]) == [1, 2, 3]


@pytest.mark.parametrize("n_items", [0, 1, 2, 7])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_what_was_cut_is_merged_in_order(n_items: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    for i in range(n):
        monkeypatch.setattr(distributed, "_joined", Launch(i, n, i))
        parts.append(mine(list(range(n_items))))
    assert merged(parts) == list(range(n_items))


def test_an_environment_that_is_not_torchruns_means_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched() == ALONE
    for name, value in {"LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == Launch(1, 2, 1)
    assert (rank(), n_ranks()) == (0, 1)  # before they are joined
    for name, wrong in (
        *(("RANK", value) for value in ("2", "-1", "x")),
        *(("LOCAL_RANK", value) for value in ("-1", "")),
        *(("MASTER_PORT", value) for value in ("-1", "65536", "x")),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, wrong)
            with pytest.raises(ConfigError, match=name):
                launched()


def torchruns(rank: int) -> dict[str, str]:
    """The environment that torchrun sets for one of two ranks, with a free port of this machine."""
    for port in range(20_000 + os.getpid() % 10_000, 32_768):  # below those that the system gives to other programs
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            break
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return {**ONE_THREAD, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_without_peers_says_what_it_waits_for_and_hears_ctrl_c(rank: int) -> None:
    """The warning comes after `distributed.WARN_AFTER_S`, less than 30 s; this test sets it to 0."""
    assert distributed.WARN_AFTER_S < 30
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # even if the tests ignore SIGINT
    program = (
        f"{hears}; from nmt import distributed; distributed.WARN_AFTER_S = 0; distributed.ranks_joined().__enter__()"
    )
    env = torchruns(rank)
    with subprocess.Popen([sys.executable, "-c", program], env=environment(env), stderr=subprocess.PIPE) as process:
        assert process.stderr
        told = process.stderr.readline().decode()
        address = f"127.0.0.1:{env['MASTER_PORT']}"
        assert told.startswith(f"rank {rank} of 2 waits for the others at {address}")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT


# --- training -----------------------------------------------------------------------------------------------


def test_two_ranks_have_the_losses_of_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifty_steps.main()
    two = run(*TORCHRUN, FIFTY_STEPS, cwd=tmp_path)
    assert two.returncode == 0, two.stderr.decode()
    expected, found = json.loads(capsys.readouterr().out), json.loads(two.stdout)
    assert len(expected) == 50
    assert expected[-1] < expected[0]
    assert found == pytest.approx(expected, rel=1e-9)


@soak
def test_a_rank_killed_under_torchrun_restarts_and_ends_with_the_same_weights(five_corpus: FiveCorpus) -> None:
    settings = ["train.max_steps=200", "train.validate_every=10", "model.dropout=0.1", "model.d_model=32"]
    settings += ["train.average=ema", "data.drop_duplicates=false"]
    unbroken = five_corpus.home / "unbroken"
    done = run(*TORCHRUN, "-m", "nmt", "train", five_corpus.config, f"run={unbroken}", *settings, cwd=five_corpus.home)
    assert done.returncode == 0, done.stderr.decode()

    with started(
        *TORCHRUN, "--max-restarts", 1, "-m", "nmt", "train", five_corpus.config, *settings, cwd=five_corpus.home
    ) as process:
        wait_for_step(five_corpus.run, 12)
        os.kill(children(process.pid)[-1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr.decode()
    assert "going on from step" in stderr.decode()
    assert weights_hash(five_corpus.run) == weights_hash(unbroken)


@soak
def test_sigterm_stops_workers_and_the_same_command_goes_on(five_corpus: FiveCorpus) -> None:
    command = ["train", five_corpus.config, "train.validate_every=50"]
    with started_nmt(
        *command, "train.max_steps=4000", "--replicas", 2, cwd=five_corpus.home, env=TWO_THREADS
    ) as process:
        wait_for_step(five_corpus.run, 1)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    errors = [line for line in stderr.decode().splitlines() if "error" in line]
    assert len(errors) == 1, errors
    stopped = re.search(r"stopped at step (\d+), all saved", errors[0])
    assert stopped
    more = f"train.max_steps={int(stopped[1]) + 2}"
    done = run_nmt(*command, more, "--replicas", 1, cwd=five_corpus.home, env=ONE_THREAD)
    told = " ".join(err_lines(done))
    assert f"going on from step {stopped[1]}" in told
    assert "replicas: 1 instead of 2" in told


@soak
def test_a_lost_rank_is_one_clear_error(five_corpus: FiveCorpus) -> None:
    first_rank = torchruns(0)
    ranks = [{**first_rank, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    args = ["train", five_corpus.config, "train.max_steps=4000"]
    with (
        started_nmt(*args, cwd=five_corpus.home, env=ranks[0]) as first,
        started_nmt(*args, cwd=five_corpus.home, env=ranks[1]) as other,
    ):
        wait_for_step(five_corpus.run, 1)
        other.kill()
        stdout, stderr = first.communicate(timeout=PATIENCE_S)
    finished = subprocess.CompletedProcess([], first.returncode, stdout, stderr.replace(b"\r", b"\n"))
    one_clear_error(finished, 1, "another of the 2 processes is gone")


# --- translating --------------------------------------------------------------------------------------------


@soak
def test_a_reader_who_has_had_enough_ends_workers_quietly(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(f"{SOURCE[0]}\n" * 9000)
    command = f"{sys.executable} -m nmt translate -m {five_run.run} --processes 2 --beam 1 -i in | head -1"
    done = run("bash", "-c", command, cwd=tmp_path)
    assert done.stdout.decode() == f"{TARGET[0]}\n"
    assert done.stderr == b""


def test_a_lost_worker_is_one_clear_error(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(f"{SOURCE[0]}\n" * 200_000)
    args = ["translate", "-m", five_run.run, "--processes", 2, "--beam", 1, "-i", "in"]
    with started_nmt(*args, cwd=tmp_path, env=ONE_THREAD) as process:
        assert process.stdout
        assert process.stdout.read(1)  # the workers are translating
        (worker,) = workers_of(process, 1)
        os.kill(worker, signal.SIGKILL)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    finished = subprocess.CompletedProcess([], process.returncode, b"", stderr)
    one_clear_error(finished, 1, "another of the 2 processes is gone")


def test_a_worker_that_never_comes_is_one_clear_error(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nif os.environ.get('NMT_WORKER_THREADS'): os._exit(3)\n")
    env = {**ONE_THREAD, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = run_nmt("translate", "-m", five_run.run, "--processes", 2, "--", SOURCE[0], env=env)
    one_clear_error(done, 1, "process 1 of 2 ended by itself, with exit code 3")


@soak
def test_ctrl_c_before_the_workers_have_come_leaves_none(five_run: FiveRun, tmp_path: Path) -> None:
    args = ["translate", "-m", five_run.run, "--processes", 3, "--", SOURCE[0]]
    with started_nmt(*args, cwd=tmp_path, env=ONE_THREAD) as process:
        workers = workers_of(process, 2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert not any(command_of(worker) for worker in workers)


ODD_LINES = b"".join(b"\xe6\x88\x91 %d\n\n\xe4\xb9\xa6 \xe3\x80\x82\n" % i for i in range(4)) + b"\xff\r\nlast"


def test_workers_translate_as_one_process_does(five_run: FiveRun) -> None:
    args = ["translate", "-m", five_run.run, "--json", "--n-best", 2, "--sample", "--seed", 7]
    alone = run_nmt(*args, input=ODD_LINES)
    two = run_nmt(*args, "--processes", 2, input=ODD_LINES, env=ONE_THREAD)
    assert len(out_lines(alone)) == 14
    for found, expected in zip(out_lines(two), out_lines(alone), strict=True):
        (text, figures), (expected_text, expected_figures) = split_figures(found), split_figures(expected)
        assert text == expected_text
        assert figures == pytest.approx(expected_figures, rel=1e-6, abs=1e-5)  # rounding depends on the batch size


def split_figures(line: str) -> tuple[dict[str, Any], list[float]]:
    """Separate a line of `--json` output from its scores and log-probabilities; return both."""
    translation = json.loads(line)
    hypotheses = translation["hypotheses"]
    figures = [h.pop(name) for h in hypotheses for name in ("score", "log_prob")]
    figures += [piece.pop("log_prob") for h in hypotheses for piece in h["pieces"]]
    return translation, figures


@soak
def test_ranks_of_torchrun_write_one_output(five_run: FiveRun, tmp_path: Path) -> None:
    source, found = tmp_path / "in", tmp_path / "out"
    source.write_bytes(ODD_LINES)
    args = ["-m", "nmt", "translate", "-m", five_run.run, "-i", source, "-o", found]
    done = run(*TORCHRUN, *args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert found.read_text().split("\n")[:-1] == load(five_run.run).translate(read_lines([source]))


def test_stream_and_workers_do_not_go_together(five_run: FiveRun) -> None:
    done = run_nmt("translate", "-m", five_run.run, "--stream", "--processes", 2)
    one_clear_error(done, 2, "--stream translates line by line, which processes cannot share")


# --- processes ----------------------------------------------------------------------------------------------


@contextmanager
def started(*command: object, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in its own process group, which is killed if the command still runs after the block."""
    with subprocess.Popen(
        [*map(str, command)],
        cwd=cwd,
        env=environment(ONE_THREAD),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_step(path: Path, step: int) -> None:
    """Wait until a training has written the metrics of a step."""
    metrics = RunDirectory(path)
    wait_until(lambda: any(line["step"] >= step for line in metrics.read_metrics()))


def children(pid: int) -> list[int]:
    """The processes that a process has started, oldest first."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    if not found.exists():
        pytest.skip("no /proc that tells children")
    return sorted(map(int, found.read_text().split()))


def workers_of(process: subprocess.Popen[bytes], n: int) -> list[int]:
    """Wait until a command has started its n worker processes; return their pids."""

    def workers() -> list[int]:
        return [pid for pid in children(process.pid) if b"--processes" in command_of(pid)]

    wait_until(lambda: len(workers()) >= n, running=process)
    return workers()


def command_of(pid: int) -> bytes:
    """The command line of a process; empty if it has ended, even if it is still a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
