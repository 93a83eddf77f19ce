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
from typing import Any

import pytest
import torch
from conftest import FiveCorpus, FiveRun, environment, one_clear_error, run_nmt, soak
from models import Parts

from nmt.config import dump_config, load_config
from nmt.errors import NmtError
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.train import session
from nmt.translate.loading import load

from .runs import damaged

WORDS = "-1 0 1 2 1e999 -.inf .nan 3.5 99999999999 1000000 65536 16384 null ~ true no [] {} '' ' { ! % @ ` *none . /"
VALUES = [
    *WORDS.split(),
    *('"\\0"', '"\\ud800"', '"\\x1b[2J"', '"\\u2028"', "😀", "x" * 300, "9" * 5000, "[" * 1200, "{a: 1}", "&a [*a]"),
    *("../" * 90, "/dev/zero", "/dev/urandom", "/dev/full", "unigram", "char", "best", "|\n  x", "? [a]", "!!set {a}"),
    *("!!binary xyz", "!!bool maybe", "!!timestamp 2001-01-01", "!!python/object/apply:os.system [touch PWNED]"),
]


def refusal(work: Callable[[], object]) -> NmtError | None:
    """Call `work`; return the NmtError that it raises, or None."""
    try:
        work()
    except NmtError as error:
        return error
    return None


