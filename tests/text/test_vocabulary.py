"""A vocabulary in the file of a SentencePiece model determines token ids; SentencePiece still loads the file."""

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.config import TokenizerSettings
from nmt.errors import ModelError
from nmt.text import BOS, EOS, PAD
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.text.vocabulary import split_tag, varint, vocabulary_of, with_vocabulary, without_vocabulary

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
LINES = ["the cat sat on the mat", "ein Hund läuft durch den Park"] * 4


@pytest.fixture(scope="module")
def model() -> bytes:
    settings = TokenizerSettings(vocab_size=60, byte_fallback=False)
    return train_tokenizer(LINES, settings)


# More than 128 pieces, so that the length of the vocabulary takes two bytes.
CHARACTERS = st.characters(exclude_categories=["Cs"])
PIECES = st.lists(st.text(CHARACTERS), unique=True, max_size=300)


@hypothesis_settings(max_examples=30)
@given(PIECES, st.binary())
def test_a_vocabulary_is_stored_and_taken_off_again(pieces: list[str], rest: bytes) -> None:
    model = b"\n" + rest
    stored = with_vocabulary(model, pieces)
    assert vocabulary_of(stored) == pieces
    assert without_vocabulary(stored) == model
    assert with_vocabulary(stored, pieces) == stored
    assert vocabulary_of(model) is None


@pytest.fixture(scope="module")
def other(model: bytes) -> Tokenizer:
    """A tokenizer whose vocabulary lacks the last piece of "cat", has one more, and another order."""
    own = Tokenizer(model)
    lacking = own.encode("cat")[-1]
    last_first = range(len(own) - 1, EOS, -1)
    token_ids = [i for i in last_first if i != lacking]
    pieces = own.pieces(token_ids)
    return Tokenizer(with_vocabulary(model, [*SPECIAL, "日本", *pieces]))


@pytest.mark.parametrize("text", ["ein Hund läuft", "the 日本 cat", "x日本", "</s>", ""])
def test_tokens_are_numbers_of_the_vocabulary(other: Tokenizer, text: str) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=other.model)
    tokens = other.encode(text)
    # SentencePiece cuts the text; what is not in the vocabulary is unknown.
    plain_ids = range(EOS + 1, len(other))
    vocabulary = other.pieces(plain_ids)
    pieces = processor.encode(text, out_type=str)
    known = [piece if piece in vocabulary else "<unk>" for piece in pieces]
    assert other.pieces(tokens) == known
    assert set(tokens).isdisjoint([PAD, BOS, EOS])
    assert other.ids(known) == tokens
    assert other.encode_words(text, [])[0] == tokens


def test_many_texts_are_encoded_like_each_text(other: Tokenizer) -> None:
    expected = [other.encode(line) for line in LINES]
    assert other.encode_all(LINES) == expected


def test_tokens_of_a_vocabulary_are_decoded(model: bytes, other: Tokenizer) -> None:
    assert other.decode(other.encode("Hund läuft")) == "Hund läuft"
    with_form_feed = Tokenizer(with_vocabulary(model, [*SPECIAL, "\f"]))
    assert with_form_feed.decode([4]) == "\f"


def test_two_sides_may_have_one_vocabulary(model: bytes, other: Tokenizer) -> None:
    # SentencePiece's own vocabulary, or the same pieces as a separate one.
    own = Tokenizer(model)
    pieces = own.pieces(range(len(own)))
    same = Tokenizer(with_vocabulary(model, pieces))
    assert Tokenizers(own, same).one_vocabulary
    assert not Tokenizers(own, other).one_vocabulary


def test_without_a_vocabulary_there_are_no_tags(model: bytes) -> None:
    result = Tokenizer(model).split_tag(">>fra<< the cat")
    assert result == ("", ">>fra<< the cat")


def test_a_tag_is_at_the_start() -> None:
    assert split_tag(">>fra<< the cat") == (">>fra<<", " the cat")
    assert split_tag(">><<") == (">><<", "")
    assert split_tag(">>fra< the") == ("", ">>fra< the")


DAMAGED = [b"", b"[", b'["a", "a"]', b'["a", 1]', b"{}", b"\xff", b"[" * 100_000, b'["\\ud800"]']


@pytest.mark.parametrize("content", DAMAGED, ids=len)
def test_a_damaged_vocabulary_is_refused(model: bytes, content: bytes) -> None:
    key = with_vocabulary(b"", []).removesuffix(b"\x02[]")  # without the number of bytes and the content
    stored = key + varint(len(content)) + content
    with pytest.raises(ModelError, match="vocabulary is damaged"):
        Tokenizer(stored + model)


def test_numbers_are_encoded_as_in_protobuf() -> None:
    assert varint(0) == b"\0"
    assert varint(127) == b"\x7f"
    assert varint(128) == b"\x80\x01"
    assert varint(100_000) == b"\xa0\x8d\x06"


@pytest.mark.parametrize("cut", [2, 3, 5])
def test_a_vocabulary_that_is_cut_off_is_refused(model: bytes, cut: int) -> None:
    with pytest.raises(ModelError):
        Tokenizer(with_vocabulary(model, SPECIAL)[:cut])
