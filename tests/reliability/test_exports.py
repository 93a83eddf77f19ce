"""Exports that are interrupted at any write are the old or the new one; formats translate hostile lines alike."""

import errno
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
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
from nmt.interchange.huggingface_import import read_huggingface
from nmt.interchange.importing import import_model
from nmt.sandbox import mark_loadable
from nmt.translate import tags
from nmt.translate.documents import translate_file
from nmt.translate.loading import load
from nmt.translate.translator import Translator

from .disk import KILL, FailingDisk

pytest.importorskip("ctranslate2")


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to load. tests/interchange compares exports with it.

    Unknown characters are not masked: their places depend on attention, of which CTranslate2 has one layer.
    """
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(Translator, "unknown", lambda *_: set())
    monkeypatch.setattr(tags, "align_words", in_order)


# --- interruptions ----------------------------------------------------------------------------------------


class Exports:
    """What writes the first (0) or the second version (1) of an export, an import or a document."""

    def __init__(self, folder: Path) -> None:
        sizes: dict[str, Any] = {"d_model": 8, "d_ff": 8, "n_heads": 2, "norm": "post"}
        self.folder = folder
        self.models = [random_translator(**sizes, activation=kind) for kind in ("relu", "silu")]

    def ctranslate2(self, path: Path, version: int) -> None:
        to_ctranslate2(self.models[version], path)

    def huggingface(self, path: Path, version: int) -> None:
        to_huggingface(self.models[version], path)

    def argos(self, path: Path, version: int) -> None:
        to_argos(self.models[version], path, "float32")

    def imported(self, path: Path, version: int) -> None:
        source = self.folder / f"hf{version}"
        if not source.exists():
            to_huggingface(self.models[version], source)
        if not path.exists():  # an import replaces nothing
            import_model(read_huggingface(source), path)

    def html(self, path: Path, version: int) -> None:
        source = self.folder / f"{version}.html"
        if not source.exists():
            source.write_text(f"<p>{version}</p>" * 9 + "<p>a</p>")
        translate_file(cast(Translator, Echo()), source, path, watch=lambda sentences, _: sentences)


def content(path: Path) -> dict[str, bytes]:
    """The files of an export; a manifest has a time."""
    if path.is_file():
        return {"": path.read_bytes()}
    files = file_bytes(path)
    if "manifest.json" in files:
        files["manifest.json"] = b""
    return files


def restore(path: Path, files: dict[str, bytes]) -> None:
    """Write the files of an export into an empty folder."""
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    for name, text in files.items():
        if name:
            path.mkdir(exist_ok=True)
        (path / name).write_bytes(text)


def in_a_child(work: Callable[[], object]) -> None:
    """Call `work` in a process that may be killed."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    work()
    os._exit(0)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ctranslate2", "out"),
        ("huggingface", "out"),
        ("argos", "x.argosmodel"),
        ("imported", "out"),
        ("html", "x.html"),
    ],
)
def test_an_interrupted_export_is_the_old_one_or_the_new_one(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    temporary = tmp_path / "temporary"
    path = home / name
    write = getattr(Exports(tmp_path), kind)
    draw = random.Random(kind)
    n_new = 0
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    # 1. Both versions, and the number of system calls that replace the one by the other.
    restore(path, {})
    write(path, 0)
    old = {} if kind == "imported" else content(path)
    disk = FailingDisk(monkeypatch)
    restore(path, old)
    with disk.failing(10**9, errno.ENOSPC):
        write(path, 1)
    new = content(path)
    n_calls = disk.n_calls

    for number in (errno.ENOSPC, KILL):
        calls = range(1, n_calls + 1)
        for fails_at in calls if SOAK else draw.sample(calls, 3):
            # 2. One of the calls fails.
            restore(path, old)
            with suppress(NmtError, OSError), disk.failing(fails_at, number):
                if number == KILL:
                    in_a_child(lambda: write(path, 1))
                else:
                    write(path, 1)
            interrupted = content(path)
            n_new += interrupted == new
            is_gone = number == KILL and interrupted == {}
            assert is_gone or interrupted in (old, new), (number, fails_at)

            # 3. The next export succeeds, and leaves nothing else.
            write(path, 1)
            assert content(path) == new, (number, fails_at)
            left = {*home.iterdir(), *temporary.glob("tmp*")} - {path}
            if kind == "argos" and number != KILL:  # if its folder cannot be removed, the next process does that
                left -= {*home.glob(f"*.tmp.*.tmp.{os.getpid()}")}
            assert not left, (number, fails_at)
    print(f"{kind}: {n_calls} calls, {n_new} interruptions after the new export was complete")


# --- formats ----------------------------------------------------------------------------------------------

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
    "norm": ["post"],
    "positions": ["sinusoidal"],
}
POSITIONS = ["sinusoidal", "marian", "learned", "rotary", "none"]
ENGINES = FORMATS | {"norm": ["pre", "post"], "positions": POSITIONS, "start": ["bos", "zero"]}


