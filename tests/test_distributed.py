"""Several ranks have the same losses as one process, and end together."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FORKS, PATIENCE_S, SOAK, FiveCorpus, environment, one_clear_error, run_nmt, started, wait_until
from models import make, random_batch
from reliability.runs import run_main, weights
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from nmt import distributed
from nmt.config import TrainSettings
from nmt.distributed import ALONE, Launch, gather_items, launched, mine, n_ranks, parallel, rank, ranks_joined, summed
from nmt.run.directory import RunDirectory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def second_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in torchruns(rank=1, port=1).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("second_rank")
def test_torchrun_says_which_rank_this_process_is() -> None:
    assert launched() == Launch(rank=1, n_ranks=2, local_rank=1)


@pytest.mark.usefixtures("second_rank")
def test_a_process_is_alone_until_ranks_are_joined() -> None:
    assert rank() == 0
    assert n_ranks() == 1


@pytest.mark.usefixtures("second_rank")
def test_an_environment_that_is_not_torchruns_means_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK")  # RANK and WORLD_SIZE alone may be another program's
    assert launched() == ALONE


def test_only_train_runs_under_torchrun() -> None:
    done = run_nmt("translate", "a", env=torchruns(rank=0, port=1))
    one_clear_error(done, 2, "torchrun is for nmt train only")


def torchruns(rank: int, port: int) -> dict[str, str]:
    """Return the environment that torchrun sets for one of two ranks."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return {**ONE_THREAD, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}


def free_port() -> int:
    first = 20_000 + os.getpid() % 10_000  # below the ports that the system gives to other programs
    for port in range(first, 32_768):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    pytest.fail("no port is free")


def test_a_rank_without_peers_says_what_it_waits_for_and_hears_ctrl_c() -> None:
    """The warning comes after `distributed.WARN_AFTER_S`, less than 30 s; this test sets it to 0."""
    assert distributed.WARN_AFTER_S < 30
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # even if the tests ignore SIGINT
    program = f"{hears}; from nmt import distributed as it; it.WARN_AFTER_S = 0; it.ranks_joined().__enter__()"
    port = free_port()
    env = environment(torchruns(1, port))
    with subprocess.Popen([sys.executable, "-c", program], env=env, stderr=subprocess.PIPE) as process:
        assert process.stderr
        warning = process.stderr.readline().decode()
        assert warning.startswith(f"rank 1 of 2 waits for the others at 127.0.0.1:{port}")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT


def twenty_steps(output: Path) -> None:
    """Do float64 steps; the first rank writes the losses."""
    settings = TrainSettings(lr=3e-3)
    model = make(n_encoder_layers=1, n_decoder_layers=1).train()
    optimizers = make_optimizers(model, settings)
    losses: list[float] = []
    texts = ["", "über", "漢" * 999, "a\n", "b"]
    with ranks_joined():
        assert gather_items(mine(texts)) == texts
        replicas = Replicas(parallel(model))
        for step in range(20):
            sizes = [7, 1, 3][: 1 + step % 3]  # the second batch has fewer rows than there are ranks
            batches = [random_batch(n_pairs, seed=step) for n_pairs in sizes]
            options = StepOptions(settings, lr=3e-3, seed=step, bf16=False)
            figures = train_step(replicas, optimizers, batches, options)
            losses.append(figures.loss)
        if rank() == 0:
            output.write_text(json.dumps(losses))


def as_rank(variables: dict[str, str], function: Callable[..., object], *args: object) -> None:
    os.environ.update(variables)
    function(*args)


def test_two_ranks_have_the_losses_of_one_process(tmp_path: Path) -> None:
    twenty_steps(tmp_path / "one")
    ranks = started_ranks((twenty_steps, tmp_path / "two"), (twenty_steps, tmp_path / "two"))
    for process in ranks:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    expected = json.loads((tmp_path / "one").read_text())
    losses = json.loads((tmp_path / "two").read_text())
    assert len(expected) == 20
    assert expected[-1] < expected[0]
    assert losses == pytest.approx(expected, rel=1e-9)


def started_ranks(*calls: tuple[object, ...]) -> list[Any]:
    """Start a process for each call, a function and its arguments; the first is rank 0."""
    port = free_port()
    ranks = []
    for number, call in enumerate(calls):
        arguments = torchruns(number, port), *call
        ranks.append(FORKS.Process(target=as_rank, args=arguments))
    for process in ranks:
        process.start()
    return ranks


def test_ranks_join_again_though_only_one_machine_counts_a_restart() -> None:
    """A machine on which no rank has failed does not count the restart. torchrun's store stays the same."""
    port = free_port()
    _store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    for restarts in ("0", "0"), ("0", "1"):
        ranks = []
        for number, count in enumerate(restarts):
            variables = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": count}
            ranks.append(FORKS.Process(target=as_rank, args=(torchruns(number, port) | variables, joined)))
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(PATIENCE_S)
            assert process.exitcode == 0


def joined() -> None:
    with ranks_joined():
        assert summed(1) == [2]


@pytest.mark.skipif(not SOAK, reason="make soak")
def test_a_rank_killed_under_torchrun_restarts_and_ends_with_the_same_weights(five_corpus: FiveCorpus) -> None:
    settings = ["train.max_steps=200", "train.validate_every=10", "model.dropout=0.1", "model.d_model=32"]
    settings += ["train.average=ema", "data.drop_duplicates=false"]
    home = five_corpus.home
    unbroken = home / "unbroken"
    train = ["-m", "nmt", "train", str(five_corpus.config), *settings]
    env = environment(ONE_THREAD)
    subprocess.run([*TORCHRUN, *train, f"run={unbroken}"], cwd=home, env=env, capture_output=True, check=True)

    with started([*TORCHRUN, "--max-restarts", "1", *train], cwd=home, env=env) as process:
        wait_for_step(five_corpus.run, 12)
        os.kill(children(process.pid)[-1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr.decode()
    assert "going on from step" in stderr.decode()
    assert weights(five_corpus.run) == weights(unbroken)


def test_a_lost_rank_is_one_clear_error(five_corpus: FiveCorpus) -> None:
    train = ["train", str(five_corpus.config), "train.max_steps=4000"]
    log, other_log = five_corpus.home / "log", five_corpus.home / "other_log"
    first, second = started_ranks((run_main, train, str(log)), (run_main, train, str(other_log)))
    wait_for_step(five_corpus.run, 1)
    second.kill()
    first.join(PATIENCE_S)
    stderr = log.read_bytes().replace(b"\r", b"\n")  # progress is written over itself
    done = subprocess.CompletedProcess([], first.exitcode, b"", stderr)
    one_clear_error(done, 1, "another of the 2 processes is gone")


def wait_for_step(path: Path, step: int) -> None:
    metrics = RunDirectory(path)

    def is_reached() -> bool:
        return any(line["step"] >= step for line in metrics.read_metrics())

    wait_until(is_reached)


def children(pid: int) -> list[int]:
    list_of_children = Path(f"/proc/{pid}/task/{pid}/children")
    if not list_of_children.exists():
        pytest.skip("no /proc that tells children")
    return sorted(map(int, list_of_children.read_text().split()))
