"""Export to a package for Argos Translate and LibreTranslate, which translate offline with CTranslate2.

The package is a zip of one directory. Equal models give equal packages. Content:

    metadata.json          languages
    README.md              description of the package
    sentencepiece.model    one tokenizer for both sides
    model/                 the model for CTranslate2
    minisbd/sentences.onnx a sentence splitter for MiniSBD; without it, Argos Translate would download another

Packages are for Argos Translate 1.11. Its search differs from ours: beam 4, length penalty 0.2 as defined by
CTranslate2, at most 256 pieces per translation, and sources are truncated to 1,024 pieces. It splits paragraphs into
sentences, and replaces every `_` in a translation by a space.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

from nmt.config import language
from nmt.decode.translator import Translator
from nmt.errors import InputError
from nmt.files import atomic_writer, is_special
from nmt.interchange.ctranslate2 import to_ctranslate2

log = logging.getLogger("nmt")

MAX_SOURCE = 1024  # pieces; CTranslate2's default limit
FILES = {  # all files of a package, in its one directory
    *("README.md", "metadata.json", "minisbd/sentences.onnx", "sentencepiece.model"),
    *("model/config.json", "model/model.bin", "model/shared_vocabulary.json"),
}
EPOCH = (1980, 1, 1, 0, 0, 0)  # earliest time in a zip; fixed, so that equal models give equal files
README = """\
# {source} to {target}

A package for Argos Translate 1.11 or newer and for LibreTranslate, written by nmt-trainer. It translates
offline: model, tokenizer and a sentence splitter are in the package.

    import argostranslate.package, argostranslate.translate
    argostranslate.package.install_from_path("PACKAGE.argosmodel")
    print(argostranslate.translate.translate("...", "{source_code}", "{target_code}"))

`minisbd/sentences.onnx` splits paragraphs at sentence-final punctuation. A model of MiniSBD
(https://github.com/LibreTranslate/MiniSBD) in its place also knows abbreviations.
"""


def to_argos(translator: Translator, path: Path, quantization: str = "int8") -> None:
    """Export a model to an .argosmodel file, if CTranslate2 computes the same scores. The model must be on the CPU.

    Raises the errors of `to_ctranslate2`, and InputError if langcodes is not installed, each side has its own
    tokenizer, the source is normalized (data.nfkc_source), or a language is unknown. Replaces only earlier packages.
    """
    _check_supported(translator, path)
    langcodes = import_langcodes()
    (source_code, source), (target_code, target) = (
        code_and_name(langcodes, language(translator.config.data, side)) for side in ("source", "target")
    )
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.11",
        "from_code": source_code,
        "from_name": source,
        "to_code": target_code,
        "to_name": target,
        "type": "translate",
        "target_prefix": "",
    }
    readme = README.format(source=source, target=target, source_code=source_code, target_code=target_code)
    files: dict[str, bytes | Path] = {
        "metadata.json": json.dumps(metadata, indent=4, ensure_ascii=False).encode(),
        "README.md": readme.encode(),
        "sentencepiece.model": translator.tokenizers.source.model,
        "minisbd/sentences.onnx": Path(__file__).with_name("sentences.onnx").read_bytes(),
    }
    with tempfile.TemporaryDirectory() as temporary:
        model = Path(temporary, "model")
        to_ctranslate2(translator, model, quantization)
        files |= {f"model/{name}": model / name for name in ("config.json", "model.bin", "shared_vocabulary.json")}
        write_zip(path, f"translate-{source_code}_{target_code}-1_0", files)


def _check_supported(translator: Translator, path: Path) -> None:
    config = translator.config
    if path.is_dir():
        raise InputError(f"{path} is a directory", hint="name a file: NAME.argosmodel")
    if os.path.lexists(path) and not is_special(path) and not is_package(path):
        raise InputError(f"{path} exists and is not an export", hint="name another file, or delete it")
    if not translator.tokenizers.joint or config.data.nfkc_source:
        setting = "data.nfkc_source=true" if translator.tokenizers.joint else "tokenizer.joint=false"
        hint = "train with one tokenizer for text as it is, or use --to ctranslate2"
        raise InputError(f"Argos Translate does not support {setting}", hint=hint)
    for side in ("source", "target"):
        if not language(config.data, side):
            hint = f"train with data.{side}_lang=CODE, or name the files like train.de"
            raise InputError(f"the language of the {side} is not known", hint=hint)
    if config.model.max_positions < MAX_SOURCE:
        limit = f"{config.model.max_positions} pieces (model.max_positions)"
        log.warning("Argos Translate does not split sentences of over %s: it fails on them", limit)


def is_package(path: Path) -> bool:
    """Whether a file is a zip with the files that `to_argos` writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.partition("/")[2] for name in archive.namelist()} == FILES
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):  # zipfile raises all of these
        return False


def import_langcodes() -> ModuleType:
    """Import langcodes. Raises InputError if it or its language names are not installed."""
    try:
        import langcodes
        import language_data  # type: ignore[import-untyped]  # noqa: F401 - has the names of languages
    except ImportError as error:
        raise InputError("langcodes is not installed", hint="pip install 'langcodes[data]>=3.4'") from error
    return langcodes


def code_and_name(langcodes: ModuleType, language: str) -> tuple[str, str]:
    """Return the shortest code of a language without region and script, and its English name."""
    with contextlib.suppress(ValueError):  # langcodes knows fewer codes than `is_language` accepts
        tag = langcodes.Language.get(language)
        if tag.language:
            return tag.language, tag.display_name()
    hint = "train with data.source_lang and data.target_lang, or import with --source-lang and --target-lang"
    raise InputError(f"langcodes does not know the language '{language}'", hint=hint)


def write_zip(path: Path, directory: str, files: dict[str, bytes | Path]) -> None:
    """Write a zip of one directory from contents and files on disk; equal contents give equal bytes."""
    with atomic_writer(path) as out, zipfile.ZipFile(out, "w") as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(f"{directory}/{name}", EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, also if written on another system
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            source = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
            with source, archive.open(info, "w", force_zip64=isinstance(content, Path)) as member:
                shutil.copyfileobj(source, member)
