"""From a config to an encoded corpus: read, check, hold out dev, train the tokenizer, filter. `nmt tokenize`.

Training pairs are stored in the user's cache, under a hash of the files and settings they were made from, and are
memory-mapped. Only `tokenize` writes other files, so everything is checked before a run's first file is written.
Imports no torch.
"""

import json
import logging
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.config import Config, Data, corpora_of, directions, targets_of
from nmt.corpus.alignment import BATCH, hash_words, learn_lexicon, sure_links
from nmt.corpus.split import count_words
from nmt.errors import ConfigError, DataError, ModelError
from nmt.files import cached, sha256
from nmt.run.directory import RunDirectory
from nmt.text import UNK, glossary, placeholders
from nmt.text import corpus as disk
from nmt.text.corpus import SIDES, Mixture, Pairs, RaggedArray
from nmt.text.lines import SEPARATOR, Pair, is_blank
from nmt.text.tokenizer import MAX_TRAINER_BYTES, Tokenizers, pieces_per_word, train_tokenizer
from nmt.text.vocabulary import tag_of
from nmt.train.corpora import all_corpora, check_order, corpus_hashes, named, pairs_of, training_corpora
from nmt.train.presets import fit_config

log = logging.getLogger("nmt")

Digests = NDArray[np.uint64]

MAX_DEV_PAIRS = 1_000
DEV_SHARE = 0.02
FEW_DEV_PAIRS = 100
SAMPLE_PAIRS = 200_000  # the tokenizer is trained on at most this many pairs: its trainer's memory grows with them
LEXICON_PAIRS = 50_000  # at most this many pairs of the sample link words
RATIO_PAIRS = 10_000  # at most this many pairs of a corpus tell the usual ratio of lengths
FORMAT = 5  # of the corpus in the cache; raise it when the content of these files changes


@dataclass
class Corpus:
    """The pairs of a run."""

    config: Config  # with all sizes set
    train: Pairs  # on disk; pairs of each of the `training_corpora`
    dev: list[Pair]  # in memory
    hashes: dict[str, str]  # SHA-256 of each side of each corpus
    n_lines: list[int]  # number of lines of each training corpus, before pairs were dropped

    def mixture(self, pairs: Pairs) -> Mixture | None:
        """How an epoch mixes these pairs, which are `train` or a part of it; None if it has each of them once.

        With a temperature T, the share of a corpus of n pairs is proportional to n^(1/T) (Arivazhagan et al. 2019).
        """
        mix, temperature = self.config.data.mix, self.config.data.temperature
        if not mix and temperature == 1:
            return None
        sizes = [end - start for start, end in spans(pairs, self.n_lines)]
        for name, size in zip(training_corpora(self.config), sizes, strict=True):
            if not size:
                raise DataError(f"{name} has no pair left", hint="raise data.max_length or data.max_ratio")
        if mix:
            return Mixture(sizes, [mix[name].weight for name in sorted(mix)])
        flattened = [size ** (1 / temperature) for size in sizes]
        return Mixture(sizes, [one / sum(flattened) for one in flattened[1:]])


def spans(pairs: Pairs, n_lines: Sequence[int]) -> list[tuple[int, int]]:
    """The (start, end) of each training corpus in `pairs`, given the number of lines of each corpus."""
    ends = np.searchsorted(pairs.lines, np.cumsum(n_lines), side="right").tolist()
    return list(pairwise([0, *ends]))


def read_corpus(config: Config) -> Corpus:
    """Read train and dev, check that test can be read, drop blank and repeated pairs, and choose unset sizes."""
    data = config.data
    for name, files in all_corpora(config).items():
        check_order(name, files, corpora_of(data.train)[0])
    hashes = corpus_hashes(config)
    settings = [data.drop_blank, data.drop_duplicates, data.allow_bad_utf8, None if data.dev else config.seed]
    settings.append(data.context)

    def write(directory: Path) -> None:
        _write_corpus(config, directory)
        if corpus_hashes(config) != hashes:  # else the cache would have the new text under the hash of the old text
            raise DataError("a file of the corpus has changed while it was read", hint="start again")

    directory = cached("pairs", [FORMAT, hashes, settings], write)
    if data.glossary or data.placeholders:
        directory = annotated(Pairs(directory), data)
    summary = json.loads((directory / "corpus.json").read_text(encoding="utf-8"))
    for note in summary["notes"]:
        log.info("%s", note)
    files_of = training_corpora(config).values() if directions(data) else ()
    last_lines = accumulate(summary["n_lines"])  # of each training corpus
    corpora = [(last, files.languages) for last, files in zip(last_lines, files_of, strict=False)]
    train = Pairs(directory, corpora=corpora)
    dev = [Pair(*pair) for pair in summary["dev"]]
    corpus = Corpus(config, train, dev, hashes, summary["n_lines"])
    mixture = corpus.mixture(train)
    if data.dev is None and len(dev) < FEW_DEV_PAIRS:
        warning = "dev has only %d pairs, held out of train: scores on fewer than %d are mostly chance; set data.dev"
        log.warning(warning, len(dev), FEW_DEV_PAIRS)
    n_pairs = mixture.n_pairs if mixture else len(train)
    corpus.config = fit_config(config, n_pairs, round(n_pairs * summary["words_per_pair"]), summary["n_characters"])
    return corpus


