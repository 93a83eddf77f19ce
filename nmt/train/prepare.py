"""From a config to a corpus ready for training: read, check, set dev aside, tokenize, filter.

Writes nothing and imports no torch: everything is checked before the first file is made.
"""

import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from nmt.config import Config, Files, resolve_path
from nmt.errors import ConfigError, DataError, ModelError
from nmt.run.directory import RunDirectory, hash_files
from nmt.text.lines import Pair, is_blank, read_pairs
from nmt.text.tokenizer import MAX_TRAINER_BYTES, Statistics, Tokenizers, statistics, train_tokenizer
from nmt.train.sizes import fit_config

MAX_DEV_PAIRS = 1_000
DEV_SHARE = 0.02


@dataclass
class Corpus:
    """The pairs of a run and how they came to be.

    Attributes:
        config: sizes filled in.
        train, dev: pairs that are left.
        hashes: SHA-256 of each side of each corpus.
        notes: what the user should know, a line each.
    """

    config: Config
    train: list[Pair]
    dev: list[Pair]
    hashes: dict[str, str]
    notes: list[str] = field(default_factory=list)


def corpus_paths(config: Config, files: Files) -> tuple[list[Path], list[Path]]:
    """Where the two sides of a corpus lie."""
    root = config.data.root
    return [resolve_path(p, root) for p in files.source], [resolve_path(p, root) for p in files.target]


def read_corpus(config: Config) -> Corpus:
    """Read train and dev, check that test is there, and drop what the rules on lines drop.

    Raises:
        DataError: a file is missing, sides have unequal numbers of lines, or nothing is left.
        ConfigError: sizes chosen for the corpus do not go together with those that were set.
    """
    data = config.data
    corpora: dict[str, list[Pair]] = {}
    hashes: dict[str, str] = {}
    for name, files in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        if files is None:
            continue
        source, target = corpus_paths(config, files)
        corpora[name] = read_pairs(source, target)
        hashes |= {f"{name}.source": hash_files(source), f"{name}.target": hash_files(target)}
    train, notes = _drop_lines(corpora["train"], config)
    if "dev" in corpora:
        dev = [pair for pair in corpora["dev"] if not (is_blank(pair.source) or is_blank(pair.target))]
        if n := len(corpora["dev"]) - len(dev):
            notes.append(f"{n} pairs of dev blank on a side left out")
    else:
        train, dev = hold_out(train, config.seed)
        notes.append(
            f"no data.dev: {len(dev)} pairs of train set aside for it, none of their sentences left in train"
        )
    if not train or not dev:
        raise DataError(
            f"{'train' if not train else 'dev'} has no pair that can be used", hint="check data.train and data.dev"
        )
    notes += [
        f"{n} of {len(corpora[name])} pairs of {name} have a side that is also in train: its scores will flatter"
        for name in ("dev", "test")
        if name in corpora and (n := n_shared(corpora[name], train))
    ]
    try:
        characters = {character for pair in train for character in pair.source + pair.target}
        config = fit_config(config, len(train), len(characters))
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"sizes chosen for this corpus do not fit: {message}", hint="set them all") from error
    return Corpus(config, train, dev, hashes, notes)


def _drop_lines(pairs: list[Pair], config: Config) -> tuple[list[Pair], list[str]]:
    """Drop blank and repeated pairs, and say how many."""
    notes = []
    if config.data.drop_blank:
        kept = [pair for pair in pairs if not (is_blank(pair.source) or is_blank(pair.target))]
        if n := len(pairs) - len(kept):
            notes.append(f"{n} pairs blank on a side dropped (data.drop_blank)")
        pairs = kept
    if config.data.drop_duplicates:
        first = {(pair.source, pair.target): pair for pair in reversed(pairs)}
        kept = [pair for pair in pairs if first[pair.source, pair.target] is pair]
        if n := len(pairs) - len(kept):
            notes.append(f"{n} repeated pairs dropped (data.drop_duplicates)")
        pairs = kept
    return pairs, notes


