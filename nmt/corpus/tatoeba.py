"""Split the pairs of Tatoeba into the train, dev and test that the recipes were measured on.

`pins/NAME.pairs` lists a short hash of each pair of dev and test, in order; `data/pin_corpora.py` writes it. Whatever
version of Tatoeba is downloaded, dev and test are the pairs in this list, and train is every other pair that shares no
side with them.
"""

from collections.abc import Iterable, Mapping, Sequence

from nmt.files import sha256
from nmt.text.lines import is_blank

PairText = tuple[str, str]  # source and target

HASH_DIGITS = 10  # hexadecimal: 40 bits tell 300,000 pairs apart


def pair_hash(pair: PairText) -> str:
    return sha256("\t".join(pair).encode())


def pins_of(parts: Mapping[str, Sequence[PairText]]) -> str:
    """The content of `pins/NAME.pairs`: a line `PART HASH` for each pair of dev and test."""
    return "".join(f"{part} {pair_hash(pair)[:HASH_DIGITS]}\n" for part in ("dev", "test") for pair in parts[part])


def pairs_of(texts: Sequence[bytes]) -> list[PairText]:
    """The pairs without a blank side in two texts, or in one with lines of target, tab, source, tab, attribution.

    Raises ValueError if the two texts have different numbers of lines.
    """
    sides = [text.decode("utf-8-sig", errors="replace").removesuffix("\n").split("\n") for text in texts]
    rows = zip(*sides, strict=True) if len(sides) == 2 else (line.split("\t")[1::-1] for line in sides[0])
    pairs = [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2]
    return [pair for pair in pairs if not any(map(is_blank, pair))]


def split(pairs: Iterable[PairText], public_test: Sequence[PairText], pins: str) -> dict[str, list[PairText]]:
    """Split all pairs of a version of Tatoeba into train, dev and test, as `pins`, from `pins_of`, prescribe.

    `test` may contain some pairs of the public test set; train shares no side with any of them.
    """
    by_digest = {pair_hash(pair): pair for pair in pairs}
    by_pin = {pair_hash(pair)[:HASH_DIGITS]: pair for pair in public_test}
    by_pin |= {digest[:HASH_DIGITS]: pair for digest, pair in by_digest.items()}
    parts: dict[str, list[PairText]] = {"train": [], "dev": [], "test": []}
    for part, pin in map(str.split, pins.splitlines()):
        if pin in by_pin:
            parts[part].append(by_pin[pin])
    held_out = [*parts["dev"], *parts["test"], *public_test]
    sources, targets = ({pair[side].casefold() for pair in held_out} for side in (0, 1))
    for _, (source, target) in sorted(by_digest.items()):
        if source.casefold() not in sources and target.casefold() not in targets:
            parts["train"].append((source, target))
    return parts
