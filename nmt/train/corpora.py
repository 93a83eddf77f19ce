"""The corpora that a config names: their names, files, hashes and languages. Imports no torch."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nmt.config import Config, Files, corpora_of, data_root, directions, language, language_of
from nmt.corpus.catalog import CORPORA, command
from nmt.errors import DataError
from nmt.run.directory import hash_files
from nmt.text.corpus import SIDES
from nmt.text.lines import Pair, iter_pairs


def training_corpora(config: Config) -> dict[str, Files]:
    """Those of data.train, then of data.mix by name: the order of the data depends on their order."""
    mix = config.data.mix
    return named("train", config.data.train) | {f"mix.{name}": mix[name] for name in sorted(mix)}


def named(name: str, corpora: Files | tuple[Files, ...] | None) -> dict[str, Files]:
    """The corpora of data.train, dev or test by name: train, or of a list train.de-en, train.de-en.2 and so on."""
    found: dict[str, Files] = {}
    for files in corpora_of(corpora):
        own = f"{name}.{files.languages}" if isinstance(corpora, tuple) else name
        number = 1 + sum(other.languages == files.languages for other in found.values())
        found[own if number == 1 else f"{own}.{number}"] = files
    return found


def all_corpora(config: Config) -> dict[str, Files]:
    """`training_corpora`, and dev and test if they are set."""
    return training_corpora(config) | named("dev", config.data.dev) | named("test", config.data.test)


def root_of(config: Config, files: Files) -> str:
    """The root of a corpus' paths, as the config sets it: the corpus' own root, else data.root."""
    return files.root or config.data.root


def corpus_paths(config: Config, files: Files) -> tuple[list[Path], list[Path]]:
    """The files of both sides of a corpus."""
    root = data_root(root_of(config, files))
    return [root / path for path in files.source], [root / path for path in files.target]


def pairs_of(config: Config, files: Files) -> Iterator[Pair]:
    """Read the pairs of a corpus; those of a list of corpora know their languages."""
    pairs = iter_pairs(*corpus_paths(config, files), strict=not config.data.allow_bad_utf8)
    return (replace(pair, languages=files.languages) for pair in pairs) if directions(config.data) else pairs


def corpus_hashes(config: Config) -> dict[str, str]:
    """SHA-256 of each side of each corpus. Raises DataError if a file cannot be read."""
    data, hashes = config.data, {}
    for name, files in all_corpora(config).items():
        root = root_of(config, files)
        hint = f"check the path; it is relative to {f'data.root, {root}' if root else 'the working directory'}"
        if corpus := CORPORA.get(root):
            known = language(data, "source"), language(data, "target")
            download = command(corpus, files.languages.split("-") if files.languages else known)
            hint = f"`{download}` gets this corpus; or set data.root to the directory that has it"
        for side, paths in zip(SIDES, corpus_paths(config, files), strict=True):
            hashes[f"{name}.{side}"] = hash_files(paths, hint)
    return hashes


def check_order(name: str, files: Files, train: Files) -> None:
    """Raise DataError if the sides of a corpus are exchanged, by the language codes that file names end in."""
    own, expected = ([language_of(Path(paths[0])) for paths in (one.source, one.target)] for one in (files, train))
    if files.languages:
        expected = files.languages.split("-")
    if own == expected[::-1] != expected:
        asked = f"its languages are {files.languages}" if files.languages else f"that of train {train.source[0]}"
        message = f"data.{name} has its sides exchanged: its source is {files.source[0]}, {asked}"
        raise DataError(message, hint=f"exchange data.{name}.source and data.{name}.target")
