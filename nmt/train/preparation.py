"""From a config to an encoded corpus: read, check, hold out dev, train the tokenizer, filter. `nmt tokenize`.

Training pairs are stored in the user's cache, under a hash of what they were made from, and memory-mapped. Nothing
else is written, so that everything is checked before a run's first file. Imports no torch.
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
    RaggedArray,
    append,
    append_rows,
    digests_of,
    first_occurrences,
    in_parallel,
    is_among,
    keep,
    mapped,
    n_occurrences,
    shuffled,
    write_pairs,
)
from nmt.text.lines import Pair, is_blank, iter_pairs, read_pairs
from nmt.text.tokenizer import MAX_TRAINER_BYTES, Statistics, Tokenizer, Tokenizers, statistics, train_tokenizer
from nmt.train.presets import fit_config

log = logging.getLogger("nmt")

MAX_DEV_PAIRS = 1_000
DEV_SHARE = 0.02
FEW_DEV_PAIRS = 100
PROFILE_PAIRS = 2_000  # enough to tell two languages apart
MIN_NGRAMS = 100  # a text with fewer character n-grams is too short to tell its language
CLEAR_SIMILARITY = 0.2
SAMPLE_PAIRS = 200_000  # the tokenizer is trained on at most this many: its memory grows with them
FORMAT = 1  # of the files in the cache


@dataclass
class Corpus:
    """The pairs of a run.

    Attributes:
        config: with all sizes.
        train: training pairs, on disk.
        dev: in memory.
        hashes: SHA-256 of each side of each corpus.
        notes: messages to the user.
    """

    config: Config
    train: Pairs
    dev: list[Pair]
    hashes: dict[str, str]
    notes: list[str] = field(default_factory=list)


def corpus_paths(config: Config, files: Files) -> tuple[list[Path], list[Path]]:
    """The files of both sides of a corpus."""
    root = config.data.root
    return [Path(root, p) for p in files.source], [Path(root, p) for p in files.target]


def corpus_hashes(config: Config) -> dict[str, str]:
    """SHA-256 of each side of train, dev and test.

    Raises:
        DataError: a file cannot be read.
    """
    data = config.data
    base = f"data.root, {data.root}" if data.root else "the working directory"
    return {
        f"{name}.{side}": hash_files(paths, f"check the path; it is relative to {base}")
        for name, files in (("train", data.train), ("dev", data.dev), ("test", data.test))
        if files is not None
        for side, paths in zip(SIDES, corpus_paths(config, files), strict=True)
    }


def read_corpus(config: Config) -> Corpus:
    """Read train and dev, check that test can be read, and drop blank and repeated pairs.

    Raises:
        DataError: a file is missing, sides have unequal numbers of lines, or no pair is left.
        ConfigError: sizes chosen for the corpus do not fit those that are set.
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

    def write(directory: Path) -> None:
        _write_corpus(directory, config, corpora)
        now = corpus_hashes(config)
        if changed := [name for name in hashes if now[name] != hashes[name]]:
            raise DataError(
                f"the files of {', '.join(changed)} have changed while they were read",
                hint="start again when nothing writes to them",
            )

    directory = cached("pairs", [FORMAT, hashes, settings], write)
    summary = json.loads((directory / "corpus.json").read_text(encoding="utf-8"))
    train, dev = Pairs(directory), [Pair(*pair) for pair in summary["dev"]]
    if data.dev is None and len(dev) < FEW_DEV_PAIRS:
        log.warning(
            "dev has only %d pairs, held out of train: scores on fewer than %d are mostly chance; set data.dev",
            len(dev),
            FEW_DEV_PAIRS,
        )
    config = fit_config(config, len(train), summary["n_characters"])
    return Corpus(config, train, dev, hashes, summary["notes"])


