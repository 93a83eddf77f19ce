"""The corpora that `nmt download` offers: their URLs, expected hashes and licenses.

`pins/NAME.sha256` contains the SHA-256 of the decompressed texts that the recipes were measured on, in the format of
sha256sum; `data/pin_corpora.py` writes it. The French and Czech files of Multi30k, which no recipe uses, are not in it:
the raw ones are checked against the MD5 that torchtext published, the tokenized ones are not pinned. The first download
of any file records its SHA-256 in SHA256SUMS beside the data, and later downloads must match it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

MULTI30K_COMMIT = "2cc0f2d7c615b60e07e2d51bb5edc004444d7e0e"
MULTI30K_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{MULTI30K_COMMIT}/data/task1"
TATOEBA_PARTS = ("train", "dev", "test")
MD5 = {  # of compressed files
    "train.fr.gz": "6cb767741dcad3931f966fefbc05203f",
    "val.fr.gz": "93fc564584b7e5ba410c761ea5a1c682",
    "test_2016_flickr.fr.gz": "08dc7cd4a662f31718412de95ca9bfe3",
    "train.cs.gz": "d9a5fc268917725a2b0efce3a0cc8607",
    "val.cs.gz": "83cdc082f646b769095615384cf5c0ca",
    "test_2016_flickr.cs.gz": "3104872229daa1bef3b401d44dd2220b",
}

MULTI30K_TERMS = """\
Multi30k: image descriptions in English, German, French and Czech
https://github.com/multi30k/dataset

License: the terms of Flickr30k, to which its English descriptions belong: for researchers and educators, for
non-commercial research and educational purposes. See https://hockenmaier.cs.illinois.edu/DenotationGraph/data/

Cite: Elliott, Frank, Sima'an and Specia 2016, "Multi30K: Multilingual English-German Image Descriptions";
for French: Elliott, Frank, Barrault, Bougares and Specia 2017, "Findings of the Second Shared Task on Multimodal
Machine Translation and Multilingual Image Description"; for Czech: Barrault, Bougares, Specia, Lala, Elliott and Frank
2018, "Findings of the Third Shared Task on Multimodal Machine Translation".
"""
TATOEBA_TERMS = """\
Sentences and translations from Tatoeba, https://tatoeba.org
License: Creative Commons Attribution 2.0 France, https://creativecommons.org/licenses/by/2.0/fr/

