"""A unit is translated sentence by sentence, through every door; its translations are joined."""

from pathlib import Path

import pytest
from models import small_translator

from nmt.documents.html import HTML
from nmt.text.lines import Pause
from nmt.text.spans import Span
from nmt.translate.documents import translate_file
from nmt.translate.markup import MarkupTranslator
from nmt.translate.options import TranslationOptions
from nmt.translate.sentences import Sentences
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation, Unit

TRANSLATOR = small_translator()
SENTENCES = ["The red dog runs.", "A cat sleeps here!"]
LINE = " ".join(SENTENCES)
EXPECTED = " ".join(TRANSLATOR.translate(SENTENCES))


def no_tag(text: str) -> tuple[str, str]:
    return "", text


def translation_of(unit: Unit, *texts: str) -> Translation:
    """Return a translation whose hypotheses have these texts."""
    return Translation(unit.text, [TextHypothesis([], [], 0.0, [], text) for text in texts], unit.number)


# --- the step ---------------------------------------------------------------------------------------------


def test_each_sentence_is_a_unit_with_the_number_of_its_line() -> None:
    step = Sentences(TranslationOptions(), " ", no_tag)
    units = step.prepare([Unit(7, "A b. C d."), Unit(9, "e")])
    assert [(unit.number, unit.sentence, unit.text) for unit in units] == [(7, 0, "A b. C d."), (9, 0, "e")]
    units = Sentences(TranslationOptions(), " ", no_tag).prepare([Unit(7, LINE)])
    assert [(unit.number, unit.sentence, unit.text) for unit in units] == [(7, 0, SENTENCES[0]), (7, 1, SENTENCES[1])]


def test_only_the_first_sentence_begins_with_the_prefix() -> None:
    units = Sentences(TranslationOptions(), " ", no_tag).prepare([Unit(1, LINE, prefix=[9, 8])])
    assert [list(unit.prefix) for unit in units] == [[9, 8], []]


def test_each_sentence_gets_the_language_tag() -> None:
    step = Sentences(TranslationOptions(), " ", lambda text: (text[:7], text[7:]))
    units = step.prepare([Unit(1, f">>fra<<{LINE}")])
    assert [unit.text for unit in units] == [f">>fra<<{sentence}" for sentence in SENTENCES]


def test_no_sentence_ends_inside_of_a_kept_span() -> None:
    def kept(text: str) -> list[Span]:
        return [(text.index("{"), text.index("}") + 1)]

    step = Sentences(TranslationOptions(), " ", no_tag, kept)
    units = step.prepare([Unit(1, "Take {the one. Or two} now. Then stop.")])
    assert [unit.text for unit in units] == ["Take {the one. Or two} now.", "Then stop."]


def test_whole_lines_stay_as_they_are() -> None:
    (unit,) = Sentences(TranslationOptions(whole_lines=True), " ", no_tag).prepare([Unit(1, LINE)])
    assert unit.text == LINE


def test_translations_of_the_same_rank_are_joined() -> None:
    step = Sentences(TranslationOptions(), " ", no_tag)
    first, second = step.prepare([Unit(1, LINE)])
    (translation,) = step.restore([translation_of(first, "Un.", "Eins."), translation_of(second, "Deux.")])
    assert [hypothesis.text for hypothesis in translation.hypotheses] == ["Un. Deux.", "Eins. Deux."]
    assert translation.source == LINE
    assert translation.hypotheses[0].sentences == [(0, 3), (4, 9)]
    assert translation.sentence_pairs == list(zip(SENTENCES, ["Un.", "Deux."], strict=True))


# --- the doors --------------------------------------------------------------------------------------------


def test_a_line_of_two_sentences_has_the_translations_of_both() -> None:
    assert TRANSLATOR.translate([LINE]) == [EXPECTED]


def test_so_has_a_paragraph_of_a_document(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(f"{LINE}\n")
    translate_file(TRANSLATOR, tmp_path / "in.txt", tmp_path / "out.txt", watch=lambda translations, _: translations)
    assert (tmp_path / "out.txt").read_text() == f"{EXPECTED}\n"


def test_so_has_a_line_with_markup() -> None:
    (translation,) = MarkupTranslator(TRANSLATOR, HTML).translate_lines([f"<p>{LINE}</p>"])
    assert translation.text == f"<p>{HTML.escape(EXPECTED)}</p>"


def test_pairs_of_sentences_are_written_as_in_the_source() -> None:
    """The model reads them without their capitals."""
    (translation,) = TRANSLATOR.translate_lines([LINE])
    assert [source for source, _ in translation.sentence_pairs] == SENTENCES


def test_whole_lines_can_be_asked_for() -> None:
    (translation,) = TRANSLATOR.translate_lines([LINE], TRANSLATOR.with_options(whole_lines=True))
    assert translation.sentences == [(0, len(LINE))]


def test_a_model_of_whole_lines_translates_them_by_itself() -> None:
    decode = TRANSLATOR.config.decode.model_copy(update={"whole_lines": True})
    config = TRANSLATOR.config.model_copy(update={"decode": decode})
    translator = Translator(TRANSLATOR.engine, TRANSLATOR.tokenizers, config)
    (translation,) = translator.translate_lines([LINE])
    assert translation.sentences == [(0, len(LINE))]


@pytest.mark.parametrize("text", ["", " ", "! ?", "... A. B.", "。。 。"])
def test_as_many_lines_come_out_as_go_in(text: str) -> None:
    translations = list(TRANSLATOR.translate_lines([text, Pause(), "a"]))
    assert [translation.source for translation in translations] == [text, "a"]