def random_model(seed: int, choices: dict[str, list[Any]]) -> tuple[Translator, list[str]]:
    """A model of random settings and weights, and lines for it."""
    draw = random.Random(seed)
    chosen = {name: draw.choice(values) for name, values in choices.items()}
    is_joint = chosen["tied_embeddings"] == "all" or draw.random() < 0.5
    model = random_translator(is_joint, **chosen)
    data = model.config.data.model_copy(update={"max_length": chosen["max_positions"] - 1})
    config = model.config.model_copy(update={"data": data})
    lines = [line for line in hostile_lines(400) if not line.startswith(">>")]
    lines = [line for line in lines if len(line) < soak(20, 100)]
    return Translator(model.engine, model.tokenizers, config), draw.sample(lines, 20)


@pytest.mark.parametrize("seed", range(soak(4, 500)))
def test_ctranslate2_translates_hostile_lines_as_torch_does(seed: int, tmp_path: Path) -> None:
    ours, lines = random_model(seed, ENGINES)
    to_ctranslate2(ours, tmp_path / "out")
    mark_loadable("ctranslate2", contents(tmp_path / "out"))
    theirs = Translator(*load_export(tmp_path / "out", "cpu", None))
    result = theirs.translate(lines, beam=1)
    assert result == ours.translate(lines, beam=1)


def texts(translator: Translator, lines: list[str]) -> list[str]:
    """Translations without spaces at the ends of lines and parts: imported models lack them as MarianTokenizer does."""
    translations = translator.translate(lines, beam=1, max_length_b=9)
    single_spaced = [re.sub(" +", " ", text) for text in translations]
    return [text.strip(" ") for text in single_spaced]


@pytest.mark.parametrize("seed", range(1, soak(2, 101)))
def test_a_trip_through_formats_changes_no_translation(seed: int, tmp_path: Path) -> None:
    """Two exports to Hugging Face and imports, then one to CTranslate2."""
    ours, lines = random_model(seed, FORMATS)
    expected = texts(ours, lines)
    run = write_run(ours, tmp_path / "run").path
    for name in ("first", "second"):
        model = load(run, "cpu", engine="torch")
        assert texts(model, lines) == expected
        to_huggingface(model, tmp_path / name)
        run = tmp_path / f"from_{name}"
        import_model(read_huggingface(tmp_path / name), run)
    last = load(run, "cpu", engine="torch")
    assert texts(last, lines) == expected
    to_ctranslate2(last, tmp_path / "out")
    result = texts(load(tmp_path / "out", "cpu"), lines)
    assert result == expected
    first = load_file(tmp_path / "first" / "model.safetensors")
    second = load_file(tmp_path / "second" / "model.safetensors")
    assert first.keys() == second.keys()
    for name in first.keys() - {"final_logits_bias"}:
        assert torch.equal(first[name], second[name]), name
