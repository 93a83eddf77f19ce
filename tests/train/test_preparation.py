"""From a config to pairs: dropped pairs are counted, dev shares no sentence with train, errors are found early."""

import itertools
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nmt.config import Config, check_config
from nmt.errors import DataError
from nmt.run.directory import hash_files
from nmt.text import corpus_files
from nmt.text.corpus_files import digests_of
from nmt.text.lines import Pair, iter_pairs
from nmt.text.permutation import Mixture, hold_out
from nmt.train import corpora, encoding, preparation
from nmt.train.corpora import mixture_of
from nmt.train.encoding import drop_lengths, train_tokenizers
from nmt.train.preparation import MAX_DEV_PAIRS, n_dev_pairs, n_shared, read_corpus

# 60 pairs without a repeated sentence, with enough words to train subwords on
SOURCES, TARGETS = [], []
for i in range(30):
    SOURCES += [f"die Katze läuft {i}", f"ein Hund schläft {i}"]
    TARGETS += [f"the cat runs {i}", f"a dog sleeps {i}"]
TRAIN = SOURCES, TARGETS
DEV = ["eins"], ["one"]

Sides = tuple[list[str], list[str]]


class Files:
    """A directory of corpora, and configs that name them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, sides: Sides, **settings: Any) -> dict[str, Any]:
        """Write a corpus; return its settings."""
        for ending, lines in zip(("de", "en"), sides, strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (self.path / f"{name}.{ending}").write_text(text, encoding="utf-8")
        return {"source": f"{name}.de", "target": f"{name}.en", **settings}

    def config(self, **data: Any) -> Config:
        """Return a config with these settings of `data`; a corpus that is given as its two sides is written."""
        tree: dict[str, Any] = {"root": str(self.path)}
        for name, value in data.items():
            has_sides = isinstance(value, tuple)
            tree[name] = self.write(name, value) if has_sides else value
        run = str(self.path / "run")
        return check_config({"run": run, "data": tree}, {}, "test")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return Files(tmp_path)


@pytest.fixture(autouse=True)
def log_to_caplog(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    return [record.getMessage() for record in warnings]


def refused(config: Config) -> DataError:
    """Return the error. `pytest.raises` would keep it alive, and with it a file that is still open."""
    try:
        read_corpus(config)
    except DataError as error:
        return error
    pytest.fail("it was not refused")


def lines_of(pairs: Iterable[Pair]) -> list[int]:
    return [pair.line for pair in pairs]


def sources_of(pairs: Iterable[Pair]) -> set[str]:
    return {pair.source for pair in pairs}


def test_a_corpus_is_read_with_dev(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    config = files.config(train=(["a", "b"], ["c", "d"]), dev=DEV)
    corpus = read_corpus(config)
    first, second = corpus.train
    assert first == Pair(1, "a", "c")
    assert second == Pair(2, "b", "d")
    assert corpus.dev == [Pair(1, "eins", "one")]
    assert caplog.messages == []
    assert not (files.path / "run").exists()  # nothing is written


def test_each_side_of_each_corpus_has_a_hash(files: Files) -> None:
    hashes = read_corpus(files.config(train=TRAIN, dev=DEV, test=(["x"], ["y"]))).hashes
    assert " ".join(hashes) == "train.source train.target dev.source dev.target test.source test.target"
    assert hashes["dev.target"] == hash_files([files.path / "dev.en"])


# Three blank pairs, one that is repeated, and one of which a side is.
REPEATED_SOURCES = ["", "leer", "\u3000", SOURCES[0], SOURCES[0]]
REPEATED_TARGETS = ["x", " \t", "", TARGETS[0], "another"]
REPEATED = SOURCES + REPEATED_SOURCES, TARGETS + REPEATED_TARGETS


def test_what_lines_drop_is_counted_and_told(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    dev = ["eins", "", "drei", "vier"], ["one", "two", " ", "four"]
    corpus = read_corpus(files.config(train=REPEATED, dev=dev))
    assert lines_of(corpus.train) == [*range(1, 61), 65]  # the first of equal pairs is kept
    assert lines_of(corpus.dev) == [1, 4]
    assert caplog.messages == [
        "3 pairs blank on a side dropped (data.drop_blank)",
        "1 repeated pairs dropped (data.drop_duplicates)",
        "2 pairs of dev blank on a side left out",
    ]


def test_blank_and_repeated_pairs_stay_if_the_user_wants_them(files: Files) -> None:
    config = files.config(train=REPEATED, dev=DEV, drop_blank=False, drop_duplicates=False)
    train = read_corpus(config).train
    assert lines_of(train) == [*range(1, 66)]


def mixed(files: Files) -> Config:
    """Return a config with two corpora that are mixed in, one of another directory; some pairs are repeated."""
    news_sides = [*SOURCES[4:10], ""], [*TARGETS[4:10], "x"]
    news = files.write("news", news_sides, weight=0.2)
    other = files.path / "else"
    other.mkdir()
    talk_sides = SOURCES[20:23], TARGETS[20:23]
    talks = Files(other).write("talks", talk_sides, weight=0.5, root=str(other))
    train = SOURCES[:6], TARGETS[:6]
    dev = ["neu", "ganz neu"], ["new", TARGETS[5]]
    test = SOURCES[8:10], TARGETS[8:10]
    return files.config(train=train, dev=dev, test=test, mix={"talks": talks, "news": news})


def test_corpora_that_are_mixed_in_follow_train_sorted_by_name(files: Files) -> None:
    corpus = read_corpus(mixed(files))
    sources = [pair.source for pair in corpus.train]
    assert sources == SOURCES[:10] + SOURCES[20:23]
    # Lines 7 and 8 repeat pairs of train, line 13 is blank.
    dropped = {7, 8, 13}
    assert lines_of(corpus.train) == sorted({*range(1, 17)} - dropped)
    corpora = {name.rpartition(".")[0] for name in corpus.hashes}
    assert corpora == {"train", "mix.news", "mix.talks", "dev", "test"}


def test_dev_and_test_are_compared_with_all_corpora(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    read_corpus(mixed(files))
    assert caplog.messages == [
        "1 pairs blank on a side dropped (data.drop_blank)",
        "2 repeated pairs dropped (data.drop_duplicates)",
        "1 of 2 pairs of dev have a side that is also in train: scores on it will be too high",
        "2 of 2 pairs of test have a side that is also in train: scores on it will be too high",
    ]


def test_an_epoch_mixes_the_pairs_that_are_left(files: Files) -> None:
    config = mixed(files)
    train = read_corpus(config).train
    pairs, _ = drop_lengths(config, train, train_tokenizers(config, train))
    expected = Mixture([6, 4, 3], [0.2, 0.5])
    assert mixture_of(config, train) == mixture_of(config, pairs) == expected


def test_pairs_set_aside_for_dev_are_of_train_and_their_sentences_leave_what_is_mixed_in(files: Files) -> None:
    source = SOURCES + [f"mehr {n}" for n in range(500)]
    target = [f"new {n}" for n in range(560)]
    mix = files.write("mix", (source, target), weight=0.5)
    config = files.config(train=TRAIN, mix={"all": mix})
    corpus = read_corpus(config)
    (held_out,) = corpus.dev  # 2 % of train, not of all
    assert held_out.line <= 60
    assert held_out.source not in sources_of(corpus.train)
    assert mixture_of(config, corpus.train) == Mixture([59, 559], [0.5])


def fault_of_news(files: Files, sides: Sides) -> str:
    """Return the error of a config that mixes in a corpus "news" of these sides."""
    news = files.write("news", sides, weight=0.5)
    error = refused(files.config(train=TRAIN, dev=DEV, mix={"news": news}))
    return str(error)


def test_a_mixed_in_corpus_whose_pairs_are_all_in_train_is_refused(files: Files) -> None:
    assert "mix.news has no pair that can be used" in fault_of_news(files, TRAIN)


def test_a_mixed_in_corpus_with_equal_sides_is_refused(files: Files) -> None:
    assert "data.mix.news: source and target are the same text" in fault_of_news(files, (SOURCES, SOURCES))


def test_a_mixed_in_corpus_with_a_longer_side_is_refused(files: Files) -> None:
    assert "news.en has 2" in fault_of_news(files, (["a"], ["b", "c"]))


def test_a_mixed_in_corpus_without_a_pair_that_fits_is_refused(files: Files) -> None:
    sides = ["wort " * 30], ["word " * 30]
    long = files.write("long", sides, weight=0.1)
    config = files.config(train=TRAIN, dev=DEV, max_length=20, mix={"long": long})
    train = read_corpus(config).train
    pairs, _ = drop_lengths(config, train, train_tokenizers(config, train))
    with pytest.raises(DataError, match=r"^mix\.long has no pair left$"):
        mixture_of(config, pairs)


def test_a_corpus_that_can_be_downloaded_is_not_found(files: Files) -> None:
    absent = {"source": "news.de", "target": "news.en", "root": "tatoeba-deu-eng"}
    assert "nmt download tatoeba-deu-eng" in refused(files.config(train=absent)).hint


BLANK = ["", "a"], ["x", " "]


NO_PAIR: list[tuple[str, dict[str, Sides]]] = [  # the part that has none, and the corpora
    ("train", {"train": BLANK, "dev": DEV}),
    ("dev", {"train": TRAIN, "dev": BLANK}),
    ("train", {"train": (["a", "a"], ["b", "c"])}),  # dev takes all
]


@pytest.mark.parametrize(("part", "corpora"), NO_PAIR)
def test_a_part_without_a_pair_is_refused(files: Files, part: str, corpora: dict[str, Sides]) -> None:
    error = refused(files.config(**corpora))
    assert str(error) == f"{part} has no pair that can be used"
    assert error.hint.startswith("check its files")


@pytest.mark.parametrize(("n", "n_dev"), [(50, 1), (5_000, 100)])
def test_without_dev_some_of_train_is_held_out_and_told(
    files: Files, caplog: pytest.LogCaptureFixture, n: int, n_dev: int
) -> None:
    """It is told again if the corpus is in the cache."""
    source = [f"wort {i}" for i in range(n)]
    target = [f"word {i}" for i in range(n)]
    config = files.config(train=(source, target))
    first, again = read_corpus(config), read_corpus(config)
    assert len(first.dev) == n_dev
    assert len(first.train) == n - n_dev
    assert again.dev == first.dev
    assert list(again.train) == list(first.train)
    told = f"no data.dev: {n_dev} pairs of train set aside for it, none of their sentences left in train"
    assert caplog.messages.count(told) == 2


@pytest.mark.parametrize("name", ["train", "test"])
def test_another_encoding_is_refused_unless_allowed(files: Files, caplog: pytest.LogCaptureFixture, name: str) -> None:
    corpora: dict[str, Sides] = {"train": TRAIN, "dev": DEV, "test": TRAIN}
    config = files.config(**corpora)
    file = files.path / f"{name}.de"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("t", "ä"), encoding="latin1")
    error = refused(config)
    assert str(error).startswith(f"{file} is not UTF-8 in 60 of 60 lines (line 1 at byte 7, ")
    assert "data.allow_bad_utf8=true" in error.hint
    assert warnings_of(caplog) == []
    # With U+FFFD in its place. The other config is refused although this corpus is in the cache.
    allowed = config.data.model_copy(update={"allow_bad_utf8": True})
    corpus = read_corpus(config.model_copy(update={"data": allowed}))
    assert len(corpus.train) == 60
    assert len(warnings_of(caplog)) == 1
    refused(config)


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_equal_sides_are_refused(files: Files, name: str) -> None:
    files.write("equal", TRAIN)
    corpora: dict[str, Any] = {"train": TRAIN, "dev": DEV, "test": DEV}
    corpora[name] = {"source": "equal.de", "target": "equal.de"}
    error = refused(files.config(**corpora))
    assert str(error) == f"data.{name}: source and target are the same text"


def prepared(config: Config, caplog: pytest.LogCaptureFixture) -> tuple[Any, ...]:
    """Return the lines, source ids and log messages of a config."""
    caplog.clear()
    train = read_corpus(config).train
    pairs, (source, _) = drop_lengths(config, train, train_tokenizers(config, train))
    ids = [source[i] for i in range(len(source))]
    return lines_of(pairs), ids, caplog.messages[:]


@pytest.mark.parametrize("changes", [{"drop_blank": False}, {"max_length": 14}, {"max_ratio": 1.02}], ids=str)
def test_what_differs_is_prepared_anew(files: Files, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]) -> None:
    before = prepared(files.config(train=REPEATED), caplog)
    result = prepared(files.config(train=REPEATED, **changes), caplog)
    assert result != before


def test_with_a_target_tag_the_pairs_of_dev_have_no_language(files: Files) -> None:
    corpora = {name: [files.write(name, sides, languages="de-en")] for name, sides in (("train", TRAIN), ("dev", DEV))}
    assert read_corpus(files.config(**corpora)).dev[0].languages == "de-en"
    assert read_corpus(files.config(**corpora, target_tag="en")).dev[0].languages == ""


def test_another_seed_sets_other_pairs_aside(files: Files) -> None:
    config = files.config(train=TRAIN)
    reseeded = config.model_copy(update={"seed": 2})
    first, second = read_corpus(config), read_corpus(reseeded)
    assert first.dev != second.dev


def test_what_is_equal_is_prepared_once(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = files.config(train=REPEATED)
    before = prepared(config, caplog)
    # What would prepare it again cannot be called.
    monkeypatch.setattr(preparation, "write_corpus", None)
    monkeypatch.setattr(encoding, "train_tokenizer", None)
    monkeypatch.setattr(encoding, "in_parallel", None)
    assert prepared(config, caplog) == before


@pytest.mark.parametrize("name", ["train", "dev"])
def test_a_corpus_that_changes_in_reading_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    config = files.config(train=TRAIN, dev=DEV)
    file = files.path / f"{name}.de"
    content = file.read_bytes()

    def read_what_has_changed(*paths: Any, **options: Any) -> list[Pair]:
        file.write_bytes(content.replace(b"e", b"o"))
        return list(iter_pairs(*paths, **options))

    with monkeypatch.context() as patch:
        patch.setattr(corpora, "iter_pairs", read_what_has_changed)
        assert str(refused(config)) == "a file of the corpus has changed while it was read"
    # Nothing of it is in the cache.
    file.write_bytes(content)
    result = [pair.source for pair in read_corpus(config).train]
    assert result == SOURCES


def test_many_parts_are_as_one(files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The same pairs are dropped, and the kept pairs have the same ids."""
    source = SOURCES + SOURCES[3:6] + SOURCES
    target = TARGETS + TARGETS[3:6] + TARGETS
    config = files.config(train=(source, target))
    expected = prepared(config, caplog)
    monkeypatch.setenv("NMT_CACHE", str(files.path / "another"))
    monkeypatch.setattr(corpus_files, "CHUNK", 9)
    monkeypatch.setattr(encoding, "CHUNK", 9)
    assert prepared(config, caplog) == expected


