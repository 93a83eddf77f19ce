"""From a config to pairs: dropped pairs are counted, dev shares no sentence with train, errors are found early."""

import logging
import re
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
SOURCES = [f"die Katze läuft {n}" for n in range(30)] + [f"ein Hund schläft {n}" for n in range(30)]
TARGETS = [f"the cat runs {n}" for n in range(30)] + [f"a dog sleeps {n}" for n in range(30)]


class Files:
    """A directory of corpora, and configs that name them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, source: list[str], target: list[str]) -> dict[str, str]:
        (self.path / f"{name}.de").write_text("".join(f"{line}\n" for line in source), encoding="utf-8")
        (self.path / f"{name}.en").write_text("".join(f"{line}\n" for line in target), encoding="utf-8")
        return {"source": f"{name}.de", "target": f"{name}.en"}

    def config(self, data: dict[str, Any], **sections: Any) -> Config:
        data = {"root": str(self.path), **data}
        return check_config({"run": str(self.path / "run"), "data": data, **sections}, {}, "test")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return Files(tmp_path)


@pytest.fixture(autouse=True)
def log_to_caplog(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")


def notes_of(caplog: pytest.LogCaptureFixture, level: str = "INFO") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


def refused(config: Config) -> DataError:
    with pytest.raises(DataError) as caught:
        read_corpus(config)
    assert caught.value.hint
    return caught.value


def lines_of(pairs: Any) -> list[int]:
    return [pair.line for pair in pairs]


def test_a_corpus_is_read_with_dev_and_hashes(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    train = files.write("train", SOURCES[:2], TARGETS[:2])
    dev = files.write("dev", ["eins", "drei"], ["one", "three"])
    test = files.write("test", ["x"], ["y"])
    corpus = read_corpus(files.config({"train": train, "dev": dev, "test": test}))
    assert list(corpus.train) == [Pair(1, SOURCES[0], TARGETS[0]), Pair(2, SOURCES[1], TARGETS[1])]
    assert corpus.dev == [Pair(1, "eins", "one"), Pair(2, "drei", "three")]
    names = ["train.source", "train.target", "dev.source", "dev.target", "test.source", "test.target"]
    assert list(corpus.hashes) == names
    assert corpus.hashes["dev.target"] == hash_files([files.path / "dev.en"])
    assert notes_of(caplog) == []
    assert list(files.path.glob("run*")) == []  # nothing is written


def test_what_lines_drop_is_counted_and_told(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    blank = {"source": ["", "leer", "\u3000"], "target": ["blank", " \t", ""]}
    source = [*SOURCES, *blank["source"], SOURCES[0], SOURCES[0]]
    target = [*TARGETS, *blank["target"], TARGETS[0], "another"]
    dev = files.write("dev", ["eins", "", "drei", "vier"], ["one", "two", " ", "four"])
    corpus = read_corpus(files.config({"train": files.write("train", source, target), "dev": dev}))
    assert lines_of(corpus.train) == [*range(1, 61), 65]  # the first of equal pairs is kept
    assert lines_of(corpus.dev) == [1, 4]
    assert notes_of(caplog) == [
        "3 pairs blank on a side dropped (data.drop_blank)",
        "1 repeated pairs dropped (data.drop_duplicates)",
        "2 pairs of dev blank on a side left out",
    ]


def test_blank_and_repeated_pairs_stay_if_the_user_wants_them(files: Files) -> None:
    train = files.write("train", [*SOURCES, "", SOURCES[0]], [*TARGETS, "x", TARGETS[0]])
    dev = files.write("dev", ["eins"], ["one"])
    corpus = read_corpus(files.config({"train": train, "dev": dev, "drop_blank": False, "drop_duplicates": False}))
    assert lines_of(corpus.train) == [*range(1, 63)]


def test_corpora_that_are_mixed_in_follow_train(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """They are sorted by name; repeated pairs are dropped; dev and test are compared with all corpora."""
    train = files.write("train", SOURCES[:6], TARGETS[:6])
    news = files.write("news", [*SOURCES[4:10], ""], [*TARGETS[4:10], "x"])
    (files.path / "else").mkdir()
    files.write("else/talks", SOURCES[20:23], TARGETS[20:23])
    talks = {"source": "talks.de", "target": "talks.en", "root": str(files.path / "else")}
    dev = files.write("dev", ["neu", "ganz neu"], ["new", TARGETS[5]])
    test = files.write("test", SOURCES[8:10], TARGETS[8:10])
    mix = {"talks": {**talks, "weight": 0.5}, "news": {**news, "weight": 0.2}}
    config = files.config({"train": train, "dev": dev, "test": test, "mix": mix})
    corpus = read_corpus(config)
    assert [pair.source for pair in corpus.train] == [*SOURCES[:10], *SOURCES[20:23]]
    assert lines_of(corpus.train) == [*range(1, 7), *range(9, 13), *range(14, 17)]
    assert {name.rpartition(".")[0] for name in corpus.hashes} == {"train", "mix.news", "mix.talks", "dev", "test"}
    assert notes_of(caplog) == [
        "1 pairs blank on a side dropped (data.drop_blank)",
        "2 repeated pairs dropped (data.drop_duplicates)",
        "1 of 2 pairs of dev have a side that is also in train: scores on it will be too high",
        "2 of 2 pairs of test have a side that is also in train: scores on it will be too high",
    ]
    # The shares are those of the pairs that are left.
    pairs, _ = drop_lengths(config, corpus.train, train_tokenizers(config, corpus.train))
    expected = Mixture([6, 4, 3], [0.2, 0.5])
    assert mixture_of(config, corpus.train) == mixture_of(config, pairs) == expected


def test_pairs_set_aside_for_dev_are_of_train_and_their_sentences_leave_what_is_mixed_in(files: Files) -> None:
    more = [f"mehr {n}" for n in range(500)]
    mix = files.write("mix", [*SOURCES, *more], [f"new {n}" for n in range(560)])
    config = files.config({"train": files.write("train", SOURCES, TARGETS), "mix": {"all": {**mix, "weight": 0.5}}})
    corpus = read_corpus(config)
    (held_out,) = corpus.dev  # 2 % of train, not of all
    assert held_out.line <= 60
    assert held_out.source not in {pair.source for pair in corpus.train}
    assert mixture_of(config, corpus.train) == Mixture([59, 559], [0.5])


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        pytest.param(SOURCES, TARGETS, "mix.news has no pair that can be used", id="all are in train"),
        pytest.param(SOURCES, SOURCES, "data.mix.news: source and target are the same text", id="the same text"),
        pytest.param(["a"], ["b", "c"], "news.en has 2", id="a side is longer"),
    ],
)
def test_faults_of_a_corpus_that_is_mixed_in_name_it(
    files: Files, source: list[str], target: list[str], message: str
) -> None:
    data = {"train": files.write("train", SOURCES, TARGETS), "dev": files.write("dev", ["eins"], ["one"])}
    news = {**files.write("news", source, target), "weight": 0.5}
    assert message in str(refused(files.config({**data, "mix": {"news": news}})))


def test_a_corpus_that_can_be_downloaded_is_not_found(files: Files) -> None:
    absent = {"source": "news.de", "target": "news.en", "root": "tatoeba-deu-eng"}
    assert "nmt download tatoeba-deu-eng" in refused(files.config({"train": absent})).hint


def test_a_mixed_in_corpus_without_a_pair_that_fits_is_refused(files: Files) -> None:
    data = {"train": files.write("train", SOURCES, TARGETS), "dev": files.write("dev", ["eins"], ["one"])}
    long = {**files.write("long", ["wort " * 30], ["word " * 30]), "weight": 0.1}
    config = files.config({**data, "max_length": 20, "mix": {"long": long}})
    train = read_corpus(config).train
    pairs, _ = drop_lengths(config, train, train_tokenizers(config, train))
    with pytest.raises(DataError, match=r"^mix\.long has no pair left$"):
        mixture_of(config, pairs)


def test_a_corpus_of_blank_pairs_is_refused(files: Files) -> None:
    data = {"train": files.write("train", ["", " "], ["x", "y"]), "dev": files.write("dev", ["a"], ["b"])}
    error = refused(files.config(data))
    assert str(error) == "train has no pair that can be used"
    assert error.hint == "check data.train and data.dev"


def test_a_dev_set_of_blank_pairs_is_refused(files: Files) -> None:
    data = {"train": files.write("train", ["a"], ["b"]), "dev": files.write("dev", ["", "a"], ["x", ""])}
    assert str(refused(files.config(data))) == "dev has no pair that can be used"


def test_a_corpus_that_is_too_small_for_dev_is_refused(files: Files) -> None:
    data = {"train": files.write("train", ["a", "a"], ["b", "c"])}
    assert str(refused(files.config(data))) == "train has no pair that can be used"


@pytest.mark.parametrize(("n", "n_dev"), [(50, 1), (5_000, 100)])
def test_without_dev_some_of_train_is_held_out_and_told(
    files: Files, caplog: pytest.LogCaptureFixture, n: int, n_dev: int
) -> None:
    """It is told again if the corpus is in the cache."""
    train = files.write("train", [f"wort {i}" for i in range(n)], [f"WORD {i}" for i in range(n)])
    first = read_corpus(files.config({"train": train}))
    again = read_corpus(files.config({"train": train}))
    assert (len(first.dev), len(first.train)) == (n_dev, n - n_dev)
    assert again.dev == first.dev
    assert list(again.train) == list(first.train)
    told = f"no data.dev: {n_dev} pairs of train set aside for it, none of their sentences left in train"
    assert notes_of(caplog) == [told, told]


def test_a_small_dev_set_is_warned_of_unless_the_user_chose_it(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    train = files.write("train", SOURCES, TARGETS)
    read_corpus(files.config({"train": train, "dev": files.write("dev", ["d"], ["e"])}))
    assert notes_of(caplog, "WARNING") == []
    read_corpus(files.config({"train": train}))
    warning = "dev has only 1 pairs, held out of train: scores on fewer than 100 are mostly chance; set data.dev"
    assert notes_of(caplog, "WARNING") == [warning]


@pytest.mark.parametrize("name", ["train", "test"])
def test_another_encoding_is_refused_unless_allowed(files: Files, caplog: pytest.LogCaptureFixture, name: str) -> None:
    source = [f"die Bären {n}" for n in range(60)]
    data: dict[str, Any] = {part: files.write(part, source, TARGETS) for part in ("train", "dev", "test")}
    file = files.path / f"{name}.de"
    file.write_bytes(file.read_bytes().replace("ä".encode(), "ä".encode("latin1")))
    error = refused(files.config(data))
    assert str(error).startswith(f"{file} is not UTF-8 in 60 of 60 lines (line 1 at byte 6, ")
    assert "data.allow_bad_utf8=true" in error.hint
    assert notes_of(caplog, "WARNING") == []
    assert len(read_corpus(files.config({**data, "allow_bad_utf8": True})).train) == 60
    assert len(notes_of(caplog, "WARNING")) == 1
    refused(files.config(data))  # although the corpus with U+FFFD is in the cache


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_equal_sides_are_refused(files: Files, name: str) -> None:
    data: dict[str, Any] = {part: files.write(part, SOURCES, TARGETS) for part in ("train", "dev", "test")}
    data[name] = {"source": f"{name}.de", "target": f"{name}.de"}
    assert str(refused(files.config(data))) == f"data.{name}: source and target are the same text"


@pytest.mark.parametrize("name", ["dev", "test"])
def test_exchanged_sides_are_refused(files: Files, name: str) -> None:
    data: dict[str, Any] = {part: files.write(part, SOURCES, TARGETS) for part in ("train", "dev", "test")}
    data[name] = {"source": f"{name}.en", "target": f"{name}.de"}
    message = f"data.{name} has its sides exchanged: its source is {name}.en, that of train train.de"
    assert str(refused(files.config(data))) == message


def prepared(config: Config, caplog: pytest.LogCaptureFixture) -> tuple[Any, ...]:
    """Return the lines, source ids and log messages of a config."""
    caplog.clear()
    train = read_corpus(config).train
    pairs, (source, _) = drop_lengths(config, train, train_tokenizers(config, train))
    ids = [source[i] for i in range(len(source))]
    return lines_of(pairs), ids, notes_of(caplog)


@pytest.mark.parametrize(
    "changes",
    [{"data": {"drop_blank": False}}, {"data": {"max_length": 19}}, {"data": {"max_ratio": 1.02}}, {"seed": 2}],
    ids=str,
)
def test_what_differs_is_prepared_anew_and_what_is_equal_once(
    files: Files, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = {"train": files.write("train", [*SOURCES, "", SOURCES[0]], [*TARGETS, "", TARGETS[0]])}
    tokenizer = {"type": "char"}
    config = files.config(data, tokenizer=tokenizer)
    before = prepared(config, caplog)
    data |= changes.pop("data", {})
    assert prepared(files.config(data, tokenizer=tokenizer, **changes), caplog) != before
    monkeypatch.setattr(preparation, "write_corpus", None)
    monkeypatch.setattr(encoding, "train_tokenizer", None)
    monkeypatch.setattr(encoding, "in_parallel", None)
    assert prepared(config, caplog) == before


@pytest.mark.parametrize("name", ["train", "dev"])
def test_a_corpus_that_changes_in_reading_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    config = files.config({"train": files.write("train", SOURCES, TARGETS), "dev": files.write("dev", ["a"], ["b"])})
    content = (files.path / f"{name}.de").read_bytes()

    def read_what_has_changed(*paths: Any, **options: Any) -> list[Pair]:
        (files.path / f"{name}.de").write_bytes(content.replace(b"a", b"o"))
        return list(iter_pairs(*paths, **options))

    with monkeypatch.context() as patch:
        patch.setattr(corpora, "iter_pairs", read_what_has_changed)
        assert str(refused(config)) == "a file of the corpus has changed while it was read"
    (files.path / f"{name}.de").write_bytes(content)
    assert [pair.source for pair in read_corpus(config).train] == SOURCES


def test_many_parts_are_as_one(files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The same pairs are dropped, and the kept pairs have the same ids."""
    train = files.write("train", SOURCES + SOURCES[3:6] + SOURCES, TARGETS + TARGETS[3:6] + TARGETS)
    config = files.config({"train": train}, tokenizer={"type": "char"})
    expected = prepared(config, caplog)
    monkeypatch.setenv("NMT_CACHE", str(files.path / "another"))
    monkeypatch.setattr(corpus_files, "CHUNK", 9)
    monkeypatch.setattr(encoding, "CHUNK", 9)
    assert prepared(config, caplog) == expected


