"""The sign of an accelerator is taken out of a label, and put into its translation."""

import pytest

from nmt.documents.accelerators import Accelerator, without_accelerator

# A label, its text, and its accelerator with the translations "{x} salva" and "保存…".
LABELS = [
    ("_Speichern", "Speichern", "{x} _salva", "保存(_S)…"),
    ("Sichern _als…", "Sichern als…", "{x} _salva", "保存(_A)…"),
    ("B_eenden", "Beenden", "{x} _salva", "保存(_E)…"),
    ("Be&enden", "Beenden", "{x} &salva", "保存(&E)…"),
    ("Hin && &Her", "Hin && Her", "{x} &salva", "保存(&H)…"),
    ("保存(_S)...", "保存...", "{x} _salva", "保存(_S)…"),
    ("_Datei {mein_name}", "Datei {mein_name}", "{x} _salva", "保存(_D)…"),
]


@pytest.mark.parametrize(("label", "text", "translation", "without_letters"), LABELS)
def test_the_sign_goes_before_the_first_letter_or_after_the_text(
    label: str, text: str, translation: str, without_letters: str
) -> None:
    written, accelerator = without_accelerator(label)
    assert written == text
    assert accelerator.restored("{x} salva") == translation
    assert accelerator.restored("保存…") == without_letters


OTHERS = ["mein_name", "__init__", "Tom & Eva", "F&E", "&amp;", "a?b=1&c=2", "{_x}", "_1", "_a _b", "_" + "a" * 200]


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_have_no_accelerator(text: str) -> None:
    assert without_accelerator(text) == (text, Accelerator())
    assert Accelerator().restored(text) == text
