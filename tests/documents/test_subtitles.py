"""Subtitles: only the texts of cues change, and their lines are as many as they were."""

import pytest
from conftest import rows_of
from echo import echoed

from nmt.documents.subtitles import SRT, VTT

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
"""


def file_with(text: str, end: str) -> str:
    """A file with a cue of some text, and another."""
    return f"\ufeff1|{TIME}|{text}||2|{TIME} X1:40|...|".replace("|", end)


@pytest.mark.parametrize("case", rows_of(CUES, "\n\n"))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_text_of_a_cue(case: str, end: str) -> None:
    text, expected = case.split("\n")
    written = echoed(file_with(text, end), SRT)
    assert written == file_with(expected, end)


def test_cues_of_webvtt() -> None:
    head = "WEBVTT - Titel\n\nSTYLE\n::cue { color: red }\n\nNOTE\nNotiz\n\nname\n01:00.000 --> 01:02.000 line:0\n"
    cue = "<v Anna>ja &amp; <01:01.000><c.rot>nein</c></v>\n"
    expected = "<v Anna>JA &amp; <01:01.000><c.rot>NEIN</c></v>\n"
    assert echoed(head + cue, VTT) == head + expected


def test_lines_of_unspaced_text_are_one_sentence() -> None:
    # The translation is broken into as many lines again.
    translations = {"我们昨天去了": "yesterday we went"}
    written = echoed(f"{TIME}\n我们昨天\n去了\n", SRT, translations.__getitem__)
    assert written == f"{TIME}\nyesterday\nwe went\n"


def test_a_wide_line_becomes_two() -> None:
    wide = " ".join(["word"] * 12)
    written = echoed(f"{TIME}\n我们\n", SRT, lambda _: wide)
    assert list(map(len, written.split("\n"))) == [len(TIME), 29, 29, 0]


def test_a_line_may_be_as_wide_as_the_source() -> None:
    wide = " ".join(["wort"] * 12)
    source = f"{TIME}\n{wide}\n"
    assert echoed(source, SRT) == source.upper()


@pytest.mark.parametrize("times", ["00:00:01,000 --> ", "00:00:01,000 -> 00:00:02,000"])
def test_a_cue_with_damaged_times_is_an_error(times: str) -> None:
    with pytest.raises(ValueError, match="line 2 has no times"):
        SRT.parse(f"1\n{times}\nda")


@pytest.mark.parametrize("text", ["nur Text", f"{TIME}\n\n"])
def test_a_file_without_cues_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no line has times"):
        SRT.parse(text)