@pytest.fixture
def with_symbols(files: Files) -> Config:
    """A corpus in which each word has one translation."""
    source, target = [], []
    for i, j in itertools.product(range(12), range(12, 24)):
        source.append(f"s{i} und s{j} hier")
        target.append(f"there t{j} and t{i}")
    return files.config(train=(source, target), dev=DEV, glossary=True, placeholders=True)


def test_the_source_of_some_pairs_has_terms_and_symbols(with_symbols: Config) -> None:
    n_terms = n_right = n_symbols = 0
    for pair in read_corpus(with_symbols).train:
        for number, term in re.findall("s(\\d+)⟦=⟧ (\\w+)⟦/⟧", pair.source):
            n_terms += 1
            n_right += term == f"t{number}"
            assert term in pair.target
        n_symbols += "⟦1⟧" in pair.source and "⟦1⟧" in pair.target
    assert n_terms > 40
    assert n_right / n_terms == pytest.approx(0.75, abs=0.15)
    assert 10 < n_symbols < 40


def test_each_symbol_is_a_piece(with_symbols: Config) -> None:
    train = read_corpus(with_symbols).train
    source, _ = train_tokenizers(with_symbols, train)
    pieces = source.pieces(source.encode("a⟦=⟧⟦/⟧⟦1⟧"))
    assert pieces[-3:] == ["⟦=⟧", "⟦/⟧", "⟦1⟧"]


