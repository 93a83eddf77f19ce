"""The text of a training: reading and checking the corpora, dropping pairs, holding out dev pairs.

Training pairs are stored in the user's cache, under a hash of the corpus files and settings.
"""

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.config import Config, Data
from nmt.corpus import alignment
from nmt.corpus.split import count_words
from nmt.errors import DataError
from nmt.files import cached
from nmt.text import corpus_files, glossary, permutation, placeholders
from nmt.text.corpus_files import SIDES, CorpusRange, Pairs, RaggedArray
from nmt.text.lines import Pair
from nmt.text.permutation import Digests
from nmt.train.corpora import corpus_hashes, mixture_of, named, pairs_of, training_corpora
from nmt.train.plan import CorpusSize, clamp

log = logging.getLogger("nmt")

MAX_DEV_PAIRS = 1_000
DEV_SHARE = 0.02  # share of the pairs of data.train that is held out if data.dev is not set
SAMPLE_PAIRS = 200_000  # default size of `sample`; training a tokenizer on more pairs takes too much memory
LEXICON_PAIRS = 50_000  # maximum number of pairs from which `lexicon_of` learns translations of words
FORMAT = 7  # version of the files in the cache; raise it when their content changes


@dataclass
class TrainingText:
    """The training and dev pairs of a run, and facts about the corpora."""

    train: Pairs  # pairs of all `training_corpora`, one corpus after the other; the text is on disk
    dev: list[Pair]  # pairs in memory
    hashes: dict[str, str]  # SHA-256 of each side of each corpus
    size: CorpusSize


def read_corpus(config: Config) -> TrainingText:
    """Read the training and dev corpora, and drop blank and repeated pairs. Check that the test corpora can be read."""
    data = config.data
    hashes = corpus_hashes(config)

    # 1. Write the text into the cache, or find the text there.
    def write(directory: Path) -> None:
        write_corpus(config, directory)
        if corpus_hashes(config) != hashes:  # the new text must not be stored under the old hashes
            raise DataError("a file of the corpus has changed while it was read", hint="start again")

    seed_of_dev = None if data.dev else config.seed
    settings = [data.drop_blank, data.drop_duplicates, data.allow_bad_utf8, seed_of_dev, bool(data.directions)]
    directory = cached("pairs", [FORMAT, hashes, settings], write)
    if data.glossary or data.placeholders:
        # Use an annotated copy of the pairs.
        directory = annotated_pairs(Pairs(directory), data)

    # 2. Read the summary of the text.
    summary = json.loads((directory / "corpus.json").read_text(encoding="utf-8"))
    for note in summary["notes"]:
        log.info("%s", note)
    dev = [Pair(*pair) for pair in summary["dev"]]
    train = Pairs(directory, ranges=ranges_of(config, summary["last_lines"]))

    # 3. Compute the size of an epoch.
    mixture = mixture_of(config, train)
    n_pairs = mixture.n_pairs if mixture else len(train)
    n_words = round(n_pairs * summary["words_per_pair"])
    size = CorpusSize(n_pairs, n_words, summary["n_characters"])
    return TrainingText(train, dev, hashes, size)


def ranges_of(config: Config, last_lines: Sequence[int]) -> list[CorpusRange]:
    """Return the range of lines of each training corpus, given the last line of each."""
    ranges = []
    for last_line, files in zip(last_lines, training_corpora(config).values(), strict=True):
        ranges.append(CorpusRange(last_line, files.languages if config.data.directions else ""))
    return ranges


