"""A vocabulary in the file of a SentencePiece model determines token ids; SentencePiece still loads the file."""

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.config import TokenizerSettings
from nmt.errors import ModelError
from nmt.text import EOS, UNK
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.text.vocabulary import split_tag, vocabulary_of, with_vocabulary, without_vocabulary

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
LINES = ["the cat sat on the mat", "ein Hund läuft durch den Park"] * 4


@pytest.fixture(scope="module")
def model() -> bytes:
    settings = TokenizerSettings(vocab_size=60, byte_fallback=False)
    return train_tokenizer(LINES, settings).model


@hypothesis_settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, max_size=300), st.binary())
def test_a_vocabulary_is_stored_and_taken_off_again(pieces: list[str], rest: bytes) -> None:
    model = b"\n" + rest
    stored = with_vocabulary(model, pieces)
    assert vocabulary_of(stored) == pieces
    assert (vocabulary_of(model), without_vocabulary(stored)) == (None, model)
    assert with_vocabulary(stored, pieces) == stored


def test_tokens_are_numbers_of_the_vocabulary(model: bytes) -> None:
    own = Tokenizer(model)
    pieces = own.pieces(range(len(own)))
    kept = [piece for piece in pieces[4:] if piece != own.pieces(own.encode("cat"))[-1]]
    other = Tokenizer(with_vocabulary(model, [*SPECIAL, "日本", *kept[::-1]]))
    assert len(other) == len(kept) + 5
    for text in (*LINES, "the 日本 cat", "x日本", "</s>", ""):
        expected = sentencepiece.SentencePieceProcessor(model_proto=other.model).encode(text, out_type=str)
        tokens = other.encode(text)
        known = [piece if piece == "日本" or piece in kept else "<unk>" for piece in expected]
        assert other.pieces(tokens) == known
        assert all(token > EOS or token == UNK for token in tokens)
        assert other.ids(other.pieces(tokens)) == tokens
        assert other.encode_words(text, [])[0] == tokens
    assert other.encode_all(LINES) == [*map(other.encode, LINES)]
    assert other.decode(other.encode("Hund läuft")) == "Hund läuft"
    assert Tokenizer(with_vocabulary(model, [*SPECIAL, "\f"])).decode([4]) == "\f"
    assert not Tokenizers(own, other).one_vocabulary
    assert Tokenizers(own, Tokenizer(with_vocabulary(model, pieces))).one_vocabulary


def test_without_a_vocabulary_there_are_no_tags(model: bytes) -> None:
    assert Tokenizer(model).split_tag(">>fra<< the cat") == ("", ">>fra<< the cat")
    assert split_tag(">>fra<< the cat") == (">>fra<<", " the cat")
    assert split_tag(">><<") == (">><<", "")
    assert split_tag(">>fra< the") == ("", ">>fra< the")


@pytest.mark.parametrize(
    "content", [b"", b"[", b'["a", "a"]', b'["a", 1]', b"{}", b"\xff", b"[" * 100_000, b'["\\ud800"]']
)
def test_a_damaged_vocabulary_is_refused(model: bytes, content: bytes) -> None:
    stored = with_vocabulary(model, [])
    key = stored[: len(stored) - len(model) - 3]  # without the length of "[]" (1 byte) and "[]" itself
    length = bytes([len(content) & 127 | 128, len(content) >> 7 & 127 | 128, len(content) >> 14])
    with pytest.raises(ModelError, match="vocabulary is damaged"):
        Tokenizer(key + length + content + model)


@pytest.mark.parametrize("cut", [2, 3, 5])
def test_a_vocabulary_that_is_cut_off_is_refused(model: bytes, cut: int) -> None:
    with pytest.raises(ModelError):
        Tokenizer(with_vocabulary(model, SPECIAL)[:cut])