def _write_corpus(config: Config, directory: Path) -> None:
    """Write the text of train, the line numbers of the kept pairs, and a summary with the pairs of dev."""
    data, notes = config.data, []
    files_of = named("dev", data.dev) | named("test", data.test)
    corpora = {name: list(pairs_of(config, files)) for name, files in files_of.items()}
    n_lines: list[int] = []
    disk.write_pairs(directory, _training_pairs(config, n_lines))
    digest_files = {name: directory / f"{name}.digest" for name in (*SIDES, "pair")}
    files = [directory / "lines", *digest_files.values()]  # each with one number per kept pair

    def digests(name: str) -> Digests:
        return disk.mapped(digest_files[name], np.uint64)

    blank = disk.mapped(directory / "blank", np.bool_)
    if data.drop_blank and (n := int(blank.sum())):
        notes.append(f"{n} pairs blank on a side dropped (data.drop_blank)")
        disk.keep(files, ~blank)
    if data.drop_duplicates:
        first = disk.first_occurrences(digests("pair"))
        if n := int((~first).sum()):
            notes.append(f"{n} repeated pairs dropped (data.drop_duplicates)")
            disk.keep(files, first)
    if data.dev:
        read = [pair for name in named("dev", data.dev) for pair in corpora[name]]
        dev = [pair for pair in read if not (is_blank(pair.source) or is_blank(pair.target))]
        if n := len(read) - len(dev):
            notes.append(f"{n} pairs of dev blank on a side left out")
    else:
        dev = _set_aside(config, directory, files, n_lines)
        notes.append(f"no data.dev: {len(dev)} pairs of train set aside for it, none of their sentences left in train")
    pairs = Pairs(directory)
    parts = {
        name: pairs.part(*span) for name, span in zip(training_corpora(config), spans(pairs, n_lines), strict=True)
    }
    check_corpora(parts, dev, corpora)
    sides = digests("source"), digests("target")
    if directions(data):  # a source of one direction may be a target of another
        sides = (np.concatenate(sides),) * 2
    for name, corpus in corpora.items():
        if n := n_shared(corpus, *sides):
            shared = f"{n} of {len(corpus)} pairs of {name} have a side that is also in train"
            notes.append(f"{shared}: scores on it will be too high")
    summary = {"dev": [*map(astuple, dev)], "notes": notes, "n_lines": n_lines} | counts_of(sample(pairs))
    (directory / "corpus.json").write_text(json.dumps(summary), encoding="utf-8")
    for file in (*digest_files.values(), directory / "blank"):
        file.unlink()


def _set_aside(config: Config, directory: Path, files: list[Path], n_lines: list[int]) -> list[Pair]:
    """Take random pairs of data.train, and all others with their sentences, out of the files; return the former."""
    pairs = Pairs(directory)
    source, target = (disk.mapped(directory / f"{side}.digest", np.uint64) for side in SIDES)
    _, n_train = spans(pairs, n_lines)[0]
    held_out, remaining = disk.hold_out(source, target, n_dev_pairs(n_train), config.seed, n_train)
    dev = [pairs[i] for i in held_out]
    disk.keep(files, remaining)
    return dev


def _training_pairs(config: Config, n_lines: list[int]) -> Iterator[Pair]:
    """Yield the pairs of all training corpora; append the number of lines of each corpus to `n_lines`."""
    for files in training_corpora(config).values():
        n_lines.append(0)
        for pair in pairs_of(config, files):
            n_lines[-1] += 1
            yield pair


