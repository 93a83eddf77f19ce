"""From training pairs to token ids: training tokenizers, encoding, and dropping pairs of unsuitable lengths.

Tokenizers and token ids are stored in the user's cache. `tokenize`, the function of `nmt tokenize`, also writes the
tokenizers into the run.
"""

import json
import logging
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from nmt.text.corpus_files import CHUNK, CorpusRange, Pairs, RaggedArray
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import pieces_per_word, train_tokenizer
from nmt.text.vocabulary import tag_of
from nmt.train.plan import PieceCounts, fit_sizes
from nmt.train.preparation import FORMAT, read_corpus, sample

log = logging.getLogger("nmt")

RATIO_PAIRS = 10_000  # the usual ratio of lengths is estimated from at most this many pairs of each corpus


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

    If the cache has tokenizers for the same text and settings, return the cached tokenizers.
    """
    data = config.data
    symbols = [config.tokenizer.symbols, *reserved_symbols(data)]
    settings = config.tokenizer.model_copy(update={"symbols": " ".join(symbols).strip()})
    tags = [tag_of(target) for target in data.targets]
    if data.glossary and not settings.joint:
        log.warning("with data.glossary, set tokenizer.joint=true: terms are then read in the pieces that are written")

    def write(directory: Path) -> None:
        # 1. Collect the text for each tokenizer. Only source text is normalized.
        pairs = sample(train)
        source = [pair.source for pair in pairs]
        target = [pair.target for pair in pairs]
        if data.nfkc_source:
            source = [unicodedata.normalize("NFKC", text) for text in source]
        texts = [source + target] if settings.joint else [source, target]

        # 2. Train the tokenizers. A joint tokenizer is written for both sides.
        trained = [train_tokenizer(text, settings, tags) for text in texts]
        (directory / "source").write_bytes(trained[0].model)
        (directory / "target").write_bytes(trained[-1].model)

        # 3. Write notes for the user into the cache. So the notes are logged even if the tokenizers are cached.
        notes = []
        n_pairs = len(pairs)
        if n_pairs < len(train):
            notes.append(f"the tokenizer learns from {n_pairs:,} pairs chosen at random of {len(train):,}")
        for tokenizer in trained:
            if tokenizer.vocab_size < settings.vocab_size:
                cut = f"tokenizer.vocab_size={settings.vocab_size} was cut"
                notes.append(f"the text gives {tokenizer.vocab_size} pieces at most: {cut}")
        (directory / "notes.json").write_text(json.dumps(notes))

    # Train the tokenizers, or read them from the cache.
    origin = [FORMAT, train.directory.name, settings.model_dump(), data.nfkc_source, *tags]
    directory = cached("tokenizer", origin, write)
    for note in json.loads((directory / "notes.json").read_text()):
        log.info("%s", note)
    source = (directory / "source").read_bytes()
    target = (directory / "target").read_bytes()
    return Tokenizers.from_models(source, target, nfkc_source=data.nfkc_source, target_tag=data.target_tag)


def check_pieces(tokenizers: Tokenizers, data: Data) -> None:
    """Raise ConfigError if a tokenizer lacks a piece that the `data` settings need."""
    # 1. Both sides need the symbols of `data.placeholders` and `data.glossary`.
    symbols = reserved_symbols(data)
    source, target = tokenizers
    if UNK in source.ids(symbols) + target.ids(symbols):
        message = "data.placeholders and data.glossary need a tokenizer that was trained with them"
        raise ConfigError(message, hint="train a new one: another run=PATH, without train.init_from; or leave them out")

    # 2. The source side needs a tag for each target language.
    unknown = set(data.targets) - set(tokenizers.source.targets)
    if unknown:
        hint = "train a new one, with all target languages: another run=PATH, without train.init_from"
        raise ConfigError(f"the tokenizer has no tag of {', '.join(sorted(unknown))}", hint=hint)


class EncodedPairs(NamedTuple):
    """The training pairs that were not dropped, and their token ids."""

    pairs: Pairs
    ids: tuple[RaggedArray, RaggedArray]  # token ids of the source and of the target

    def lengths(self) -> list[PieceCounts]:
        """Return the lengths of the pairs, in pieces, for each corpus."""
        source, target = self.ids[0].lengths, self.ids[1].lengths
        return [PieceCounts(source[start:end], target[start:end]) for start, end in self.pairs.spans()]


def drop_lengths(config: Config, train: Pairs, tokenizers: Tokenizers) -> EncodedPairs:
    """Encode the training pairs, and drop pairs that are too long or whose ratio of lengths is unlikely.

    The ratio of lengths of a pair is compared with the usual ratio of its direction (`usual_ratios`), not with 1. Good
    translations can differ much in length, because one language may have longer pieces than the other: a Chinese menu
    item can be one piece, and its German translation six pieces.
    """
    data, n_pairs = config.data, len(train)
    check_pieces(tokenizers, data)

    # If several processes need the same ids, `cached` lets one process write the files while the other processes wait.
    def write(directory: Path) -> None:
        # 1. Encode in parallel, chunk by chunk.
        ratios = usual_ratios(train, tokenizers, data.max_length)
        encoder = Encoder(train.directory, train.ranges, tokenizers, data, ratios)
        indices = range(n_pairs)
        spans = (indices[start : start + CHUNK] for start in range(0, n_pairs, CHUNK))
        n_too_long = n_unlikely = 0
        for chunk in in_parallel(encoder.encode, spans):
            corpus_files.append(directory / "lines", chunk.lines)
            corpus_files.append_rows(directory / "source", chunk.source)
            corpus_files.append_rows(directory / "target", chunk.target)
            n_too_long += chunk.n_too_long
            n_unlikely += chunk.n_unlikely

        # 2. Raise an error if all pairs were dropped. Otherwise, save how many were dropped.
        if n_too_long + n_unlikely == n_pairs:
            reasons = f"{n_too_long:,} over {data.max_length} pieces (data.max_length)"
            if n_unlikely:
                reasons += f", {n_unlikely:,} of unlikely lengths (data.max_ratio)"
            hint = "split the lines into sentences; a config can also raise data.max_length"
            raise DataError(f"none of the {n_pairs:,} training pairs is left: {reasons}", hint=hint)
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
    pairs = Pairs(train.directory, directory / "lines", ranges=train.ranges)
    return EncodedPairs(pairs, (source, target))


def dtype_of(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    """Return the smallest unsigned integer type that can hold every token id of the tokenizer."""
    return np.min_scalar_type(len(tokenizer))


def usual_ratios(train: Pairs, tokenizers: Tokenizers, max_length: int) -> dict[str, float]:
    """Return the usual ratio of target length to source length for each direction.

    Keys are directions such as de-en; if there is only one direction, its key is "". The usual ratio is the median of a
    sample, because a few misaligned pairs hardly change a median. A length is the number of pieces plus 1 for EOS. The
    EOS makes the ratios of very short pairs less extreme: 1 and 2 pieces have the ratio 3/2 instead of 2.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for corpus in train.by_corpus():
        for pair in sample(corpus, RATIO_PAIRS):
            n_source = len(tokenizers.source.encode(pair.tagged_source))
            n_target = len(tokenizers.target.encode(pair.target))
            if max(n_source, n_target) <= max_length:
                ratio = (n_target + 1) / (n_source + 1)
                ratios[pair.languages].append(ratio)
    return {languages: median(samples) for languages, samples in ratios.items()}