def _write_corpus(directory: Path, config: Config, corpora: dict[str, list[Pair]]) -> None:
    """Write the text of train, the numbers of the lines that are kept, and a summary with dev and notes.

    Args:
        directory: in the cache.
        config: data and seed.
        corpora: dev and test, if they are set.
    """
    data, notes = config.data, []
    write_pairs(directory, iter_pairs(*corpus_paths(config, data.train), strict=not data.allow_bad_utf8))
    files = {name: directory / name for name in ("lines", *(f"{one}.digest" for one in (*SIDES, "pair")))}

    def digests(name: str) -> NDArray[np.uint64]:
        return mapped(files[f"{name}.digest"], np.uint64)

    blank = mapped(directory / "blank", np.bool_)
    if data.drop_blank and (n := int(blank.sum())):
        notes.append(f"{n} pairs blank on a side dropped (data.drop_blank)")
        keep(files.values(), ~blank)
    if data.drop_duplicates:
        first = first_occurrences(digests("pair"))
        if n := int((~first).sum()):
            notes.append(f"{n} repeated pairs dropped (data.drop_duplicates)")
            keep(files.values(), first)
    if "dev" in corpora:
        dev = [pair for pair in corpora["dev"] if not (is_blank(pair.source) or is_blank(pair.target))]
        if n := len(corpora["dev"]) - len(dev):
            notes.append(f"{n} pairs of dev blank on a side left out")
    else:
        held_out, remaining = hold_out(digests("source"), digests("target"), config.seed)
        pairs = Pairs(directory)
        dev = [pairs[i] for i in held_out]
        keep(files.values(), remaining)
        notes.append(f"no data.dev: {len(dev)} pairs of train set aside for it, none of their sentences left in train")
    train = Pairs(directory)
    if not len(train) or not dev:
        name = "dev" if len(train) else "train"
        raise DataError(f"{name} has no pair that can be used", hint="check data.train and data.dev")
    check_sides("train", train)
    for name, corpus in corpora.items():
        check_sides(name, corpus)
        check_order(name, corpus, train)
    notes += [
        f"{n} of {len(pairs)} pairs of {name} have a side that is also in train: scores on it will be too high"
        for name, pairs in corpora.items()
        if (n := n_shared(pairs, digests("source"), digests("target")))
    ]
    characters = {character for pair in sample(train) for character in pair.source + pair.target}
    summary = {
        "dev": [[pair.line, pair.source, pair.target] for pair in dev],
        "notes": notes,
        "n_characters": len(characters),
    }
    (directory / "corpus.json").write_text(json.dumps(summary), encoding="utf-8")
    for file in (*files.values(), directory / "blank"):
        if file.name != "lines":
            file.unlink()


def check_sides(name: str, pairs: Iterable[Pair]) -> None:
    """Check that the two sides of a corpus are not the same text.

    Raises:
        DataError: they are.
    """
    if all(pair.source == pair.target for pair in pairs):  # usually False at the first pair
        raise DataError(
            f"data.{name}: source and target are the same text",
            hint=f"name the files of the two languages in data.{name}.source and data.{name}.target",
        )


def check_order(name: str, pairs: list[Pair], train: Pairs) -> None:
    """Check that the sides of dev or test are not exchanged.

    Each side must be clearly more similar to the wrong side of train. Exchanged German and English score 0.35 each;
    if both sides of train are in one language, the score is near 0.

    Raises:
        DataError: they are exchanged.
    """
    train_pairs = sample(train, PROFILE_PAIRS)
    source, target = (ngram_counts(getattr(pair, side) for pair in train_pairs) for side in SIDES)
    own_source, own_target = (ngram_counts(getattr(pair, side) for pair in pairs[:PROFILE_PAIRS]) for side in SIDES)
    scores = similarity(own_source, target, source), similarity(own_target, source, target)
    if min(scores) > CLEAR_SIMILARITY:
        raise DataError(
            f"data.{name} has its sides exchanged: by its characters, its source is in the language of "
            "data.train.target, and its target in that of data.train.source",
            hint=f"exchange data.{name}.source and data.{name}.target",
        )


def ngram_counts(texts: Iterable[str]) -> Counter[str]:
    """Counts of character n-grams, n = 1 to 3."""
    return Counter(text[i : i + n] for text in texts for n in (1, 2, 3) for i in range(len(text) - n + 1))


def similarity(text: Counter[str], language: Counter[str], other: Counter[str]) -> float:
    """How much more similar a text is to one language than to another, -1 to 1; 0 if it is too short to tell.

    The mean of (p - q) / (p + q) over the text's n-grams, with relative frequencies p and q in the two languages.
    """
    n, n_other = max(language.total(), 1), max(other.total(), 1)
    known = [(c, language[k] / n, other[k] / n_other) for k, c in text.items() if k in language or k in other]
    n_known = sum(count for count, *_ in known)
    return sum(count * (p - q) / (p + q) for count, p, q in known) / n_known if n_known >= MIN_NGRAMS else 0.0


