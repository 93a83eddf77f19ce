"""Exports that are interrupted at any write are the old or the new one; formats translate hostile lines alike."""

import contextlib
import errno
import itertools
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import SOAK, file_bytes, soak
from echo import Echo, in_order
from models import hostile_lines, random_translator, write_run
from safetensors.torch import load_file

from nmt.decode.engines.ctranslate2_engine import contents, load_export
from nmt.errors import NmtError
from nmt.interchange.argos import to_argos
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.interchange.huggingface import to_huggingface
from nmt.interchange.marian import import_marian
from nmt.sandbox import mark_loadable
from nmt.translate import tags as markup
from nmt.translate.documents import translate_file
from nmt.translate.loading import load
from nmt.translate.translator import Translator
from reliability.test_disk import FailingDisk

pytest.importorskip("ctranslate2")

Write = Callable[[Path, int], object]  # the first or the second version, to a path


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to load. tests/interchange compares exports with it.

    Unknown characters are not masked: their places depend on attention, of which CTranslate2 has one layer.
    """
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(Translator, "unknown", lambda *_: set())
    monkeypatch.setattr(markup, "align_for_markup", in_order)


def content(path: Path) -> dict[str, bytes]:
    """The files of an export; a manifest has a time."""
    files = file_bytes(path) if path.is_dir() else {"": path.read_bytes()} if path.exists() else {}
    return files | {name: b"" for name in files if name == "manifest.json"}


@pytest.fixture
def writers(folder: Path) -> dict[str, tuple[str, Write]]:
    """A name for the output of each kind of export, and what writes it."""
    models = [
        random_translator(d_model=8, d_ff=8, n_heads=2, norm="post", activation=kind) for kind in ("relu", "silu")
    ]
    sources = [folder / f"{n}.html" for n in range(2)]
    for n, model in enumerate(models):
        sources[n].write_text(f"<p>{n}</p>" * 9 + "<p>a</p>")
        to_huggingface(model, folder / f"hf{n}")

    def import_once(path: Path, n: int) -> None:
        if not path.exists():
            import_marian(folder / f"hf{n}", path)

    watch: dict[str, Any] = {"watch": lambda found, _: found}
    return {
        "ctranslate2": ("out", lambda path, n: to_ctranslate2(models[n], path)),
        "huggingface": ("out", lambda path, n: to_huggingface(models[n], path)),
        "argos": ("x.argosmodel", lambda path, n: to_argos(models[n], path, "float32")),
        "import": ("out", import_once),
        "html": ("x.html", lambda path, n: translate_file(cast(Translator, Echo()), sources[n], path, **watch)),
    }


@pytest.mark.parametrize("kind", ["ctranslate2", "huggingface", "argos", "import", "html"])
def test_an_interrupted_export_is_the_old_one_or_the_new_one(
    kind: str, writers: dict[str, tuple[str, Write]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, write = writers[kind]
    home, temporary, draw, n_new = tmp_path / "home", tmp_path / "temporary", random.Random(kind), 0
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path, versions = home / name, [dict[str, bytes]()]
    for n in range(kind == "import", 2):  # an import replaces nothing
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        write(path, n)
        versions.append(content(path))
    old, new = versions[-2:]
    disk = FailingDisk(monkeypatch, errno.ENOSPC)

    def interrupted(fails_at: int, kills: bool) -> int:
        """Replace the old version by the new one with an interruption; return the number of system calls."""
        shutil.rmtree(home)
        home.mkdir()
        for file in old:
            path.mkdir(exist_ok=True) if file else None
            (path / file if file else path).write_bytes(old[file])
        disk.fails_at, disk.n_calls, disk.number = fails_at, 0, 0 if kills else errno.ENOSPC
        if kills and not (child := os.fork()):
            write(path, 1)
            os._exit(0)
        with contextlib.suppress(NmtError, OSError):
            os.waitpid(child, 0) if kills else write(path, 1)
        disk.fails_at = 0
        return disk.n_calls

    n_calls = interrupted(10**9, kills=False)
    for kills, fails_at in itertools.product((False, True), range(1, n_calls + 1)):
        if not SOAK and draw.random() > 3 / n_calls:
            continue
        interrupted(fails_at, kills)
        found = content(path)
        n_new += found == new
        assert found in (old, new, *[{}] * kills), (fails_at, kills)
        write(path, 1)
        assert content(path) == new, (fails_at, kills)
        # If removing Argos' folder with the model fails, the next process removes it, but not this one.
        left = {*home.glob(f"*.tmp.*.tmp.{os.getpid()}")} if kind == "argos" and not kills else set()
        assert {*home.iterdir(), *temporary.glob("tmp*")} - left == {path}, (fails_at, kills)
    print(f"{kind}: {n_calls} calls, {n_new} interruptions after the new export was complete")


FORMATS: dict[str, list[Any]] = {
    "activation": ["relu", "gelu", "silu"],
    "tied_embeddings": ["all", "decoder", "none"],
    "n_heads": [1, 2, 4],
    "n_encoder_layers": [1, 2, 3],
    "n_decoder_layers": [1, 2, 3],
    "d_model": [16, 32],
    "d_ff": [16, 50],
    "projection_bias": [False, True],
    "max_positions": [64, 100],
}
ENGINES = FORMATS | {"norm": ["pre", "post"], "positions": ["sinusoidal", "learned", "rotary", "none"]}


def random_model(seed: int, choices: dict[str, list[Any]], **settings: Any) -> tuple[Translator, list[str]]:
    """A model of random settings and weights, and lines for it."""
    draw = random.Random(seed)
    chosen = {name: draw.choice(values) for name, values in choices.items()} | settings
    made = random_translator(chosen["tied_embeddings"] == "all" or draw.random() < 0.5, **chosen)
    data = made.config.data.model_copy(update={"max_length": chosen["max_positions"] - 1})
    translator = Translator(made.engine, made.tokenizers, made.config.model_copy(update={"data": data}))
    lines = [line for line in hostile_lines(400) if len(line) < soak(20, 100) and not line.startswith(">>")]
    return translator, draw.sample(lines, 20)


@pytest.mark.parametrize("seed", range(soak(4, 500)))
def test_ctranslate2_translates_hostile_lines_as_torch_does(seed: int, tmp_path: Path) -> None:
    ours, lines = random_model(seed, ENGINES)
    to_ctranslate2(ours, tmp_path / "out")
    mark_loadable("ctranslate2", contents(tmp_path / "out"))
    theirs = Translator(*load_export(tmp_path / "out", "cpu", None))
    assert theirs.translate(lines, beam=1) == ours.translate(lines, beam=1)


@pytest.mark.parametrize("seed", range(1, soak(2, 101)))
def test_a_trip_through_formats_changes_no_translation(seed: int, tmp_path: Path) -> None:
    """But for spaces at the ends of a line or of its parts, which imported models leave out as MarianTokenizer does."""

    def texts(translator: Translator) -> list[str]:
        return [re.sub(" +", " ", text).strip(" ") for text in translator.translate(lines, beam=1, max_length_b=9)]

    ours, lines = random_model(seed, FORMATS, norm="post", positions="sinusoidal")
    write_run(ours, tmp_path / "0")
    for n in range(2):
        start = load(tmp_path / str(n), "cpu", engine="torch")
        to_huggingface(start, tmp_path / f"hf{n}")
        import_marian(tmp_path / f"hf{n}", tmp_path / str(n + 1))
    to_ctranslate2(load(tmp_path / "2", engine="torch"), tmp_path / "3")
    expected = texts(ours)
    for name in "0123":
        found = load(tmp_path / name, "cpu", engine=None if name == "3" else "torch")
        assert texts(found) == expected, name
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("hf0", "hf1"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first.keys() - {"final_logits_bias"})
