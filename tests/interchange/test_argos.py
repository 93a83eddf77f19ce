"""The Argos package: a reproducible zip that CTranslate2 reads, and that Argos Translate installs without a network."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import sentencepiece
from conftest import SOURCE, TARGET, FiveRun, err_lines, file_bytes, run_nmt
from models import fresh_translator

from nmt.errors import InputError
from nmt.interchange.argos import to_argos
from nmt.translate.translator import Translator

DIRECTORY = "translate-zh_en-1_0"
MEMBERS = [
    "metadata.json",
    "minisbd/sentences.onnx",
    "model/config.json",
    "model/model.bin",
    "model/shared_vocabulary.json",
    "sentencepiece.model",
]


@pytest.fixture(scope="module")
def package(five_run: FiveRun, folder: Path) -> Path:
    file = folder / "five.argosmodel"
    done = run_nmt("export", "-m", five_run.run, "--to", "argos", "-o", file)
    checked, written = err_lines(done)
    assert "(int8)" in checked, "the default"
    assert written == f"written to {file}"
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a package is written to."""
    return tmp_path / "x.argosmodel"


def translator(joint: bool = True, **data: Any) -> Translator:
    """An untrained translator with settings of `data`."""
    tied = "all" if joint else "none"
    found = fresh_translator(joint, tied_embeddings=tied)
    changed = found.config.data.model_copy(update=data)
    config = found.config.model_copy(update={"data": changed})
    return Translator(found.engine, found.tokenizers, config)


def test_a_package_is_one_directory(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        assert archive.namelist() == [f"{DIRECTORY}/{name}" for name in MEMBERS]
        metadata = json.loads(archive.read(f"{DIRECTORY}/metadata.json"))
    assert (metadata["from_code"], metadata["from_name"]) == ("zh", "Chinese")
    assert (metadata["to_code"], metadata["to_name"]) == ("en", "English")


def test_model_and_tokenizer_of_a_package_translate_the_five(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    home = tmp_path / DIRECTORY
    engine = ctranslate2.Translator(str(home / "model"))
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(home / "sentencepiece.model"))
    pieces = tokenizer.encode(SOURCE, out_type=str)
    # The search of Argos Translate.
    results = engine.translate_batch(pieces, beam_size=4, length_penalty=0.2)
    found = [tokenizer.decode(result.hypotheses[0]) for result in results]
    assert found == TARGET


def test_languages_get_the_shortest_codes(file: Path) -> None:
    """Argos Translate chains packages by language code: eng and en would not match."""
    to_argos(translator(source_lang="zho_Hans", target_lang="eng"), file)
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist()[0].startswith(f"{DIRECTORY}/")


@pytest.mark.parametrize("setting", ["tokenizer.joint=false", "data.nfkc_source=true"])
def test_other_tokenizers_are_refused(file: Path, setting: str) -> None:
    refused = translator(joint="joint" not in setting, nfkc_source="nfkc" in setting)
    with pytest.raises(InputError, match=f"^Argos Translate does not support {re.escape(setting)}$"):
        to_argos(refused, file)
    assert file_bytes(file.parent) == {}


def test_a_language_that_has_no_code_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match=r"^langcodes knows no language 'ROMANCE'$"):
        to_argos(translator(source_lang="ROMANCE"), file)
    assert file_bytes(file.parent) == {}


def test_equal_models_give_equal_files(file: Path) -> None:
    to_argos(translator(), file)
    content = file.read_bytes()
    to_argos(translator(), file)
    assert file.read_bytes() == content


def check_kept(path: Path, folder: Path) -> None:
    """An export does not replace what is at a path."""
    before = file_bytes(folder)
    with pytest.raises(InputError, match="exists and is not an export"):
        to_argos(translator(), path)
    assert file_bytes(folder) == before


def test_a_damaged_package_is_kept(file: Path) -> None:
    to_argos(translator(), file)
    file.write_bytes(file.read_bytes()[:-30])
    check_kept(file, file.parent)


def test_another_zip_a_link_to_itself_and_a_directory_are_kept(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as other:
        other.writestr("x/metadata.json", "{}")
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "x.zip", tmp_path / "loop", tmp_path):
        check_kept(path, tmp_path)


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
    python = os.environ.get("NMT_ARGOS_PYTHON", sys.executable)
    # It is installed elsewhere, because it has many dependencies.
    tried = subprocess.run([python, "-c", "import argostranslate"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("no argostranslate: install it elsewhere, and set NMT_ARGOS_PYTHON to that Python")
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUTF8": "1"}
    # Two sentences, an empty line and a third.
    first, second, _, third, _ = SOURCE
    text = f"{first}{second}\n\n{third}"
    command = [python, "-c", IN_ARGOS, str(package)]
    done = subprocess.run(command, input=text, text=True, capture_output=True, env=home, check=False)
    assert done.returncode == 0, done.stderr
    first, second, _, third, _ = TARGET
    assert done.stdout == f"{first} {second}\n\n{third}"
