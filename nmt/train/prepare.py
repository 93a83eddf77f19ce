"""From a config to a corpus ready for training: read, check, set dev aside, tokenize, filter.

Training pairs lie in the user's cache, by the name of what they were made from: made once, mapped by all. Writes
nothing else and imports no torch: everything is checked before the first file of a run is made.
"""

import json
import logging
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.config import Config, Files
from nmt.errors import DataError, ModelError
from nmt.files import cached, sha256
from nmt.run.directory import RunDirectory, hash_files
from nmt.text.corpus import (
    CHUNK,
    PART,
    SIDES,
    Pairs,
    Rows,
    append,
    append_rows,
    digests_of,
    first_of_equals,
    found_in,
    in_parallel,
    keep,
    mapped,
    n_equals,
    shuffled,
    write_pairs,
)
from nmt.text.lines import Pair, is_blank, iter_pairs, read_pairs
from nmt.text.tokenizer import MAX_TRAINER_BYTES, Statistics, Tokenizer, Tokenizers, statistics, train_tokenizer
from nmt.train.sizes import fit_config

log = logging.getLogger("nmt")

MAX_DEV_PAIRS = 1_000
DEV_SHARE = 0.02
FEW_DEV_PAIRS = 100
PROFILE_PAIRS = 2_000  # that tell two languages apart
MIN_PROFILE = 100  # sequences of characters, below which a text is too short to tell
CLEAR_LEANING = 0.2
SAMPLE_PAIRS = 200_000  # at most, of which a tokenizer is learnt: its trainer's memory grows with them
FORMAT = 1  # of the files in the cache


@dataclass
class Corpus:
    """The pairs of a run and how they came to be.

    Attributes:
        config: sizes filled in.
        train: pairs that are left, on disk.
        dev: the same, in memory.
        hashes: SHA-256 of each side of each corpus.
        notes: what the user should know, a line each.
    """

    config: Config
    train: Pairs
    dev: list[Pair]
    hashes: dict[str, str]
    notes: list[str] = field(default_factory=list)


def corpus_paths(config: Config, files: Files) -> tuple[list[Path], list[Path]]:
    """Where the two sides of a corpus lie."""
    root = config.data.root
    return [Path(root, p) for p in files.source], [Path(root, p) for p in files.target]


def corpus_hashes(config: Config) -> dict[str, str]:
    """SHA-256 of each side of train, dev and test.

    Raises:
        DataError: a file cannot be read.
    """
    data = config.data
    start = f"data.root, {data.root}" if data.root else "the working directory"
    return {
        f"{name}.{side}": hash_files(paths, f"check the path; it is relative to {start}")
        for name, files in (("train", data.train), ("dev", data.dev), ("test", data.test))
        if files is not None
        for side, paths in zip(SIDES, corpus_paths(config, files), strict=True)
    }


def read_corpus(config: Config) -> Corpus:
    """Read train and dev, check that test is there, and drop what the rules on lines drop.

    Raises:
        DataError: a file is missing, sides have unequal numbers of lines, or nothing is left.
        ConfigError: sizes chosen for the corpus do not go together with those that were set.
    """
    data = config.data
    hashes = corpus_hashes(config)
    corpora = {
        name: read_pairs(*corpus_paths(config, files), strict=not data.allow_bad_utf8)
        for name, files in (("dev", data.dev), ("test", data.test))
        if files is not None
    }
    seed = None if "dev" in corpora else config.seed
    settings = [data.drop_blank, data.drop_duplicates, data.allow_bad_utf8, seed]

    def write(place: Path) -> None:
        _write_corpus(place, config, corpora)
        now = corpus_hashes(config)
        if changed := [name for name in hashes if now[name] != hashes[name]]:
            raise DataError(
                f"the files of {', '.join(changed)} have changed while they were read",
                hint="start again when nothing writes to them",
            )

    place = cached("pairs", [FORMAT, hashes, settings], write)
    told = json.loads((place / "corpus.json").read_text(encoding="utf-8"))
    train, dev = Pairs(place), [Pair(*pair) for pair in told["dev"]]
    if data.dev is None and len(dev) < FEW_DEV_PAIRS:
        log.warning(
            "dev has only %d pairs, held out of train: scores on fewer than %d are mostly chance; set data.dev",
            len(dev),
            FEW_DEV_PAIRS,
        )
    config = fit_config(config, len(train), told["n_characters"])
    return Corpus(config, train, dev, hashes, told["notes"])


