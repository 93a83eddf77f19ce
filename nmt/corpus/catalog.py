"""The corpora that `nmt download` offers: their URLs, expected hashes and licenses.

`pins/NAME.sha256` contains the SHA-256 of the decompressed texts that the recipes were measured on, in the format of
sha256sum; `data/pin_corpora.py` writes it. The French and Czech files of Multi30k, which no recipe uses, are not in it;
as all files of Multi30k, they come from one commit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources

MULTI30K_COMMIT = "2cc0f2d7c615b60e07e2d51bb5edc004444d7e0e"
MULTI30K_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{MULTI30K_COMMIT}/data/task1"
TATOEBA_PARTS = ("train", "dev", "test")

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
    note: str  # in the list that `nmt download` prints
    url: str  # of each file, with {part} and {language}; or of all pairs: see `tatoeba.pairs_of`
    members: tuple[str, ...] = ()  # names of source and target in a zip file
    # Source and target of a public test set, from which test is sampled; train and dev have no sentence of it.
    test_urls: tuple[str, ...] = ()

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
MULTI30K = Corpus(
    "multi30k",
    ("en", "de", "fr", "cs"),
    ("train", "val", "test_2016_flickr"),
    (29_000, 1_014, 1_000),
    1.3,
    "research, education",
    MULTI30K_TERMS,
    "image captions, raw text; French and Czech are not pinned",
    MULTI30K_URL + "/raw/{part}.{language}.gz",
)
MULTI30K_TOK = replace(
    MULTI30K,
    name="multi30k-tok",
    size_mb=4.3,
    note="lower-cased, normalized, tokenized with Moses; French and Czech are not pinned",
    url=MULTI30K_URL + "/tok/{part}.lc.norm.tok.{language}",
)
CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        MULTI30K,
        MULTI30K_TOK,
        Corpus(
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
        Corpus(
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


def pinned(corpus: str) -> dict[str, str]:
    """SHA-256 of the text of each pinned file of a corpus, by file name without .gz."""
    lines = map(str.split, pins_file(f"{corpus}.sha256").splitlines())
    return {name: digest for digest, name in lines}


def pins_file(name: str) -> str:
    """The content of a file in `pins`."""
    return (resources.files("nmt.corpus") / "pins" / name).read_text(encoding="utf-8")