def check_corpora(training: dict[str, Pairs], dev: list[Pair], others: dict[str, list[Pair]]) -> None:
    """Raise DataError if the training corpora or dev have no pairs, or both sides of a corpus are the same text.

    `others` are dev and test as they were read.
    """
    for name, n_pairs in [*((name, len(pairs)) for name, pairs in training.items()), ("dev", len(dev))]:
        if not n_pairs:
            hint = "are all of its pairs in train, too?" if name.startswith("mix.") else "check data.train and data.dev"
            raise DataError(f"{name} has no pair that can be used", hint=hint)
    corpora: dict[str, Pairs | list[Pair]] = {**training, **others}
    for name, pairs in corpora.items():
        if all(pair.source == pair.target for pair in pairs):  # usually False at the first pair
            hint = f"name the files of the two languages in data.{name}.source and data.{name}.target"
            raise DataError(f"data.{name}: source and target are the same text", hint=hint)


def n_dev_pairs(n_pairs: int) -> int:
    """The number of pairs to hold out for dev, given the number of pairs of train."""
    return max(1, min(MAX_DEV_PAIRS, int(n_pairs * DEV_SHARE)))


def n_shared(pairs: list[Pair], source: Digests, target: Digests) -> int:
    """The number of pairs with a side that is also in train, given the digests of train's sides."""
    is_shared = np.zeros(len(pairs), bool)
    for side, in_train in zip(SIDES, (source, target), strict=True):
        own = disk.digests_of(getattr(pair, side).encode() for pair in pairs)
        is_shared |= np.isin(own, in_train)
    return int(is_shared.sum())


def sample(pairs: Pairs, size: int | None = None) -> list[Pair]:
    """A random sample of at most `size` pairs, by default `SAMPLE_PAIRS`, in the order of the corpus."""
    n, size = len(pairs), size or SAMPLE_PAIRS
    chosen = np.arange(n) if n <= size else np.sort(disk.shuffled(np.arange(size), n, seed=0))
    return [pairs[i] for i in chosen]


def counts_of(pairs: list[Pair]) -> dict[str, Any]:
    """The number of distinct characters, and of target words per pair, from which `fit_config` chooses sizes."""
    n_characters = len({character for pair in pairs for character in pair.source + pair.target})
    return {"n_characters": n_characters, "words_per_pair": mean(count_words(pair.target) for pair in pairs)}


