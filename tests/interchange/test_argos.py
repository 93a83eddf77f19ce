"""The Argos package: a reproducible zip that CTranslate2 reads, and that Argos Translate installs without a network."""

import json
import os
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

from nmt.config import Files
from nmt.errors import InputError
from nmt.interchange.argos import to_argos
from nmt.translate.translator import Translator

DIRECTORY = "translate-zh_en-1_0"


@pytest.fixture(scope="module")
def package(five_run: FiveRun, folder: Path) -> Path:
    file = folder / "five.argosmodel"
    done = run_nmt("export", "-m", five_run.run, "--to", "argos", "-o", file)
    assert err_lines(done)[-1] == f"written to {file}"
    assert "(int8)" in err_lines(done)[0], "the default"
    return file


def translator(joint: bool = True, **data: Any) -> Translator:
    """An untrained translator with settings of `data`."""
    found = fresh_translator(joint, tied_embeddings="all" if joint else "none")
    changed = found.config.data.model_copy(update=data)
    return Translator(found.engine, found.tokenizers, found.config.model_copy(update={"data": changed}))


def test_package_is_one_directory_whose_model_and_tokenizer_translate_the_five(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
        members = ["metadata.json", "minisbd/sentences.onnx", "model/config.json", "model/model.bin"]
        members += ["model/shared_vocabulary.json", "sentencepiece.model"]
        assert archive.namelist() == [f"{DIRECTORY}/{name}" for name in members]
        metadata = json.loads(archive.read(f"{DIRECTORY}/metadata.json"))
    languages = {key: metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")}
    assert languages == {"from_code": "zh", "from_name": "Chinese", "to_code": "en", "to_name": "English"}

    engine = ctranslate2.Translator(str(tmp_path / DIRECTORY / "model"))
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / DIRECTORY / "sentencepiece.model"))
    found = engine.translate_batch(pieces.encode(SOURCE, out_type=str), beam_size=4, length_penalty=0.2)
    assert [pieces.decode(one.hypotheses[0]) for one in found] == TARGET


def test_languages_get_the_shortest_codes(tmp_path: Path) -> None:
    """Argos Translate chains packages by language code: eng and en would not match."""
    to_argos(translator(source_lang="zho_Hans", target_lang="eng"), tmp_path / "x.argosmodel")
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        assert archive.namelist()[0].startswith(f"{DIRECTORY}/")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"joint": False}, r"^Argos Translate does not support tokenizer\.joint=false$"),
        ({"nfkc_source": True}, r"^Argos Translate does not support data\.nfkc_source=true$"),
        ({"train": (Files(source="a.zh", target="a.txt"),)}, "^langcodes knows no language ''$"),
        ({"source_lang": "ROMANCE"}, "^langcodes knows no language 'ROMANCE'$"),
    ],
)
def test_what_a_package_cannot_hold_is_refused_by_name(choices: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        to_argos(translator(**choices), tmp_path / "x.argosmodel")
    assert file_bytes(tmp_path) == {}


def test_truncated_self_attention_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not support model\.attention_window=8$"):
        to_argos(fresh_translator(attention_window=8), tmp_path / "x.argosmodel")


def test_only_an_earlier_package_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "x.argosmodel"
    to_argos(translator(), file)
    content = file.read_bytes()
    to_argos(translator(), file)
    assert file.read_bytes() == content, "equal models give equal files"
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as other:
        other.writestr("x/metadata.json", "{}")
    file.write_bytes(content[:-30])
    (tmp_path / "loop").symlink_to("loop")
    before = file_bytes(tmp_path)
    for mine in (file, tmp_path / "x.zip", tmp_path / "loop", tmp_path):
        with pytest.raises(InputError, match="exists and is not an export"):
            to_argos(translator(), mine)
    assert file_bytes(tmp_path) == before


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
    if subprocess.run([python, "-c", "import argostranslate"], capture_output=True, check=False).returncode:
        pytest.skip("no argostranslate: install it elsewhere, and set NMT_ARGOS_PYTHON to that Python")
    done = subprocess.run(
        [python, "-c", IN_ARGOS, package],
        input=f"{SOURCE[0]}{SOURCE[1]}\n\n{SOURCE[3]}",
        text=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUTF8": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{TARGET[0]} {TARGET[1]}\n\n{TARGET[3]}"
