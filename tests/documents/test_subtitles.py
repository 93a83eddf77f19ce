"""Subtitles: only the texts of cues change, and their lines are as many as they were."""

import pytest
from conftest import rows_of
from echo import echoed

from nmt.documents.markup import Segment
from nmt.documents.subtitles import SRT, VTT, finished_cue

TIME = "00:00:01,000 --> 00:00:02,000"


# The text of a cue, and below it its translation; a bar is a line break.
CUES = """
ein Hund|bellt laut
EIN HUND|BELLT LAUT

- ein Hund?|- ja
- EIN HUND?|- JA

<i>ein Hund|bellt</i>
<i>EIN HUND|BELLT</i>

{\\an8}<font color="red">ein</font> Hund
{\\an8}<font color="red">EIN</font> HUND

ein {\\i1}Hund{\\i0} da
EIN {\\i1}HUND{\\i0} DA

♪ 12 ♪
♪ 12 ♪

a < b & c
A < B & C

&lt;b&gt; a
&lt;B> A

我买书<z|!
我买书|&lt;Z !

eins||  zwei
EINS||  ZWEI

 |ein Hund
 |EIN HUND

<i>♪ ein Hund ♪</i>|♪ bellt ♪
<i>♪ EIN HUND ♪</i>|♪ BELLT ♪

ein Hund ♪|bellt
EIN HUND ♪|BELLT

<i>- ein Hund?</i> - ja!
<i>- EIN HUND?</i> - JA!

<ruby>東京<rt>とうきょう</rt></ruby>に
<ruby>東京<rt>とうきょう</rt></ruby>に

Ende --> da
ENDE --&gt; DA
"""
# What is separate in a cue is translated separately. A bar is a line end.
SEPARATE = {
    "ja.|Nein, da": ["ja.", "Nein, da"],
    "<i>Ja.</i>|<i>Nein</i>": ["Ja.", "Nein"],
    "好。|不": ["好。", "不"],
    "bei Dr.|Wolf": ["bei Dr. Wolf"],
    "♪ eins ♪|♪ zwei ♪": ["eins", "zwei"],
    "♪ eins|zwei ♪": ["eins zwei"],
    "- eins. - Zwei": ["eins.", "Zwei"],
    "<v O'Brien>ja, ich|<v Anna>nein": ["ja, ich", "nein"],
    "eins||zwei": ["eins", "zwei"],
    "何も…|―本当か": ["何も…", "本当か"],
}


def file_with(text: str, end: str) -> str:
    """A file with a cue of some text, and another."""
    return f"\ufeff1|{TIME}|{text}||2|{TIME} X1:40|...|".replace("|", end)


@pytest.mark.parametrize("case", rows_of(CUES, "\n\n"))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_text_of_a_cue(case: str, end: str) -> None:
    text, expected = case.split("\n")
    written = echoed(file_with(text, end), SRT)
    assert written == file_with(expected, end)


@pytest.mark.parametrize("text", SEPARATE)
def test_what_is_separate_in_a_cue(text: str) -> None:
    lines = text.replace("|", "\n")
    parts = SRT.parse(f"{TIME}\n{lines}\n")
    result = [part.text for part in parts if isinstance(part, Segment)]
    assert result == SEPARATE[text]


def test_times_begin_a_cue_without_a_blank_line() -> None:
    # pysubs2 and players read two cues.
    file = "1\n{time}\n{}\n2\n{time}\n{}"
    source = file.format("eins", "zwei", time=TIME)
    result = echoed(source, SRT)
    assert result == file.format("EINS", "ZWEI", time=TIME)


def test_the_first_times_may_follow_a_byte_order_mark() -> None:
    result = echoed(f"\ufeff{TIME}\neins\n", SRT)
    assert result == f"\ufeff{TIME}\nEINS\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_an_empty_line_ends_a_cue_of_webvtt(end: str) -> None:
    file = "WEBVTT||NOTE a|00:01:05.000 da||00:01.000 --> 00:02.000| |{}|00:02.000-->00:03.000|{}||rest|"
    source = file.format("eins", "zwei").replace("|", end)
    result = echoed(source, VTT)
    assert result == file.format("EINS", "ZWEI").replace("|", end)


def test_a_webvtt_file_without_cues_is_valid() -> None:
    assert echoed("WEBVTT\n\nNOTE da\n", VTT) == "WEBVTT\n\nNOTE da\n"


def test_times_inside_of_a_cue_keep_their_order() -> None:
    source, translation = "<00:01.000>ein <00:02.000>Hund", "<00:02.000>dog <00:01.000>a"
    assert finished_cue(translation, source, "\n") == "<00:01.000>dog <00:02.000>a"


def test_a_class_of_webvtt_ends_where_its_words_end() -> None:
    source = f"WEBVTT\n\n{TIME}\n<c.rot>ein</c> Hund\n".replace(",", ".")
    written = echoed(source, VTT, lambda text: " ".join(reversed(text.split())))
    assert written.endswith("<c.rot>Hund</c> ein\n")


def test_a_line_has_16_full_width_characters() -> None:
    written = echoed(f"{TIME}\r\nein Hund\r\n", SRT, lambda _: "我" * 18)
    assert written == f"{TIME}\r\n{'我' * 9}\r\n{'我' * 9}\r\n"


def test_cues_of_webvtt() -> None:
    head = "WEBVTT - Titel\n\nSTYLE\n::cue { color: red }\n\nNOTE\nNotiz\n\nname\n01:00.000 --> 01:02.000 line:0\n"
    cue = "<v Anna>ja &amp; <01:01.000><c.rot>nein</c></v>\n"
    expected = "<v Anna>JA &amp; <01:01.000><c.rot>NEIN</c></v>\n"
    result = echoed(head + cue, VTT)
    assert result == head + expected


def test_lines_of_unspaced_text_are_one_sentence() -> None:
    # The translation is broken into as many lines again.
    translations = {"我们昨天去了": "yesterday we went"}
    written = echoed(f"{TIME}\n我们昨天\n去了\n", SRT, translations.__getitem__)
    assert written == f"{TIME}\nyesterday\nwe went\n"


def test_a_wide_line_becomes_two() -> None:
    wide = " ".join(["word"] * 12)
    written = echoed(f"{TIME}\n我们\n", SRT, lambda _: wide)
    result = list(map(len, written.split("\n")))
    assert result == [len(TIME), 29, 29, 0]


def test_a_line_may_be_as_wide_as_the_source() -> None:
    wide = " ".join(["wort"] * 12)
    source = f"{TIME}\n{wide}\n"
    assert echoed(source, SRT) == source.upper()


@pytest.mark.parametrize("times", ["00:00:01,000 --> ", "00:00:01,000 -> 00:00:02,000", "00.00.01 --> 00:00:02,000"])
def test_a_cue_with_damaged_times_is_an_error(times: str) -> None:
    with pytest.raises(ValueError, match="line 2 has no times"):
        SRT.parse(f"1\n{times}\nda")


@pytest.mark.parametrize("text", ["nur Text", f"{TIME}\n\n"])
def test_a_file_without_cues_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no line has times"):
        SRT.parse(text)