def annotated(pairs: Pairs, data: Data) -> Path:
    """Copy the files of pairs, with translations after some source terms, and symbols in place of some spans."""

    def write(directory: Path) -> None:
        changed = shutil.ignore_patterns("source*", "target*")
        shutil.copytree(pairs.directory, directory, dirs_exist_ok=True, ignore=changed)
        known = sample(pairs)[:: 1 + min(len(pairs), SAMPLE_PAIRS) // LEXICON_PAIRS]
        lexicon = learn_lexicon(*(hash_words([getattr(pair, side) for pair in known]) for side in SIDES))
        for start in range(0, len(pairs.source), BATCH):
            lines = range(start, min(start + BATCH, len(pairs.source)))
            source, target = ([side.text(i) for i in lines] for side in (pairs.source, pairs.target))
            links = sure_links(source, target, lexicon)
            others = sorted({target[i][c:d] for i, of_pair in enumerate(links) for _, (c, d) in of_pair})
            for i, of_pair in enumerate(links):
                if data.glossary:
                    source[i], target[i] = glossary.with_terms(source[i], target[i], of_pair, others)
                if data.placeholders and glossary.TERM not in source[i]:
                    source[i], target[i] = placeholders.with_symbols(source[i], target[i], of_pair)
            for side, texts in zip(SIDES, (source, target), strict=True):
                disk.append_rows(directory / side, RaggedArray.from_lists([text.encode() for text in texts], np.uint8))

    return cached("annotated", [FORMAT, pairs.directory.name, data.glossary, data.placeholders], write)


def reserved_symbols(data: Data) -> list[str]:
    """Pieces that the vocabulary needs."""
    return placeholders.SYMBOLS * data.placeholders + glossary.SYMBOLS * data.glossary + [SEPARATOR] * data.context


def train_tokenizers(corpus: Corpus) -> Tokenizers:
    """Train the tokenizer on the training pairs, one for both sides or one per side."""
    settings, data = corpus.config.tokenizer, corpus.config.data
    settings = settings.model_copy(update={"symbols": " ".join([settings.symbols, *reserved_symbols(data)]).strip()})
    tags = [*map(tag_of, targets_of(data))]
    if data.glossary and not settings.joint:
        log.warning("with data.glossary, set tokenizer.joint=true: terms are then read in the pieces that are written")

    def write(directory: Path) -> None:
        pairs, notes = sample(corpus.train), []
        source, target = [pair.source for pair in pairs], [pair.target for pair in pairs]
        if data.nfkc_source:  # only the source is normalized
            source = [unicodedata.normalize("NFKC", text) for text in source]
        texts = [source + target] if settings.joint else [source, target]
        trained = [train_tokenizer(side, settings, tags) for side in texts]
        if len(pairs) < (n_pairs := len(corpus.train)):
            notes.append(f"the tokenizer learns from {len(pairs):,} pairs chosen at random of {n_pairs:,}")
        for one in trained:
            if one.vocab_size < settings.vocab_size:
                cut = f"tokenizer.vocab_size={settings.vocab_size} was cut"
                notes.append(f"the text gives {one.vocab_size} pieces at most: {cut}")
        if lines := sorted({pairs[n % len(source)].line for one in trained for n in one.too_long}):
            too_long = f"{len(lines)} lines of over {MAX_TRAINER_BYTES:,} bytes, the first is line {lines[0]}"
            notes.append(f"left out of the tokenizer's training: {too_long}")
        for name, one in zip(SIDES, (trained[0], trained[-1]), strict=True):
            (directory / name).write_bytes(one.model)
        (directory / "notes.json").write_text(json.dumps(notes))

    own = settings.model_dump()
    directory = cached("tokenizer", [FORMAT, corpus.train.directory.name, own, data.nfkc_source, *tags], write)
    for note in json.loads((directory / "notes.json").read_text()):
        log.info("%s", note)
    models = [(directory / name).read_bytes() for name in SIDES]
    return Tokenizers.from_models(*models, nfkc_source=data.nfkc_source, target_tag=data.target_tag)


def drop_lengths(corpus: Corpus, tokenizers: Tokenizers) -> tuple[Pairs, tuple[RaggedArray, RaggedArray]]:
    """Drop training pairs that are too long or of unlikely lengths; return the others and their token ids.

    A pair's ratio of lengths is compared with the usual one of its direction (`usual_ratios`), because a side may have
    much coarser pieces: a Chinese menu item of one piece may be a German one of six.
    """
    data, texts, n_pairs = corpus.config.data, corpus.train.directory, len(corpus.train)
    check_pieces(tokenizers, data)
    open_pairs = partial(Pairs, texts, corpora=corpus.train.corpora)

    def write(directory: Path) -> None:
        n_dropped = np.zeros(2, int)
        ratios = usual_ratios(corpus, tokenizers)
        encode = partial(_encode, open_pairs, tokenizers, data.max_length, data.max_ratio, ratios)
        spans = (range(start, min(start + disk.CHUNK, n_pairs)) for start in range(0, n_pairs, disk.CHUNK))
        for lines, sides, dropped in disk.in_parallel(encode, spans):
            disk.append(directory / "lines", lines)
            for side, rows in zip(SIDES, sides, strict=True):
                disk.append_rows(directory / side, rows)
            n_dropped += dropped
        if n_dropped.sum() == n_pairs:
            n_long, n_unlikely = n_dropped.tolist()
            reasons = f"{n_long:,} over {data.max_length} pieces (data.max_length)"
            reasons += f", {n_unlikely:,} of unlikely lengths (data.max_ratio)" if n_unlikely else ""
            hint = "split the lines into sentences; a config can also raise data.max_length"
            raise DataError(f"none of the {n_pairs:,} training pairs is left: {reasons}", hint=hint)
        (directory / "dropped.json").write_text(json.dumps(n_dropped.tolist()))

    models = [[sha256(side.model), side.nfkc, side.target_tag] for side in tokenizers]
    directory = cached("ids", [FORMAT, texts.name, models, data.max_length, data.max_ratio], write)
    n_long, n_unlikely = json.loads((directory / "dropped.json").read_text())
    if n_long:
        log.info("%d pairs over %d pieces dropped (data.max_length)", n_long, data.max_length)
    if n_unlikely:
        log.info("%d pairs of unlikely lengths dropped (data.max_ratio=%g)", n_unlikely, data.max_ratio)
    source = RaggedArray.map(directory / "source", np.min_scalar_type(len(tokenizers.source)))
    target = RaggedArray.map(directory / "target", np.min_scalar_type(len(tokenizers.target)))
    return open_pairs(directory / "lines"), (source, target)


def check_pieces(tokenizers: Tokenizers, data: Data) -> None:
    """Raise ConfigError if a tokenizer lacks pieces that these settings of the data need."""
    if any(UNK in side.ids(reserved_symbols(data)) for side in tokenizers):
        message = "data.placeholders, data.glossary and data.context need a tokenizer that was trained with them"
        raise ConfigError(message, hint="train a new one: another run=PATH, without train.init_from; or leave them out")
    if unknown := {*targets_of(data)} - {*tokenizers.source.targets}:
        hint = "train a new one, with all target languages: another run=PATH, without train.init_from"
        raise ConfigError(f"the tokenizer has no tag of {', '.join(sorted(unknown))}", hint=hint)


def usual_ratios(corpus: Corpus, tokenizers: Tokenizers) -> dict[str, float]:
    """The usual ratio of target to source length, by direction such as de-en; "" if there is one direction.

    It is the median of a sample, so that misaligned pairs hardly move it. Lengths are in tokens and count EOS, so that
    the ratios of very short pairs are less extreme: 1 piece and 2 pieces make 1.5.
    """
    max_length, ratios = corpus.config.data.max_length, dict[str, list[float]]()
    for span in spans(corpus.train, corpus.n_lines):
        for pair in sample(corpus.train.part(*span), RATIO_PAIRS):
            n_source = len(tokenizers.source.encode(pair.tagged_source))
            n_target = len(tokenizers.target.encode(pair.target))
            if max(n_source, n_target) <= max_length:
                ratios.setdefault(pair.languages, []).append((n_target + 1) / (n_source + 1))
    return {languages: median(of_direction) for languages, of_direction in ratios.items()}


def _encode(
    open_pairs: Callable[[], Pairs],
    tokenizers: Tokenizers,
    max_length: int,
    max_ratio: float,
    ratios: Mapping[str, float],
    span: range,
) -> tuple[NDArray[np.int64], list[RaggedArray], NDArray[np.int64]]:
    """Encode a range of pairs; return line numbers and token ids of kept pairs, and (n_too_long, n_unlikely): (2,)."""
    pairs = open_pairs()
    chunk = [pairs[i] for i in span]
    source = tokenizers.source.encode_all([pair.tagged_source for pair in chunk])
    target = tokenizers.target.encode_all([pair.target for pair in chunk])
    n_source, n_target = np.array([*map(len, source)]), np.array([*map(len, target)])  # (n,) each
    too_long = np.maximum(n_source, n_target) > max_length
    usual = np.array([ratios.get(pair.languages, 1.0) for pair in chunk])
    deviation = (n_target + 1) / (n_source + 1) / usual  # as in `usual_ratios`; 1 for the usual ratio
    unlikely = ~too_long & (np.maximum(deviation, 1 / deviation) > max_ratio)
    kept = np.flatnonzero(~(too_long | unlikely))
    rows = [
        RaggedArray.from_lists([ids[i] for i in kept], np.min_scalar_type(len(tokenizer)))
        for ids, tokenizer in ((source, tokenizers.source), (target, tokenizers.target))
    ]
    return pairs.lines[span.start : span.stop][kept], rows, np.array([too_long.sum(), unlikely.sum()])


def tokenize(config: Config) -> tuple[RunDirectory, Tokenizers, dict[str, float]]:
    """`nmt tokenize`: train the tokenizer, write it into the run, and return the pieces per word of dev, by side."""
    corpus = read_corpus(config)
    tokenizers = train_tokenizers(corpus)
    run = RunDirectory(config.run)
    with run.lock():
        if run.holds_training() and run.read_tokenizers(config) != tokenizers:
            message = f"{run.path} holds a training that uses its tokenizer"
            raise ModelError(message, hint="choose another run=PATH, or move the run away first")
        run.write_tokenizers(tokenizers, config.tokenizer.joint)
    source = pieces_per_word(tokenizers.source, [pair.tagged_source for pair in corpus.dev])
    target = pieces_per_word(tokenizers.target, [pair.target for pair in corpus.dev])
    return run, tokenizers, {"source": source, "target": target}