def digests(pairs: list[Pair]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    source = digests_of(pair.source for pair in pairs)
    target = digests_of(pair.target for pair in pairs)
    return source, target


def targets_of(pairs: list[Pair]) -> set[str]:
    return {pair.target for pair in pairs}


def split(pairs: list[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return train and dev."""
    n_dev = n_dev_pairs(len(pairs))
    held_out, remaining = hold_out(*digests(pairs), n_dev, seed)
    train = list(itertools.compress(pairs, remaining))
    return train, [pairs[i] for i in held_out]


SENTENCES = st.sampled_from("abcdefgh") | st.text("ab", max_size=3)
CORPORA = st.lists(st.tuples(SENTENCES, SENTENCES), max_size=120)


@hypothesis_settings(max_examples=150)
@given(CORPORA, st.integers(0, 99))
def test_no_sentence_of_dev_stays_in_train_on_either_side(sides: list[tuple[str, str]], seed: int) -> None:
    pairs = []
    for line, (source, target) in enumerate(sides, 1):
        pairs.append(Pair(line, source, target))
    train, dev = split(pairs, seed)
    assert sources_of(dev).isdisjoint(sources_of(train))
    assert targets_of(dev).isdisjoint(targets_of(train))
    # And so says the count that users are told.
    assert n_shared(dev, *digests(train)) == 0
    result = set(train) | set(dev)
    assert result <= set(pairs)
    assert lines_of(train) == sorted(lines_of(train))
    assert lines_of(dev) == sorted(set(lines_of(dev)))
    if pairs:
        two_percent = len(pairs) // 50
        assert len(dev) == max(1, two_percent)
    # The same seed holds out the same pairs.
    assert split(pairs, seed) == (train, dev)


def test_dev_has_one_to_a_thousand_pairs() -> None:
    assert n_dev_pairs(1) == 1
    assert n_dev_pairs(500) == 10
    assert n_dev_pairs(60_000) == MAX_DEV_PAIRS


def test_sentences_that_occur_once_are_held_out_first() -> None:
    often = [Pair(n, "often", f"t{n}") for n in range(1, 60)]
    once = Pair(60, "once", "once")
    train, dev = split([*often, once], seed=1)
    assert dev == [once]
    assert train == often
