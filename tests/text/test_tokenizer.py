"""Text to token ids and back without loss; what training teaches a model about characters."""

import io
import re
import unicodedata
from typing import Any, get_args

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from models import n_bytes

from nmt.config import TokenizerSettings
from nmt.errors import ModelError
from nmt.text import EOS, UNK, characters
from nmt.text.characters import MIN_OCCURRENCES
from nmt.text.tokenizer import SPACE, Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

TYPES: tuple[str, ...] = get_args(TokenizerSettings.model_fields["type"].annotation)
LINES = [
    "the cat sat on the mat",
    "the dog sat on the other mat",
    "a dog runs through the park",
    "two birds flew over the houses",
    "中文句子很短，但是有用。",
    "ein Hund läuft durch den Park",
    "zwei Vögel flogen über die Häuser",
] * 2


def trained(lines: list[str] = LINES, *, nfkc: bool = False, **settings: Any) -> Tokenizer:
    changed = TokenizerSettings.model_validate({"vocab_size": 320, **settings})
    return Tokenizer(train_tokenizer(lines, changed), nfkc=nfkc)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: trained(type=kind) for kind in TYPES}


@pytest.fixture(scope="module")
def unigram(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["unigram"]


of_every_type = pytest.mark.parametrize("kind", TYPES)


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """The pieces of a text, without the space before them."""
    pieces = tokenizer.pieces(tokenizer.encode(text))
    return [piece.lstrip(SPACE) for piece in pieces]


@of_every_type
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_symbol_is_one_piece(kind: str, byte_fallback: bool) -> None:
    vocab_size = 320 if byte_fallback else 60
    lines = ["<BT> a,b", *LINES]
    tokenizer = trained(lines, type=kind, symbols="<BT>  a,b", byte_fallback=byte_fallback, vocab_size=vocab_size)
    text = "<BT> the cat sat a,b"
    pieces = pieces_of(tokenizer, text)
    assert pieces.count("<BT>") == 1
    assert pieces.count("a,b") == 1
    result = tokenizer.decode(tokenizer.encode(text))
    assert result == text


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
def test_a_symbol_is_never_cut_within_a_word(kind: str) -> None:
    tokenizer = trained(["<BT> a,b", *LINES], symbols="<BT>  a,b", type=kind)
    pieces = pieces_of(tokenizer, "x<BT>the a,b.")
    assert pieces.count("<BT>") == 1
    assert pieces.count("a,b") == 1


ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=SPACE))  # SPACE is not preserved
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<0x41>", " ", "  ", "\t", "\n", "\r", "\0", "\ufeff", "\u2585"]
OTHER = ["\u3000", "\u00a0", "e\u0301", "\u200d", "👩‍👩‍👧", "ﬁ", "ａ", "，", "中", "Häuser", "the cat"]
NASTY_PARTS = st.sampled_from(SPECIAL + OTHER)
NASTY = st.lists(NASTY_PARTS).map("".join)


