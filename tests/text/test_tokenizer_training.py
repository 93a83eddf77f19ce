"""Training a tokenizer fails only with an error that says how to avoid it."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from models import n_bytes
from test_tokenizer import ANY, LINES, TYPES

from nmt.config import TokenizerSettings
from nmt.errors import ConfigError, DataError
from nmt.text import EOS
from nmt.text.tokenizer import SPACE, Tokenizer
from nmt.text.tokenizer_training import OPTIONS, train_tokenizer


def train(lines: list[str] = LINES, **settings: Any) -> Tokenizer:
    changed = TokenizerSettings.model_validate({"vocab_size": 320, **settings})
    return Tokenizer(train_tokenizer(lines, changed))


@pytest.mark.parametrize("kind", TYPES)
def test_a_vocabulary_too_large_for_the_text_is_reduced(kind: str) -> None:
    largest = len(train(type=kind, vocab_size=50_000))
    assert largest < 50_000
    assert len(train(type=kind, vocab_size=largest)) == largest


def least_size(**settings: Any) -> int:
    """The least size of a vocabulary, by the message about one that is too small."""
    with pytest.raises(ConfigError, match=r"^tokenizer\.vocab_size=8 is smaller than the text's alphabet") as caught:
        train(vocab_size=8, **settings)
    _, _, number = str(caught.value).rpartition(" needs: at least ")
    least = int(number)
    assert f"tokenizer.vocab_size={least} or more" in caught.value.hint
    return least


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_too_small_is_refused_with_the_minimum(kind: str, byte_fallback: bool) -> None:
    settings: dict[str, Any] = {"type": kind, "byte_fallback": byte_fallback}
    least = least_size(**settings)
    assert len(train(**settings, vocab_size=least)) == least
    with pytest.raises(ConfigError):
        train(**settings, vocab_size=least - 1)


@pytest.mark.parametrize("kind", ["char", "word"])
def test_char_and_word_need_the_byte_pieces_only(kind: str) -> None:
    """They make rare items unknown, so without byte pieces no vocabulary is too small."""
    with pytest.raises(DataError, match="vocab_size") as caught:
        train(type=kind, vocab_size=8)
    assert "a larger tokenizer.vocab_size" in caught.value.hint
    without_bytes = train(type=kind, byte_fallback=False, vocab_size=8)
    assert len(without_bytes) == 8


SOME_LINES = st.lists(ANY, min_size=1, max_size=4)


@hypothesis_settings(max_examples=60)
@given(SOME_LINES, st.sampled_from(TYPES), st.integers(8, 400), st.booleans())
def test_training_raises_only_our_errors(lines: list[str], kind: str, vocab_size: int, byte_fallback: bool) -> None:
    with contextlib.suppress(ConfigError, DataError):
        tokenizer = train(lines, type=kind, vocab_size=vocab_size, byte_fallback=byte_fallback)
        assert EOS < len(tokenizer) <= vocab_size
        for ids in tokenizer.encode_all(lines):
            assert max(ids, default=0) < len(tokenizer)


@pytest.mark.parametrize("lines", [[], [""], [" ", "\t", "\u3000"]])
def test_training_on_blank_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        train(lines)
    assert str(caught.value) == "no text to train a tokenizer on"
    assert caught.value.exit_code == 2
    assert caught.value.hint == "check that data.train is not blank"


def test_text_that_sentencepiece_refuses_is_an_error() -> None:
    """U+2585 is SentencePiece's sign for unknown characters. It drops every line that contains this sign."""
    with pytest.raises(DataError, match=r"^SentencePiece cannot train on this text: .*sentences_") as caught:
        train(["\u2585"])
    assert caught.value.exit_code == 2
    assert caught.value.hint.startswith("give more text")


MAX_TRAINER_BYTES: int = OPTIONS["max_sentence_length"]


def line_of(n_bytes: int, letter: str) -> str:
    """A line of some length with words, and then a letter."""
    words = "é cat " * (MAX_TRAINER_BYTES // 7)  # 7 bytes each
    n_words_bytes = len(words.encode())
    return words + letter * (n_bytes - n_words_bytes)


def test_lines_too_long_for_the_trainer_are_left_out() -> None:
    too_long = line_of(MAX_TRAINER_BYTES + 1, "q")
    longest = line_of(MAX_TRAINER_BYTES, "x")
    tokenizer = train([*LINES, too_long, longest])
    assert n_bytes(tokenizer, "x") == 0, "x was read"
    assert n_bytes(tokenizer, "q") == 1, "q was not"


def test_a_text_of_lines_that_are_too_long_is_refused() -> None:
    with pytest.raises(DataError, match="SentencePiece cannot train on this text"):
        train([line_of(MAX_TRAINER_BYTES + 1, "q")])


@pytest.mark.parametrize("line", ["nul \0 in it", "tab\there", "sign \u2581 too", "x\u2028y\x85z\ufeff", "\u2585"])
def test_odd_characters_in_the_training_text_are_accepted(line: str) -> None:
    tokenizer = train([*LINES, line], vocab_size=340)
    tokens = tokenizer.encode(line)
    result = tokenizer.decode(tokens)
    assert result == line.replace(SPACE, " ")


def test_a_lone_surrogate_in_the_training_text_is_accepted() -> None:
    """It is no text of a file, because bad UTF-8 is replaced; it may come from the Python API."""
    # SentencePiece takes UTF-8, which has no surrogates.
    assert len(train([*LINES, "half \ud800 pair"]))