def _write_corpus(place: Path, config: Config, corpora: dict[str, list[Pair]]) -> None:
    """Write the texts of train, the lines that are left of it, dev, and what the user should know."""
    data, notes = config.data, []
    write_pairs(place, iter_pairs(*corpus_paths(config, data.train), strict=not data.allow_bad_utf8))
    files = {name: place / name for name in ("lines", *(f"{one}.digest" for one in (*SIDES, "pair")))}

    def digests(name: str) -> NDArray[np.uint64]:
        return mapped(files[f"{name}.digest"], np.uint64)

    blank = mapped(place / "blank", np.bool_)
    if data.drop_blank and (n := int(blank.sum())):
        notes.append(f"{n} pairs blank on a side dropped (data.drop_blank)")
        keep(files.values(), ~blank)
    if data.drop_duplicates:
        first = first_of_equals(digests("pair"))
        if n := int((~first).sum()):
            notes.append(f"{n} repeated pairs dropped (data.drop_duplicates)")
            keep(files.values(), first)
    if "dev" in corpora:
        dev = [pair for pair in corpora["dev"] if not (is_blank(pair.source) or is_blank(pair.target))]
        if n := len(corpora["dev"]) - len(dev):
            notes.append(f"{n} pairs of dev blank on a side left out")
    else:
        aside, left = hold_out(digests("source"), digests("target"), config.seed)
        pairs = Pairs(place)
        dev = [pairs[i] for i in aside]
        keep(files.values(), left)
        notes.append(f"no data.dev: {len(dev)} pairs of train set aside for it, none of their sentences left in train")
    train = Pairs(place)
    if not len(train) or not dev:
        raise DataError(
            f"{'train' if not len(train) else 'dev'} has no pair that can be used",
            hint="check data.train and data.dev",
        )
    check_sides("train", train)
    for name, held_out in corpora.items():
        check_sides(name, held_out)
        check_order(name, held_out, train)
    notes += [
        f"{n} of {len(pairs)} pairs of {name} have a side that is also in train: its scores will flatter"
        for name, pairs in corpora.items()
        if (n := n_shared(pairs, digests("source"), digests("target")))
    ]
    characters = {character for pair in sample(train) for character in pair.source + pair.target}
    told = {
        "dev": [[pair.line, pair.source, pair.target] for pair in dev],
        "notes": notes,
        "n_characters": len(characters),
    }
    (place / "corpus.json").write_text(json.dumps(told), encoding="utf-8")
    for file in (*files.values(), place / "blank"):
        if file.name != "lines":
            file.unlink()


def check_sides(name: str, pairs: Iterable[Pair]) -> None:
    """Make sure that the sides of a corpus are not the same text.

    Raises:
        DataError: they are.
    """
    if all(pair.source == pair.target for pair in pairs):  # ends at the first pair, as a rule
        raise DataError(
            f"data.{name}: source and target are the same text",
            hint=f"name the files of the two languages in data.{name}.source and data.{name}.target",
        )


def check_order(name: str, pairs: list[Pair], train: Pairs) -> None:
    """Make sure that the sides of dev or test are not exchanged.

    Each side is compared with both sides of train, see `leaning`. Both must lean clearly to the wrong one, which
    is not so where both sides are in one language; German and English that are exchanged come to 0.35 each.

    Raises:
        DataError: they are exchanged.
    """
    pairs, some = pairs[:PROFILE_PAIRS], sample(train, PROFILE_PAIRS)
    source, target = (profile(getattr(pair, side) for pair in some) for side in SIDES)
    of_source, of_target = (profile(getattr(pair, side) for pair in pairs) for side in SIDES)
    if min(leaning(of_source, source, target), leaning(of_target, target, source)) > CLEAR_LEANING:
        raise DataError(
            f"data.{name} has its sides exchanged: by its characters, its source is in the language of "
            "data.train.target, and its target in that of data.train.source",
            hint=f"exchange data.{name}.source and data.{name}.target",
        )


