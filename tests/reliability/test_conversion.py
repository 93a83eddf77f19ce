"""A model converted by many processes at once, and by processes that are killed: the right text, and nothing left."""

import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SOAK, SOURCE, TARGET, FiveRun, out_lines, run_nmt, soak, started_nmt, wait_until

from nmt.decode.engines import ctranslate2_engine
from nmt.errors import ModelError
from nmt.files import hash_file

N_KILLS = 40
CHANGES = ["replace", "exchange", "cut", "write"] + 8 * ["nothing"]


def entries(cache: Path) -> list[str]:
    """The converted models in a cache, and what a conversion has left unfinished."""
    return [path.name for path in cache.iterdir() if path.is_dir()]


@pytest.mark.skipif(not SOAK, reason="make soak; tests/test_files.py tests what is made once")
@pytest.mark.parametrize("seed", range(soak(1, N_KILLS)))
def test_one_of_three_conversions_is_killed_and_one_is_kept(five_run: FiveRun, tmp_path: Path, seed: int) -> None:
    command = ["translate", "-q", "-m", five_run.run, "--engine", "ctranslate2", SOURCE[0]]
    cache = tmp_path / "cache"
    env = {"NMT_CACHE": str(cache)}
    with ThreadPoolExecutor(2) as pool, started_nmt(*command, cwd=tmp_path, env=env) as process:
        survivors = [pool.submit(run_nmt, *command, env=env) for _ in range(2)]
        time.sleep(random.Random(seed).uniform(0.3, 2.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    for survivor in survivors:
        done = survivor.result()
        assert out_lines(done) == [TARGET[0]]
    result = out_lines(run_nmt(*command, env=env))
    assert result == [TARGET[0]]
    # Until the child of the killed command has ended, it may write again, which the next command removes.
    wait_until(lambda: len(entries(cache)) == 1 or not run_nmt(*command, env=env))
    (entry,) = entries(cache)
    assert ".tmp." not in entry


class ModelFile:
    """A file with one of two contents, which others change at any time."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.draw = draw
        self.path = folder / "model"
        self.third = folder / "third"
        self.other = folder / "other"

    def content(self) -> bytes:
        return self.draw.choice([b"a", b"b"]) * 1000

    def change(self) -> None:
        """Another file takes its place, the same file comes back, or it is cut, as a copy that has just begun."""
        self.other.write_bytes(self.content())
        match self.draw.choice(CHANGES):
            case "replace":
                self.other.replace(self.path)
            case "exchange":
                self.other.replace(self.third)
                self.path.replace(self.other)
                self.third.replace(self.path)
            case "cut":
                self.path.write_bytes(self.content()[:500])
            case "write":
                self.path.write_bytes(self.content())

    def bring_back(self) -> None:
        if self.other.exists():
            self.other.replace(self.path)


def poison(entry: Path, name: str, model: Path) -> None:
    """Change a file of a cache's entry, or add a link."""
    (entry / name).unlink(missing_ok=True)
    if name == "link":
        (entry / name).symlink_to(model)
    else:
        (entry / name).write_bytes(b"poison")


def test_the_cache_holds_what_was_made_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model file changes in any way while it is converted; then somebody changes the entry."""
    draw = random.Random(1)
    cache = tmp_path / "cache"
    counts = Counter[str]()
    model = ModelFile(tmp_path, draw)

    def convert(file: Path, directory: Path, quantization: str) -> None:
        model.change()
        (directory / "model.bin").write_text(hash_file(file))
        if draw.random() < 0.3:
            model.bring_back()
        else:
            model.change()
        if draw.random() < 0.1:
            raise ModelError("it crashed")

    monkeypatch.setenv("NMT_CACHE", str(cache))
    monkeypatch.setattr(ctranslate2_engine, "convert", convert)
    model.path.write_bytes(model.content())
    for _ in range(soak(200, 5_000)):
        try:
            entry, digest = ctranslate2_engine.converted(model.path, "fp32")
        except ModelError as error:
            counts[str(error).removeprefix(str(model.path))] += 1
            model.path.write_bytes(model.content())
            continue
        assert (entry / "model.bin").read_text() == digest
        counts["made or found"] += 1
        model.change()
        if draw.random() < 0.5:  # a poisoned entry is made again
            poison(entry, draw.choice(["model.bin", "config.json", "link"]), model.path)
    for name in entries(cache):
        assert ".tmp." not in name
        assert ".old." not in name
    print(dict(counts))
    assert len(counts) == 3
