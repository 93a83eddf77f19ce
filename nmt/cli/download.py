"""`nmt download`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import streams
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
) -> None:
    """Download a corpus; without NAME, list them.

    Writes to data/downloads, or $NMT_DATA. Checks the SHA-256 of the text, splits it as the recipes need it, and
    continues an interrupted download. mtdata:ID needs the extra: pip install 'nmt-trainer[mtdata]'.
    """
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
        streams.log.info("written to %s" if is_new else "%s is complete", path)
    else:
        from nmt.corpus import download as corpora

        for corpus, names in chosen(what, lang_pair):
            path = downloads_directory() / corpus.name
            streams.log.info("%s: license: %s; see %s", corpus.name, corpus.license, path / "LICENSE.txt")
            is_new = bool(corpora.download(corpus, path, names, mirror=mirror, quiet=streams.is_quiet()))
            streams.log.info("written to %s" if is_new else "%s is complete", path)


def chosen(what: str, lang_pair: str | None) -> list[tuple[Multi30k | Tatoeba, Sequence[str]]]:
    """Return the corpora to download, each with its file names: the named corpus, or the corpora of a config."""
    if named := CORPORA.get(what):
        languages = lang_pair.split("-") if lang_pair else named.languages[:2]
        if len(set(languages)) != 2 or not set(languages) <= set(named.languages):
            hint = f"two of {' '.join(named.languages)}, as in -l {'-'.join(named.languages[:2])}"
            raise InputError(f"{what} is not in '{lang_pair}'", hint=hint)
        return [(named, named.files(languages))]
    path = Path(what)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"no corpus '{what}'", hint="`nmt download` lists them; or name a recipe or mtdata:ID")
    if lang_pair:
        raise InputError(f"{what} says which files it needs", hint="leave out --lang-pair")
    from nmt.config import load_config
    from nmt.train.preparation import all_corpora, root_of

    config = load_config(path)
    paths: dict[str, dict[str, None]] = {}  # corpus -> its paths, as dictionary keys to drop duplicates
    for files in all_corpora(config).values():
        paths.setdefault(Path(root_of(config, files)).name, {}).update(dict.fromkeys((*files.source, *files.target)))
    corpora = {name: corpus_named(name, what) for name in paths}
    return [(corpus, recipe_files(corpus, paths[name], what)) for name, corpus in corpora.items()]


def corpus_named(name: str, what: str) -> Multi30k | Tatoeba:
    """Return the corpus of this name; `what` is the config that uses it."""
    if (corpus := CORPORA.get(name)) is None:
        hint = f"data.root of a corpus that can be downloaded is one of: {', '.join(CORPORA)}"
        raise InputError(f"{what} uses no corpus that can be downloaded", hint=hint)
    return corpus


def recipe_files(corpus: Multi30k | Tatoeba, paths: Iterable[str], what: str) -> list[str]:
    """Return `paths`, which the config `what` names, without .gz. Raises InputError if the corpus lacks one."""
    known = {f"{name}.gz" for name in corpus.files(corpus.languages)}
    if unknown := [path for path in paths if path not in known]:
        message = f"{what} names {unknown[0]}, which {corpus.name} does not have"
        raise InputError(message, hint="check data in the config")
    return [path.removesuffix(".gz") for path in paths]


def table(corpora: Sequence[Multi30k | Tatoeba]) -> list[str]:
    """Return a line with column names, then one line per corpus."""
    from nmt.insight.tables import columns

    rows = []
    for corpus in corpora:
        pairs = [f"{n:,}" for n in corpus.n_pairs]
        rows.append(
            [corpus.name, " ".join(corpus.languages), *pairs, f"{corpus.size_mb:g}", corpus.license, corpus.note]
        )
    names = ["name", "languages", "train", "dev", "test", "MB", "license", ""]
    return columns(names, rows, numbers={"train", "dev", "test", "MB"})
