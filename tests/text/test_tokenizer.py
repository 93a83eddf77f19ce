"""Text to token ids and back without loss; training fails only with an error that says how to avoid it."""

import contextlib
import io
import re
import unicodedata
from typing import get_args

import numpy as np
import pytest
import sentencepiece
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from models import n_bytes

from nmt.config import TokenizerSettings
from nmt.errors import ConfigError, DataError, ModelError
from nmt.text import BOS, EOS, PAD, UNK, characters
from nmt.text.characters import MIN_OCCURRENCES
from nmt.text.tokenizer import SPACE, Tokenizer, Tokenizers
from nmt.text.tokenizer_training import MAX_TRAINER_BYTES, train_tokenizer

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


def settings(**changes: object) -> TokenizerSettings:
    return TokenizerSettings.model_validate({"vocab_size": 320, **changes})


@pytest.fixture(scope="module")
def models() -> dict[str, bytes]:
    return {kind: train_tokenizer(LINES, settings(type=kind)).model for kind in TYPES}


@pytest.fixture(scope="module")
def unigram(models: dict[str, bytes]) -> Tokenizer:
    return Tokenizer(models["unigram"])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_symbol_is_one_piece_and_is_never_cut(kind: str, byte_fallback: bool) -> None:
    size = 320 if byte_fallback else 60
    wanted = settings(type=kind, symbols="<BT>  a,b", byte_fallback=byte_fallback, vocab_size=size)
    tokenizer = Tokenizer(train_tokenizer(["<BT> a,b", *LINES], wanted).model)
    text = "<BT> the cat sat a,b"
    for ids in (tokenizer.encode(text), *([] if kind == "word" else [tokenizer.encode("x<BT>the a,b.")])):
        pieces = [piece.lstrip(SPACE) for piece in tokenizer.pieces(ids)]
        assert pieces.count("<BT>") == 1
        assert pieces.count("a,b") == 1
    assert tokenizer.decode(tokenizer.encode(text)) == text


ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=SPACE))  # SPACE is not preserved
NASTY = st.lists(
    st.sampled_from(["<s>", "</s>", "<unk>", "<pad>", "<0x41>", "the cat", " ", "  ", "\t", "\n", "\r", "\0", "\ufeff"])
    | st.sampled_from(["\u2585", "\u3000", "\u00a0", "e\u0301", "\u200d", "👩‍👩‍👧", "ﬁ", "ａ", "，", "中", "Häuser"])
).map("".join)


@pytest.mark.parametrize("kind", TYPES)
def test_decode_of_encode_is_the_text(models: dict[str, bytes], kind: str) -> None:
    tokenizer = Tokenizer(models[kind])

    @hypothesis_settings(max_examples=100, suppress_health_check=[HealthCheck.nested_given])
    @given(ANY | NASTY)
    @example("")
    @example("0")
    @example(" the  cat ")
    def round_trip(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text)) == text

    round_trip()


@hypothesis_settings(max_examples=50)
@given(st.text(st.characters(categories=["Cs", "Ll"]), max_size=5))
def test_a_lone_surrogate_becomes_a_question_mark(unigram: Tokenizer, text: str) -> None:
    assert unigram.decode(unigram.encode(text)) == text.encode(errors="replace").decode()


@hypothesis_settings(max_examples=50)
@given(st.lists(ANY, max_size=4))
def test_many_texts_are_encoded_like_each_text(unigram: Tokenizer, texts: list[str]) -> None:
    assert unigram.encode_all(texts) == [unigram.encode(text) for text in texts]


@hypothesis_settings(max_examples=100)
@given(st.data())
def test_any_ids_can_be_decoded_and_special_ids_are_skipped(unigram: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, len(unigram) - 1), max_size=20))
    assert unigram.decode(ids) == unigram.decode([i for i in ids if i > EOS])
    assert unigram.decode([PAD, UNK, BOS, EOS]) == ""


def test_without_byte_fallback_an_unknown_character_is_unk() -> None:
    tokenizer = Tokenizer(train_tokenizer(LINES, settings(byte_fallback=False)).model)
    assert UNK in tokenizer.encode("a龘")
    assert tokenizer.decode(tokenizer.encode("the 龘 cat")).replace("  ", " ") == "the cat"
    assert n_bytes(tokenizer, "a龘") == 0


def test_nfkc_is_applied_to_the_source_only(models: dict[str, bytes]) -> None:
    model = models["unigram"]
    both = Tokenizers.from_models(model, model, nfkc_source=True)
    text = "ＡＢ，ﬁ"
    assert both.source.decode(both.source.encode(text)) == unicodedata.normalize("NFKC", text) == "AB,fi"
    assert both.target.decode(both.target.encode(text)) == text
    assert both.joint
    plain = Tokenizers.from_models(model, models["bpe"], nfkc_source=False)
    assert plain.source.decode(plain.source.encode(text)) == text
    assert not plain.joint


