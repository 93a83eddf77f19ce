"""From training pairs to token ids: training tokenizers, encoding, and dropping pairs of unsuitable lengths.

Tokenizers and token ids are stored in the user's cache.
"""

import functools
import json
import logging
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config import Config, Data
from nmt.errors import ConfigError, DataError, ModelError
from nmt.files import cached, sha256
from nmt.processes import in_parallel
from nmt.run.directory import RunDirectory
from nmt.text import UNK, corpus_files, glossary, placeholders
from nmt.text.corpus_files import CHUNK, SIDES, CorpusRange, Pairs, RaggedArray
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import pieces_per_word, train_tokenizer
from nmt.text.vocabulary import tag_of
from nmt.train.plan import fit_sizes
from nmt.train.plan_decoding import PieceCounts
from nmt.train.preparation import FORMAT, read_corpus, sample

log = logging.getLogger("nmt")

RATIO_PAIRS = 10_000  # `usual_ratios` reads at most this many pairs of each corpus


def reserved_symbols(data: Data) -> list[str]:
    """Return the pieces that the vocabulary needs for `data.placeholders` and `data.glossary`."""
    symbols = []
    if data.placeholders:
        symbols += placeholders.SYMBOLS
    if data.glossary:
        symbols += glossary.SYMBOLS
    return symbols


def train_tokenizers(config: Config, train: Pairs) -> Tokenizers:
    """Train one tokenizer for both sides, or one per side, on a sample of the training pairs.

    The tokenizers are cached.
    """
    data = config.data
    symbols = [config.tokenizer.symbols, *reserved_symbols(data)]
    settings = config.tokenizer.model_copy(update={"symbols": " ".join(symbols).strip()})
    tags = [tag_of(target) for target in data.targets]

    def write(directory: Path) -> None:
        # 1. Collect the text for each tokenizer. Only source text is normalized.
        pairs = sample(train)
        if len(pairs) < len(train):
            log.info("the tokenizer learns from %d pairs chosen at random of %d", len(pairs), len(train))
        source = [pair.source for pair in pairs]
        target = [pair.target for pair in pairs]
        if data.nfkc_source:
            source = [unicodedata.normalize("NFKC", text) for text in source]
        texts = [source + target] if settings.joint else [source, target]

        # 2. Train the tokenizers. A joint tokenizer is written for both sides.
        models = [train_tokenizer(text, settings, tags) for text in texts]
        (directory / "source").write_bytes(models[0])
        (directory / "target").write_bytes(models[-1])

    # Train the tokenizers, or read them from the cache.
    origin = [FORMAT, train.directory.name, settings.model_dump(), data.nfkc_source, *tags]
    directory = cached("tokenizer", origin, write)
    models = [(directory / side).read_bytes() for side in SIDES]
    tokenizers = Tokenizers.from_models(*models, nfkc_source=data.nfkc_source, target_tag=data.target_tag)
    for side in tokenizers[:1] if tokenizers.joint else tokenizers:
        if len(side) < settings.vocab_size:
            log.info(
                "the text gives %d pieces at most: tokenizer.vocab_size=%d was cut", len(side), settings.vocab_size
            )
    return tokenizers


def check_pieces(tokenizers: Tokenizers, data: Data) -> None:
    """Raise ConfigError if a tokenizer lacks a piece that the `data` settings need."""
    # 1. Both sides need the symbols of `data.placeholders` and `data.glossary`.
    symbols = reserved_symbols(data)
    source, target = tokenizers
    if UNK in source.ids(symbols) + target.ids(symbols):
        raise ConfigError(
            "data.placeholders and data.glossary need a tokenizer that was trained with them",
            hint="train a new one: another run=PATH, without train.init_from; or leave them out",
        )

    # 2. The source side needs a tag for each target language.
    unknown = set(data.targets) - set(tokenizers.source.targets)
    if unknown:
        raise ConfigError(
            f"the tokenizer has no tag of {', '.join(sorted(unknown))}",
            hint="train a new one, with all target languages: another run=PATH, without train.init_from",
        )


class EncodedPairs(NamedTuple):
    """The kept training pairs and their token ids."""

    pairs: Pairs
    ids: tuple[RaggedArray, RaggedArray]  # token ids of the source and of the target

    def lengths(self) -> list[PieceCounts]:
        """Return the lengths of the pairs of each corpus, in pieces."""
        source, target = self.ids[0].lengths, self.ids[1].lengths
        spans = self.pairs.spans()
        return [PieceCounts(source[start:end], target[start:end]) for start, end in spans]


