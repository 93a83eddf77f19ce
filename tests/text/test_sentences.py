"""Where sentences end, and where a mark is that of an abbreviation."""

import pytest

from nmt.text.sentences import sentence_spans


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Es regnet. Wir gehen heim! Ja", ["Es regnet.", "Wir gehen heim!", "Ja"]),
        ("Nein! Oh? Ja. Anna schläft.", ["Nein!", "Oh?", "Ja.", "Anna schläft."]),
        ('Er sagte: "Halt." Dann kam sie.', ['Er sagte: "Halt."', "Dann kam sie."]),
        ("Er ruft „Laut!“ Ja, laut.", ["Er ruft „Laut!“", "Ja, laut."]),
        (
            "Er sieht den Hunden zu. Sie gehen ab. So ist es.",
            ["Er sieht den Hunden zu.", "Sie gehen ab.", "So ist es."],
        ),
        ("She left (early). He stayed.", ["She left (early).", "He stayed."]),
        ("That was in 1995. Now it rains.", ["That was in 1995.", "Now it rains."]),
        ("她来了。他走了！“好。”", ["她来了。", "他走了！", "“好。”"]),
        ("她来了。 他走了。", ["她来了。", "他走了。"]),
        ("यह घर है। वह आया।", ["यह घर है।", "वह आया।"]),
        ("کیا؟ وہ گیا۔ ہاں", ["کیا؟", "وہ گیا۔", "ہاں"]),
    ],
)
def test_a_sentence_ends_at_a_mark_and_white_space(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ohne Ende",
        "Dann kam z. B. Dr. Maier um 3. Mai an.",
        "Mrs. Jones and Prof. Smith saw Fig. 3",
        "etwa bzw. über inkl. öffentlicher Gänge.",
        "J. K. Rowling wrote it.",
        "Am 3. Oktober kam er ca. Um drei.",
        "a.b! c.D e?f",
        "他说：“你好。”她走了。",
        "",
        " ",
    ],
)
def test_one_sentence(text: str) -> None:
    assert sentences(text) == [text]


@pytest.mark.parametrize("pattern", ["a", "a.", ". ", "。", "!", '."', "a. A", "。 "])
def test_a_long_text_takes_linear_time(pattern: str) -> None:
    text = pattern * 50_000
    assert "".join(sentences(text)).replace(" ", "") == text.replace(" ", "")