Downloaded from: {source}
Split into train, dev and test by nmt. Cite for OPUS: Tiedemann 2012, "Parallel Data, Tools and Interfaces in OPUS".
"""


@dataclass(frozen=True)
class Corpus:
    """A corpus that `nmt download` offers."""

    name: str  # also of its directory, and `data.root` in the recipes
    languages: tuple[str, ...]  # suffixes of its files; the first two are downloaded by default
    parts: tuple[str, ...]  # names of train, dev and test; the files are PART.LANGUAGE.gz
    n_pairs: tuple[int, int, int]  # of train, dev and test that the recipes were measured on
    size_mb: float  # to download for two languages
    license: str  # its short name
    terms: str  # text of LICENSE.txt beside the data
    note: str = ""  # in the list that `nmt download` prints

    def files(self, languages: Iterable[str]) -> list[str]:
        """Names of the files in these languages, without .gz."""
        return [f"{part}.{language}" for part in self.parts for language in languages]


@dataclass(frozen=True)
class Multi30k(Corpus):
    """Multi30k, where each file has its own upstream file."""

    tokenized: bool = False

    def url(self, name: str) -> str:
        """The upstream URL of a file such as `train.de`."""
        part, language = name.split(".")
        return f"{MULTI30K_URL}/" + (f"tok/{part}.lc.norm.tok.{language}" if self.tokenized else f"raw/{name}.gz")


@dataclass(frozen=True)
class Tatoeba(Corpus):
    """A corpus with all pairs in one upstream file, which `nmt.corpus.tatoeba` splits."""

    url: str = ""  # of all pairs: lines of target, tab, source, or a zip file with one member per side
    members: tuple[str, ...] = ()  # names of source and target in the zip file
    # Source and target of a public test set, from which test is sampled; train and dev have no sentence of it.
    test_urls: tuple[str, ...] = ()


OPUS_MT_TESTSETS = (
    "https://raw.githubusercontent.com/Helsinki-NLP/OPUS-MT-testsets/a35942bf0fbf19e0c185030e358ea5368a5a2d6f/testsets"
)
# A copy of an old file of manythings.org, which offers only its newest file. We checked a sample of 83 pairs of it:
# they include all 80 pairs of the recipe that should be among them.
MANYTHINGS_CMN = (
    "https://raw.githubusercontent.com/YC-Coder-Chen/English-Chinese-Translator/"
    "5853fd29effd1b78f234a62328b3cdfa483e5295/data/cmn.txt"
)
OPUS_DE_EN = "https://object.pouta.csc.fi/OPUS-Tatoeba/v2023-04-12/moses/de-en.txt.zip"

CC_BY = "CC BY 2.0 FR"
MULTI30K = Multi30k(
    "multi30k",
    ("en", "de", "fr", "cs"),
    ("train", "val", "test_2016_flickr"),
    (29_000, 1_014, 1_000),
    1.3,
    "research, education",
    MULTI30K_TERMS,
    "image captions, raw text; French and Czech are pinned by MD5",
)
TOKENIZED = "lower-cased, normalized, tokenized with Moses; French and Czech are not pinned"
CORPORA: dict[str, Multi30k | Tatoeba] = {
    corpus.name: corpus
    for corpus in (
        MULTI30K,
        replace(MULTI30K, name="multi30k-tok", size_mb=4.3, note=TOKENIZED, tokenized=True),
        Tatoeba(
            "tatoeba-cmn-eng",
            ("zh", "en"),
            TATOEBA_PARTS,
            (18_116, 1_000, 1_000),
            1.5,
            CC_BY,
            TATOEBA_TERMS.format(source=MANYTHINGS_CMN),
            "everyday sentences, simplified and traditional Chinese; dev and test are pinned",
            url=MANYTHINGS_CMN,
        ),
        Tatoeba(
            "tatoeba-deu-eng",
            ("de", "en"),
            TATOEBA_PARTS,
            (158_028, 1_000, 5_000),
            15.0,
            CC_BY,
            TATOEBA_TERMS.format(source=OPUS_DE_EN),
            "everyday sentences; dev and test are pinned",
            url=OPUS_DE_EN,
            members=("Tatoeba.de-en.de", "Tatoeba.de-en.en"),
            test_urls=(
                f"{OPUS_MT_TESTSETS}/deu-eng/tatoeba-test-v2021-08-07.deu",
                f"{OPUS_MT_TESTSETS}/deu-eng/tatoeba-test-v2021-08-07.eng",
            ),
        ),
    )
}


def command(corpus: Corpus, languages: Sequence[str]) -> str:
    """The command that downloads a corpus in two languages."""
    option = "" if set(languages) == set(corpus.languages[:2]) else f" -l {'-'.join(languages)}"
    return f"nmt download {corpus.name}{option}"


@cache
def pinned(corpus: str) -> dict[str, str]:
    """SHA-256 of the text of each pinned file of a corpus, by file name without .gz."""
    return sums_of(pins_file(f"{corpus}.sha256"))


def sums_of(text: str) -> dict[str, str]:
    """SHA-256 by file name, from the lines that sha256sum writes."""
    words = map(str.split, text.splitlines())
    return {line[1]: line[0] for line in words if len(line) == 2}


def pins_file(name: str) -> str:
    """The content of a file in `pins`."""
    return (resources.files("nmt.corpus") / "pins" / name).read_text(encoding="utf-8")
