"""From a config to pairs: dropped pairs are counted, dev shares no sentence with train, errors are found early."""

import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from models import n_bytes
from numpy.typing import NDArray

from nmt.config import Config, TokenizerSettings, check_config
from nmt.errors import DataError
from nmt.files import cache_directory
from nmt.run.directory import hash_files
from nmt.text import corpus as corpus_module
from nmt.text.corpus import SIDES, Mixture, Pairs, digests_of, write_pairs
from nmt.text.lines import Pair, iter_pairs
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.train import corpora, preparation
from nmt.train.preparation import (
    MAX_DEV_PAIRS,
    Corpus,
    drop_lengths,
    n_dev_pairs,
    n_shared,
    read_corpus,
    train_tokenizers,
)

# 60 pairs without a repeated sentence, with enough words to train subwords on
SOURCES = [f"{who} {what} {n}" for n, (who, what) in enumerate([("die Katze", "läuft"), ("ein Hund", "schläft")] * 30)]
TARGETS = [f"{who} {what} {n}" for n, (who, what) in enumerate([("the cat", "runs"), ("a dog", "sleeps")] * 30)]


class Files:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, source: list[str], target: list[str]) -> dict[str, str]:
        files = {"source": f"{name}.de", "target": f"{name}.en"}
        for file, lines in zip(files.values(), (source, target), strict=True):
            (self.path / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return files

    def config(self, data: dict[str, Any], **sections: dict[str, Any]) -> Config:
        tree = {"run": str(self.path / "run"), "data": {"root": str(self.path), **data}, **sections}
        return check_config(tree, {}, "test")


@pytest.fixture(autouse=True)
def log_to_caplog(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")


def notes_of(caplog: pytest.LogCaptureFixture, level: str = "INFO") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return Files(tmp_path)


def refused(config: Config) -> DataError:
    with pytest.raises(DataError) as caught:
        read_corpus(config)
    assert caught.value.hint
    return caught.value


def digests(pairs: list[Pair]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return digests_of(pair.source.encode() for pair in pairs), digests_of(pair.target.encode() for pair in pairs)


def test_a_corpus_is_read_with_dev_and_hashes(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    train = files.write("train", SOURCES, TARGETS)
    dev = files.write("dev", ["eins", "drei"], ["one", "three"])
    test = files.write("test", ["x"], ["y"])
    config = files.config({"train": train, "dev": dev, "test": test})
    corpus = read_corpus(config)
    expected = zip(SOURCES, TARGETS, strict=True)
    assert list(corpus.train) == [Pair(n, *pair) for n, pair in enumerate(expected, 1)]
    assert corpus.dev == [Pair(1, "eins", "one"), Pair(2, "drei", "three")]
    names = [f"{part}.{side}" for part in ("train", "dev", "test") for side in ("source", "target")]
    assert list(corpus.hashes) == names
    assert corpus.hashes["dev.target"] == hash_files([files.path / "dev.en"])
    assert len(set(corpus.hashes.values())) == 6
    assert notes_of(caplog) == []
    assert list(files.path.glob("run*")) == []  # nothing is written


def test_what_lines_drop_is_counted_and_told(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    extra = [("", "blank"), ("leer", " \t"), ("\u3000", ""), (SOURCES[0], TARGETS[0]), (SOURCES[0], "another")]
    train = files.write("train", [*SOURCES, *(s for s, _ in extra)], [*TARGETS, *(t for _, t in extra)])
    dev = files.write("dev", ["eins", "", "drei", "vier"], ["one", "two", " ", "four"])
    data = {"train": train, "dev": dev}
    corpus = read_corpus(files.config(data))
    assert [pair.line for pair in corpus.train] == [*range(1, 61), 65]  # the first of equal pairs is kept
    assert corpus.dev == [Pair(1, "eins", "one"), Pair(4, "vier", "four")]
    notes = ["3 pairs blank on a side dropped (data.drop_blank)", "1 repeated pairs dropped (data.drop_duplicates)"]
    assert notes_of(caplog) == [*notes, "2 pairs of dev blank on a side left out"]
    whole = read_corpus(files.config({**data, "drop_blank": False, "drop_duplicates": False}))
    assert [pair.line for pair in whole.train] == [*range(1, 66)]


def test_corpora_that_are_mixed_in_follow_train(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """They are sorted by name; repeated pairs are dropped; dev and test are compared with all corpora."""
    train = files.write("train", SOURCES[:6], TARGETS[:6])
    news = files.write("news", [*SOURCES[4:10], ""], [*TARGETS[4:10], "x"])
    (files.path / "else").mkdir()
    talks = files.write("else/talks", SOURCES[20:23], TARGETS[20:23])
    talks = {side: Path(name).name for side, name in talks.items()}
    dev = files.write("dev", ["neu", "ganz neu"], ["new", TARGETS[5]])
    test = files.write("test", SOURCES[8:10], TARGETS[8:10])
    mix = {"talks": {**talks, "root": str(files.path / "else"), "weight": 0.5}, "news": {**news, "weight": 0.2}}
    corpus = read_corpus(files.config({"train": train, "dev": dev, "test": test, "mix": mix}))
    assert [pair.source for pair in corpus.train] == [*SOURCES[:10], *SOURCES[20:23]]
    assert [pair.line for pair in corpus.train] == [*range(1, 7), *range(9, 13), *range(14, 17)]
    assert corpus.n_lines == [6, 7, 3]
    assert corpus.mixture(corpus.train) == Mixture([6, 4, 3], [0.2, 0.5])
    assert {name.rpartition(".")[0] for name in corpus.hashes} == {"train", "mix.news", "mix.talks", "dev", "test"}
    assert notes_of(caplog) == [
        "1 pairs blank on a side dropped (data.drop_blank)",
        "2 repeated pairs dropped (data.drop_duplicates)",
        "1 of 2 pairs of dev have a side that is also in train: scores on it will be too high",
        "2 of 2 pairs of test have a side that is also in train: scores on it will be too high",
    ]
    pairs, _ = drop_lengths(corpus, train_tokenizers(corpus))
    assert corpus.mixture(pairs) == Mixture([6, 4, 3], [0.2, 0.5])


def test_without_dev_pairs_of_train_are_set_aside_and_their_sentences_leave_what_is_mixed_in(files: Files) -> None:
    train = files.write("train", SOURCES, TARGETS)
    mix = files.write("mix", [*SOURCES, *(f"mehr {n}" for n in range(500))], [*(f"new {n}" for n in range(560))])
    corpus = read_corpus(files.config({"train": train, "mix": {"all": {**mix, "weight": 0.5}}}))
    assert len(corpus.dev) == 1, "2 % of train, not of all"
    assert corpus.dev[0].line <= 60
    assert corpus.dev[0].source not in {pair.source for pair in corpus.train}
    mixture = corpus.mixture(corpus.train)
    assert mixture is not None
    assert (mixture.sizes, mixture.n_drawn) == ([59, 559], [59, 59])


def test_faults_of_a_corpus_that_is_mixed_in_name_it(files: Files) -> None:
    train, dev = files.write("train", SOURCES, TARGETS), files.write("dev", ["eins"], ["one"])

    def with_mix(source: list[str], target: list[str]) -> Config:
        mix = {"news": {**files.write("news", source, target), "weight": 0.5}}
        return files.config({"train": train, "dev": dev, "mix": mix})

    assert str(refused(with_mix(SOURCES, TARGETS))) == "mix.news has no pair that can be used"
    assert str(refused(with_mix(SOURCES, SOURCES))) == "data.mix.news: source and target are the same text"
    assert "news.en has 2" in str(refused(with_mix(["a"], ["b", "c"])))
    (files.path / "news.de").unlink()
    absent = {"news": {"source": "news.de", "target": "news.en", "root": "tatoeba-deu-eng", "weight": 0.1}}
    assert "nmt download tatoeba-deu-eng" in refused(files.config({"train": train, "mix": absent})).hint
    long = {"long": {**files.write("long", ["wort " * 30], ["word " * 30]), "weight": 0.1}}
    corpus = read_corpus(files.config({"train": train, "dev": dev, "max_length": 20, "mix": long}))
    pairs, _ = drop_lengths(corpus, train_tokenizers(corpus))
    with pytest.raises(DataError, match=r"^mix\.long has no pair left$"):
        corpus.mixture(pairs)


@pytest.mark.parametrize(
    ("train", "dev", "which"),
    [
        ((["", " "], ["x", "y"]), (["a"], ["b"]), "train"),
        ((["a"], ["b"]), ((["", "a"]), ["x", ""]), "dev"),
        ((["a", "a"], ["b", "c"]), None, "train"),  # holding out a pair for dev leaves no pair
    ],
)
def test_a_corpus_of_which_nothing_is_left_is_refused(
    files: Files, train: tuple[list[str], list[str]], dev: tuple[list[str], list[str]] | None, which: str
) -> None:
    data = {"train": files.write("train", *train)} | ({"dev": files.write("dev", *dev)} if dev else {})
    error = refused(files.config(data))
    assert (str(error), error.hint) == (f"{which} has no pair that can be used", "check data.train and data.dev")


@pytest.mark.parametrize(("n", "n_dev"), [(50, 1), (5_000, 100)])
def test_without_dev_some_of_train_is_held_out_and_told(
    files: Files, caplog: pytest.LogCaptureFixture, n: int, n_dev: int
) -> None:
    """It is told again if the corpus is in the cache. A dev set that the user chose may be small."""
    words = [f"wort {i}" for i in range(n)]
    data = {"train": files.write("train", words, [word.upper() for word in words])}
    first, again = (read_corpus(files.config(data)) for _ in range(2))
    assert (len(first.dev), len(first.train)) == (n_dev, n - n_dev)
    assert (list(again.train), again.dev) == (list(first.train), first.dev)
    told = f"no data.dev: {n_dev} pairs of train set aside for it, none of their sentences left in train"
    assert notes_of(caplog) == [told] * 2
    warning = "dev has only 1 pairs, held out of train: scores on fewer than 100 are mostly chance; set data.dev"
    assert notes_of(caplog, "WARNING") == ([warning] * 2 if n_dev < 100 else [])
    caplog.clear()
    read_corpus(files.config({**data, "dev": files.write("dev", ["d"], ["e"])}))
    assert notes_of(caplog, "WARNING") == []


@pytest.mark.parametrize("name", ["train", "test"])
def test_another_encoding_is_refused_unless_allowed(files: Files, caplog: pytest.LogCaptureFixture, name: str) -> None:
    data: dict[str, Any] = {part: files.write(part, SOURCES, TARGETS) for part in ("train", "dev", "test")}
    file = files.path / f"{name}.de"
    file.write_bytes(file.read_bytes().replace("ä".encode(), "ä".encode("latin1")))
    error = refused(files.config(data))
    assert str(error).startswith(f"{file} is not UTF-8 in 60 of 60 lines (line 1 at byte 12, ")
    assert "data.allow_bad_utf8=true" in error.hint
    assert notes_of(caplog, "WARNING") == []
    assert len(read_corpus(files.config({**data, "allow_bad_utf8": True})).train) == 60
    assert len(notes_of(caplog, "WARNING")) == 1
    refused(files.config(data))  # although the corpus with U+FFFD is in the cache


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_equal_and_exchanged_sides_are_refused(files: Files, name: str) -> None:
    data: dict[str, Any] = {part: files.write(part, SOURCES, TARGETS) for part in ("train", "dev", "test")}
    equal = {**data, name: {"source": f"{name}.de", "target": f"{name}.de"}}
    assert str(refused(files.config(equal))) == f"data.{name}: source and target are the same text"
    if name != "train":
        exchanged = {**data, name: {"source": f"{name}.en", "target": f"{name}.de"}}
        message = f"data.{name} has its sides exchanged: its source is {name}.en, that of train train.de"
        assert str(refused(files.config(exchanged))) == message


def prepared(config: Config, caplog: pytest.LogCaptureFixture) -> tuple[list[Pair], list[list[int]], list[str]]:
    """The pairs, token ids and log messages of a config; the tokenizer is always the same."""
    tokenizers = train_tokenizers(corpus_of([("die Katze läuft", "the cat runs")] * 9, tokenizer={"type": "char"}))
    caplog.clear()
    pairs, ids = drop_lengths(read_corpus(config), tokenizers)
    return list(pairs), [rows[i] for rows in ids for i in range(len(rows))], notes_of(caplog)


@pytest.mark.parametrize("new", [{"drop_blank": False}, {"max_length": 19}, {"max_ratio": 1.02}, {"seed": 2}], ids=str)
def test_what_differs_is_prepared_anew_and_what_is_equal_once(
    files: Files, new: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    train = files.write("train", [*SOURCES, "", SOURCES[0]], [*TARGETS, "", TARGETS[0]])
    config = files.config({"train": train})
    before = prepared(config, caplog)
    other = files.config({"train": train}, **new) if "seed" in new else files.config({"train": train, **new})
    assert prepared(other, caplog) != before
    for step in ("_write_corpus", "_encode"):
        monkeypatch.setattr(preparation, step, lambda *_: 1 / 0)
    assert prepared(config, caplog) == before


@pytest.mark.parametrize("name", ["train", "dev"])
def test_a_corpus_that_changes_in_reading_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    texts = {"train": (SOURCES, TARGETS), "dev": (["alt"], ["old"])}
    config = files.config({part: files.write(part, *sides) for part, sides in texts.items()})

    def changed_before(*paths: Any, **options: Any) -> list[Pair]:
        files.write(name, ["neu"], ["new"])
        return list(iter_pairs(*paths, **options))

    with monkeypatch.context() as patch:
        patch.setattr(corpora, "iter_pairs", changed_before)
        assert str(refused(config)) == "a file of the corpus has changed while it was read"
    files.write(name, *texts[name])
    assert [pair.target for pair in read_corpus(config).train] == TARGETS


def test_many_parts_are_as_one(files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The same pairs are dropped, and the kept pairs have the same ids."""
    repeated = [*range(60), 3, 5, 3, *range(60)]
    train = files.write("train", [SOURCES[i] for i in repeated], [TARGETS[i] for i in repeated])
    config = files.config({"train": train})
    expected = prepared(config, caplog)
    monkeypatch.setenv("NMT_CACHE", str(files.path / "another"))
    monkeypatch.setattr(corpus_module, "CHUNK", 9)
    assert prepared(config, caplog) == expected


def test_of_a_large_corpus_the_tokenizer_learns_from_a_sample_and_that_is_told(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preparation, "SAMPLE_PAIRS", 20)
    corpus = corpus_of([*zip(SOURCES, TARGETS, strict=True)], tokenizer={"vocab_size": 300})
    lines = [pair.line for pair in preparation.sample(corpus.train)]
    assert len(set(lines)) == 20
    assert lines == sorted(lines)
    assert max(lines) > 40
    train_tokenizers(corpus)
    assert notes_of(caplog)[0] == "the tokenizer learns from 20 pairs chosen at random of 60"


def test_the_source_of_some_pairs_has_terms(files: Files) -> None:
    numbers = [(i, j) for i in range(12) for j in range(12, 24)]
    source, target = [f"s{i} und s{j} hier" for i, j in numbers], [f"there t{j} and t{i}" for i, j in numbers]
    data = {"train": files.write("train", source, target), "dev": files.write("dev", ["d"], ["e"])}
    config = files.config({**data, "glossary": True, "placeholders": True})
    corpus = read_corpus(config)
    terms = [(term, pair) for pair in corpus.train for term in re.findall("s(\\d+)⟦=⟧ (\\w+)⟦/⟧", pair.source)]
    assert len(terms) > 40
    assert all(term in pair.target for (_, term), pair in terms)
    assert sum(term == f"t{number}" for (number, term), _ in terms) / len(terms) == pytest.approx(0.75, abs=0.15)
    assert 10 < sum("⟦1⟧" in pair.source for pair in corpus.train if "⟦1⟧" in pair.target) < 40
    tokenizers = train_tokenizers(corpus)
    assert tokenizers.source.pieces(tokenizers.source.encode("a⟦=⟧⟦/⟧⟦1⟧"))[-3:] == ["⟦=⟧", "⟦/⟧", "⟦1⟧"]
    pairs, (ids, _) = drop_lengths(corpus, tokenizers)
    assert [ids[i] for i in range(len(pairs))] == tokenizers.source.encode_all([pair.source for pair in pairs])


def test_a_vocabulary_that_nobody_set_holds_the_alphabet(files: Files) -> None:
    """The vocabulary of the preset for few pairs may be too small for all characters of Chinese pairs."""
    source = [chr(0x4E00 + 3 * n) + chr(0x4E01 + 3 * n) + str(n) for n in range(250)]
    target = [f"line {n}" for n in range(250)]
    data = {"train": files.write("train", source, target), "dev": files.write("dev", ["d"], ["e"])}
    assert len(train_tokenizers(read_corpus(files.config(data))).source) > 500


SENTENCES = st.sampled_from("abcdefgh") | st.text(st.sampled_from("ab"), max_size=3)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), max_size=120).map(
    lambda sides: [Pair(n, *pair) for n, pair in enumerate(sides, 1)]
)


def split(pairs: list[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    aside, left = corpus_module.hold_out(*digests(pairs), n_dev_pairs(len(pairs)), seed)
    return [pairs[i] for i in np.flatnonzero(left)], [pairs[i] for i in aside]


@hypothesis_settings(max_examples=150)
@given(PAIRS, st.integers(0, 2**31 - 1))
def test_no_sentence_of_dev_stays_in_train_on_either_side(pairs: list[Pair], seed: int) -> None:
    train, dev = split(pairs, seed)
    assert not {pair.source for pair in dev} & {pair.source for pair in train}
    assert not {pair.target for pair in dev} & {pair.target for pair in train}
    assert n_shared(dev, *digests(train)) == 0
    assert set(train) | set(dev) <= set(pairs)
    assert [pair.line for pair in train] == sorted(pair.line for pair in train)
    assert [pair.line for pair in dev] == sorted({pair.line for pair in dev})
    assert len(dev) == (max(1, len(pairs) * 2 // 100) if pairs else 0)
    assert split(pairs, seed) == (train, dev)


def test_dev_has_one_to_a_thousand_pairs_and_sentences_that_occur_once_come_first() -> None:
    assert [n_dev_pairs(n) for n in (1, 500, 60_000)] == [1, 10, MAX_DEV_PAIRS]
    pairs = [Pair(n, "often", f"t{n}") for n in range(1, 60)] + [Pair(60, "once", "once")]
    train, dev = split(pairs, seed=1)
    assert dev == [pairs[-1]]
    assert len(train) == 59


def corpus_of(pairs: list[tuple[str, str]], **sections: dict[str, Any]) -> Corpus:
    data = {"train": {"source": "a", "target": "b"}, **sections.pop("data", {})}
    config = check_config({"run": "r", "data": data, **sections}, {}, "test")
    place = Path(tempfile.mkdtemp(dir=cache_directory()))
    write_pairs(place, (Pair(n, *pair) for n, pair in enumerate(pairs, 1)))
    return Corpus(config, Pairs(place), [Pair(1, *pairs[0])], {}, [len(pairs)])


def test_lines_too_long_for_the_tokenizers_trainer_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    long = "é cat " * 3000
    pairs = [("abab", "xyxy"), (long, "xy"), ("ab", long)] + [(long, long)] * 10
    train_tokenizers(corpus_of(pairs, tokenizer={"vocab_size": 265}))
    told = "left out of the tokenizer's training: 12 lines of over 16,384 bytes, the first is line 2"
    assert notes_of(caplog) == [told]


def joint_or_not(joint: bool, pairs: list[tuple[str, str]], **data: Any) -> Corpus:
    tokenizer = {"vocab_size": 300, "joint": joint}
    return corpus_of(pairs * 5, data=data, tokenizer=tokenizer, model={"tied_embeddings": "decoder"})


@pytest.mark.parametrize("joint", [True, False])
def test_a_tokenizer_is_one_of_both_sides_or_of_one_side(joint: bool, caplog: pytest.LogCaptureFixture) -> None:
    corpus = joint_or_not(joint, [("abab", "xyxy"), ("ab", "xy")])
    tokenizers = train_tokenizers(corpus)
    assert tokenizers.joint is joint
    for side, own, other in ((tokenizers.source, "ab", "xy"), (tokenizers.target, "xy", "ab")):
        assert n_bytes(side, own) == 0
        assert n_bytes(side, other) == (0 if joint else 2)
    notes = notes_of(caplog)
    assert ["tokenizer.vocab_size=300 was cut" in note for note in notes] == ([True] if joint else [True, True])
    train_tokenizers(corpus)  # from the cache
    assert notes_of(caplog) == notes * 2


@pytest.mark.parametrize("joint", [True, False])
def test_with_nfkc_the_tokenizer_learns_normalized_sources(joint: bool, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [("ａｂａｂ", "，，"), ("ａｂ", "，")]
    tokenizers = train_tokenizers(joint_or_not(joint, pairs, nfkc_source=True, glossary=True))
    assert ("with data.glossary, set tokenizer.joint=true" in caplog.text) is not joint
    assert (tokenizers.source.nfkc, tokenizers.target.nfkc) == (True, False)
    assert tokenizers.source.decode(tokenizers.source.encode("ａｂ")) == "ab"
    assert n_bytes(tokenizers.source, "ａｂ") == 0
    assert n_bytes(tokenizers.target, "，") == 0  # the target is not normalized


@pytest.fixture(scope="module")
def characters() -> Tokenizers:
    """One piece per character, and one for the beginning of a text."""
    model = train_tokenizer(["abc"], TokenizerSettings(type="char")).model
    return Tokenizers.from_models(model, model, nfkc_source=False)


def test_pairs_of_wrong_lengths_are_dropped_and_told(characters: Tokenizers, caplog: pytest.LogCaptureFixture) -> None:
    """Lengths are in pieces, one more than characters, and EOS; those of a blank side are 1. The usual ratio is 1."""
    lengths = [(9, 9), (10, 1), (1, 10), (9, 2), (9, 1), (1, 9), (5, 1), (4, 1), (1, 1), (0, 0), (0, 1), (2, 0)]
    lengths += [(3, 3), (5, 5), (7, 7)]
    corpus = corpus_of([("a" * s, "b" * t) for s, t in lengths], data={"max_length": 10, "max_ratio": 2.5})
    kept, ids = drop_lengths(corpus, characters)
    right = [(9, 9), (5, 1), (4, 1), (1, 1), (0, 0), (3, 3), (5, 5), (7, 7)]
    assert [(len(pair.source), len(pair.target)) for pair in kept] == right
    for side, rows in zip(SIDES, ids, strict=True):
        texts = [characters.target.decode(rows[i]) for i in range(len(rows))]
        assert texts == [getattr(pair, side) for pair in kept]
    assert notes_of(caplog) == [
        "2 pairs over 10 pieces dropped (data.max_length)",
        "5 pairs of unlikely lengths dropped (data.max_ratio=2.5)",  # (9, 2), (9, 1), (1, 9), (0, 1) and (2, 0)
    ]
    caplog.clear()
    assert len(drop_lengths(corpus_of([("a", "b")]), characters)[0]) == 1
    assert notes_of(caplog) == []


def test_where_lengths_leave_no_pair_it_is_refused(characters: Tokenizers) -> None:
    with pytest.raises(DataError) as caught:
        drop_lengths(corpus_of([("a" * 20, "b")], data={"max_length": 10}), characters)
    assert str(caught.value) == "none of the 1 training pairs is left: 1 over 10 pieces (data.max_length)"
    assert caught.value.exit_code == 2
    assert caught.value.hint == "split the lines into sentences; a config can also raise data.max_length"


def kept_lines(corpus: Corpus, tokenizers: Tokenizers) -> list[int]:
    pairs, _ = drop_lengths(corpus, tokenizers)
    return [pair.line for pair in pairs]


def test_right_pairs_stay_where_one_side_has_coarse_pieces(characters: Tokenizers) -> None:
    """A target has ten to fifteen times the pieces of its source, EOS counted; one pair is misaligned."""
    right = [("a" * n, "b" * (30 * n)) for n in (1, 2, 1, 2, 1, 2)]
    corpus = corpus_of([*right, ("a" * 60, "b")], data={"max_ratio": 9})
    assert kept_lines(corpus, characters) == [1, 2, 3, 4, 5, 6]


def test_the_usual_ratio_is_that_of_the_kept_lengths(characters: Tokenizers) -> None:
    """A few misaligned or too long pairs do not move it."""
    right = [("a" * n, "b" * (2 * n + 1)) for n in range(5, 20)]
    corpus = corpus_of([*right, ("a", "b" * 90), ("a" * 999, "b")], data={"max_length": 100})
    assert preparation.usual_ratios(corpus, characters) == {"": pytest.approx(1.9, abs=0.1)}
    assert kept_lines(corpus, characters) == [*range(1, 16)]
