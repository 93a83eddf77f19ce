"""The corpora that `nmt download` offers, listed in `corpora.toml`, and the expected hashes of their texts.

`pins/NAME.sha256` contains the SHA-256 of the decompressed texts that the recipes were measured on, in the format of
sha256sum; `data/pin_corpora.py` writes it. The French and Czech files of Multi30k, which no recipe uses, are not in it;
as all files of Multi30k, they come from one commit.
"""

import itertools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Corpus:
    """A corpus that `nmt download` offers."""

    name: str  # also of its directory, and `data.root` in the recipes
    languages: Sequence[str]  # suffixes of its files; the first two are downloaded by default
    parts: Sequence[str]  # names of train, dev and test; the files are PART.LANGUAGE.gz
    n_pairs: Sequence[int]  # of train, dev and test that the recipes were measured on
    size_mb: float  # to download for two languages
    license: str  # its short name
    terms: str  # text of LICENSE.txt beside the data
    note: str  # in the list that `nmt download` prints
    url: str  # of each file, with {part} and {language}; or of all pairs: see `tatoeba.pairs_of`
    members: Sequence[str] = ()  # names of source and target in a zip file
    # Source and target of a public test set, from which test is sampled; train and dev have no sentence of it.
    test_urls: Sequence[str] = ()

    @property
    def is_split(self) -> bool:
        """Return whether `nmt.corpus.tatoeba` splits one upstream file into train, dev and test."""
        return "{part}" not in self.url

    def files(self, languages: Iterable[str]) -> list[str]:
        """Return names of the files in these languages, without .gz."""
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
    """Return the SHA-256 of the text of each pinned file of a corpus, by file name without .gz."""
    digests = {}
    for line in pins_file(f"{corpus}.sha256").splitlines():
        digest, name = line.split()
        digests[name] = digest
    return digests


def pins_file(name: str) -> str:
    return package_text(f"pins/{name}")
