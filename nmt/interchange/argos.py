"""Export of a model to a package for Argos Translate and LibreTranslate, which use CTranslate2 to translate offline.

The package is a zip file of one directory. Two exports of the same model have the same bytes. The directory has these
files:

    metadata.json          the languages
    sentencepiece.model    one tokenizer for both sides
    model/                 the model for CTranslate2
    minisbd/sentences.onnx a sentence splitter, so that Argos Translate does not download one

Argos Translate 1.11 searches with beam 4, a length penalty of 0.2, and at most 256 pieces per translation. It splits
paragraphs into sentences, and truncates a source to 1,024 pieces. It replaces every `_` in a translation by a space.
"""

import contextlib
import json
import os
import stat
import tempfile
import zipfile
from pathlib import Path

from nmt.config import languages_of
from nmt.errors import InputError
from nmt.files import TEMP_MARK, atomic_writer
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.translate.translator import Translator

SPLITTER = "minisbd/sentences.onnx"
MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")


def to_argos(translator: Translator, path: Path, quantization: str = "int8") -> None:
    """Export a model, which must be on the CPU, to an .argosmodel file. An earlier package is replaced.

    Raises:
        InputError: langcodes or CTranslate2 is not installed, the model or a language is not supported, or `path`
            exists and is not a package.
        NmtError: the log-probabilities of CTranslate2 differ from ours.
    """
    if os.path.lexists(path) and not (path.is_file() and is_package(path)):
        raise InputError(f"{path} exists and is not an export", hint="name another file: NAME.argosmodel")
    check_supported(translator)
    # 1. Collect the languages and the tokenizer.
    data = translator.config.data
    source, target = languages_of(data)
    from_code, from_name = code_and_name(source)
    to_code, to_name = code_and_name(target)
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.11",
        "type": "translate",
        "target_prefix": "",
        "from_code": from_code,
        "from_name": from_name,
        "to_code": to_code,
        "to_name": to_name,
    }
    files = {
        "metadata.json": json.dumps(metadata, indent=4, ensure_ascii=False).encode(),
        "sentencepiece.model": translator.tokenizers.source.model,
        SPLITTER: Path(__file__).with_name("sentences.onnx").read_bytes(),
    }
    # 2. Convert the model in a temporary directory. `sweep_temps` recognizes its name if this process is killed.
    real = Path(os.path.realpath(path))
    suffix = f"{TEMP_MARK}{os.getpid()}"
    prefix = f"{real.name}{TEMP_MARK}"
    with tempfile.TemporaryDirectory(suffix, prefix, real.parent, ignore_cleanup_errors=True) as temporary:
        model = Path(temporary, "model")
        to_ctranslate2(translator, model, quantization)
        for name in MODEL_FILES:
            files[f"model/{name}"] = (model / name).read_bytes()
    write_zip(path, f"translate-{from_code}_{to_code}-1_0", files)


def check_supported(translator: Translator) -> None:
    if translator.tokenizers.source.targets:
        raise InputError("Argos Translate has no models of several languages", hint="use --to ctranslate2")
    # Argos Translate uses one tokenizer for both sides, and does not normalize the text before the tokenizer.
    setting = ""
    if not translator.tokenizers.joint:
        setting = "tokenizer.joint=false"
    if translator.config.data.nfkc_source:
        setting = "data.nfkc_source=true"
    if setting:
        hint = "train with one tokenizer for text as it is, or use --to ctranslate2"
        raise InputError(f"Argos Translate does not support {setting}", hint=hint)


def is_package(path: Path) -> bool:
    """Return whether a file is a package of `to_argos`: a zip file with a model and our sentence splitter."""
    try:
        with zipfile.ZipFile(path) as archive:
            # Remove the name of the directory, which depends on the languages.
            names = {name.partition("/")[2] for name in archive.namelist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):  # zipfile can raise each of these
        return False
    return {SPLITTER, "model/model.bin"} <= names


def code_and_name(language: str) -> tuple[str, str]:
    """Return the shortest code of a language, such as de, and its English name."""
    try:
        import langcodes
        import language_data  # type: ignore[import-untyped]  # noqa: F401 - langcodes reads names from it
    except ImportError as error:
        raise InputError("langcodes is not installed", hint="pip install 'langcodes[data]>=3.4'") from error
    # langcodes raises ValueError for some codes that `is_language` accepts.
    with contextlib.suppress(ValueError):
        tag = langcodes.Language.get(language)
        if tag.language:
            return tag.language, tag.display_name()
    hint = "train with data.source_lang and data.target_lang, or import with --source-lang and --target-lang"
    raise InputError(f"langcodes knows no language '{language}'", hint=hint)


def write_zip(path: Path, directory: str, files: dict[str, bytes]) -> None:
    """Write a zip file of one directory. All files get the same date, so that equal contents give equal bytes."""
    with atomic_writer(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in sorted(files.items()):
            # Set permissions, without which nobody could read an unpacked file.
            info = zipfile.ZipInfo(f"{directory}/{name}")
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
