"""The command `nmt download`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import streams
from nmt.cli.streams import log
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.corpus.catalog import Corpus


def download(
    what: Annotated[str, typer.Argument(metavar="[NAME|CONFIG]", help="A corpus, or a recipe that uses it.")] = "",
    lang_pair: Annotated[
        str | None, typer.Option("--lang-pair", "-l", metavar="L1-L2", help="Languages of Multi30k. [default: en-de]")
    ] = None,
    mirror: Annotated[
        str, typer.Option(metavar="URL", envvar="NMT_MIRROR", help="Fetch URL/HOST/PATH in place of https://HOST/PATH.")
    ] = "",
) -> None:
    """Download a corpus; without NAME, list them.

    Writes to data/downloads, or $NMT_DATA. Fetches the files that are missing, checks the SHA-256 of Multi30k's text,
    and splits the text as the recipes need it.
    """
    if not what:
        print(*table_of_corpora(), sep="\n")
        return
    # 1. Choose the files to download.
    from nmt.config import downloads_directory
    from nmt.corpus.catalog import CORPORA
    from nmt.corpus.download import download

    if what in CORPORA:
        corpus = CORPORA[what]
        wanted = {what: corpus.files(languages_of_corpus(corpus, lang_pair))}
    else:
        wanted = files_of_config(what, lang_pair)
    # 2. Download the files that are missing.
    for name, files in wanted.items():
        corpus = CORPORA[name]
        path = downloads_directory() / name
        log.info("%s: license: %s; see %s", name, corpus.license, path / "LICENSE.txt")
        written = download(corpus, path, files, mirror=mirror, quiet=streams.is_quiet())
        log.info("written to %s" if written else "%s is complete", path)


def languages_of_corpus(corpus: "Corpus", lang_pair: str | None) -> Sequence[str]:
    """Return the two languages of -l. By default, these are the first two languages of the corpus."""
    if lang_pair is None:
        return corpus.languages[:2]
    languages = lang_pair.split("-")
    # Two different languages of the corpus are needed.
    if len(set(languages)) != 2 or not set(languages) <= set(corpus.languages):
        hint = f"two of {' '.join(corpus.languages)}, as in -l {'-'.join(corpus.languages[:2])}"
        raise InputError(f"{corpus.name} is not in '{lang_pair}'", hint=hint)
    return languages


def files_of_config(config_file: str, lang_pair: str | None) -> dict[str, list[str]]:
    """Return the files that a config uses, as {name of a corpus: file names without .gz}."""
    from nmt.config import load_config
    from nmt.corpus.catalog import CORPORA
    from nmt.train.corpora import all_corpora, root_of

    if Path(config_file).suffix not in (".yaml", ".yml"):
        raise InputError(f"no corpus '{config_file}'", hint="`nmt download` lists them; or name a recipe")
    if lang_pair:
        raise InputError(f"{config_file} says which files it needs", hint="leave out --lang-pair")
    config = load_config(Path(config_file))
    wanted: dict[str, list[str]] = {}
    for files in all_corpora(config).values():
        # A corpus is identified by the name of its directory.
        corpus = CORPORA.get(Path(root_of(config, files)).name)
        if corpus is None:
            hint = f"data.root of a corpus that can be downloaded is one of: {', '.join(CORPORA)}"
            raise InputError(f"{config_file} uses no corpus that can be downloaded", hint=hint)
        # Only gzipped files of the corpus can be downloaded.
        offered = corpus.files(corpus.languages)
        names = wanted.setdefault(corpus.name, [])
        for file in (*files.source, *files.target):
            name = file.removesuffix(".gz")
            if name == file or name not in offered:
                message = f"{config_file} names {file}, which {corpus.name} does not have"
                raise InputError(message, hint="check data in the config")
            if name not in names:
                names.append(name)
    return wanted


def table_of_corpora() -> list[str]:
    """Return the lines of a table with one row per corpus."""
    from nmt.cli.tables import columns
    from nmt.corpus.catalog import CORPORA

    rows = [["name", "languages", "train", "dev", "test", "MB", "license", ""]]
    for corpus in CORPORA.values():
        numbers = [f"{n:,}" for n in corpus.n_pairs]
        languages = " ".join(corpus.languages)
        rows.append([corpus.name, languages, *numbers, f"{corpus.size_mb:g}", corpus.license, corpus.note])
    return columns(rows)