def test_the_source_of_some_pairs_has_terms(files: Files) -> None:
    numbers = [(i, j) for i in range(12) for j in range(12, 24)]
    source = [f"s{i} und s{j} hier" for i, j in numbers]
    target = [f"there t{j} and t{i}" for i, j in numbers]
    data = {"train": files.write("train", source, target), "dev": files.write("dev", ["d"], ["e"])}
    config = files.config({**data, "glossary": True, "placeholders": True})
    train = read_corpus(config).train
    n_terms = n_right = n_symbols = 0
    for pair in train:
        for number, term in re.findall("s(\\d+)⟦=⟧ (\\w+)⟦/⟧", pair.source):
            n_terms += 1
            n_right += term == f"t{number}"
            assert term in pair.target
        n_symbols += "⟦1⟧" in pair.source and "⟦1⟧" in pair.target
    assert n_terms > 40
    assert n_right / n_terms == pytest.approx(0.75, abs=0.15)
    assert 10 < n_symbols < 40
    # The tokenizer has a piece for each symbol.
    tokenizers = train_tokenizers(config, train)
    assert tokenizers.source.pieces(tokenizers.source.encode("a⟦=⟧⟦/⟧⟦1⟧"))[-3:] == ["⟦=⟧", "⟦/⟧", "⟦1⟧"]
    pairs, (ids, _) = drop_lengths(config, train, tokenizers)
    assert ids[0] == tokenizers.source.encode(pairs[0].source)