@pytest.mark.parametrize("kind", TYPES)
def test_a_vocabulary_too_large_for_the_text_is_reduced(kind: str) -> None:
    trained = train_tokenizer(LINES, settings(type=kind, vocab_size=50_000))
    assert trained.vocab_size == len(Tokenizer(trained.model)) < 50_000
    at_most = train_tokenizer(LINES, settings(type=kind, vocab_size=trained.vocab_size))
    assert at_most.vocab_size == trained.vocab_size


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_a_vocabulary_too_small_is_refused_with_the_minimum(kind: str, byte_fallback: bool) -> None:
    """Training with this minimum succeeds."""
    if kind in ("char", "word") and not byte_fallback:
        assert train_tokenizer(LINES, settings(type=kind, byte_fallback=False, vocab_size=8)).vocab_size == 8
        return  # char and word make rare items unknown: no vocabulary is too small

    def trained(vocab_size: int) -> int:
        changed = settings(type=kind, byte_fallback=byte_fallback, vocab_size=vocab_size)
        return train_tokenizer(LINES, changed).vocab_size

    with pytest.raises(ConfigError, match=r"^tokenizer\.vocab_size=8 is smaller than the text's alphabet") as caught:
        trained(8)
    least = int(str(caught.value).rpartition(" needs: at least ")[2])
    assert f"tokenizer.vocab_size={least} or more" in caught.value.hint
    assert trained(least) == least
    if kind in ("unigram", "bpe"):  # one less leaves char and word with only byte pieces
        with pytest.raises(ConfigError):
            trained(least - 1)


@hypothesis_settings(max_examples=60)
@given(st.lists(ANY, min_size=1, max_size=4), st.sampled_from(TYPES), st.integers(8, 400), st.booleans())
def test_training_raises_only_our_errors(lines: list[str], kind: str, vocab_size: int, byte_fallback: bool) -> None:
    with contextlib.suppress(ConfigError, DataError):
        trained = train_tokenizer(lines, settings(type=kind, vocab_size=vocab_size, byte_fallback=byte_fallback))
        assert EOS < trained.vocab_size <= vocab_size
        tokenizer = Tokenizer(trained.model)
        assert all(max(ids, default=0) < trained.vocab_size for ids in tokenizer.encode_all(lines))


@pytest.mark.parametrize("lines", [[], [""], [" ", "\t", "\u3000"]])
def test_training_on_blank_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        train_tokenizer(lines, settings())
    assert str(caught.value) == "no text to train a tokenizer on"
    assert (caught.value.exit_code, caught.value.hint) == (2, "check that data.train is not blank")


def test_text_that_sentencepiece_refuses_is_an_error() -> None:
    """U+2585 is SentencePiece's sign for unknown characters. It drops every line that contains this sign."""
    with pytest.raises(DataError, match=r"^SentencePiece cannot train on this text: .*sentences_") as caught:
        train_tokenizer(["\u2585"], settings())
    assert (caught.value.exit_code, caught.value.hint) == (2, "give more text")


def test_lines_too_long_for_the_trainer_are_left_out_and_listed() -> None:
    filling = "é cat " * (MAX_TRAINER_BYTES // 7)  # 7 bytes each
    longest = filling + "x" * (MAX_TRAINER_BYTES - len(filling.encode()))
    longer = filling + "q" * (MAX_TRAINER_BYTES - len(filling.encode()) + 1)
    trained = train_tokenizer([*LINES, longer, longest], settings())
    assert trained.too_long == [len(LINES)]
    tokenizer = Tokenizer(trained.model)
    assert [n_bytes(tokenizer, letter) for letter in "xq"] == [0, 1]  # x was read, q was not
    with pytest.raises(DataError, match="no text"):
        train_tokenizer([longer], settings())


@pytest.mark.parametrize("line", ["nul \0 in it", "tab\there", f"sign {SPACE} too", "x\u2028y\x85z\ufeff", "\u2585"])
def test_odd_characters_in_the_training_text_are_accepted(line: str) -> None:
    """A lone surrogate is no text of a file, because bad UTF-8 is replaced; it may come from the Python API."""
    assert train_tokenizer([*LINES, "half \ud800 pair"], settings()).vocab_size
    tokenizer = Tokenizer(train_tokenizer([*LINES, line], settings(vocab_size=340)).model)
    assert tokenizer.decode(tokenizer.encode(line)) == line.replace(SPACE, " ")


def test_a_model_with_other_special_ids_is_refused() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=60, minloglevel=2
    )
    with pytest.raises(ModelError) as caught:
        Tokenizer(model.getvalue())
    assert str(caught.value) == "the tokenizer has PAD, UNK, BOS, EOS at (-1, 0, 1, 2), not at (0, 1, 2, 3)"
    assert (caught.value.exit_code, caught.value.hint) == (2, "train it with `nmt tokenize`")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("nfkc", [False, True])