class EncodedChunk(NamedTuple):
    """The pairs of a chunk that are kept, and the numbers of pairs that are dropped."""

    lines: NDArray[np.int64]  # line numbers of the kept pairs
    source: RaggedArray
    target: RaggedArray
    n_too_long: int
    n_unlikely: int


@dataclass
class Encoder:
    """An encoder of chunks of pairs. It usually runs in child processes, each of which opens the corpus files."""

    directory: Path  # directory that has the text of the pairs
    ranges: Sequence[CorpusRange]
    tokenizers: Tokenizers
    data: Data  # contains the limits of lengths
    usual_ratios: Mapping[str, float]

    def encode(self, span: range) -> EncodedChunk:
        """Encode a range of pairs, and drop pairs that are too long or whose ratio of lengths is unlikely."""
        # 1. Encode both sides.
        pairs = Pairs(self.directory, ranges=self.ranges)
        chunk = [pairs[i] for i in span]
        source = encode(self.tokenizers.source, [pair.tagged_source for pair in chunk])
        target = encode(self.tokenizers.target, [pair.target for pair in chunk])

        # 2. Compare the lengths with the limits. The ratios count EOS, as in `usual_ratios`. The deviation of a pair is
        # its ratio divided by the usual ratio.
        too_long = np.maximum(source.lengths, target.lengths) > self.data.max_length
        usual = [self.usual_ratios.get(pair.languages, 1.0) for pair in chunk]
        ratios = (target.lengths + 1) / (source.lengths + 1)
        deviation = ratios / np.array(usual)
        is_extreme = np.maximum(deviation, 1 / deviation) > self.data.max_ratio
        unlikely = is_extreme & ~too_long

        # 3. Return the pairs within the limits.
        kept = np.flatnonzero(~too_long & ~unlikely)
        lines = pairs.lines[span.start : span.stop]
        counts = int(too_long.sum()), int(unlikely.sum())
        return EncodedChunk(lines[kept], source.compact(kept), target.compact(kept), *counts)


def encode(tokenizer: Tokenizer, texts: list[str]) -> RaggedArray:
    return RaggedArray.from_lists(tokenizer.encode_all(texts), dtype_of(tokenizer))


def tokenize(config: Config) -> tuple[RunDirectory, Tokenizers, dict[str, float]]:
    """Train the tokenizers and write them into the run (`nmt tokenize`).

    Returns the run, the tokenizers, and the mean number of pieces per word of the dev pairs for each side.
    """
    # 1. Train the tokenizers, or read them from the cache.
    corpus = read_corpus(config)
    config = fit_sizes(config, corpus.size)
    tokenizers = train_tokenizers(config, corpus.train)

    # 2. Write the tokenizers. Raise an error if the run holds a training that uses other tokenizers.
    run = RunDirectory(config.run)
    with run.lock():
        if run.holds_training() and run.read_tokenizers(config) != tokenizers:
            message = f"{run.path} holds a training that uses its tokenizer"
            raise ModelError(message, hint="choose another run=PATH, or move the run away first")
        run.write_tokenizers(tokenizers, config.tokenizer.joint)

    # 3. Measure how well the tokenizers fit the dev pairs: the fewer pieces per word, the better.
    sources = [pair.tagged_source for pair in corpus.dev]
    targets = [pair.target for pair in corpus.dev]
    source = pieces_per_word(tokenizers.source, sources)
    target = pieces_per_word(tokenizers.target, targets)
    return run, tokenizers, {"source": source, "target": target}
