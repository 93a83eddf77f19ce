"""Segments fit the model, contain every word of the line, and their translations are joined to one line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import small_translator

from nmt.translate.segments import Line, split

TOKENIZER = small_translator().tokenizers.source


@given(st.text(alphabet="ab .!\n\t", max_size=200), st.integers(2, 30))
@settings(max_examples=50)
def test_segments_fit_and_keep_every_word(text: str, max_length: int) -> None:
    (segments,) = split([Line(1, text)], TOKENIZER, max_length)
    assert all(0 < len(segment.tokens) <= max_length for segment in segments)
    decoded = " ".join(TOKENIZER.decode(segment.tokens) for segment in segments)
    assert "".join(decoded.split()) == "".join(text.split())


def test_long_line_is_split_at_sentence_ends_and_joined(caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator(max_length=20)
    sentences = ["dogs play.", "where is it?", "a cat!"]
    assert all(len(TOKENIZER.encode(sentence)) <= 20 for sentence in sentences)
    whole = next(translator.translate_lines([" ".join(sentences)]))
    assert "line 1 has" in caplog.text
    assert "in 3 parts" in caplog.text
    alone = [found.text for found in translator.translate_lines(sentences)]
    assert whole.text == " ".join(alone)
    assert whole.hypotheses[0].pieces.count("</s>") == 3
    assert whole.hypotheses[0].log_prob == pytest.approx(sum(whole.hypotheses[0].log_probs))


def test_chinese_sentences_are_split_and_joined_without_spaces() -> None:
    assert small_translator(target_lang="th").joiner == " "
    translator = small_translator(max_length=16, target_lang="zh")
    sentences = ["狗跑。", "猫！", "“狗？”"]
    (segments,) = split([Line(1, "".join(sentences))], TOKENIZER, 16)
    assert [segment.tokens for segment in segments] == [TOKENIZER.encode(sentence) for sentence in sentences]
    found = next(translator.translate_lines(["".join(sentences)]))
    assert found.text == "".join(one.text for one in translator.translate_lines(sentences))