@of_every_type
@given(text=ANY | NASTY)
@example(text="")
@example(text=" the  cat ")
def test_decode_of_encode_is_the_text(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    result = tokenizer.decode(tokenizer.encode(text))
    assert result == text


def test_a_lone_surrogate_becomes_a_question_mark(unigram: Tokenizer) -> None:
    result = unigram.decode(unigram.encode("a\ud800b\udfff"))
    assert result == "a?b?"


@given(st.lists(ANY, max_size=4))
def test_many_texts_are_encoded_like_each_text(unigram: Tokenizer, texts: list[str]) -> None:
    expected = [unigram.encode(text) for text in texts]
    assert unigram.encode_all(texts) == expected


@given(st.data())
def test_any_ids_can_be_decoded_and_special_ids_are_skipped(unigram: Tokenizer, data: st.DataObject) -> None:
    last_id = len(unigram) - 1
    token_ids = st.integers(0, last_id)
    ids = data.draw(st.lists(token_ids))
    plain_ids = [i for i in ids if i > EOS]
    result = unigram.decode(ids)
    assert result == unigram.decode(plain_ids)


def test_without_byte_fallback_an_unknown_character_is_unk() -> None:
    tokenizer = trained(byte_fallback=False)
    assert UNK in tokenizer.encode("a龘")
    assert n_bytes(tokenizer, "a龘") == 0
    written = tokenizer.decode(tokenizer.encode("the 龘 cat"))
    assert written.split() == ["the", "cat"]


def test_nfkc_is_applied_to_the_source_only(unigram: Tokenizer) -> None:
    source, target = Tokenizers.from_models(unigram.model, unigram.model, nfkc_source=True)
    assert source.decode(source.encode("ＡＢ，ﬁ")) == "AB,fi"
    assert target.decode(target.encode("ＡＢ，ﬁ")) == "ＡＢ，ﬁ"


def test_tokenizers_of_one_model_are_joint(tokenizers: dict[str, Tokenizer]) -> None:
    assert Tokenizers(tokenizers["bpe"], tokenizers["bpe"]).joint
    assert not Tokenizers(tokenizers["bpe"], tokenizers["unigram"]).joint


def test_a_model_with_other_special_ids_is_refused() -> None:
    model = io.BytesIO()
    train = sentencepiece.SentencePieceTrainer.train
    train(sentence_iterator=iter(LINES), model_writer=model, vocab_size=60, minloglevel=2)
    with pytest.raises(ModelError) as caught:
        Tokenizer(model.getvalue())
    assert str(caught.value) == "the tokenizer has PAD, UNK, BOS, EOS at (-1, 0, 1, 2), not at (0, 1, 2, 3)"
    assert caught.value.hint == "train it with `nmt tokenize`"


@of_every_type
@pytest.mark.parametrize("nfkc", [False, True])
@pytest.mark.parametrize("text", ["  Ein Hünd 𝄞 x  ", "我喜欢茶 ok", "ｗｉｄｅ ﬁne", ""])
def test_pieces_of_words(text: str, nfkc: bool, kind: str) -> None:
    tokenizer = trained(["a red dog. Ein Hund", "wide fine 我喜欢"], type=kind, vocab_size=300, nfkc=nfkc)
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    tokens, words_of_tokens = tokenizer.encode_words(text, spans)
    assert tokens == tokenizer.encode(text)
    if nfkc:
        text = unicodedata.normalize("NFKC", text)
    for i, word in enumerate(text.split()):
        tokens_of_word = [token for token, words in zip(tokens, words_of_tokens, strict=True) if words == [i]]
        assert tokenizer.decode(tokens_of_word).strip() == word


def test_tokens_may_be_in_no_word(unigram: Tokenizer) -> None:
    tokens, words_of_tokens = unigram.encode_words("the cat", [])
    assert words_of_tokens == [[]] * len(tokens)


# --- characters -------------------------------------------------------------------------------------------


def learned(tokenizer: Tokenizer, text: str) -> str:
    """The characters that a tokenizer's model learns in bytes from a text."""
    tokens = np.array(tokenizer.encode(text))
    return tokenizer.learned_in_bytes(tokens)


def test_a_frequent_character_without_a_piece_is_learned_in_bytes(unigram: Tokenizer) -> None:
    frequent = "the ə cat ₪" * MIN_OCCURRENCES
    rare = " ж" * (MIN_OCCURRENCES - 1)
    assert learned(unigram, frequent + rare) == "ə₪"


@pytest.mark.parametrize("part", [1, 2, 3, 1000])
def test_characters_are_counted_alike_in_parts(unigram: Tokenizer, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(characters, "COUNTED_IDS", part)
    assert learned(unigram, "ə₪👩ж " * MIN_OCCURRENCES) == "əж₪👩"


def test_characters_of_symbols_are_not_learned() -> None:
    """The parts of a symbol never reach the model by themselves."""
    tokenizer = trained(symbols="⟦1⟧")
    assert learned(tokenizer, "the ⟦1⟧ cat" * MIN_OCCURRENCES) == ""
    assert learned(tokenizer, "the ⟦ cat" * MIN_OCCURRENCES) == "⟦"


def test_without_byte_fallback_nothing_is_learned_in_bytes() -> None:
    tokenizer = trained(byte_fallback=False)
    assert learned(tokenizer, "ə" * 99) == ""


def test_characters_that_are_learned_are_known(unigram: Tokenizer) -> None:
    assert unigram.characters.unknown("kız ₪") == {"ı", "₪"}
    taught = Tokenizer(unigram.model, learned="ı₪")
    assert taught.characters.unknown("kız ₪ €") == {"€"}
    assert taught.characters.with_forms("ı") == "ı"
    assert taught == unigram, "it encodes texts alike"


READ = {
    "ﬁne": "fine",
    "ｒｅｄ": "ｒｅｄ",  # single letters are replaced without a change of the length, by with_forms
    "３": "３",  # "3" is unknown, too
    "cat™": "cat™",  # a sign is not its letters
    "x²": "x²",
    "ﬡ": "ﬡ",  # U+FB21, a wide alef: alef is unknown, too
}


@pytest.mark.parametrize("text", READ)
def test_what_stands_for_known_characters_is_replaced_by_them(unigram: Tokenizer, text: str) -> None:
    assert unigram.characters.with_compatible(text) == READ[text]


def test_what_nfkc_makes_a_learned_character_is_known(unigram: Tokenizer) -> None:
    tokenizer = Tokenizer(unigram.model, nfkc=True, learned="ア")
    assert tokenizer.characters.unknown("ｱｲ") == {"ｲ"}


def test_a_learned_ligature_stays(unigram: Tokenizer) -> None:
    tokenizer = Tokenizer(unigram.model, learned="ﬁ")
    assert tokenizer.characters.with_compatible("ﬁne ﬂy") == "ﬁne fly"
