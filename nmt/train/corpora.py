"""The corpora of a config: their names, files, hashes and languages, and how an epoch mixes them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nmt.config import Config, Files, data_root, languages_of
from nmt.corpus.catalog import CORPORA, command
from nmt.errors import ConfigError, DataError
from nmt.languages import source_and_target
from nmt.run.directory import hash_files
from nmt.text.corpus_files import SIDES, Pairs
from nmt.text.lines import Pair, iter_pairs
from nmt.text.permutation import Mixture


def training_corpora(config: Config) -> dict[str, Files]:
    """Return the corpora of data.train, then the corpora of data.mix. Keys are names such as mix.news."""
    corpora = named("train", config.data.train)
    # Sort by name. The order of the training data must not depend on the order of `mix` in the config.
    for name, files in sorted(config.data.mix.items()):
        corpora[f"mix.{name}"] = files
    return corpora


def named(name: str, corpora: Sequence[Files]) -> dict[str, Files]:
    """Return the corpora of data.train, data.dev or data.test by name. `name` is train, dev or test.

    A corpus without `languages` has the name `name`. Corpora of the direction de-en are named train.de-en,
    train.de-en.2, and so on.
    """
    by_name: dict[str, Files] = {}
    counts = Counter[str]()
    for files in corpora:
        counts[files.languages] += 1
        full_name = f"{name}.{files.languages}" if files.languages else name
        if counts[files.languages] > 1:
            full_name += f".{counts[files.languages]}"
        by_name[full_name] = files
    return by_name


def all_corpora(config: Config) -> dict[str, Files]:
    """Return the training corpora, then the dev and test corpora if the config has them."""
    data = config.data
    return training_corpora(config) | named("dev", data.dev) | named("test", data.test)


def root_of(config: Config, files: Files) -> str:
    """Return the `root` of a corpus, by default `data.root`."""
    return files.root or config.data.root


def corpus_paths(config: Config, files: Files) -> tuple[list[Path], list[Path]]:
    """Return the source files and the target files of a corpus. Those of memories are in the cache."""
    root = data_root(root_of(config, files))
    sources = [root / path for path in files.source]
    if not files.target:
        from nmt.documents.memories import is_memory, text_files  # imported here, because this takes 100 ms

        languages = corpus_languages(config, files)
        if is_memory(sources[0]) and not all(languages):
            raise ConfigError(f"which languages of {sources[0]}?", hint="set data.source_lang and data.target_lang")
        return text_files(sources, languages)
    return sources, [root / path for path in files.target]


def corpus_languages(config: Config, files: Files) -> Sequence[str]:
    """Return the source language and the target language of a corpus."""
    return source_and_target(files.languages) if files.languages else languages_of(config.data)


def pairs_of(config: Config, files: Files) -> Iterator[Pair]:
    """Yield the pairs of a corpus. With several directions, each pair has its `languages`."""
    for pair in iter_pairs(*corpus_paths(config, files), strict=not config.data.allow_bad_utf8):
        yield replace(pair, languages=files.languages) if config.data.directions else pair


def corpus_hashes(config: Config) -> dict[str, str]:
    """Return the SHA-256 of each side of each corpus. Keys are NAME.source and NAME.target for the corpus NAME.

    Raises DataError if a file cannot be read.
    """
    hashes = {}
    for name, files in all_corpora(config).items():
        for side, paths in zip(SIDES, corpus_paths(config, files), strict=True):
            hashes[f"{name}.{side}"] = hash_files(paths, hint_of_missing(config, files))
    return hashes


def hint_of_missing(config: Config, files: Files) -> str:
    """Return a hint for the error that a file of the corpus is missing."""
    root = root_of(config, files)
    corpus = CORPORA.get(root)
    if corpus is None:
        return f"check the path; it is relative to {root or 'the working directory'}"
    # `nmt download` knows a corpus of this name.
    download = command(corpus, corpus_languages(config, files))
    return f"`{download}` gets this corpus; or set data.root to the directory that has it"


def mixture_of(config: Config, pairs: Pairs) -> Mixture | None:
    """Return how an epoch mixes the training corpora. Return None if an epoch reads each pair once.

    With `data.mix`, the weight of a mixed corpus is its share of an epoch. With a temperature T, the share of a corpus
    of n pairs is proportional to n^(1/T) (Arivazhagan et al. 2019).

    Args:
        pairs: the pairs of all training corpora, without dropped pairs.
    Raises:
        DataError: a corpus has no pair left.
    """
    mix, temperature = config.data.mix, config.data.temperature
    if not mix and temperature == 1:
        return None

    # An epoch cannot draw a share from an empty corpus.
    sizes = [len(corpus) for corpus in pairs.by_corpus()]
    for name, size in zip(training_corpora(config), sizes, strict=True):
        if not size:
            raise DataError(f"{name} has no pair left", hint="raise data.max_length or data.max_ratio")

    # Compute the share of each corpus except the first. The first corpus gets the rest of the epoch.
    if mix:
        shares = [files.weight for _, files in sorted(mix.items())]
    else:
        weights = [size ** (1 / temperature) for size in sizes]
        shares = [weight / sum(weights) for weight in weights[1:]]
    return Mixture(sizes, shares)
