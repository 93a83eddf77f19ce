"""PO files: only messages without a translation change, byte for byte."""

import pytest
from conftest import rows_of
from echo import echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.po import PO

HEADER = '# Titel\nmsgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2;\\n"\n\n'
# Each entry is read alike with any others around it.
COPIED = r"""
msgid "da"
msgstr "there"

#. seen
#: a.c:1
#, c-format
msgid "da"
msgstr "there"

#, fuzzy
#~ msgid "da"
#~ msgstr "gone"

# old
#, fuzzy
#~| msgid "older"
#~ msgid "da"
#~ msgid_plural "ds"
#~ msgstr[0] ""

#, fuzzy
domain "menu"

# a note

#, fuzzy-range, no-fuzzy
# this is fuzzy
msgid "not fuzzy"
msgstr "there"
"""
# Entries before and after the translation.
TRANSLATED = r"""
msgctxt "k"
msgid "da"
msgstr ""
→
msgctxt "k"
msgid "da"
msgstr "DA"

msgid ""
"ein \"Hund\"\n"
"da\n"
msgstr ""
""
→
msgid ""
"ein \"Hund\"\n"
"da\n"
msgstr "EIN \"HUND\"\nDA\n"

msgid "da ä\q\v"
msgstr ""
→
msgid "da ä\q\v"
msgstr "DA ÄQ\v"

msgid "12%"
msgstr ""
→
msgid "12%"
msgstr "12%"

#, c-format
#, fuzzy
msgid "da"
msgstr "there"
→
#, c-format
#, fuzzy
msgid "da"
msgstr "DA"

#, fuzzy
#| msgid "a"
msgid ""
"b"
msgstr ""
"x"
→
#, fuzzy
#| msgid "a"
msgid ""
"b"
msgstr "B"

msgid "Tag"
msgid_plural "Tage"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""
→
msgid "Tag"
msgid_plural "Tage"
msgstr[0] "TAG"
msgstr[1] "TAGE"
msgstr[2] "TAGE"

msgid "Tag"
msgid_plural "Tage"
msgstr[0] ""
→
msgid "Tag"
msgid_plural "Tage"
msgstr[0] "TAGE"

msgid "a"
msgid_plural "b"
msgstr[0] ""
msgstr[1] "x"
→
msgid "a"
msgid_plural "b"
msgstr[0] "A"
msgstr[1] "x"
"""


def entries(text: str) -> list[str]:
    return [f"{entry}\n" for entry in rows_of(text, "\n\n")]


def before_and_after(entry: str) -> tuple[str, str]:
    """An entry, and what it becomes; those of `COPIED` stay."""
    before, _, after = entry.partition("→\n")
    return before, after or before


ENTRIES = list(map(before_and_after, entries(COPIED) + entries(TRANSLATED)))


@pytest.mark.parametrize(("before", "after"), ENTRIES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_entry_of_po(before: str, after: str, end: str) -> None:
    source, expected = HEADER + before, HEADER + after
    written = echoed(source.replace("\n", end), PO)
    assert written == expected.replace("\n", end)


@given(st.lists(st.sampled_from(ENTRIES)), st.sampled_from(["", "\n"]))
def test_flags_of_po_belong_to_the_entry_after_them(chosen: list[tuple[str, str]], blank: str) -> None:
    """A finished message stays as it is, whatever fuzzy and obsolete entries are beside it."""
    source = expected = HEADER
    for before, after in chosen:
        source += before + blank
        expected += after + blank
    assert echoed(source, PO) == expected


BAD_PO = {
    'msgid "a"\nmsgstr "\n': "line 2 is no comment, name or string",
    'msgid "\\x64"\nmsgstr ""\n': "line 1 is no comment, name or string",
    'msgid "a"\nmsgid "b"\nmsgstr ""\n': "line 2 repeats msgid of the message",
    'msgid "b"\nmsgstr ""\n\nmsgid "a"\n': "the message at line 4 needs a msgid and a msgstr",
    'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "x"\nmsgstr[0] ""\n': r"line 4 repeats msgstr\[0\] of the message",
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n': "another encoding than UTF-8",
}


@pytest.mark.parametrize("source", BAD_PO)
def test_a_damaged_po_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_PO[source]):
        PO.parse(source)
