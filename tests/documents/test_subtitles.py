"""Subtitles: only the texts of cues change, and their lines are as many as they were."""

import re

import pytest
from echo import echoed

from nmt.documents.subtitles import SRT, VTT

TIME = "00:00:01,000 --> 00:00:02,000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ein Hund\nbellt laut", "EIN HUND\nBELLT LAUT"),
        ("- ein Hund?\n- ja", "- EIN HUND?\n- JA"),
        ("<i>ein Hund\nbellt</i>", "<i>EIN HUND\nBELLT</i>"),
        ('{\\an8}<font color="red">ein</font> Hund', '{\\an8}<font color="red">EIN</font> HUND'),
        ("ein {\\i1}Hund{\\i0} da", "EIN {\\i1}HUND{\\i0} DA"),
        ("♪ 12 ♪", "♪ 12 ♪"),
        ("a < b & c", "A < B & C"),
        ("&lt;b&gt; a", "&lt;B> A"),
        ("我买书<z\n!", "我买书\n&lt;Z !"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cues_of_srt(text: str, expected: str, end: str) -> None:
    source = f"\ufeff1\n{TIME}\n{text}\n\n2\n{TIME} X1:40\nda\n"
    assert echoed(source.replace("\n", end), SRT) == source.replace(text, expected).replace("\nda\n", "\nDA\n").replace(
        "\n", end
    )


def test_cues_of_webvtt() -> None:
    head = "WEBVTT - Titel\n\nSTYLE\n::cue { color: red }\n\nNOTE\nNotiz\n\nname\n01:00.000 --> 01:02.000 line:0\n"
    source = "<v Anna>ja &amp; <01:01.000><c.rot>nein</c></v>\n"
    assert echoed(head + source, VTT) == head + "<v Anna>JA &amp; <01:01.000><c.rot>NEIN</c></v>\n"


def test_lines_of_unspaced_text_are_one_sentence_and_a_wide_line_becomes_two() -> None:
    assert echoed(f"{TIME}\n我们昨天\n去了\n", SRT, lambda text: {"我们昨天去了": "yesterday we went"}[text]) == (
        f"{TIME}\nyesterday\nwe went\n"
    )
    lines = echoed(f"{TIME}\n我们\n", SRT, lambda _: " ".join(["word"] * 12)).splitlines()[1:]
    assert [len(line) for line in lines] == [29, 29]
    wide = " ".join(["wort"] * 12)
    assert echoed(f"{TIME}\n{wide}\n", SRT) == f"{TIME}\n{wide.upper()}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n00:00:01,000 --> \nda", "line 2 has no times"),
        ("1\n00:00:01,000 -> 00:00:02,000\nda", "line 2 has no times"),
        ("nur Text", "no line has times"),
        (f"{TIME}\n\n", "no line has times"),
    ],
)
def test_damages(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SRT.parse(text)