def drop_lengths(config: Config, train: Pairs, tokenizers: Tokenizers) -> EncodedPairs:
    """Encode the training pairs. Drop pairs that are too long, or whose ratio of lengths is unusual.

    The ratio is compared with the usual ratio of its direction (`usual_ratios`), which need not be 1: a Chinese menu
    item can be one piece, and its German translation six pieces.
    """
    data, n_pairs = config.data, len(train)
    check_pieces(tokenizers, data)

    # `cached` lets one process write the files while others wait.
    def write(directory: Path) -> None:
        # 1. Encode in parallel, chunk by chunk.
        usual = usual_ratios(train, tokenizers, data.max_length)
        encode_span = functools.partial(encode_chunk, train.directory, train.ranges, tokenizers, data, usual)
        starts = range(0, n_pairs, CHUNK)
        spans = (range(start, min(start + CHUNK, n_pairs)) for start in starts)
        n_too_long = n_unlikely = 0
        for chunk in in_parallel(encode_span, spans):
            corpus_files.append(directory / "lines", chunk.lines)
            corpus_files.append_rows(directory / "source", chunk.source)
            corpus_files.append_rows(directory / "target", chunk.target)
            n_too_long += chunk.n_too_long
            n_unlikely += chunk.n_unlikely

        # 2. Raise an error if all pairs were dropped. Otherwise, save how many were dropped.
        if n_too_long + n_unlikely == n_pairs:
            too_long = f"{n_too_long:,} over {data.max_length} pieces (data.max_length)"
            unlikely = f"{n_unlikely:,} of unlikely lengths (data.max_ratio)"
            raise DataError(
                f"none of the {n_pairs:,} training pairs is left: {too_long}, {unlikely}",
                hint="split the lines into sentences; a config can also raise data.max_length",
            )
        (directory / "dropped.json").write_text(json.dumps([n_too_long, n_unlikely]))

    # Encode the pairs, or read the token ids from the cache.
    models = [[sha256(side.model), side.nfkc, side.target_tag] for side in tokenizers]
    origin = [FORMAT, train.directory.name, models, data.max_length, data.max_ratio]
    directory = cached("ids", origin, write)
    n_too_long, n_unlikely = json.loads((directory / "dropped.json").read_text())
    # Log how many pairs were dropped, even if the ids come from the cache.
    if n_too_long:
        log.info("%d pairs over %d pieces dropped (data.max_length)", n_too_long, data.max_length)
    if n_unlikely:
        log.info("%d pairs of unlikely lengths dropped (data.max_ratio=%g)", n_unlikely, data.max_ratio)
    source = RaggedArray.map(directory / "source", dtype_of(tokenizers.source))
    target = RaggedArray.map(directory / "target", dtype_of(tokenizers.target))
    return EncodedPairs(Pairs(train.directory, directory / "lines", ranges=train.ranges), (source, target))


def dtype_of(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    """Return the smallest unsigned integer type for the token ids of the tokenizer."""
    return np.min_scalar_type(len(tokenizer))


def usual_ratios(train: Pairs, tokenizers: Tokenizers, max_length: int) -> dict[str, float]:
    """Return the median ratio of target length to source length for each direction.

    Keys are directions such as de-en. If there is only one direction, its key is "". Lengths count EOS. This makes the
    ratios of very short pairs less extreme.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for corpus in train.by_corpus():
        for pair in sample(corpus, RATIO_PAIRS):
            n_source = len(tokenizers.source.encode(pair.tagged_source))
            n_target = len(tokenizers.target.encode(pair.target))
            if max(n_source, n_target) <= max_length:
                ratios[pair.languages].append((n_target + 1) / (n_source + 1))
    return {languages: median(samples) for languages, samples in ratios.items()}


class EncodedChunk(NamedTuple):
    """The kept pairs of a chunk, and the numbers of dropped pairs."""

    lines: NDArray[np.int64]  # line numbers of the kept pairs
    source: RaggedArray
    target: RaggedArray
    n_too_long: int
    n_unlikely: int


def encode_chunk(
    train: Path, ranges: Sequence[CorpusRange], sides: Tokenizers, data: Data, usual: Mapping[str, float], span: range
) -> EncodedChunk:
    """Encode a range of pairs. Drop pairs that are too long, or whose ratio of lengths is unusual.

    Args:
        train: the directory of the pairs, which each child process opens itself.
        usual: the result of `usual_ratios`.
        span: the indices of the pairs.
    """
    # 1. Encode both sides.
    pairs = Pairs(train, ranges=ranges)
    chunk = [pairs[i] for i in span]
    source = encode(sides.source, [pair.tagged_source for pair in chunk])
    target = encode(sides.target, [pair.target for pair in chunk])

    # 2. Compare the lengths with the limits. The deviation of a pair is its ratio divided by the usual ratio.
    too_long = np.maximum(source.lengths, target.lengths) > data.max_length
    ratios = (target.lengths + 1) / (source.lengths + 1)
    deviation = ratios / np.array([usual.get(pair.languages, 1.0) for pair in chunk])
    unlikely = ~too_long & (np.maximum(deviation, 1 / deviation) > data.max_ratio)

    # 3. Return the pairs within the limits.
    kept = np.flatnonzero(~too_long & ~unlikely)
    lines = pairs.lines[span.start : span.stop]
    counts = int(too_long.sum()), int(unlikely.sum())
    return EncodedChunk(lines[kept], source.compact(kept), target.compact(kept), *counts)


def encode(tokenizer: Tokenizer, texts: list[str]) -> RaggedArray:
    return RaggedArray.from_lists(tokenizer.encode_all(texts), dtype_of(tokenizer))


def tokenize(config: Config) -> tuple[RunDirectory, Tokenizers, dict[str, float]]:
    """Train the tokenizers and write them into the run (`nmt tokenize`).

    Returns:
        The run, the tokenizers, and the mean number of pieces per word for each side of the dev pairs.
    """
    # 1. Train the tokenizers, or read them from the cache.
    corpus = read_corpus(config)
    config = fit_sizes(config, corpus.size)
    tokenizers = train_tokenizers(config, corpus.train)

    # 2. Write the tokenizers. A training in the run must not have used other tokenizers.
    run = RunDirectory(config.run)
    with run.lock():
        if run.holds_training() and run.read_tokenizers(config) != tokenizers:
            raise ModelError(
                f"{run.path} holds a training that uses its tokenizer",
                hint="choose another run=PATH, or move the run away first",
            )
        run.write_tokenizers(tokenizers, config.tokenizer.joint)

    # 3. Count the pieces per word of the dev pairs: the fewer, the better.
    source = pieces_per_word(tokenizers.source, [pair.tagged_source for pair in corpus.dev])
    target = pieces_per_word(tokenizers.target, [pair.target for pair in corpus.dev])
    return run, tokenizers, {"source": source, "target": target}
