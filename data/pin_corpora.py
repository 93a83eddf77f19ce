"""Write nmt/corpus/pins: the hashes by which `nmt download` knows the corpora that the recipes were measured on.

    python data/pin_corpora.py FOLDER

FOLDER has one directory per corpus, with its files as PART.LANGUAGE.gz; a file that is missing is not pinned.
"""

import gzip
import sys
from pathlib import Path

from nmt.corpus.catalog import CORPORA, Corpus
from nmt.corpus.tatoeba import pair_pin
from nmt.files import sha256
from nmt.text.lines import iter_pairs

PINS = Path(__file__).parents[1] / "nmt" / "corpus" / "pins"


def write_pins(corpus: Corpus, folder: Path) -> None:
    """Write hashes of Tatoeba's pairs of dev and test; of other corpora, hashes of the texts."""
    if corpus.is_split:
        lines = []
        for part in ("dev", "test"):
            source, target = ([folder / f"{part}.{language}.gz"] for language in corpus.languages)
            lines += [f"{part} {pair_pin((pair.source, pair.target))}\n" for pair in iter_pairs(source, target)]
        (PINS / f"{corpus.name}.pairs").write_text("".join(lines), encoding="utf-8")
        return
    paths = {name: folder / f"{name}.gz" for name in corpus.files(corpus.languages)}
    sums = {name: sha256(gzip.decompress(path.read_bytes())) for name, path in paths.items() if path.exists()}
    content = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (PINS / f"{corpus.name}.sha256").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, corpus in CORPORA.items():
        write_pins(corpus, Path(sys.argv[1], name))
