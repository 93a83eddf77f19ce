"""Write nmt/corpus/pins: the hashes by which `nmt download` knows the corpora that the recipes were measured on.

    python data/pin_corpora.py FOLDER

FOLDER has one directory per corpus, with its files as PART.LANGUAGE.gz; a file that is missing is not pinned.
"""

import sys
from pathlib import Path

from nmt.corpus.catalog import CORPORA, Corpus, Tatoeba
from nmt.corpus.download import text_hash
from nmt.corpus.tatoeba import pins_of
from nmt.text.lines import read_pairs

PINS = Path(__file__).parents[1] / "nmt" / "corpus" / "pins"


def write_pins(corpus: Corpus, folder: Path) -> None:
    """Write hashes of the texts, except Tatoeba's train, which depends on the version; and of Tatoeba's pairs."""
    names = [
        name
        for name in corpus.files(corpus.languages)
        if not (isinstance(corpus, Tatoeba) and name.startswith("train"))
    ]
    there = [name for name in names if (folder / f"{name}.gz").exists()]
    sums = "".join(f"{text_hash(folder / f'{name}.gz')}  {name}\n" for name in there)
    (PINS / f"{corpus.name}.sha256").write_text(sums, encoding="utf-8")
    if isinstance(corpus, Tatoeba):
        parts = {}
        for part in corpus.parts:
            source, target = ([folder / f"{part}.{language}.gz"] for language in corpus.languages)
            parts[part] = [(pair.source, pair.target) for pair in read_pairs(source, target)]
        (PINS / f"{corpus.name}.pairs").write_text(pins_of(parts), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, corpus in CORPORA.items():
        write_pins(corpus, Path(sys.argv[1], name))
