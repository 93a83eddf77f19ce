"""`nmt download`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import streams
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.corpus.catalog import Corpus

What = Annotated[str, typer.Argument(metavar="[NAME|CONFIG]", help="A corpus, or a recipe that uses it.")]


def download(
    what: What = "",
    lang_pair: Annotated[
        str | None, typer.Option("--lang-pair", "-l", metavar="L1-L2", help="Languages of Multi30k. [default: en-de]")
    ] = None,
    mirror: Annotated[
        str, typer.Option(metavar="URL", envvar="NMT_MIRROR", help="Fetch URL/HOST/PATH in place of https://HOST/PATH.")
    ] = "",
) -> None:
    """Download a corpus; without NAME, list them.

    Writes to data/downloads, or $NMT_DATA. Fetches the files that are missing, checks the SHA-256 of the text, and
    splits it as the recipes need it.
    """
    if not what:
        print(*table(), sep="\n")
        return
    from nmt.config import downloads_directory
    from nmt.corpus import download as corpora

    for corpus, names in chosen(what, lang_pair):
        path = downloads_directory() / corpus.name
        streams.log.info("%s: license: %s; see %s", corpus.name, corpus.license, path / "LICENSE.txt")
        is_new = bool(corpora.download(corpus, path, names, mirror=mirror, quiet=streams.is_quiet()))
        streams.log.info("written to %s" if is_new else "%s is complete", path)


def chosen(what: str, lang_pair: str | None) -> "list[tuple[Corpus, Sequence[str]]]":
    """Return the corpora to download, each with its file names: the named corpus, or the corpora of a config."""
    from nmt.corpus.catalog import CORPORA

    if named := CORPORA.get(what):
        languages = lang_pair.split("-") if lang_pair else named.languages[:2]
        if len(set(languages)) != 2 or not set(languages) <= set(named.languages):
            hint = f"two of {' '.join(named.languages)}, as in -l {'-'.join(named.languages[:2])}"
            raise InputError(f"{what} is not in '{lang_pair}'", hint=hint)
        return [(named, named.files(languages))]
    path = Path(what)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"no corpus '{what}'", hint="`nmt download` lists them; or name a recipe")
    if lang_pair:
        raise InputError(f"{what} says which files it needs", hint="leave out --lang-pair")
    from nmt.config import load_config
    from nmt.train.corpora import all_corpora, root_of

    config = load_config(path)
    names: dict[str, list[str]] = {}  # corpus -> its files, without .gz
    for files in all_corpora(config).values():
        corpus = CORPORA.get(Path(root_of(config, files)).name)
        if corpus is None:
            hint = f"data.root of a corpus that can be downloaded is one of: {', '.join(CORPORA)}"
            raise InputError(f"{what} uses no corpus that can be downloaded", hint=hint)
        known = {f"{name}.gz": name for name in corpus.files(corpus.languages)}
        for file in (*files.source, *files.target):
            if file not in known:
                message = f"{what} names {file}, which {corpus.name} does not have"
                raise InputError(message, hint="check data in the config")
            names.setdefault(corpus.name, []).append(known[file])
    return [(CORPORA[corpus], [*dict.fromkeys(files)]) for corpus, files in names.items()]


def table() -> list[str]:
    """Return a line with column names, then one line per corpus of the catalog."""
    from nmt.cli.tables import columns
    from nmt.corpus.catalog import CORPORA

    rows = [
        [one.name, " ".join(one.languages), *(f"{n:,}" for n in one.n_pairs), f"{one.size_mb:g}", one.license, one.note]
        for one in CORPORA.values()
    ]
    names = ["name", "languages", "train", "dev", "test", "MB", "license", ""]
    return columns(names, rows, numbers={"train", "dev", "test", "MB"})
