"""Where sentences end, and where a mark is that of an abbreviation."""

import pytest
from conftest import rows_of

from nmt.text.sentences import join_sentences, learn_abbreviations, sentence_spans


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
Նա գնաց տուն։| Հետո քնեց։
ወደ ቤት ሄደ።| ከዚያ ተኛ።
សូមអរគុណ។| ខ្ញុំទៅផ្ទះ។
သူသွားသည်။| ငါလာသည်။
நான் வந்தேன்.| அவன் போனான்.
הוא הלך הַבַּיְתָה.| היא ישנה.
Où est-il ?| « Je ne sais pas. »| Il part.
Ja!| Peter schläft.
他说：“你好。”|她走了。
彼は「行く。」と言った。|母は寝た。
すごい!|行こう。
Es hat 2 °C.| Peter friert.
היא גרה בארה"ב.| הוא לא.
זה מספר 3.| היא ישנה.
»Komm!«| Er kam. »Nein.«| Ja
Dit is so.| 'n Vrou staan.
ይህ፡ቤት፡ነው።|እሱ፡ሄደ።
यह घर है।|वह गया।
كيف حالك؟|أنا بخير.
MR. JONES LEFT.| HE IS AWAY.
Τι;| Πού;| Πώς.
ის წავიდა.| მე დავრჩი.
Це моя сім'ю.| Вони тут.
Да.\u200f| Нет.
သူသည်၊ သွားသည်။| ငါလာသည်။
"""


@pytest.mark.parametrize("text", rows_of(SPLIT))
def test_a_sentence_ends_at_a_mark_and_white_space(text: str) -> None:
    parts = text.split("|")
    expected = [part.strip() for part in parts]
    result = sentences(text.replace("|", ""))
    assert result == expected


# A mark within one sentence is that of an abbreviation, a number, a word, or a quotation.
WHOLE = """
ohne Ende
Dann kam z. B. Dr. Maier um 3. Mai an.
Mrs. Jones and Prof. Smith saw Fig. 3
etwa bzw. über inkl. öffentlicher Gänge.
J. K. Rowling wrote it.
Am 3. Oktober kam er ca. Um drei.
a.b! c.D e?f
彼は「行く。」と言った
கே. வரதராஜன் வந்தார்
She lives at 10 p.m. Paris time
1. היא ישנה
快‼️跑 ‼️
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


def test_greek_and_armenian_have_sentence_marks_of_their_own() -> None:
    assert sentences("Πού είναι; Δεν ξέρω.") == ["Πού είναι;", "Δεν ξέρω."]
    assert sentences("Նա գնաց: Հետո քնեց:") == ["Նա գնաց:", "Հետո քնեց:"]
    assert sentences("Wo: Hier; Da") == ["Wo: Hier; Da"]


def test_sentences_are_joined_by_spaces_except_in_chinese_and_japanese() -> None:
    assert join_sentences(["Ja.", "Nein.", ""]) == "Ja. Nein."
    assert join_sentences(["他来了。", "“好！”", "她走了。"]) == "他来了。“好！”她走了。"
    assert join_sentences(["行った。", "Python を使う。"]) == "行った。Python を使う。"
    assert join_sentences(["やったー!", "行こう。"]) == "やったー!行こう。"
    assert join_sentences(["เขาไป", "เขามา"]) == "เขาไป เขามา"


def test_a_training_text_shows_its_abbreviations() -> None:
    lines = [f"Der Hund von Fam. Maier bellt {n} Mal." for n in range(50)] + ["Die Fam. Wolf ging heim. Sie kam."] * 2
    assert learn_abbreviations(lines) == ["Fam"]
    text = "Fam. Maier kam. Dann ging sie."
    spans = sentence_spans(text, abbreviations=["Fam"])
    assert [text[start:end] for start, end in spans] == ["Fam. Maier kam.", "Dann ging sie."]


def test_a_word_without_a_full_stop_elsewhere_is_no_abbreviation() -> None:
    assert learn_abbreviations(["Er ging heim. Dann schlief er.", "Er ist heim gegangen."] * 20) == []
    assert learn_abbreviations([]) == []
    assert learn_abbreviations(["Nr. 5", "Abb. 7"]) == [], "all words have a full stop"