def write_corpus(config: Config, directory: Path) -> None:
    """Write the text of the training corpora, the line numbers of the kept pairs, and a summary."""
    # 1. Read all corpora. Dev and test pairs stay in memory; training pairs are written to disk.
    data = config.data
    dev_names = named("dev", data.dev)
    dev_and_test = dev_names | named("test", data.test)
    held_out = {name: list(pairs_of(config, files)) for name, files in dev_and_test.items()}
    corpora = training_corpora(config)
    last_lines = [corpus_files.write_pairs(directory, pairs_of(config, files)) for files in corpora.values()]

    # 2. Drop blank and repeated training pairs. `kept` is a mask of the pairs that remain.
    notes: list[str] = []  # messages for the user
    files_of_digests = {name: directory / f"{name}.digest" for name in (*SIDES, "pair")}
    digests = {name: corpus_files.mapped(file, np.uint64) for name, file in files_of_digests.items()}
    blank = corpus_files.mapped(directory / "blank", np.bool_)
    kept = kept_pairs(data, blank, digests["pair"], notes)

    # 3. Collect the pairs of data.dev, or hold out training pairs as dev pairs.
    if data.dev:
        read: list[Pair] = []
        for name in dev_names:
            read += held_out[name]
        dev = [pair for pair in read if pair.has_text]
        n_blank = len(read) - len(dev)
        if n_blank:
            notes.append(f"{n_blank} pairs of dev blank on a side left out")
    else:
        dev = hold_out_dev(Pairs(directory), digests, kept, last_lines[0], config.seed)
        notes.append(f"no data.dev: {len(dev)} pairs of train set aside for it, none of their sentences left in train")
    corpus_files.keep(directory / "lines", kept)

    # 4. Check the corpora. Count dev and test pairs that overlap with the training pairs.
    pairs = Pairs(directory, ranges=ranges_of(config, last_lines))
    pairs_of_corpora = dict(zip(corpora, pairs.by_corpus(), strict=True))
    check_corpora(pairs_of_corpora, dev, held_out)
    in_train = digests["source"][kept], digests["target"][kept]
    if data.directions:  # a sentence can be source in one direction and target in another
        both = np.concatenate(in_train)
        in_train = (both, both)
    for name, corpus in held_out.items():
        if n := n_shared(corpus, *in_train):
            notes.append(
                f"{n} of {len(corpus)} pairs of {name} have a side that is also in train: scores on it will be too high"
            )

    # 5. Write the summary, and delete the files that were needed only to drop pairs.
    summary = {"dev": [astuple(pair) for pair in dev], "notes": notes, "last_lines": last_lines}
    summary |= counts_of(sample(pairs))
    (directory / "corpus.json").write_text(json.dumps(summary), encoding="utf-8")
    for file in (*files_of_digests.values(), directory / "blank"):
        file.unlink()


def kept_pairs(data: Data, blank: NDArray[np.bool_], digests: Digests, notes: list[str]) -> NDArray[np.bool_]:
    """Return a mask of the pairs that are neither blank nor repeated. Add the numbers of dropped pairs to `notes`.

    `blank` is a mask of the blank pairs, and `digests` has a digest of each pair.
    """
    kept = np.ones_like(blank)
    faults: dict[str, NDArray[np.bool_]] = {}
    if data.drop_blank:
        faults["pairs blank on a side dropped (data.drop_blank)"] = blank
    if data.drop_duplicates:
        faults["repeated pairs dropped (data.drop_duplicates)"] = ~permutation.first_occurrences(digests)
    for kind, has_fault in faults.items():
        n_dropped = int((kept & has_fault).sum())
        if n_dropped:
            notes.append(f"{n_dropped} {kind}")
        kept &= ~has_fault
    return kept


def hold_out_dev(
    pairs: Pairs, digests: dict[str, Digests], kept: NDArray[np.bool_], last_line: int, seed: int
) -> list[Pair]:
    """Choose random pairs of data.train as dev pairs, and remove them from the mask `kept`.

    Pairs that share a sentence with a dev pair are removed, too. data.train is the first corpus, up to `last_line`.
    Other corpora are not used, because their text may be of another kind.
    """
    index = np.flatnonzero(kept)
    n_train = int(kept[:last_line].sum())
    source = digests["source"][index]
    target = digests["target"][index]
    n_dev = n_dev_pairs(n_train)
    chosen, remaining = permutation.hold_out(source, target, n_dev, seed, n_train)
    kept[index] = remaining
    return [pairs[int(i)] for i in index[chosen]]


def counts_of(pairs: list[Pair]) -> dict[str, Any]:
    """Return the number of distinct characters, and the mean number of target words per pair."""
    characters = set[str]()
    for pair in pairs:
        characters.update(pair.source, pair.target)
    return {"n_characters": len(characters), "words_per_pair": mean(count_words(pair.target) for pair in pairs)}


