"""A model converted by many processes at once, and by processes that are killed: the right text, and nothing left."""

import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SOAK, SOURCE, TARGET, FiveRun, err_lines, out_lines, run_nmt, soak, started_nmt, wait_until

from nmt.decode.engines import ctranslate2_engine
from nmt.errors import ModelError
from nmt.files import hash_file

N_PROCESSES, N_KILLS = 10, 40
long = pytest.mark.skipif(not SOAK, reason="make soak; tests/test_files.py tests what is made once")


def entries(cache: Path) -> list[str]:
    """The converted models in a cache, and what a conversion has left unfinished."""
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


@long
def test_processes_share_one_conversion(five_run: FiveRun, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = ["translate", "-m", five_run.run, "--engine", "ctranslate2", SOURCE[0]]
    with ThreadPoolExecutor(N_PROCESSES) as pool:
        done = list(pool.map(lambda _: run_nmt(*command, env={"NMT_CACHE": str(cache)}), range(N_PROCESSES)))
    for one in done:
        assert (out_lines(one), err_lines(one)) == ([TARGET[0]], [])
    assert len(entries(cache)) == 1


@long
def test_a_killed_conversion_leaves_nothing_unfinished(five_run: FiveRun, tmp_path: Path) -> None:
    draw = random.Random(1)
    command = ["translate", "-q", "-m", five_run.run, "--engine", "ctranslate2", SOURCE[0]]
    for number in range(N_KILLS):
        env = {"NMT_CACHE": str(tmp_path / f"cache{number}")}
        with started_nmt(*command, cwd=tmp_path, env=env) as process:
            time.sleep(draw.uniform(0.3, 2.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert out_lines(run_nmt(*command, env=env)) == [TARGET[0]]
        # Until the child of the killed command has ended, it may write again, which the next command removes.
        wait_until(lambda: len(entries(Path(env["NMT_CACHE"]))) == 1 or not run_nmt(*command, env=env))  # noqa: B023
        (entry,) = entries(Path(env["NMT_CACHE"]))
        assert ".tmp." not in entry


def test_the_cache_holds_what_was_made_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model file changes in any way while it is converted; then somebody changes the entry."""
    draw, model, cache, counts = random.Random(1), tmp_path / "model", tmp_path / "cache", Counter[str]()
    monkeypatch.setenv("NMT_CACHE", str(cache))

    def change() -> None:
        """Another file takes its place, the same file comes back, or it is cut, as a copy that has just begun."""
        (other := tmp_path / "other").write_bytes(draw.choice([b"a", b"b"]) * 1000)
        how = draw.choice(["replace", "exchange", "cut", "write", *["nothing"] * 8])
        if how == "exchange":
            other.replace(tmp_path / "third")
            model.replace(other)
            (tmp_path / "third").replace(model)
        elif how == "replace":
            other.replace(model)
        elif how != "nothing":
            model.write_bytes(other.read_bytes()[: 500 if how == "cut" else None])

    def convert(file: Path, directory: Path, quantization: str) -> None:
        change()
        (directory / "model.bin").write_text(hash_file(file), encoding="utf-8")
        (tmp_path / "other").replace(file) if draw.random() < 0.3 and (tmp_path / "other").exists() else change()
        if draw.random() < 0.1:
            raise ModelError("it crashed")

    monkeypatch.setattr(ctranslate2_engine, "convert", convert)
    model.write_bytes(b"a" * 1000)
    for _ in range(soak(200, 5_000)):
        try:
            entry, digest = ctranslate2_engine.converted(model, "fp32")
        except ModelError as error:
            counts[str(error).removeprefix(str(model))] += 1
            model.write_bytes(draw.choice([b"a", b"b"]) * 1000)
            continue
        assert (entry / "model.bin").read_text(encoding="utf-8") == digest
        counts["made or found"] += 1
        change()
        if draw.random() < 0.5:  # a poisoned entry is made again
            (poison := entry / draw.choice(["model.bin", "config.json", "link"])).unlink(missing_ok=True)
            if poison.name == "link":
                poison.symlink_to(model)
            else:
                poison.write_bytes(b"poison")
    assert not [name for name in entries(cache) if ".tmp." in name or ".old." in name]
    print(dict(counts))
    assert len(counts) == 3