def hold_out(pairs: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Set pairs aside for dev such that none of their sentences stays in train.

    Pairs whose sentences occur once go first: setting them aside costs train nothing else.
    """
    sources, targets = Counter(p.source for p in pairs), Counter(p.target for p in pairs)
    order = list(pairs)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda pair: sources[pair.source] + targets[pair.target])
    dev = order[: max(1, min(MAX_DEV_PAIRS, int(len(pairs) * DEV_SHARE)))]
    aside_sources, aside_targets = {p.source for p in dev}, {p.target for p in dev}
    train = [p for p in pairs if p.source not in aside_sources and p.target not in aside_targets]
    return train, sorted(dev, key=lambda pair: pair.line)


def n_shared(pairs: Sequence[Pair], train: Sequence[Pair]) -> int:
    """How many pairs have a side that stands in train too."""
    sources, targets = {p.source for p in train}, {p.target for p in train}
    return sum(pair.source in sources or pair.target in targets for pair in pairs)


def train_tokenizers(corpus: Corpus) -> tuple[Tokenizers, list[str]]:
    """Train the tokenizer that the config asks for on the training pairs: one for both sides or one a side."""
    settings, data = corpus.config.tokenizer, corpus.config.data
    source, target = [pair.source for pair in corpus.train], [pair.target for pair in corpus.train]
    if data.nfkc_source:  # as the source will be encoded; the target stays as it is
        source = [unicodedata.normalize("NFKC", text) for text in source]
    sides = [[*source, *target]] if settings.joint else [source, target]
    trained = [train_tokenizer(side, settings) for side in sides]
    notes = [
        f"the text gives {one.vocab_size} pieces at most: tokenizer.vocab_size={settings.vocab_size} was cut"
        for one in trained
        if one.vocab_size < settings.vocab_size
    ]
    if lines := sorted({corpus.train[n % len(source)].line for one in trained for n in one.too_long}):
        notes.append(
            f"left out of the tokenizer's training, over {MAX_TRAINER_BYTES:,} bytes: the pairs at "
            f"line {', '.join(map(str, lines[:10]))}{f' and {len(lines) - 10} more' if len(lines) > 10 else ''}"
        )
    models = [one.model for one in trained]
    return Tokenizers.from_models(models[0], models[-1], nfkc_source=data.nfkc_source), notes


def drop_lengths(corpus: Corpus, tokenizers: Tokenizers) -> tuple[list[Pair], list[str]]:
    """The training pairs short enough and of a likely ratio of lengths, and how many were dropped."""
    data = corpus.config.data
    source = tokenizers.source.encode_all([pair.source for pair in corpus.train])
    target = tokenizers.target.encode_all([pair.target for pair in corpus.train])
    kept, n_long, n_ratio = [], 0, 0
    for pair, s, t in zip(corpus.train, source, target, strict=True):
        shorter, longer = sorted((max(len(s), 1), max(len(t), 1)))
        if longer > data.max_length:
            n_long += 1
        elif longer > data.max_ratio * shorter:
            n_ratio += 1
        else:
            kept.append(pair)
    if not kept:
        raise DataError("no training pair is left", hint="raise data.max_length or data.max_ratio")
    notes = []
    if n_long:
        notes.append(f"{n_long} pairs over {data.max_length} pieces dropped (data.max_length)")
    if n_ratio:
        notes.append(f"{n_ratio} pairs of unlikely lengths dropped (data.max_ratio={data.max_ratio:g})")
    return kept, notes


def tokenize(config: Config) -> tuple[RunDirectory, Tokenizers, list[str], dict[str, Statistics]]:
    """`nmt tokenize`: train the tokenizer and write it into the run's directory.

    Returns:
        the run, its tokenizers, notes, and statistics of each side of dev.
    """
    corpus = read_corpus(config)
    tokenizers, notes = train_tokenizers(corpus)
    run = RunDirectory(config.run)
    with run.lock():
        if run.read_last() is not None and run.read_tokenizers(config) != tokenizers:
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
