"""Export to a package for Argos Translate and LibreTranslate, which translate offline with CTranslate2.

The package is a zip of one directory. Equal models give equal packages. Content:

    metadata.json          languages
    sentencepiece.model    one tokenizer for both sides
    model/                 the model for CTranslate2
    minisbd/sentences.onnx a sentence splitter for MiniSBD; without it, Argos Translate would download another

Packages are for Argos Translate 1.11. Its search differs from ours: beam 4, length penalty 0.2 as defined by
CTranslate2, at most 256 pieces per translation, and sources are truncated to 1,024 pieces. It splits paragraphs into
sentences, and replaces every `_` in a translation by a space.
"""

import contextlib
import json
import os
import stat
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from nmt.config import language
from nmt.errors import InputError
from nmt.files import TEMP_MARK, atomic_write, is_special
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.translate.translator import Translator

SPLITTER = "minisbd/sentences.onnx"
MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")


def to_argos(translator: Translator, path: Path, quantization: str = "int8") -> None:
    """Export a model to an .argosmodel file, if CTranslate2 computes the same scores. The model must be on the CPU.

    Raises the errors of `to_ctranslate2`, and InputError if langcodes is not installed, each side has its own
    tokenizer, the source is normalized (data.nfkc_source), or a language is unknown. Replaces only earlier packages.
    """
    # A special file, such as /dev/stdout, is written to.
    if path.is_dir() or (os.path.lexists(path) and not is_special(path) and not is_package(path)):
        raise InputError(f"{path} exists and is not an export", hint="name another file: NAME.argosmodel")
    check_supported(translator)
    # 1. Languages and tokenizer.
    data = translator.config.data
    from_code, from_name = code_and_name(language(data, "source"))
    to_code, to_name = code_and_name(language(data, "target"))
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
    # 2. The model. If the export is killed, the next one removes the temporary directory, which is beside the package.
    real = Path(os.path.realpath(path))
    folder = None if is_special(path) else real.parent
    prefix = f"{TEMP_MARK}{os.getpid()}"
    suffix = f"{real.name}{TEMP_MARK}"
    with tempfile.TemporaryDirectory(prefix, suffix, folder, ignore_cleanup_errors=True) as temporary:
        model = Path(temporary, "model")
        to_ctranslate2(translator, model, quantization)
        for name in MODEL_FILES:
            files[f"model/{name}"] = (model / name).read_bytes()
    write_zip(path, f"translate-{from_code}_{to_code}-1_0", files)


def check_supported(translator: Translator) -> None:
    if translator.tokenizers.source.targets:
        raise InputError("Argos Translate has no models of several languages", hint="use --to ctranslate2")
    # There is one tokenizer for both sides, and no step before it.
    setting = ""
    if not translator.tokenizers.joint:
        setting = "tokenizer.joint=false"
    if translator.config.data.nfkc_source:
        setting = "data.nfkc_source=true"
    if setting:
        hint = "train with one tokenizer for text as it is, or use --to ctranslate2"
        raise InputError(f"Argos Translate does not support {setting}", hint=hint)


def is_package(path: Path) -> bool:
    """Whether a file is a zip with a model and our sentence splitter, as `to_argos` writes it."""
    try:
        with zipfile.ZipFile(path) as archive:
            # Without the name of the directory, which has the languages.
            names = {name.partition("/")[2] for name in archive.namelist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):  # zipfile raises all of these
        return False
    return {SPLITTER, "model/model.bin"} <= names


def code_and_name(language: str) -> tuple[str, str]:
    """Return the shortest code of a language without region and script, and its English name."""
    try:
        import langcodes
        import language_data  # type: ignore[import-untyped]  # noqa: F401 - has the names of languages
    except ImportError as error:
        raise InputError("langcodes is not installed", hint="pip install 'langcodes[data]>=3.4'") from error
    # langcodes knows fewer codes than `is_language` accepts.
    with contextlib.suppress(ValueError):
        tag = langcodes.Language.get(language)
        if tag.language:
            return tag.language, tag.display_name()
    hint = "train with data.source_lang and data.target_lang, or import with --source-lang and --target-lang"
    raise InputError(f"langcodes knows no language '{language}'", hint=hint)


def write_zip(path: Path, directory: str, files: dict[str, bytes]) -> None:
    """Write a zip of one directory; equal contents give equal bytes, because its files are from 1980."""
    buffer = BytesIO()  # a zip file cannot be written to every special file
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            # By default, nobody may read a file.
            info = zipfile.ZipInfo(f"{directory}/{name}")
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    atomic_write(path, buffer.getvalue())
