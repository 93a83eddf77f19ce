"""`nmt download`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.corpus.catalog import CORPORA, Multi30k, Tatoeba
from nmt.errors import InputError

What = Annotated[str, typer.Argument(metavar="[NAME|CONFIG]", help="A corpus, a recipe that uses it, or mtdata:ID.")]
MTDATA = "mtdata:"


def download(
    what: What = "",
    lang_pair: Annotated[
        str | None, typer.Option("--lang-pair", "-l", metavar="L1-L2", help="Languages of Multi30k. [default: en-de]")
    ] = None,
    mirror: Annotated[
        str, typer.Option(metavar="URL", envvar="NMT_MIRROR", help="Fetch URL/HOST/PATH in place of https://HOST/PATH.")
    ] = "",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Download a corpus; without NAME, list them.

    Into data/downloads, or $NMT_DATA. Checks the text by its SHA-256, splits it as the recipes have it, and continues
    an interrupted download. mtdata:ID needs the extra: pip install 'nmt-trainer[mtdata]'.
    """
    streams.set_up_logging(quiet, verbose)
    if not what:
        print(*table(list(CORPORA.values())), sep="\n")
        return
    from nmt.config import downloads_directory

    if what.startswith(MTDATA):
        from nmt.corpus.with_mtdata import download_with_mtdata

        if lang_pair:
            raise InputError("the id of mtdata says the languages", hint="leave out --lang-pair")
        path = downloads_directory() / what.removeprefix(MTDATA)
        is_new = download_with_mtdata(path.name, path)
    else:
        from nmt.corpus import download as corpora

        corpus, names = chosen(what, lang_pair)
        path = downloads_directory() / corpus.name
        streams.log.info("%s: license: %s; see %s", corpus.name, corpus.license, path / "LICENSE.txt")
        is_new = bool(corpora.download(corpus, path, names, mirror=mirror, quiet=quiet))
    streams.log.info("written to %s" if is_new else "%s is complete", path)


def chosen(what: str, lang_pair: str | None) -> tuple[Multi30k | Tatoeba, Sequence[str]]:
    """The corpus of this name with its files of two languages, or that of a config with those that it names."""
    if named := CORPORA.get(what):
        languages = lang_pair.split("-") if lang_pair else named.languages[:2]
        if len(set(languages)) != 2 or not set(languages) <= set(named.languages):
            hint = f"two of {' '.join(named.languages)}, as in -l {'-'.join(named.languages[:2])}"
            raise InputError(f"{what} is not in '{lang_pair}'", hint=hint)
        return named, named.files(languages)
    path = Path(what)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"no corpus '{what}'", hint="`nmt download` lists them; or name a recipe or mtdata:ID")
    if lang_pair:
        raise InputError(f"{what} says which files it needs", hint="leave out --lang-pair")
    from nmt.config import load_config

    data = load_config(path).data
    corpus = CORPORA.get(Path(data.root).name)
    if corpus is None:
        hint = f"data.root of a corpus that can be downloaded is one of: {', '.join(CORPORA)}"
        raise InputError(f"{what} uses no corpus that can be downloaded", hint=hint)
    parts = [files for files in (data.train, data.dev, data.test) if files is not None]
    paths = dict.fromkeys(path for files in parts for path in (*files.source, *files.target))
    known = {f"{name}.gz" for name in corpus.files(corpus.languages)}
    if unknown := [path for path in paths if path not in known]:
        raise InputError(
            f"{what} names {unknown[0]}, which {corpus.name} does not have", hint="check data in the config"
        )
    return corpus, [path.removesuffix(".gz") for path in paths]


def table(corpora: Sequence[Multi30k | Tatoeba]) -> list[str]:
    """One line for each corpus, below the names of the columns."""
    from nmt.insight.tables import columns

    rows = []
    for corpus in corpora:
        pairs = [f"{n:,}" for n in corpus.n_pairs]
        rows.append(
            [corpus.name, " ".join(corpus.languages), *pairs, f"{corpus.size_mb:g}", corpus.license, corpus.note]
        )
    names = ["name", "languages", "train", "dev", "test", "MB", "license", ""]
    return columns(names, rows, numbers={"train", "dev", "test", "MB"})
