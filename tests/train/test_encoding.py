"""From pairs to token ids: tokenizers are trained on a sample, pairs of unlikely lengths are dropped."""

import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
from models import n_bytes

from nmt.config import Config, TokenizerSettings, check_config
from nmt.errors import DataError
from nmt.files import cache_directory
from nmt.text.corpus_files import CorpusRange, Pairs, write_pairs
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.train import preparation
from nmt.train.encoding import drop_lengths, train_tokenizers, usual_ratios


@pytest.fixture(autouse=True)
def log_to_caplog(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")


def config_of(data: dict[str, Any] | None = None, **tokenizer: Any) -> Config:
    data = {"train": {"source": "a", "target": "b"}, **(data or {})}
    tree = {"run": "r", "data": data, "tokenizer": tokenizer, "model": {"tied_embeddings": "decoder"}}
    return check_config(tree, {}, "test")


def train_of(pairs: list[tuple[str, str]]) -> Pairs:
    directory = Path(tempfile.mkdtemp(dir=cache_directory()))
    numbered = [Pair(0, source, target) for source, target in pairs]
    n_lines = write_pairs(directory, numbered)
    return Pairs(directory, ranges=[CorpusRange(n_lines, "")])


def test_of_a_large_corpus_the_tokenizer_learns_from_a_sample_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preparation, "SAMPLE_PAIRS", 20)
    pairs = [(f"die Katze läuft {n}", f"the cat runs {n}") for n in range(60)]
    train = train_of(pairs)
    # All over the corpus, in its order.
    lines = [pair.line for pair in preparation.sample(train)]
    assert len(set(lines)) == 20
    assert lines == sorted(lines)
    assert max(lines) > 40
    train_tokenizers(config_of(vocab_size=300), train)
    assert caplog.messages[0] == "the tokenizer learns from 20 pairs chosen at random of 60"


LETTERS = [("abab", "xyxy"), ("ab", "xy")] * 5


def test_a_joint_tokenizer_knows_both_sides() -> None:
    source, target = train_tokenizers(config_of(vocab_size=300, joint=True), train_of(LETTERS))
    assert source.model == target.model
    assert n_bytes(source, "ab") == n_bytes(source, "xy") == 0


def test_a_tokenizer_of_each_side_knows_that_side() -> None:
    source, target = train_tokenizers(config_of(vocab_size=300, joint=False), train_of(LETTERS))
    assert n_bytes(source, "ab") == n_bytes(target, "xy") == 0
    assert n_bytes(source, "xy") == n_bytes(target, "ab") == 2


@pytest.mark.parametrize(("joint", "n_tokenizers"), [(True, 1), (False, 2)])
def test_a_vocabulary_that_was_cut_is_told(joint: bool, n_tokenizers: int, caplog: pytest.LogCaptureFixture) -> None:
    train_tokenizers(config_of(vocab_size=300, joint=joint), train_of(LETTERS))
    assert len(caplog.messages) == n_tokenizers
    assert "tokenizer.vocab_size=300 was cut" in caplog.text


@pytest.mark.parametrize("joint", [True, False])
def test_with_nfkc_the_tokenizer_learns_normalized_sources(joint: bool) -> None:
    train = train_of([("ａｂａｂ", "，，"), ("ａｂ", "，")] * 5)
    config = config_of({"nfkc_source": True}, vocab_size=300, joint=joint)
    source, target = train_tokenizers(config, train)
    assert (source.nfkc, target.nfkc) == (True, False)
    assert source.decode(source.encode("ａｂ")) == "ab"
    assert n_bytes(source, "ａｂ") == 0
    assert n_bytes(target, "，") == 0  # the target is not normalized


@pytest.fixture(scope="module")
def characters() -> Tokenizers:
    """One piece per character, and one for the beginning of a text."""
    model = train_tokenizer(["abc"], TokenizerSettings(type="char"))
    return Tokenizers.from_models(model, model, nfkc_source=False)


def of_lengths(*lengths: tuple[int, int]) -> Pairs:
    """Return pairs of so many characters."""
    pairs = [("a" * n_source, "b" * n_target) for n_source, n_target in lengths]
    return train_of(pairs)


def kept_lines(config: Config, train: Pairs, tokenizers: Tokenizers) -> list[int]:
    pairs, _ = drop_lengths(config, train, tokenizers)
    return [pair.line for pair in pairs]


def test_pairs_of_wrong_lengths_are_dropped_and_told(characters: Tokenizers, caplog: pytest.LogCaptureFixture) -> None:
    """Lengths are in pieces, one more than characters, and EOS; those of a blank side are 1. The usual ratio is 1."""
    right = [(9, 9), (5, 1), (4, 1), (1, 1), (0, 0), (3, 3), (5, 5)]
    too_long = [(10, 1), (1, 10)]
    unlikely = [(9, 2), (9, 1), (1, 9), (0, 1), (2, 0)]
    config = config_of({"max_length": 10, "max_ratio": 2.5})
    train = of_lengths(*right, *too_long, *unlikely)
    lines = kept_lines(config, train, characters)
    assert lines == [1, 2, 3, 4, 5, 6, 7]
    assert caplog.messages == [
        "2 pairs over 10 pieces dropped (data.max_length)",
        "5 pairs of unlikely lengths dropped (data.max_ratio=2.5)",
    ]


def test_the_ids_are_those_of_the_kept_pairs(characters: Tokenizers, caplog: pytest.LogCaptureFixture) -> None:
    train = of_lengths((3, 2), (1, 300), (4, 4))
    kept, (source, target) = drop_lengths(config_of(), train, characters)
    assert [pair.line for pair in kept] == [1, 3]
    assert source[0] == characters.source.encode("aaa")
    assert source[1] == characters.source.encode("aaaa")
    assert target[0] == characters.target.encode("bb")
    assert target[1] == characters.target.encode("bbbb")


def test_where_all_pairs_are_kept_nothing_is_told(characters: Tokenizers, caplog: pytest.LogCaptureFixture) -> None:
    result = kept_lines(config_of(), of_lengths((1, 1)), characters)
    assert result == [1]
    assert caplog.messages == []


def test_where_lengths_leave_no_pair_it_is_refused(characters: Tokenizers) -> None:
    config = config_of({"max_length": 10})
    with pytest.raises(DataError) as caught:
        drop_lengths(config, of_lengths((20, 1)), characters)
    assert str(caught.value) == (
        "none of the 1 training pairs is left: 1 over 10 pieces (data.max_length), "
        "0 of unlikely lengths (data.max_ratio)"
    )
    assert caught.value.exit_code == 2
    assert caught.value.hint == "split the lines into sentences; a config can also raise data.max_length"


def test_right_pairs_stay_where_one_side_has_coarse_pieces(characters: Tokenizers) -> None:
    """A target has ten to fifteen times the pieces of its source, EOS counted; one pair is misaligned."""
    right = [(1, 30), (2, 60)] * 3
    train = of_lengths(*right, (60, 1))
    lines = kept_lines(config_of({"max_ratio": 9}), train, characters)
    assert lines == [1, 2, 3, 4, 5, 6]


def test_the_usual_ratio_is_that_of_the_kept_lengths(characters: Tokenizers) -> None:
    """A few misaligned or too long pairs do not move it."""
    right = [(n, 2 * n + 1) for n in range(5, 20)]
    train = of_lengths(*right, (1, 90), (999, 1))
    ratios = usual_ratios(train, characters, max_length=100)
    assert ratios == {"": pytest.approx(1.9, abs=0.1)}
    lines = kept_lines(config_of({"max_length": 100}), train, characters)
    assert lines == [*range(1, 16)]