@pytest.mark.parametrize("text", ["a red dog.", "  Ein Hünd 𝄞 x  ", "我喜欢茶 ok", "ｗｉｄｅ ﬁne", ""])
def test_pieces_of_words(text: str, nfkc: bool, kind: str) -> None:
    trained = train_tokenizer(["a red dog. Ein Hund", "wide fine 我喜欢"], settings(type=kind, vocab_size=300))
    tokenizer = Tokenizer(trained.model, nfkc=nfkc)
    words = [match.span() for match in re.finditer(r"\S+", text)]
    tokens, of_token = tokenizer.encode_words(text, words)
    assert tokens == tokenizer.encode(text)
    for i, (start, end) in enumerate(words):
        own = [token for token, word in zip(tokens, of_token, strict=True) if word == [i]]
        expected = text[start:end]
        assert tokenizer.decode(own).strip() == (unicodedata.normalize("NFKC", expected) if nfkc else expected)
    assert tokenizer.encode_words(text, [])[1] == [[] for _ in tokens]


def learned(tokenizer: Tokenizer, text: str) -> str:
    """The characters that a tokenizer's model learns in bytes from a text."""
    return tokenizer.learned_in_bytes(np.array(tokenizer.encode(text)))


def test_a_frequent_character_without_a_piece_is_learned_in_bytes(unigram: Tokenizer) -> None:
    text = "the ə cat ₪" * MIN_OCCURRENCES + " ж" * (MIN_OCCURRENCES - 1)
    assert learned(unigram, text) == "ə₪"


@pytest.mark.parametrize("part", [1, 2, 3, 1000])
def test_characters_are_counted_alike_in_parts(unigram: Tokenizer, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(characters, "COUNTED_IDS", part)
    assert learned(unigram, "ə₪👩ж " * MIN_OCCURRENCES) == "əж₪👩"


def test_characters_of_symbols_are_not_learned() -> None:
    """The parts of a symbol never reach the model by themselves."""
    tokenizer = Tokenizer(train_tokenizer(LINES, settings(symbols="⟦1⟧")).model)
    assert learned(tokenizer, "the ⟦1⟧ cat" * MIN_OCCURRENCES) == ""
    assert learned(tokenizer, "the ⟦ cat" * MIN_OCCURRENCES) == "⟦"


def test_without_byte_fallback_nothing_is_learned_in_bytes() -> None:
    tokenizer = Tokenizer(train_tokenizer(LINES, settings(byte_fallback=False)).model)
    assert learned(tokenizer, "ə" * 99) == ""


def test_characters_that_are_learned_are_known(unigram: Tokenizer) -> None:
    assert unigram.unknown("kız ₪") == {"ı", "₪"}
    taught = Tokenizer(unigram.model, learned="ı₪")
    assert taught.unknown("kız ₪ €") == {"€"}
    assert taught.with_known_characters("ı") == "ı"
    assert taught == unigram  # it encodes texts alike


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ﬁne", "fine"),
        ("ｒｅｄ", "ｒｅｄ"),  # single letters are replaced without a change of the length, by with_known_characters
        ("３", "３"),  # "3" is unknown, too
        ("the ㎏", "the kg"),
        ("cat™", "cat™"),  # as a sign
        ("x²", "x²"),
        ("א", "א"),
        ("ﬡ", "ﬡ"),  # U+FB21, a wide alef: alef is unknown, too
    ],
)
def test_what_stands_for_known_characters_is_replaced_by_them(unigram: Tokenizer, text: str, read: str) -> None:
    assert unigram.with_compatible(text) == read


def test_what_nfkc_makes_a_learned_character_is_known(models: dict[str, bytes]) -> None:
    assert Tokenizer(models["unigram"], nfkc=True, learned="ア").unknown("ｱ") == set()
    assert Tokenizer(models["unigram"], nfkc=True, learned="").unknown("ｱ") == {"ｱ"}


def test_a_learned_ligature_stays(unigram: Tokenizer) -> None:
    assert Tokenizer(unigram.model, learned="ﬁ").with_compatible("ﬁne ﬂy") == "ﬁne fly"
