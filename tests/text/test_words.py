"""What the patterns of words, scripts and sentence ends match."""

import pytest
import regex
from conftest import rows_of

from nmt.text import words
from nmt.text.words import WordText

# By the name of a pattern: texts with brackets around its matches.
EXAMPLES = """
LETTER               ⟨a⟩⟨ß⟩1_⟨我⟩.
UNSPACED_CHARACTER   a⟨我⟩⟨。⟩⟨ก⟩⟨あ⟩한1⟨་⟩
RIGHT_TO_LEFT_LETTER a⟨ש⟩⟨ل⟩1-
SPACED_LETTER        ⟨a⟩我1_⟨한⟩
WORD_CHARACTER       ⟨a⟩我⟨1⟩⟨_⟩.⟨e⟩⟨\u0301⟩ ⟨क⟩⟨ि⟩
PLAIN_WORD           ⟨Hund⟩-⟨Hund⟩, ⟨x_1⟩: ⟨我⟩⟨买⟩⟨USB⟩
PLAIN_WORD           ⟨घरों⟩ ⟨में⟩ ⟨মানুষের⟩ ⟨הַבַּיְתָה⟩ ⟨நிறுவன⟩
PLAIN_WORD           ⟨ชา⟩⟨ว⟩⟨นา⟩⟨พ⟩⟨บ⟩⟨ข้า⟩⟨ว⟩⟨ที่⟩
PLAIN_WORD           ⟨ཞིང་⟩⟨པས་⟩⟨ཁྲོམ་⟩⟨ལ་⟩⟨རྙེད་⟩⟨།⟩
PLAIN_WORD           ⟨ເຂົ້າ⟩⟨ຢູ່⟩⟨ຕະ⟩⟨ຫຼາ⟩⟨ດ⟩
PLAIN_WORD           ⟨သ⟩⟨မား⟩⟨က⟩⟨ဈေး⟩⟨မှာ⟩
PLAIN_WORD           ⟨ထ⟩⟨မင်း⟩ ⟨ကျောင်း⟩ ⟨သင်္ချာ⟩ ⟨တော်⟩⟨ကောင်⟩
PLAIN_WORD           ⟨ศุ⟩⟨กร์⟩ ⟨สิ⟩⟨ทธิ์⟩ ⟨ប្រ⟩⟨យោ⟩⟨ជន៍⟩
PLAIN_WORD           ⟨ក្រុ⟩⟨ម⟩⟨ហ៊ុ⟩⟨ន⟩
PLAIN_WORD           ⟨so\u00adft⟩ ⟨می\u200cرود⟩
PLAIN_WORD           ⟨צה״ל⟩ ⟨דו"ח⟩ ⟨col·legi⟩ ⟨сім'я⟩ ⟨Ի՞նչ⟩ ⟨can⟩'⟨t⟩
PLAIN_WORD           ⟨コーヒー⟩⟨を⟩⟨飲⟩⟨む⟩ ⟨フランス⟩
WORD_OR_MARK         ⟨🇩🇪⟩⟨👩\u200d👧⟩⟨Hund⟩⟨-⟩⟨Hund⟩⟨,⟩ ⟨C⟩⟨+⟩⟨+⟩ ⟨我⟩
WORD_OR_CHARACTER    ⟨Hund⟩⟨,⟩⟨ ⟩⟨我⟩⟨买⟩
WRITTEN_WORD         ⟨ሰው⟩፡⟨ሁሉ⟩
WRITTEN_WORD         ⟨我⟩⟨买⟩⟨USB-Kabel,⟩⟨。⟩
BARE_WORD            „⟨don't⟩“
BARE_WORD            ⟨'t⟩
LONG_WORD            ⟨Köln⟩ 3 ⟨rote⟩ am x_1 ab1 ⟨Tom⟩'s
CASED_WORD           ⟨DON'T⟩ (2ND) ⟨T-SHIRT⟩, „⟨Der⟩“ ⟨我们⟩ 1a _x
MARKED_WORD          ⟨l'eau⟩⟨,⟩ ⟨e\u0301t⟩ ⟨我⟩⟨。⟩ ⟨हिन्दी⟩ ⟨น้ำ⟩
COMPARED_WORD        ⟨Hund⟩-⟨x1⟩_⟨我⟩⟨ก⟩ ⟨हिन्दी⟩ ⟨한⟩⟨국⟩
SENTENCE_START       ⟨⟩
SENTENCE_START       Ein Hund⟨. „⟩
SENTENCE_START       er sagt: „
SENTENCE_START       „Ja⟨.“ ⟩
SENTENCE_START       是⟨。⟩
CLAUSE_START         er sagt⟨: „⟩
FINAL_MARKS          Ein Hund⟨?! ”⟩
FINAL_MARKS          你好⟨。⟩
FINAL_MARKS          वह आया⟨।⟩
"""


@pytest.mark.parametrize("example", rows_of(EXAMPLES), ids=lambda example: example.split()[0])
def test_what_a_pattern_matches(example: str) -> None:
    name = example.split()[0]
    expected = example[21:]
    text = regex.sub("[⟨⟩]", "", expected)
    assert regex.sub(getattr(words, name), r"⟨\g<0>⟩", text) == expected


def test_words_are_split_at_spaces_if_the_text_is_tokenized() -> None:
    assert WordText.split("我 买书, a-b").words == ["我", "买书,", "a-b"]
    assert WordText.split("我买a-b。").words == ["我", "买", "a-b", "。"]


def test_spaces_between_phrases_do_not_separate_words() -> None:
    words = WordText.split("ชาวนาพบข้าว ที่ตลาด").words
    assert words == ["ชา", "ว", "นา", "พ", "บ", "ข้า", "ว", "ที่", "ต", "ลา", "ด"]
    assert WordText.split("ང་ཁྱིམ་ལ་ཕྱིན། དེ་ནས་ཉལ།").words == ["ང་", "ཁྱིམ་", "ལ་", "ཕྱིན", "།", "དེ་", "ནས་", "ཉལ", "།"]
