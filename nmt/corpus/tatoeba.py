"""Split the pairs of Tatoeba into the train, dev and test that the recipes were measured on.

Tatoeba grows, and only some of its old versions remain available. So `pins/NAME.pairs` lists a short hash of each pair
of dev and test, in order, and of one in 64 pairs of train; `data/pin_corpora.py` writes it. Whatever version is
downloaded, dev and test are the pairs in this list, and train is every other pair that shares no side with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nmt.files import sha256

PairText = tuple[str, str]  # source and target

HASH_DIGITS = 10  # hexadecimal: 40 bits tell 300,000 pairs apart
SAMPLE_RATE = 64  # the list contains one in this many pairs of train


@dataclass(frozen=True)
class Split:
    """The pairs of train, dev and test, and a note for each difference from the pairs that the recipes used."""

    parts: dict[str, list[PairText]]
    incomplete: frozenset[str]  # "dev" or "test" if pinned pairs are missing
    notes: list[str]


def pair_hash(pair: PairText) -> str:
    return sha256("\t".join(pair).encode())


def is_sampled(digest: str) -> bool:
    """Whether a pair of train with this hash is in the list."""
    return int(digest[:4], 16) % SAMPLE_RATE == 0


def pins_of(parts: Mapping[str, Sequence[PairText]]) -> str:
    """The content of `pins/NAME.pairs`: a line `PART HASH` for each pinned pair."""
    hashes = {part: [pair_hash(pair) for pair in pairs] for part, pairs in parts.items()}
    hashes["train"] = sorted(filter(is_sampled, hashes["train"]))
    return "".join(f"{part} {digest[:HASH_DIGITS]}\n" for part, digests in hashes.items() for digest in digests)


def split(pairs: Iterable[PairText], public_test: Sequence[PairText], pins: str, n_train: int) -> Split:
    """Split all pairs of a version of Tatoeba as `pins`, from `pins_of`, prescribe.

    Args:
        public_test: pairs of a public test set; `test` may contain some of them, train shares no side with any.
        n_train: number of pairs of train in the recipes.
    """
    pinned: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for line in pins.splitlines():
        part, digest = line.split()
        pinned[part].append(digest)
    by_digest = {pair_hash(pair): pair for pair in pairs}
    by_pin = {pair_hash(pair)[:HASH_DIGITS]: pair for pair in public_test}
    by_pin |= {digest[:HASH_DIGITS]: pair for digest, pair in by_digest.items()}
    parts = {part: [by_pin[pin] for pin in pinned[part] if pin in by_pin] for part in ("dev", "test")}

    held_out = [*parts["dev"], *parts["test"], *public_test]
    sources, targets = ({pair[side].casefold() for pair in held_out} for side in (0, 1))
    digests = sorted(
        digest
        for digest, (source, target) in by_digest.items()
        if source.casefold() not in sources and target.casefold() not in targets
    )
    parts = {"train": [by_digest[digest] for digest in digests], **parts}

    short = {part for part in ("dev", "test") if len(parts[part]) < len(pinned[part])}
    notes = [f"{part} has {len(parts[part]):,} of its {len(pinned[part]):,} pairs" for part in sorted(short)]
    n_missing = len(set(pinned["train"]) - {digest[:HASH_DIGITS] for digest in digests}) * SAMPLE_RATE
    n_fewer = min(n_missing, n_train)
    n_more = max(len(digests) - (n_train - n_fewer), 0)
    if n_fewer or n_more:
        change = f"about {n_more:,} pairs more and {n_fewer:,} fewer" if n_fewer else f"{n_more:,} pairs more"
        notes.append(f"train has {change} than the one that the recipes were measured on")
    return Split(parts, frozenset(short), notes)
