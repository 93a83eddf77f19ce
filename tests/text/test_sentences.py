"""Where sentences end, and where a mark is that of an abbreviation."""

import pytest
from conftest import rows_of

from nmt.text.sentences import sentence_spans


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


# Texts with a bar between sentences. Abbreviations are short, or before a lower-case letter.
SPLIT = """
Es regnet.| Wir gehen heim!| Ja
Nein!| Oh?| Ja.| Anna schläft.
Er sagte: "Halt."| Dann kam sie.
Er ruft „Laut!“| Ja, laut.
Er sieht den Hunden zu.| Sie gehen ab.| So ist es.
She left (early).| He stayed.
Er bellt!| “Laut?”| Ja
Das kostet ca. 3 Euro, z. B. hier.| Gut.
Der Präs. sagt nichts.| 3 Hunde
他说：好！|是。
。|a
That was in 1995.| Now it rains.
她来了。|他走了！|“好。”
她来了。| 他走了。
यह घर है।| वह आया।
کیا؟| وہ گیا۔| ہاں
"""


@pytest.mark.parametrize("text", rows_of(SPLIT))
def test_a_sentence_ends_at_a_mark_and_white_space(text: str) -> None:
    parts = text.split("|")
    expected = [part.strip() for part in parts]
    assert sentences(text.replace("|", "")) == expected


# A mark within one sentence is that of an abbreviation, a number, a word, or a quotation.
WHOLE = """
ohne Ende
Dann kam z. B. Dr. Maier um 3. Mai an.
Mrs. Jones and Prof. Smith saw Fig. 3
etwa bzw. über inkl. öffentlicher Gänge.
J. K. Rowling wrote it.
Am 3. Oktober kam er ca. Um drei.
a.b! c.D e?f
他说：“你好。”她走了。
"""


@pytest.mark.parametrize("text", [*rows_of(WHOLE), "", " "])
def test_one_sentence(text: str) -> None:
    assert sentences(text) == [text]


@pytest.mark.parametrize("pattern", ["a", ". ", "。", '."', "a. A", "。 "])
def test_a_long_text_takes_linear_time(pattern: str) -> None:
    text = pattern * 50_000
    joined = "".join(sentences(text))
    without_spaces = text.replace(" ", "")
    assert joined.replace(" ", "") == without_spaces