def check_corpora(training: dict[str, Pairs], dev: list[Pair], held_out: dict[str, list[Pair]]) -> None:
    """Raise DataError if a corpus has no pairs, or if both sides of a corpus are the same text.

    `training` and `dev` are the kept pairs. `held_out` are the dev and test corpora as they were read.
    """
    read: dict[str, Pairs | list[Pair]] = {**training, **held_out}
    for name, pairs in {**read, "dev": dev}.items():
        if not len(pairs):
            raise DataError(
                f"{name} has no pair that can be used",
                hint="check its files; blank pairs, and pairs that an earlier corpus has, are dropped",
            )
        if name in read and all(pair.source == pair.target for pair in pairs):
            hint = f"name the files of the two languages in data.{name}.source and data.{name}.target"
            raise DataError(f"data.{name}: source and target are the same text", hint=hint)


def n_dev_pairs(n_pairs: int) -> int:
    """Return how many of `n_pairs` training pairs are held out as dev pairs."""
    return int(clamp(n_pairs * DEV_SHARE, 1, MAX_DEV_PAIRS))


def n_shared(pairs: list[Pair], source: Digests, target: Digests) -> int:
    """Return how many pairs have a side that is also in the training corpora.

    `source` and `target` are the digests of the two sides of the training pairs.
    """
    sources = corpus_files.digests_of(pair.source for pair in pairs)
    targets = corpus_files.digests_of(pair.target for pair in pairs)
    is_shared = np.isin(sources, source) | np.isin(targets, target)
    return int(is_shared.sum())


def sample(pairs: Pairs, size: int | None = None) -> list[Pair]:
    """Return a random sample of at most `size` pairs (default `SAMPLE_PAIRS`), in the order of the corpus."""
    n = len(pairs)
    size = size or SAMPLE_PAIRS
    if n <= size:
        return list(pairs)
    # The seed is fixed, so that every process chooses the same pairs.
    chosen = permutation.shuffled(np.arange(size), n, seed=0)
    return [pairs[int(i)] for i in np.sort(chosen)]


def annotated_pairs(pairs: Pairs, data: Data) -> Path:
    """Return the directory of a copy of the pairs, annotated for `data.glossary` and `data.placeholders`.

    In the copy, translations follow some source terms, and symbols replace some spans.
    """

    def write(directory: Path) -> None:
        shutil.copytree(
            pairs.directory, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("source*", "target*")
        )
        # Copy dropped pairs, too, because pairs refer to texts by line number.
        lexicon = lexicon_of(pairs)
        for source, target in chunks_of_lines(pairs):
            annotate(source, target, lexicon, data)
            corpus_files.append_rows(directory / "source", RaggedArray.from_texts(source))
            corpus_files.append_rows(directory / "target", RaggedArray.from_texts(target))

    origin = [FORMAT, pairs.directory.name, data.glossary, data.placeholders]
    return cached("annotated", origin, write)


def lexicon_of(pairs: Pairs) -> alignment.Lexicon:
    """Return a lexicon of word translations, learned from a random sample of the pairs."""
    sampled = sample(pairs, LEXICON_PAIRS)
    source = alignment.hash_words([pair.source for pair in sampled])
    target = alignment.hash_words([pair.target for pair in sampled])
    return alignment.learn_lexicon(source, target)


def chunks_of_lines(pairs: Pairs) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the source texts and target texts of all lines in chunks. Dropped pairs are included."""
    n_lines = len(pairs.source)
    for start in range(0, n_lines, alignment.BATCH):
        lines = range(start, min(start + alignment.BATCH, n_lines))
        source = [pairs.source.text(i) for i in lines]
        yield source, [pairs.target.text(i) for i in lines]


def annotate(source: list[str], target: list[str], lexicon: alignment.Lexicon, data: Data) -> None:
    """Annotate the texts of a chunk of lines with terms and symbols, in place."""
    # 1. Find words that are translations of each other.
    links = alignment.sure_links(source, target, lexicon)

    # 2. Annotate terms. Some get the translation of another word, so that the model learns to copy any translation.
    if data.glossary:
        translations = set[str]()
        for text, links_of_line in zip(target, links, strict=True):
            translations.update(text[start:end] for _, (start, end) in links_of_line)
        candidates = sorted(translations)
        for i, links_of_line in enumerate(links):
            source[i], target[i] = glossary.with_terms(source[i], target[i], links_of_line, candidates)

    # 3. Replace spans by symbols in lines without annotated terms.
    if data.placeholders:
        for i, links_of_line in enumerate(links):
            if glossary.TERM not in source[i]:
                source[i], target[i] = placeholders.with_symbols(source[i], target[i], links_of_line)
