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

import pytest
from conftest import FORKS, PATIENCE_S, SOAK, FiveCorpus, environment, one_clear_error, run_nmt, started, wait_until
from models import make, random_batch
from reliability.runs import run_main, weights

from nmt import distributed
from nmt.config import TrainSettings
from nmt.distributed import ALONE, Launch, gather_items, launched, mine, n_ranks, parallel, rank, ranks_joined, summed
from nmt.errors import ConfigError
from nmt.run.directory import RunDirectory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def test_an_environment_that_is_not_torchruns_means_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched() == ALONE
    for name, value in {"LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == Launch(1, 2, 1)
    assert (rank(), n_ranks()) == (0, 1)  # before they are joined
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ConfigError, match="'first'"):
        launched()


def test_only_train_runs_under_torchrun() -> None:
    one_clear_error(run_nmt("translate", "a", env=torchruns(0)), 2, "torchrun is for nmt train only")


def torchruns(rank: int) -> dict[str, str]:
    """The environment that torchrun sets for one of two ranks, with a free port of this machine."""
    for port in range(20_000 + os.getpid() % 10_000, 32_768):  # below those that the system gives to other programs
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            break
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return {**ONE_THREAD, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}


def test_a_rank_without_peers_says_what_it_waits_for_and_hears_ctrl_c() -> None:
    """The warning comes after `distributed.WARN_AFTER_S`, less than 30 s; this test sets it to 0."""
    assert distributed.WARN_AFTER_S < 30
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # even if the tests ignore SIGINT
    program = f"{hears}; from nmt import distributed as it; it.WARN_AFTER_S = 0; it.ranks_joined().__enter__()"
    env = torchruns(1)
    with subprocess.Popen([sys.executable, "-c", program], env=environment(env), stderr=subprocess.PIPE) as process:
        assert process.stderr
        told = process.stderr.readline().decode()
        address = f"127.0.0.1:{env['MASTER_PORT']}"
        assert told.startswith(f"rank 1 of 2 waits for the others at {address}")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT


def twenty_steps(output: Path) -> None:
    """Do float64 steps, every other one with predicted tokens as input; the first rank writes the losses."""
    settings = TrainSettings(lr=3e-3, decoder_input="scheduled_sampling")
    model = make(n_encoder_layers=1, n_decoder_layers=1).train()
    optimizers = make_optimizers(model, settings)
    losses: list[float] = []
    texts = ["", "über", "漢" * 999, "a\n", "b"]
    with ranks_joined():
        assert gather_items(mine(texts)) == texts
        replicas = Replicas(parallel(model))
        for step in range(20):
            batches = [random_batch(n_pairs, seed=step) for n_pairs in (7, 1, 3)]
            batches = batches[: 1 + step % 3]  # the second has fewer rows than there are ranks
            prediction_rate = step % 2 / 2
            options = StepOptions(settings, lr=3e-3, seed=step, bf16=False, prediction_rate=prediction_rate)
            losses += summed(train_step(replicas, optimizers, batches, options).loss)
        if rank() == 0:
            output.write_text(json.dumps(losses))


def as_rank(variables: dict[str, str], function: Callable[..., object], *args: object) -> None:
    os.environ.update(variables)
    function(*args)


def test_two_ranks_have_the_losses_of_one_process(tmp_path: Path) -> None:
    twenty_steps(tmp_path / "one")
    first, places = torchruns(0), [{"RANK": i, "LOCAL_RANK": i} for i in "01"]
    ranks = [FORKS.Process(target=as_rank, args=(first | one, twenty_steps, tmp_path / "two")) for one in places]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in ranks] == [0, 0]
    expected, found = (json.loads((tmp_path / name).read_text()) for name in ("one", "two"))
    assert len(expected) == 20
    assert expected[-1] < expected[0]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.skipif(not SOAK, reason="make soak")
def test_a_rank_killed_under_torchrun_restarts_and_ends_with_the_same_weights(five_corpus: FiveCorpus) -> None:
    settings = ["train.max_steps=200", "train.validate_every=10", "model.dropout=0.1", "model.d_model=32"]
    settings += ["train.average=ema", "data.drop_duplicates=false"]
    home, unbroken = five_corpus.home, five_corpus.home / "unbroken"
    train, env = ["-m", "nmt", "train", str(five_corpus.config), *settings], environment(ONE_THREAD)
    subprocess.run([*TORCHRUN, *train, f"run={unbroken}"], cwd=home, env=env, capture_output=True, check=True)

    with started([*TORCHRUN, "--max-restarts", "1", *train], cwd=home, env=env) as process:
        wait_for_step(five_corpus.run, 12)
        os.kill(children(process.pid)[-1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr.decode()
    assert "going on from step" in stderr.decode()
    assert weights(five_corpus.run) == weights(unbroken)


def test_a_lost_rank_is_one_clear_error(five_corpus: FiveCorpus) -> None:
    first, words = torchruns(0), ["train", str(five_corpus.config), "train.max_steps=4000"]
    logs = [five_corpus.home / i for i in "01"]
    ranks = []
    for log in logs:
        variables = {**first, "RANK": log.name, "LOCAL_RANK": log.name}
        ranks.append(FORKS.Process(target=as_rank, args=(variables, run_main, words, str(log))))
        ranks[-1].start()
    wait_for_step(five_corpus.run, 1)
    ranks[1].kill()
    ranks[0].join(PATIENCE_S)
    done = subprocess.CompletedProcess([], ranks[0].exitcode or 0, b"", logs[0].read_bytes().replace(b"\r", b"\n"))
    one_clear_error(done, 1, "another of the 2 processes is gone")


def wait_for_step(path: Path, step: int) -> None:
    metrics = RunDirectory(path)
    wait_until(lambda: any(line["step"] >= step for line in metrics.read_metrics()))


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    if not found.exists():
        pytest.skip("no /proc that tells children")
    return sorted(map(int, found.read_text().split()))
