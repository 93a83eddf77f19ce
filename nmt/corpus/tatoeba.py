"""The split of Tatoeba into the training, dev and test pairs that the recipes were measured on.

`pins/NAME.pairs` lists a short hash of each dev pair and each test pair. `data/pin_corpora.py` writes this list. So the
dev and test pairs stay the same when Tatoeba grows. Training pairs share no side with them or with the public test set.
"""

from collections.abc import Iterable, Sequence

from nmt.files import sha256
from nmt.text.lines import is_blank

PairText = tuple[str, str]  # source and target

HASH_DIGITS = 10  # number of hexadecimal digits of a short hash; 40 bits tell 300,000 pairs apart


def pair_hash(pair: PairText) -> str:
    return sha256("\t".join(pair).encode())


def pair_pin(pair: PairText) -> str:
    return pair_hash(pair)[:HASH_DIGITS]


def pairs_with_text(texts: Sequence[bytes]) -> list[PairText]:
    """Return the pairs that have text on both sides.

    `texts` are a source and a target text, or one text with the columns target, source and attribution. Raises
    ValueError if the two texts have different numbers of lines.
    """
    sides = []
    for text in texts:
        decoded = text.decode("utf-8-sig", errors="replace")
        sides.append(decoded.removesuffix("\n").split("\n"))
    if len(sides) == 2:
        rows = list(zip(*sides, strict=True))
    else:
        columns = [line.split("\t") for line in sides[0]]
        rows = [(row[1], row[0]) for row in columns if len(row) > 1]
    pairs = []
    for source, target in rows:
        if not (is_blank(source) or is_blank(target)):
            pairs.append((source.strip(), target.strip()))
    return pairs


def split(pairs: Iterable[PairText], public_test: Sequence[PairText], pins: str) -> dict[str, list[PairText]]:
    """Split all pairs of a version of Tatoeba into training, dev and test pairs.

    `pins` is the content of pins/NAME.pairs. Dev and test pairs may be in `pairs` or in the public test set.
    """
    by_hash = {pair_hash(pair): pair for pair in pairs}
    by_pin = {pair_pin(pair): pair for pair in (*public_test, *by_hash.values())}
    # 1. The dev and test pairs are the pinned pairs that this version contains.
    parts: dict[str, list[PairText]] = {"train": [], "dev": [], "test": []}
    for line in pins.splitlines():
        part, pin = line.split()
        if pin in by_pin:
            parts[part].append(by_pin[pin])
    # 2. The training pairs share no side with a pair in `held_out`.
    held_out = [*parts["dev"], *parts["test"], *public_test]
    sources = {source.casefold() for source, _ in held_out}
    targets = {target.casefold() for _, target in held_out}
    for _, (source, target) in sorted(by_hash.items()):
        if source.casefold() not in sources and target.casefold() not in targets:
            parts["train"].append((source, target))
    return parts
