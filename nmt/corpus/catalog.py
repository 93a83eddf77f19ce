"""The corpora that `nmt download` offers, listed in `corpora.toml`, and the expected hashes of their texts.

`pins/NAME.sha256` contains the SHA-256 of the decompressed texts that the recipes were measured on, in the format of
sha256sum; `data/pin_corpora.py` writes it. The French and Czech files of Multi30k, which no recipe uses, are not in it;
as all files of Multi30k, they come from one commit.
"""

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
        """Whether `nmt.corpus.tatoeba` splits one upstream file into train, dev and test."""
        return "{part}" not in self.url

    def files(self, languages: Iterable[str]) -> list[str]:
        """Names of the files in these languages, without .gz."""
        return [f"{part}.{language}" for part in self.parts for language in languages]

    def url_of(self, name: str) -> str:
        """The upstream URL of a file such as `train.de`."""
        part, language = name.split(".")
        return self.url.format(part=part, language=language)


_TREE = tomllib.loads((resources.files("nmt.corpus") / "corpora.toml").read_text(encoding="utf-8"))
CORPORA = {  # name -> corpus, in the order of corpora.toml
    one["name"]: Corpus(**{**one, "terms": _TREE["terms"][one["terms"]].format(**one)}) for one in _TREE["corpora"]
}


def command(corpus: Corpus, languages: Sequence[str]) -> str:
    """The command that downloads a corpus in two languages."""
    option = "" if set(languages) == set(corpus.languages[:2]) else f" -l {'-'.join(languages)}"
    return f"nmt download {corpus.name}{option}"


def pinned(corpus: str) -> dict[str, str]:
    """SHA-256 of the text of each pinned file of a corpus, by file name without .gz."""
    lines = map(str.split, pins_file(f"{corpus}.sha256").splitlines())
    return {name: digest for digest, name in lines}


def pins_file(name: str) -> str:
    return (resources.files("nmt.corpus") / "pins" / name).read_text(encoding="utf-8")