def digests(pairs: list[Pair]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return digests_of(pair.source.encode() for pair in pairs), digests_of(pair.target.encode() for pair in pairs)


def split(pairs: list[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return train and dev."""
    held_out, remaining = hold_out(*digests(pairs), n_dev_pairs(len(pairs)), seed)
    return [pairs[i] for i in np.flatnonzero(remaining)], [pairs[i] for i in held_out]


SENTENCES = st.sampled_from("abcdefgh") | st.text(st.sampled_from("ab"), max_size=3)


@hypothesis_settings(max_examples=150)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), max_size=120), st.integers(0, 2**31 - 1))
def test_no_sentence_of_dev_stays_in_train_on_either_side(sides: list[tuple[str, str]], seed: int) -> None:
    pairs = [Pair(n, *pair) for n, pair in enumerate(sides, 1)]
    train, dev = split(pairs, seed)
    assert not {pair.source for pair in dev} & {pair.source for pair in train}
    assert not {pair.target for pair in dev} & {pair.target for pair in train}
    assert n_shared(dev, *digests(train)) == 0
    assert set(train) | set(dev) <= set(pairs)
    assert lines_of(train) == sorted(lines_of(train))
    assert lines_of(dev) == sorted(set(lines_of(dev)))
    assert len(dev) == (max(1, len(pairs) * 2 // 100) if pairs else 0)
    assert split(pairs, seed) == (train, dev)


def test_dev_has_one_to_a_thousand_pairs() -> None:
    assert [n_dev_pairs(n) for n in (1, 500, 60_000)] == [1, 10, MAX_DEV_PAIRS]


def test_sentences_that_occur_once_are_held_out_first() -> None:
    pairs = [Pair(n, "often", f"t{n}") for n in range(1, 60)] + [Pair(60, "once", "once")]
    train, dev = split(pairs, seed=1)
    assert dev == [pairs[-1]]
    assert len(train) == 59
