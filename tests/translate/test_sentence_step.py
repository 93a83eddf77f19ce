"""A unit is translated sentence by sentence, through every door; its translations are joined."""

from collections.abc import Callable, Sequence
from pathlib import Path

from models import small_translator

from nmt.documents.html import HTML
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


# --- the step ---------------------------------------------------------------------------------------------


def no_tag(text: str) -> tuple[str, str]:
    return "", text


def step_of(
    split_tag: Callable[[str], tuple[str, str]] = no_tag,
    kept_spans: Callable[[str], Sequence[Span]] = lambda _: (),
    whole_lines: bool = False,
) -> Sentences:
    return Sentences(TranslationOptions(whole_lines=whole_lines), split_tag, kept_spans)


def test_each_sentence_is_a_unit_with_the_number_of_its_line() -> None:
    first, second, other = step_of().prepare([Unit(7, LINE), Unit(9, "e")])
    assert first == Unit(7, SENTENCES[0])
    assert second == Unit(7, SENTENCES[1], sentence=1)
    assert other == Unit(9, "e")


def test_only_the_first_sentence_begins_with_the_prefix() -> None:
    first, second = step_of().prepare([Unit(1, LINE, prefix=[9, 8])])
    assert first.prefix == [9, 8]
    assert not second.prefix


def test_each_sentence_gets_the_language_tag() -> None:
    step = step_of(lambda text: (text[:7], text[7:]))
    first, second = step.prepare([Unit(1, f">>fra<<{LINE}")])
    assert first.text == f">>fra<<{SENTENCES[0]}"
    assert second.text == f">>fra<<{SENTENCES[1]}"


def test_no_sentence_ends_inside_of_a_kept_span() -> None:
    text = "Take {the one. Or two} now. Then stop."
    braces = (text.index("{"), text.index("}"))
    step = step_of(kept_spans=lambda _: [braces])
    first, second = step.prepare([Unit(1, text)])
    assert first.text == "Take {the one. Or two} now."
    assert second.text == "Then stop."


def test_whole_lines_stay_as_they_are() -> None:
    result = step_of(whole_lines=True).prepare([Unit(1, LINE)])
    assert result == [Unit(1, LINE)]


def translation_of(*texts: str) -> Translation:
    """Return a translation whose hypotheses have these texts."""
    return Translation("", [TextHypothesis([], [], 0.0, [], text) for text in texts])


def test_translations_of_the_same_rank_are_joined() -> None:
    step = step_of()
    step.prepare([Unit(1, LINE)])
    (translation,) = step.restore([translation_of("Un.", "Eins."), translation_of("Deux.")])
    first, second = translation.hypotheses
    assert first.text == "Un. Deux."
    assert second.text == "Eins. Deux."
    assert first.sentences == [(0, 3), (4, 9)]
    assert translation.source == LINE
    result = [(part.source, part.text) for part in translation.parts]
    assert result == [(SENTENCES[0], "Un."), (SENTENCES[1], "Deux.")]


# --- the doors --------------------------------------------------------------------------------------------


def test_a_line_of_two_sentences_has_the_translations_of_both() -> None:
    assert TRANSLATOR.translate([LINE]) == [EXPECTED]


def test_so_has_a_paragraph_of_a_document(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text(f"{LINE}\n")
    output = tmp_path / "out.txt"
    translate_file(TRANSLATOR, source, output, watch=lambda translations, _: translations)
    assert output.read_text() == f"{EXPECTED}\n"


def test_so_has_a_line_with_markup() -> None:
    (translation,) = MarkupTranslator(TRANSLATOR, HTML).translate_lines([f"<p>{LINE}</p>"])
    assert translation.text == f"<p>{HTML.escape(EXPECTED)}</p>"


def test_a_model_of_whole_lines_translates_them_by_itself() -> None:
    decode = TRANSLATOR.config.decode.model_copy(update={"whole_lines": True})
    config = TRANSLATOR.config.model_copy(update={"decode": decode})
    translator = Translator(TRANSLATOR.engine, TRANSLATOR.tokenizers, config)
    (translation,) = translator.translate_lines([LINE])
    assert translation.sentences == [(0, len(LINE))]
