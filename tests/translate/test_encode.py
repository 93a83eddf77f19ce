"""Search requests fit the model, and contain every word; a sentence that was cut has one translation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import small_translator

from nmt.text.tokenizer import Tokenizers
from nmt.translate.encode import Encoding
from nmt.translate.options import TranslationOptions
from nmt.translate.units import Unit

TOKENIZER = small_translator().tokenizers.source
SENTENCES = ["dogs play.", "Where is it?", "A cat!"]
CHINESE = ["狗跑。", "猫！", "“狗？”"]


def requests_of(text: str, max_length: int) -> list[list[int]]:
    """The source tokens of each search request of a text."""
    tokenizers = Tokenizers(TOKENIZER, TOKENIZER)
    encoding = Encoding([Unit(1, text)], tokenizers, max_length, TranslationOptions())
    return [request.tokens for request in encoding.requests]


TEXTS = st.text(alphabet="ab .!\n\t", max_size=200)
LIMITS = st.integers(2, 30)


@given(TEXTS, LIMITS)
@settings(max_examples=50)
def test_requests_fit_and_keep_every_word(text: str, max_length: int) -> None:
    words = ""
    for tokens in requests_of(text, max_length):
        assert 0 < len(tokens) <= max_length
        words += "".join(TOKENIZER.decode(tokens).split())
    assert words == "".join(text.split())


def test_a_text_that_is_too_long_is_cut_at_sentence_ends(caplog: pytest.LogCaptureFixture) -> None:
    requests = requests_of(" ".join(SENTENCES), max_length=20)
    result = [TOKENIZER.decode(tokens) for tokens in requests]
    assert result == SENTENCES
    assert caplog.messages[0].endswith("the model takes 20: translated in 3 parts")


def test_chinese_sentences_are_split() -> None:
    requests = requests_of("".join(CHINESE), max_length=16)
    assert requests == [TOKENIZER.encode(sentence) for sentence in CHINESE]