def test_configs_with_hostile_values_are_ready_to_train_or_refused(
    five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine of 1 GB: a valid config may ask for all memory. tests/config has files that are no YAML."""
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 250_000 if name == "SC_PHYS_PAGES" else real(name))
    monkeypatch.chdir(five_corpus.home)
    before = sorted(five_corpus.home.rglob("*"))
    text = dump_config(load_config(five_corpus.config)).splitlines()
    path, draw, n_refused = five_corpus.home / "hostile.yaml", random.Random(1), 0
    for n_changes in [0, *(draw.choice([1, 1, 1, 2, 5]) for _ in range(soak(40, 1000)))]:
        lines = [*text]
        for i in draw.choices(range(len(lines)), k=n_changes):
            lines[i] = f"{lines[i].partition(':')[0]}: {draw.choice(VALUES)}"
        path.write_text(content := "\n".join(lines))
        if error := refusal(lambda: session.prepare(load_config(path), device="cpu")):
            n_refused += 1
            assert n_changes, error
            assert error.exit_code in (1, 2), content
            assert error.hint, content
            assert all(0 < len(line) < 1000 for line in str(error).split("\n")), content
    print(f"{n_refused} refused")
    assert n_refused > soak(20, 500)
    path.unlink()
    assert sorted(five_corpus.home.rglob("*")) == before


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.proof}",)


def with_header(header: object, data: bytes = b"") -> bytes:
    """A file in the safetensors format, with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def hostile_models(intact: Path, bomb: Bomb, n_cut: int) -> Iterator[bytes]:
    """Yield malicious model files; the last `n_cut` of them have a truncated tokenizer."""
    parts = Parts.of(intact)
    config, model = parts.header["config"], parts.header["config"]["model"]
    huge = {"d_model": 16_384, "d_ff": 65_536, "n_encoder_layers": 100, "n_decoder_layers": 100}
    for changes in (
        huge,
        {"n_encoder_layers": 100, "n_decoder_layers": 100},
        {"max_positions": 10**18},
        {"n_heads": 0},
        {**huge, "architecture": "rnn", "attention": "additive"},  # `make test` takes every fourth
        {"positions": "learned", "max_positions": 100_000},
        {"norm": "../../norm"},
    ):
        yield parts._replace(header={**parts.header, "config": {**config, "model": {**model, **changes}}}).joined()
    headers: list[dict[str, Any]] = [
        {"config": None},
        {"config": [[]] * 100_000},
        {"config": {str(i): i for i in range(50_000)}},
        {"config": {**config, "seed": "\x1b]0;owned\x07"}},
        {"config": {**config, "run": "a\0b"}},
        {"config": pickle.dumps(bomb).decode("latin-1")},
        {"progress": 5},
    ]
    for header in headers:
        yield parts._replace(header={**parts.header, **header}).joined()
    one = next(name for name in parts.tensors if name.endswith("inner.weight"))
    for tensors in (
        {"model.../../../etc/passwd": torch.zeros(1)},
        {"x" * 1_000_000: torch.zeros(1)},
        {one: torch.zeros(0, 2**40)},
        {one: parts.tensors[one].T.contiguous()},
        {one: parts.tensors[one].double()},
        {"tokenizer.target": torch.zeros(1_000_000, dtype=torch.uint8)},
        {"tokenizer.source": torch.zeros(9, dtype=torch.bfloat16)},
        {"tokenizer.source": torch.zeros(0, dtype=torch.uint8)},
        {"tokenizer.source": torch.zeros(9)},
    ):
        yield parts._replace(tensors={**parts.tensors, **tensors}).joined()
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    yield with_header({f"model.{i}": entry for i in range(100_000)})
    yield with_header({"model.x": {**entry, "shape": [1] * 1_000_000}})
    for shape, end in (([2**40, 2**23], 4), ([2**62, 4], 0), ([-1], 4), (["a"], 4), ([1], 2**60), ([1], -4)):
        yield with_header({"model.x": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}, b"\0" * 4)
    for top in (
        *(b"{" * 100_000, b"[]", b"null", b'{"a": ' * 30_000, b'{"__metadata__": {"nmt": 5}}', pickle.dumps(bomb)),
        json.dumps({"__metadata__": {"nmt": "[" * 100_000}}).encode(),
        json.dumps({"__metadata__": {"nmt": '{"format_version": ' + "9" * 5000 + "}"}}).encode(),
    ):
        yield with_header(top)
    for n_bytes in (0, 2**64 - 1, 99_999_999):
        yield n_bytes.to_bytes(8, "little") + b"{}"
    yield pickle.dumps(bomb)
    pieces = parts.tensors["tokenizer.source"].numpy().tobytes()
    draw = random.Random(7)
    for content in (pickle.dumps(bomb), *(pieces[: draw.randrange(1, len(pieces))] for _ in range(n_cut))):
        yield with_tokenizer(parts, content)


def with_tokenizer(parts: Parts, content: bytes) -> bytes:
    tokenizer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return parts._replace(tensors={**parts.tensors, "tokenizer.source": tokenizer}).joined()


def hostile_run(run: Path, kind: int, draw: random.Random, bomb: Bomb, outside: Path) -> None:
    """Damage or replace a random file of a run, in a way that `kind` selects (0-11)."""
    files = sorted(file for file in run.rglob("*") if file.is_file() and file.name != "lock")
    file = draw.choice(files)
    content = file.read_bytes()
    file.unlink()
    if kind < 4:
        file.write_bytes(damaged(content, draw) if content else b"x")
    elif kind == 4:
        torch.save({"weights": bomb}, file)
    elif kind == 5:
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr("../../../outside", "x")
    elif kind == 6:
        file.mkdir()
    elif kind == 7:
        os.mkfifo(file)
    elif kind in (8, 9):
        file.symlink_to("/dev/zero" if kind == 8 else outside / "new")
    elif kind == 10:
        with file.open("wb") as sparse:
            sparse.truncate(10**10)
    else:
        code = f"a: !!python/object/apply:os.system ['touch {bomb.proof}']"
        file.write_text(draw.choice([code, "null", "[]", '{"step": "../../../x"}', '{"step": 1e999}', "{" * 100_000]))


def test_hostile_models_and_runs_do_no_harm(five_run: FiveRun, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    intact = five_run.copy_run(tmp_path / "intact")
    bomb = Bomb(outside / "proof")
    refused = set()  # model files that must be refused. Runs need not: a damaged figure in metrics.jsonl is harmless

    content, parts = five_run.model_file.read_bytes(), Parts.of(five_run.model_file)
    draw = random.Random(1)
    models = [damaged(content, draw) for _ in range(soak(4, 200))]
    models += [*hostile_models(five_run.model_file, bomb, n_cut=soak(4, 60))][:: soak(4, 1)]
    pieces = parts.tensors["tokenizer.source"].numpy().tobytes()
    maybe_valid = [with_tokenizer(parts, damaged(pieces, draw)) for _ in range(soak(2, 40))]
    for i, model in enumerate([*models, *maybe_valid]):
        file = folder / f"model-{i:03}.safetensors"
        file.write_bytes(model)
        refused |= {file.name} if i < len(models) else set()
    torch.save({"weights": bomb}, folder / "model.pt")
    (folder / "model-is-zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "model-is-a-pipe")
    refused |= {"model.pt", "model-is-zero", "model-is-a-pipe"}
    n_runs = soak(5, 150)
    for i in range(n_runs):
        run = folder / f"run-{i:03}"
        shutil.copytree(five_run.run, run, copy_function=os.link)
        hostile_run(run, i * soak(3, 1) % 12, random.Random(i), bomb, outside)
    before = sorted(tmp_path.rglob("*"))

    program = Path(__file__).with_name("load_all.py")
    command = [sys.executable, *map(str, (program, intact, five_run.config, folder))]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"{len(refused) + len(maybe_valid)} models, {n_runs} runs:", Counter((way, end) for _, way, end, *_ in ends))
    assert len(ends) == len(refused) + len(maybe_valid) + 2 * n_runs
    for name, way, end, message, hint in ends:
        assert end == "error" or (end == "well" and name not in refused), (name, way, message)
        if end == "error":
            assert "\n" not in message, (name, way)
            assert len(message) < 1000, (name, way)
            assert hint, (name, way)
    assert sorted(tmp_path.rglob("*")) == before
    assert not bomb.proof.exists()
    shown = run_nmt("translate", "-m", folder / "model.pt", "a", cwd=tmp_path)
    one_clear_error(shown, 2, "not a model file")


def test_hostile_exports_do_no_harm(five_run: FiveRun, tmp_path: Path) -> None:
    """This process loads CTranslate2 models: a file that crashes the library has crashed a child process before."""
    pytest.importorskip("ctranslate2")
    intact, bomb = tmp_path / "intact", Bomb(tmp_path / "proof")
    to_ctranslate2(load(five_run.run), intact)
    names = sorted(file.name for file in intact.iterdir())
    ends: Counter[str] = Counter()
    for i in range(soak(4, 100)):
        draw, path = random.Random(i), tmp_path / f"export-{i}"
        file = shutil.copytree(intact, path) / draw.choice([*names, "model.bin"])
        content = file.read_bytes()
        file.unlink()
        if i == 0:
            file.symlink_to("/dev/zero")
        elif i == 1:
            os.mkfifo(file)
        else:
            file.write_bytes(pickle.dumps(bomb) if i == 2 else damaged(content, draw))
        error = refusal(lambda: load(path).translate(["书 " * 3, ""], beam=2))  # noqa: B023
        assert error is None or (error.hint and "\n" not in str(error))
        assert i > 2 or error
        ends["refused" if error else "well"] += 1  # "well": a flipped bit in a weight makes another valid model
    print(dict(ends))
    assert not bomb.proof.exists()
