"""Untrusted files: a one-line error, no code executed, nothing written elsewhere, limited memory."""

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from conftest import FiveCorpus, FiveRun, environment, soak
from models import Parts

from nmt.config import dump_config, load_config
from nmt.errors import NmtError
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.train import session
from nmt.translate.loading import load

from .hostile import HOSTILE
from .runs import damaged

VALUES = [*HOSTILE["values"], "x" * 300, "9" * 5000, "[" * 1200, "../" * 90]


def refusal(work: Callable[[], object]) -> NmtError | None:
    """Call `work`; return the NmtError that it raises, or None."""
    try:
        work()
    except NmtError as error:
        return error
    return None


def check_clear(error: NmtError, input_: str) -> None:
    assert error.exit_code in (1, 2), input_
    assert error.hint, input_
    for line in str(error).split("\n"):
        assert 0 < len(line) < 1000, input_


def test_configs_with_hostile_values_are_ready_to_train_or_refused(
    five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine of 1 GB: a valid config may ask for all memory. tests/config has files that are no YAML."""
    sysconf = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 250_000 if name == "SC_PHYS_PAGES" else sysconf(name))
    monkeypatch.chdir(five_corpus.home)
    before = sorted(five_corpus.home.rglob("*"))
    config = dump_config(load_config(five_corpus.config))
    path = five_corpus.home / "hostile.yaml"
    draw = random.Random(1)
    n_refused = 0

    def prepare() -> None:
        session.prepare(load_config(path), device="cpu")

    path.write_text(config)
    assert refusal(prepare) is None
    for _ in range(soak(40, 1000)):
        lines = config.splitlines()
        n_changes = draw.choice([1, 1, 1, 2, 5])
        for i in draw.choices(range(len(lines)), k=n_changes):
            name = lines[i].partition(":")[0]
            lines[i] = f"{name}: {draw.choice(VALUES)}"
        path.write_text("\n".join(lines))
        if error := refusal(prepare):
            n_refused += 1
            check_clear(error, path.read_text())
    print(f"{n_refused} refused")
    assert n_refused > soak(20, 500)
    path.unlink()
    result = sorted(five_corpus.home.rglob("*"))
    assert result == before


# --- models -----------------------------------------------------------------------------------------------


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.proof}",)


def with_header(header: bytes, data: bytes = b"") -> bytes:
    """A file in the safetensors format, with any header."""
    return len(header).to_bytes(8, "little") + header + data


def pieces_of(parts: Parts) -> bytes:
    return parts.tensors["tokenizer.source"].numpy().tobytes()


def with_tokenizer(parts: Parts, content: bytes) -> bytes:
    tokenizer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return parts._replace(tensors=parts.tensors | {"tokenizer.source": tokenizer}).joined()


def models_with_other_headers(parts: Parts, pickled: bytes) -> Iterator[bytes]:
    """Valid hashes, but settings of models too large or impossible, and other types."""

    def with_entries(**entries: object) -> bytes:
        return parts._replace(header=parts.header | entries).joined()

    config = parts.header["config"]
    yield with_entries(progress=5)
    for settings in HOSTILE["model_settings"]:
        yield with_entries(config=config | {"model": config["model"] | settings})
    yield with_entries(config=None)
    yield with_entries(config=[[]] * 100_000)
    yield with_entries(config={str(i): i for i in range(50_000)})
    yield with_entries(config=config | {"seed": "\x1b]0;owned\x07"})
    yield with_entries(config=config | {"run": "a\0b"})
    yield with_entries(config=pickled.decode("latin-1"))


def models_with_other_tensors(parts: Parts) -> Iterator[bytes]:
    """Valid hashes, but tensors of other names, shapes and types."""

    def with_tensor(name: str, tensor: torch.Tensor) -> bytes:
        return parts._replace(tensors=parts.tensors | {name: tensor}).joined()

    weight = next(name for name in parts.tensors if name.endswith("inner.weight"))
    yield with_tensor("model.../../../etc/passwd", torch.zeros(1))
    yield with_tensor("x" * 1_000_000, torch.zeros(1))
    yield with_tensor(weight, torch.zeros(0, 2**40))
    yield with_tensor(weight, parts.tensors[weight].T.contiguous())
    yield with_tensor(weight, parts.tensors[weight].double())
    yield with_tensor("tokenizer.target", torch.zeros(1_000_000, dtype=torch.uint8))
    yield with_tensor("tokenizer.source", torch.zeros(9, dtype=torch.bfloat16))
    yield with_tensor("tokenizer.source", torch.zeros(0, dtype=torch.uint8))
    yield with_tensor("tokenizer.source", torch.zeros(9))


def files_that_are_no_models(pickled: bytes) -> Iterator[bytes]:
    """Headers of safetensors that declare what is not there, or are no JSON objects; files that are none of it."""
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    many = {f"model.{i}": empty for i in range(100_000)}
    yield with_header(json.dumps(many).encode())
    yield with_header(json.dumps({"model.x": empty | {"shape": [1] * 1_000_000}}).encode())
    for header in HOSTILE["tensor_headers"]:
        yield with_header(header.encode(), b"\0" * 4)
    yield with_header(b"{" * 100_000)
    yield with_header(b'{"a": ' * 30_000)
    yield with_header(pickled)
    for entry in ("[" * 100_000, '{"format_version": ' + "9" * 5000 + "}"):
        yield with_header(json.dumps({"__metadata__": {"nmt": entry}}).encode())
    for n_bytes in (0, 2**64 - 1, 99_999_999):
        yield n_bytes.to_bytes(8, "little") + b"{}"
    yield pickled


def models_with_cut_tokenizers(parts: Parts, pickled: bytes) -> Iterator[bytes]:
    draw = random.Random(7)
    pieces = pieces_of(parts)
    yield with_tokenizer(parts, pickled)
    for _ in range(soak(4, 60)):
        yield with_tokenizer(parts, pieces[: draw.randrange(1, len(pieces))])


# --- runs -------------------------------------------------------------------------------------------------


def spoil(directory: Path, kind: int, draw: random.Random, bomb: Bomb) -> None:
    """Damage or replace a random file of a directory, in a way that `kind` selects (0-11)."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    file = draw.choice([file for file in files if file.name != "lock"])
    content = file.read_bytes()
    file.unlink()  # it may be a hard link
    match kind:
        case 0:
            file.symlink_to("/dev/zero")
        case 1:
            os.mkfifo(file)
        case 2:
            torch.save({"weights": bomb}, file)
        case 4:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("../../../outside", "x")
        case 6:
            file.mkdir()
        case 8:
            file.touch()
            os.truncate(file, 10**10)
        case 9:
            file.symlink_to(bomb.proof.with_name("new"))
        case 10:
            code = f"a: !!python/object/apply:os.system ['touch {bomb.proof}']"
            texts = [code, "{" * 100_000, *HOSTILE["run_files"]]
            file.write_text(draw.choice(texts))
        case _:
            file.write_bytes(damaged(content, draw))


class Outcome(NamedTuple):
    """A line of load_all.py."""

    name: str
    way: str  # load or train
    end: str  # well, error or traceback
    message: str
    hint: str


def load_all(intact: Path, config: Path, folder: Path) -> list[Outcome]:
    program = Path(__file__).with_name("load_all.py")
    command = [sys.executable, *map(str, (program, intact, config, folder))]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    lines = done.stdout.splitlines()
    return [Outcome(*json.loads(line)) for line in lines]


def check_outcome(outcome: Outcome, *, may_load: bool) -> None:
    if outcome.end == "well":
        assert may_load, outcome
        return
    assert outcome.end == "error", outcome
    # A config has one line for each of its faults, which names the place.
    for line in outcome.message.split("\n"):
        assert outcome.message == line or "config.yaml" in line, outcome
    assert len(outcome.message) < 1000, outcome
    assert outcome.hint, outcome


def test_hostile_models_and_runs_do_no_harm(five_run: FiveRun, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    outside = tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    intact = five_run.copy_run(tmp_path / "intact")
    bomb = Bomb(outside / "proof")
    draw = random.Random(1)
    content = five_run.model_file.read_bytes()
    parts = Parts.of(five_run.model_file)

    # 1. Models that must be refused.
    pickled = pickle.dumps(bomb)
    n_damaged = soak(16, 200)
    models = [damaged(content, draw) for _ in range(n_damaged)]
    models += models_with_other_headers(parts, pickled)
    models += models_with_other_tensors(parts)
    models += files_that_are_no_models(pickled)
    models += models_with_cut_tokenizers(parts, pickled)
    for i, model in enumerate(models[:: soak(4, 1)]):
        (folder / f"model-{i}.safetensors").write_bytes(model)
    torch.save({"weights": bomb}, folder / "model.pt")
    (folder / "model-is-zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "model-is-a-pipe")

    # 2. Models with a changed tokenizer, which may be valid, and runs: a damaged figure in metrics.jsonl is harmless.
    for i in range(soak(2, 40)):
        changed = with_tokenizer(parts, damaged(pieces_of(parts), draw))
        (folder / f"maybe-{i}.safetensors").write_bytes(changed)
    n_runs = soak(5, 150)
    for i in range(n_runs):
        run = folder / f"maybe-run-{i}"
        shutil.copytree(five_run.run, run)
        kind = i * soak(3, 1) % 12
        spoil(run, kind, random.Random(i), bomb)

    # 3. All are loaded; runs are also prepared for training.
    before = sorted(tmp_path.rglob("*"))
    outcomes = load_all(intact, five_run.config, folder)
    print(Counter((outcome.way, outcome.end) for outcome in outcomes))
    n_entries = len(list(folder.iterdir()))
    assert len(outcomes) == n_entries + n_runs
    for outcome in outcomes:
        check_outcome(outcome, may_load=outcome.name.startswith("maybe"))
    assert sorted(tmp_path.rglob("*")) == before
    assert not bomb.proof.exists()


# --- exports ----------------------------------------------------------------------------------------------


def test_hostile_exports_do_no_harm(five_run: FiveRun, tmp_path: Path) -> None:
    """This process loads CTranslate2 models: a file that crashes the library has crashed a child process before."""
    pytest.importorskip("ctranslate2")
    intact = tmp_path / "intact"
    bomb = Bomb(tmp_path / "proof")
    n_refused = 0
    to_ctranslate2(load(five_run.run), intact)
    for i in range(soak(4, 100)):
        path = shutil.copytree(intact, tmp_path / f"export-{i}")
        spoil(path, min(i, 3), random.Random(i), bomb)
        error = refusal(lambda: load(path).translate(["书 " * 3, ""], beam=2))  # noqa: B023
        assert error or i > 2, "a flipped bit in a weight makes another valid model"
        if error:
            n_refused += 1
            check_clear(error, path.name)
    print(f"{n_refused} refused")
    assert not bomb.proof.exists()
