"""The Argos package: a reproducible zip that CTranslate2 reads, and that Argos Translate installs without a network."""

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import sentencepiece
from conftest import (
    SOURCE,
    TARGET,
    FiveRun,
    argos_python,
    err_lines,
    file_bytes,
    one_clear_error,
    run_nmt,
)

from nmt.config import Config
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.translator import Translator
from nmt.errors import InputError
from nmt.interchange import argos as module
from nmt.interchange.argos import to_argos
from nmt.run.checkpoint import new_model
from nmt.text.tokenizer import Tokenizers, train_tokenizer

DIRECTORY = "translate-zh_en-1_0"


@pytest.fixture(scope="module")
def package(five_run: FiveRun, folder: Path) -> Path:
    """A package of the run that has learned the five pairs."""
    file = folder / "five.argosmodel"
    done = run_nmt("export", "-m", five_run.run, "--to", "argos", "-o", file)
    assert err_lines(done)[-1] == f"written to {file}"
    assert "(int8)" in err_lines(done)[0], "the default"
    return file


def translator(joint: bool = True, **data: Any) -> Translator:
    """An untrained translator."""
    tied = "all" if joint else "none"
    config = Config.model_validate(
        {
            "run": "runs/x",
            "data": {"train": {"source": "a.zh", "target": "a.eng"}, **data},
            "tokenizer": {"joint": joint, "vocab_size": 400},
            "model": {"d_model": 16, "n_encoder_layers": 1, "n_decoder_layers": 1, "tied_embeddings": tied},
        }
    )
    one, other = (train_tokenizer(side, config.tokenizer).model for side in (SOURCE + TARGET, SOURCE))
    tokenizers = Tokenizers.from_models(one, one if joint else other, nfkc_source=config.data.nfkc_source)
    return Translator(TorchEngine(new_model(config, tokenizers).eval()), tokenizers, config)


def test_zip_is_one_directory_with_metadata(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        assert archive.testzip() is None
        members = ["README.md", "metadata.json", "minisbd/sentences.onnx", "model/config.json", "model/model.bin"]
        members += ["model/shared_vocabulary.json", "sentencepiece.model"]
        assert archive.namelist() == [f"{DIRECTORY}/{name}" for name in members]
        metadata = json.loads(archive.read(f"{DIRECTORY}/metadata.json"))
    languages = {key: metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")}
    assert languages == {"from_code": "zh", "from_name": "Chinese", "to_code": "en", "to_name": "English"}


def test_model_and_tokenizer_of_the_package_translate_the_five(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    engine = ctranslate2.Translator(str(tmp_path / DIRECTORY / "model"))
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / DIRECTORY / "sentencepiece.model"))
    found = engine.translate_batch(pieces.encode(SOURCE, out_type=str), beam_size=4, length_penalty=0.2)
    assert [pieces.decode(one.hypotheses[0]) for one in found] == TARGET


def test_languages_get_the_shortest_codes(tmp_path: Path) -> None:
    """Argos Translate chains packages by language code: eng and en would not match."""
    to_argos(translator(source_lang="zho_Hans"), tmp_path / "x.argosmodel")
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        assert archive.namelist()[0].startswith(f"{DIRECTORY}/")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"joint": False}, r"^Argos Translate does not support tokenizer\.joint=false$"),
        ({"nfkc_source": True}, r"^Argos Translate does not support data\.nfkc_source=true$"),
        ({"train": {"source": "a.zh", "target": "a.txt"}}, "^the language of the target is not known$"),
        ({"source_lang": "ROMANCE"}, "^langcodes does not know the language 'ROMANCE'$"),
    ],
)
def test_what_a_package_cannot_hold_is_refused_by_name(choices: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        to_argos(translator(**choices), tmp_path / "x.argosmodel")
    assert file_bytes(tmp_path) == {}


def test_short_models_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.log, "propagate", True)
    monkeypatch.setattr(module, "MAX_SOURCE", 2000)
    to_argos(translator(), tmp_path / "x.argosmodel")
    assert "1024 pieces (model.max_positions)" in caplog.messages[0]


def test_only_an_earlier_package_is_replaced(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.argosmodel"
    shutil.copy(package, file)
    untrained = translator()
    to_argos(untrained, file)
    content = file.read_bytes()
    assert content != package.read_bytes()
    to_argos(untrained, file)
    assert file.read_bytes() == content, "equal models give equal files"
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as other:
        other.writestr("x/metadata.json", "{}")
    for mine in (b"", b"my thesis", content[:-30], (tmp_path / "x.zip").read_bytes()):
        file.write_bytes(mine)
        with pytest.raises(InputError, match="exists and is not an export"):
            to_argos(translator(), file)
        assert file.read_bytes() == mine
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="exists and is not an export"):
        to_argos(translator(), tmp_path / "loop")


def test_failed_exports_leave_the_earlier_file(five_run: FiveRun, package: Path, tmp_path: Path) -> None:
    file, stub = tmp_path / "x.argosmodel", tmp_path / "stub"
    shutil.copy(package, file)
    stub.mkdir()
    (stub / "langcodes.py").write_text("raise ImportError")
    before = file_bytes(tmp_path)
    args = ["export", "-m", five_run.run, "--to", "argos", "-o"]
    one_clear_error(run_nmt(*args, tmp_path), 2, f"{tmp_path} is a directory")
    one_clear_error(run_nmt(*args, file, "--quantization", "int3"), 2, "unknown quantization 'int3'")
    python_path = os.pathsep.join([str(stub), os.environ.get("PYTHONPATH", "")])
    without = run_nmt(*args, file, env={"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"})
    assert "hint: pip install 'langcodes[data]" in one_clear_error(without, 2, "langcodes is not installed")
    assert file_bytes(tmp_path) == before


# --- with Argos Translate, if it is installed -------------------------------------------------------------

IN_ARGOS = """
import socket, sys

def refuse(*args, **kwargs):
    raise OSError("no network")

socket.socket.connect = socket.getaddrinfo = refuse

from argostranslate import package, translate

package.install_from_path(sys.argv[1])
print(translate.translate(sys.stdin.read(), "zh", "en"), end="")
"""


def test_argos_translate_installs_the_package_and_translates_offline(package: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [argos_python(), "-c", IN_ARGOS, package],
        input=f"{SOURCE[0]}{SOURCE[1]}\n\n{SOURCE[3]}",
        text=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUTF8": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{TARGET[0]} {TARGET[1]}\n\n{TARGET[3]}"
