"""Search requests fit the model, and contain every word; a sentence that was cut has one translation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import small_translator

from nmt.decode.options import SearchOptions
from nmt.text.tokenizer import Tokenizers
from nmt.translate.encode import Encoding
from nmt.translate.units import Unit

TOKENIZER = small_translator().tokenizers.source


def encoded(text: str, max_length: int) -> Encoding:
    return Encoding([Unit(1, text)], Tokenizers(TOKENIZER, TOKENIZER), max_length, SearchOptions(), " ")


@given(st.text(alphabet="ab .!\n\t", max_size=200), st.integers(2, 30))
@settings(max_examples=50)
def test_segments_fit_and_keep_every_word(text: str, max_length: int) -> None:
    requests = encoded(text, max_length).requests
    assert all(0 < len(request.tokens) <= max_length for request in requests)
    decoded = " ".join(TOKENIZER.decode(request.tokens) for request in requests)
    assert "".join(decoded.split()) == "".join(text.split())


def test_a_text_that_is_too_long_is_cut_at_sentence_ends(caplog: pytest.LogCaptureFixture) -> None:
    sentences = ["dogs play.", "Where is it?", "A cat!"]
    requests = encoded(" ".join(sentences), max_length=20).requests
    assert [TOKENIZER.decode(request.tokens) for request in requests] == sentences
    assert caplog.messages[0].endswith("the model takes 20: translated in 3 parts")


def test_the_translation_of_a_line_is_that_of_its_sentences() -> None:
    translator = small_translator(max_length=20)
    sentences = ["dogs play.", "Where is it?", "A cat!"]
    (whole,) = translator.translate_lines([" ".join(sentences)])
    alone = [translation.text for translation in translator.translate_lines(sentences)]
    assert whole.text == " ".join(alone)
    best = whole.hypotheses[0]
    assert best.pieces.count("</s>") == 3
    assert best.log_prob == pytest.approx(sum(best.log_probs))


def test_chinese_sentences_are_split_and_joined_without_spaces() -> None:
    assert small_translator(target_lang="th").joiner == " "
    translator = small_translator(max_length=16, target_lang="zh")
    sentences = ["狗跑。", "猫！", "“狗？”"]
    requests = encoded("".join(sentences), 16).requests
    assert [request.tokens for request in requests] == [TOKENIZER.encode(sentence) for sentence in sentences]
    found = next(translator.translate_lines(["".join(sentences)]))
    assert found.text == "".join(one.text for one in translator.translate_lines(sentences))
