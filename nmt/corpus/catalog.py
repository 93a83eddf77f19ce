"""The catalog of corpora that `nmt download` offers, read from `corpora.toml`, and the hashes of their texts.

`pins/NAME.sha256` lists the SHA-256 of each decompressed text, in the format of sha256sum. `data/pin_corpora.py` writes
this list. The French and Czech files of Multi30k are not listed, because no recipe uses them.
"""

import itertools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Corpus:
    """A corpus that `nmt download` offers."""

    name: str  # also the name of its directory, and `data.root` in the recipes
    languages: Sequence[str]  # language codes, as in the file names; the first two are downloaded by default
    parts: Sequence[str]  # names of the training, dev and test part in the file names PART.LANGUAGE.gz
    n_pairs: Sequence[int]  # numbers of training, dev and test pairs that the recipes were measured on
    size_mb: float  # megabytes to download for two languages
    license: str  # short name of the license
    terms: str  # text of the file LICENSE.txt beside the data
    note: str  # remark in the list that `nmt download` prints
    url: str  # URL with {part} and {language}, or URL of one file with all pairs
    members: Sequence[str] = ()  # names of the source and the target text in a zip file
    # URLs of the two sides of a public test set. Training pairs share no sentence with it.
    test_urls: Sequence[str] = ()

    @property
    def is_split(self) -> bool:
        """Return whether one upstream file has all pairs. If so, `nmt.corpus.tatoeba` splits the pairs into parts."""
        return "{part}" not in self.url

    def files(self, languages: Iterable[str]) -> list[str]:
        """Return the file names of all parts in these languages, without .gz."""
        return [f"{part}.{language}" for part, language in itertools.product(self.parts, languages)]

    def url_of(self, name: str) -> str:
        """Return the upstream URL of a file such as `train.de`."""
        part, language = name.split(".")
        return self.url.format(part=part, language=language)


def read_catalog() -> dict[str, Corpus]:
    """Return the corpora by name, in the order of corpora.toml."""
    tree = tomllib.loads(package_text("corpora.toml"))
    corpora = {}
    for entry in tree["corpora"]:
        terms = tree["terms"][entry["terms"]]
        entry["terms"] = terms.format(**entry)
        corpora[entry["name"]] = Corpus(**entry)
    return corpora


def package_text(name: str) -> str:
    """Return the text of a file beside this module."""
    return (resources.files("nmt.corpus") / name).read_text(encoding="utf-8")


CORPORA = read_catalog()


def command(corpus: Corpus, languages: Sequence[str]) -> str:
    """Return the command that downloads a corpus in two languages."""
    is_default = set(languages) == set(corpus.languages[:2])
    option = "" if is_default else f" -l {'-'.join(languages)}"
    return f"nmt download {corpus.name}{option}"


def pinned(corpus: str) -> dict[str, str]:
    """Return the expected SHA-256 of each pinned text, by file name without .gz."""
    lines = package_text(f"pins/{corpus}.sha256").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}