def hold_out(
    source: NDArray[np.uint64], target: NDArray[np.uint64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Choose pairs for dev at random, such that none of their sentences remains in train.

    Prefers sentences that occur once, because holding them out removes no other pair from train.

    Args:
        source, target: digests of each pair's sides.
        seed: of the choice.
    Returns:
        sorted indices of the pairs for dev, and a mask of the pairs that remain in train.
    """
    n_pairs = len(source)
    n_alike = n_occurrences(source) + n_occurrences(target)
    n_dev = max(1, min(MAX_DEV_PAIRS, int(n_pairs * DEV_SHARE)))
    dev = np.zeros(0, np.int64)
    for start in range(0, n_pairs, PART):  # the best so far and another part: bounds memory
        candidates = np.concatenate([dev, np.arange(start, min(start + PART, n_pairs))])
        dev = candidates[np.lexsort((shuffled(candidates, n_pairs, seed), n_alike[candidates]))[:n_dev]]
    removed = is_among(source, source[dev]) | is_among(target, target[dev])
    return np.sort(dev), ~removed


def n_shared(pairs: Iterable[Pair], source: NDArray[np.uint64], target: NDArray[np.uint64]) -> int:
    """The number of pairs with a side that is also in train, given the digests of train's sides."""
    pairs = list(pairs)
    sources, targets = (digests_of(getattr(pair, side).encode() for pair in pairs) for side in SIDES)
    in_source = np.isin(sources, source[is_among(source, sources)])
    in_target = np.isin(targets, target[is_among(target, targets)])
    return int((in_source | in_target).sum())


def sample(pairs: Pairs, n_max: int = 0) -> list[Pair]:
    """At most `n_max` pairs at random (0: `SAMPLE_PAIRS`), in their order."""
    n, n_max = len(pairs), n_max or SAMPLE_PAIRS
    chosen = np.arange(n) if n <= n_max else np.sort(shuffled(np.arange(n_max), n, seed=0))
    return [pairs[i] for i in chosen]


def train_tokenizers(corpus: Corpus) -> tuple[Tokenizers, list[str]]:
    """Train the tokenizer on the training pairs, one for both sides or one per side; with notes."""
    settings, data = corpus.config.tokenizer, corpus.config.data
    pairs = sample(corpus.train)
    source, target = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if data.nfkc_source:  # only the source is normalized
        source = [unicodedata.normalize("NFKC", text) for text in source]
    trained = [train_tokenizer(side, settings) for side in ([source + target] if settings.joint else [source, target])]
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


def drop_lengths(corpus: Corpus, tokenizers: Tokenizers) -> tuple[Pairs, tuple[RaggedArray, RaggedArray], list[str]]:
    """Encode the training pairs, without those that are too long or have an unlikely length ratio.

    Returns:
        the pairs, the token ids of both sides, and notes on what was dropped.
    Raises:
        DataError: all were.
    """
    data = corpus.config.data
    sides = [[sha256(side.model), side.nfkc] for side in (tokenizers.source, tokenizers.target)]
    made_from = [FORMAT, corpus.train.directory.name, sides, data.max_length, data.max_ratio]
    encode = partial(_encode, corpus.train.directory, tokenizers, max_length=data.max_length, max_ratio=data.max_ratio)
    directory = cached("ids", made_from, partial(_write_ids, encode=encode, n_pairs=len(corpus.train)))
    source, target = (RaggedArray.map(directory / side, id_type(getattr(tokenizers, side))) for side in SIDES)
    n_long, n_ratio = json.loads((directory / "dropped.json").read_text())
    notes = []
    if n_long:
        notes.append(f"{n_long} pairs over {data.max_length} pieces dropped (data.max_length)")
    if n_ratio:
        notes.append(f"{n_ratio} pairs of unlikely lengths dropped (data.max_ratio={data.max_ratio:g})")
    return Pairs(corpus.train.directory, directory / "lines"), (source, target), notes


Encoded = tuple[
    NDArray[np.int64], list[RaggedArray], int, int
]  # line numbers, ids of both sides, n too long, n unlikely


def _write_ids(directory: Path, encode: Callable[[range], Encoded], n_pairs: int) -> None:
    n_long = n_ratio = 0
    spans = (range(start, min(start + CHUNK, n_pairs)) for start in range(0, n_pairs, CHUNK))
    for lines, sides, long, unlikely in in_parallel(encode, spans):
        append(directory / "lines", lines)
        for side, rows in zip(SIDES, sides, strict=True):
            append_rows(directory / side, rows)
        n_long, n_ratio = n_long + long, n_ratio + unlikely
    if n_long + n_ratio == n_pairs:
        raise DataError("no training pair is left", hint="raise data.max_length or data.max_ratio")
    (directory / "dropped.json").write_text(json.dumps([n_long, n_ratio]))


def _encode(directory: Path, tokenizers: Tokenizers, span: range, *, max_length: int, max_ratio: float) -> Encoded:
    """Encode a range of the pairs; runs in a child process."""
    pairs = Pairs(directory)
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
        RaggedArray.from_lists([side[i] for i in kept], id_type(tokenizer))
        for side, tokenizer in ((source, tokenizers.source), (target, tokenizers.target))
    ]
    return pairs.lines[span.start : span.stop][kept], rows, n_long, n_ratio


def id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The smallest integer type for its ids."""
    return np.min_scalar_type(len(tokenizer))


def tokenize(config: Config) -> tuple[RunDirectory, Tokenizers, list[str], dict[str, Statistics]]:
    """`nmt tokenize`: train the tokenizer and write it into the run's directory.

    Returns:
        the run directory, the tokenizers, notes, and statistics of each side of dev.
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