def profile(texts: Iterable[str]) -> Counter[str]:
    """How often each sequence of one to three characters occurs."""
    return Counter(text[i : i + n] for text in texts for n in (1, 2, 3) for i in range(len(text) - n + 1))


def leaning(text: Counter[str], own: Counter[str], other: Counter[str]) -> float:
    """How much more a text is like another language than like its own, from -1 to 1; 0 if it is too short to tell.

    The mean of (other - own) / (other + own) over its sequences of characters, of each its share in the languages.
    """
    n_own, n_other = max(own.total(), 1), max(other.total(), 1)
    known = [(n, own[key] / n_own, other[key] / n_other) for key, n in text.items() if key in own or key in other]
    n_known = sum(n for n, *_ in known)
    return sum(n * (b - a) / (a + b) for n, a, b in known) / n_known if n_known >= MIN_PROFILE else 0.0


def hold_out(
    source: NDArray[np.uint64], target: NDArray[np.uint64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Set pairs aside for dev such that none of their sentences stays in train.

    Pairs whose sentences occur once go first: setting them aside costs train nothing else.

    Args:
        source, target: the digest of each pair's sides.
        seed: of the choice.
    Returns:
        which pairs are set aside, rising, and which stay.
    """
    n_pairs = len(source)
    n_alike = n_equals(source) + n_equals(target)
    n_aside = max(1, min(MAX_DEV_PAIRS, int(n_pairs * DEV_SHARE)))
    aside = np.zeros(0, np.int64)
    for start in range(0, n_pairs, PART):
        candidates = np.concatenate([aside, np.arange(start, min(start + PART, n_pairs))])
        aside = candidates[np.lexsort((shuffled(candidates, n_pairs, seed), n_alike[candidates]))[:n_aside]]
    gone = found_in(source, source[aside])[0] | found_in(target, target[aside])[0]
    return np.sort(aside), ~gone


def n_shared(pairs: Iterable[Pair], source: NDArray[np.uint64], target: NDArray[np.uint64]) -> int:
    """How many pairs have a side that stands in train too, of whose sides these are the digests."""
    pairs = list(pairs)
    sources, targets = (digests_of(getattr(pair, side).encode() for pair in pairs) for side in SIDES)
    return int((found_in(source, sources)[1] | found_in(target, targets)[1]).sum())


def sample(pairs: Pairs, n_most: int = 0) -> list[Pair]:
    """All pairs, or `n_most` at random, by default as many as a tokenizer's trainer can take; in their order."""
    n, n_most = len(pairs), n_most or SAMPLE_PAIRS
    chosen = np.arange(n) if n <= n_most else np.sort(shuffled(np.arange(n_most), n, seed=0))
    return [pairs[i] for i in chosen]


def train_tokenizers(corpus: Corpus) -> tuple[Tokenizers, list[str]]:
    """Train the tokenizer that the config asks for on the training pairs: one for both sides or one a side."""
    settings, data = corpus.config.tokenizer, corpus.config.data
    pairs = sample(corpus.train)
    source, target = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if data.nfkc_source:  # as the source will be encoded; the target stays as it is
        source = [unicodedata.normalize("NFKC", text) for text in source]
    sides = [[*source, *target]] if settings.joint else [source, target]
    trained = [train_tokenizer(side, settings) for side in sides]
    notes = []
    if len(pairs) < len(corpus.train):
        notes.append(f"the tokenizer learns from {len(pairs):,} pairs chosen at random of {len(corpus.train):,}")
    notes += [
        f"the text gives {one.vocab_size} pieces at most: tokenizer.vocab_size={settings.vocab_size} was cut"
        for one in trained
        if one.vocab_size < settings.vocab_size
    ]
    if lines := sorted({pairs[n % len(source)].line for one in trained for n in one.too_long}):
        notes.append(
            f"left out of the tokenizer's training, over {MAX_TRAINER_BYTES:,} bytes: the pairs at "
            f"line {', '.join(map(str, lines[:10]))}{f' and {len(lines) - 10} more' if len(lines) > 10 else ''}"
        )
    models = [one.model for one in trained]
    return Tokenizers.from_models(models[0], models[-1], nfkc_source=data.nfkc_source), notes


def drop_lengths(corpus: Corpus, tokenizers: Tokenizers) -> tuple[Pairs, tuple[Rows, Rows], list[str]]:
    """The training pairs short enough and of a likely ratio of lengths, as ids too, and how many were dropped.

    Raises:
        DataError: all were.
    """
    data = corpus.config.data
    sides = [[sha256(side.model), side.nfkc] for side in (tokenizers.source, tokenizers.target)]
    made_from = [FORMAT, corpus.train.place.name, sides, data.max_length, data.max_ratio]
    encode = partial(_encode, corpus.train.place, tokenizers, max_length=data.max_length, max_ratio=data.max_ratio)
    place = cached("ids", made_from, partial(_write_ids, encode=encode, n_pairs=len(corpus.train)))
    source, target = (Rows.map(place / side, id_type(getattr(tokenizers, side))) for side in SIDES)
    n_long, n_ratio = json.loads((place / "dropped.json").read_text())
    notes = []
    if n_long:
        notes.append(f"{n_long} pairs over {data.max_length} pieces dropped (data.max_length)")
    if n_ratio:
        notes.append(f"{n_ratio} pairs of unlikely lengths dropped (data.max_ratio={data.max_ratio:g})")
    return Pairs(corpus.train.place, place / "lines"), (source, target), notes


Encoded = tuple[NDArray[np.int64], list[Rows], int, int]  # lines, ids of both sides, n too long, n unlikely


def _write_ids(place: Path, encode: Callable[[range], Encoded], n_pairs: int) -> None:
    n_long = n_ratio = 0
    spans = (range(start, min(start + CHUNK, n_pairs)) for start in range(0, n_pairs, CHUNK))
    for lines, sides, long, unlikely in in_parallel(encode, spans):
        append(place / "lines", lines)
        for side, rows in zip(SIDES, sides, strict=True):
            append_rows(place / side, rows)
        n_long, n_ratio = n_long + long, n_ratio + unlikely
    if n_long + n_ratio == n_pairs:
        raise DataError("no training pair is left", hint="raise data.max_length or data.max_ratio")
    (place / "dropped.json").write_text(json.dumps([n_long, n_ratio]))


def _encode(place: Path, tokenizers: Tokenizers, span: range, *, max_length: int, max_ratio: float) -> Encoded:
    """Ids of some of the pairs."""
    pairs = Pairs(place)
    texts = [pairs[i] for i in span]
    source = tokenizers.source.encode_all([pair.source for pair in texts])
    target = tokenizers.target.encode_all([pair.target for pair in texts])
    kept, n_long, n_ratio = [], 0, 0
    for i, (s, t) in enumerate(zip(source, target, strict=True)):
        shorter, longer = sorted((max(len(s), 1), max(len(t), 1)))
        if longer > max_length:
            n_long += 1
        elif longer > max_ratio * shorter:
            n_ratio += 1
        else:
            kept.append(i)
    rows = [
        Rows.of([side[i] for i in kept], id_type(tokenizer))
        for side, tokenizer in ((source, tokenizers.source), (target, tokenizers.target))
    ]
    return pairs.lines[span.start : span.stop][kept], rows, n_long, n_ratio


def id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The smallest type of numbers that holds its ids."""
    return np.min_scalar_type(len(tokenizer))


def tokenize(config: Config) -> tuple[RunDirectory, Tokenizers, list[str], dict[str, Statistics]]:
    """`nmt tokenize`: train the tokenizer and write it into the run's directory.

    Returns:
        the run, its tokenizers, notes, and statistics of each side of dev.
    """
    corpus = read_corpus(config)
    tokenizers, notes = train_tokenizers(corpus)
    run = RunDirectory(config.run)
    with run.lock():
        if run.holds_training() and run.read_tokenizers(config) != tokenizers:
            raise ModelError(
                f"{run.path} holds a training that uses its tokenizer",
                hint="choose another run=PATH, or move the run away first",
            )
        run.write_tokenizers(tokenizers, config.tokenizer.joint)
    figures = {
        "source": statistics(tokenizers.source, [pair.source for pair in corpus.dev]),
        "target": statistics(tokenizers.target, [pair.target for pair in corpus.dev]),
    }
    return run, tokenizers, [*corpus.notes, *notes], figures
