"""PO files: only messages without a translation change, byte for byte."""

import logging
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import rows_of
from echo import echo_file, echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.po import PO, PluralForms

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

msgid "{n, plural, one {day} other {days}}"
msgstr ""
→
msgid "{n, plural, one {day} other {days}}"
msgstr ""

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


# --- directives and labels --------------------------------------------------------------------------------


def reverse(text: str) -> str:
    return " ".join(reversed(text.split(" ")))


def written(tmp_path: Path, entry: str, change: Callable[[str], str] = reverse, header: str = HEADER) -> str:
    """The entry after the translation of a file with a header and this entry."""
    source, output = tmp_path / "a.po", tmp_path / "b.po"
    source.write_text(header + entry, encoding="utf-8", newline="")
    echo_file(source, output, change)
    return output.read_bytes().decode().removeprefix(header)


# Flags, a msgid, its translation with the words in reverse order, and the flags after it.
REVERSED = [
    ("#, c-format\n", "%s mag %d", "%2$d mag %1$s", "#, c-format\n"),
    ("#, c-format\n", "%d", "%d", "#, c-format\n"),
    ("#, c-format\n", r"%s %s\n%d", r"%2$s %1$s\n%3$d", "#, c-format\n"),
    ("#, python-format\n", "%s mag %d", "%s mag %d", "#, python-format\n#, fuzzy\n"),
    ("#, python-format\n", "%(a)s mag %(b)d", "%(b)d mag %(a)s", "#, python-format\n"),
    ("#, python-brace-format\n", "{} mag {!r}", "{1!r} mag {0}", "#, python-brace-format\n"),
    ("", "%s mag %s", "%s mag %s", "#, fuzzy\n"),
    ("", "Datei s_ichern", "s_ichern Datei", ""),
    ("", "Datei _sichern", "_sichern Datei", ""),
]


@pytest.mark.parametrize(("flags", "msgid", "msgstr", "new_flags"), REVERSED)
def test_directives_in_another_order(flags: str, msgid: str, msgstr: str, new_flags: str, tmp_path: Path) -> None:
    entry = f'{flags}msgid "{msgid}"\nmsgstr ""\n'
    result = written(tmp_path, entry)
    assert result == f'{new_flags}msgid "{msgid}"\nmsgstr "{msgstr}"\n'


def test_a_translation_without_its_directives_is_fuzzy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = '#: a.c:1\r\nmsgid "da %s"\r\nmsgstr ""\r\n'
    with caplog.at_level(logging.WARNING):
        new = written(tmp_path, entry, lambda _: "there {x}")
    assert new == '#: a.c:1\r\n#, fuzzy\r\nmsgid "da %s"\r\nmsgstr "there {x}"\r\n'
    (message,) = caplog.messages
    assert message.endswith(
        "a.po: line 7: the translation lacks %s, has {x}, which is not in the source; it is marked as fuzzy"
    )


def test_runs_of_spaces_stay(tmp_path: Path) -> None:
    new = written(tmp_path, r'msgid "  -h, --help   die Hilfe\n\tund mehr"' + '\nmsgstr ""\n', str.upper)
    assert new.endswith(r'msgstr "  -H, --HELP   DIE HILFE\n\tUND MEHR"' + "\n")


RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
ARABIC = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;"
# An expression, the number of forms, and the source of each form if the singular lacks the number, or has it.
FORMS = [
    ("nplurals=2; plural=(n != 1);", "sp", "sp"),
    ("nplurals=2; plural=n > 1;", "sp", "sp"),
    ("nplurals=1; plural=0;", "p", "p"),
    (RUSSIAN, "ppp", "spp"),
    (ARABIC, "pspppp", "pspppp"),
    ("nplurals=INTEGER; plural=EXPRESSION;", "sp", "sp"),
    ("nplurals=2; plural=n%0;", "sp", "sp"),
    ("nplurals=1;", "p", "p"),
]


@pytest.mark.parametrize(("header", "without_number", "with_number"), FORMS)
def test_the_source_of_each_plural_form(header: str, without_number: str, with_number: str) -> None:
    forms = PluralForms(f"Plural-Forms: {header}\n")
    for singular, expected in (("Ein Tag", without_number), ("%d Tag", with_number)):
        for form, source in enumerate(expected):
            chosen = forms.source(form, len(expected), singular, "%d Tage")
            assert chosen == {"s": singular, "p": "%d Tage"}[source]


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="needs gettext")
@pytest.mark.parametrize("plural", [RUSSIAN, ARABIC])
def test_msgfmt_accepts_translations_in_reverse_order(plural: str, tmp_path: Path) -> None:
    n_forms = int(plural.partition(";")[0][-1])
    entry = '#, c-format\nmsgid "%s hat ein Buch"\nmsgid_plural "%s hat %d B\u00fccher"\n'
    forms = "".join(f'msgstr[{form}] ""\n' for form in range(n_forms))
    header = f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: {plural}\\n"\n\n'
    written(tmp_path, entry + forms, header=header)
    done = subprocess.run(["msgfmt", "-c", "-o", "/dev/null", "b.po"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_message_gets_all_plural_forms_of_the_language(end: str, tmp_path: Path) -> None:
    header = f'msgid ""{end}msgstr "Plural-Forms: {RUSSIAN}\\n"{end}{end}'
    entry = 'msgid "Tag"\nmsgid_plural "Tage"\nmsgstr[0] ""\nmsgstr[1] "x"\n\nmsgid "da"\nmsgstr "there"\n'
    source = entry.replace("\n", end)
    new = written(tmp_path, source, str.upper, header=header)
    assert new == source.replace('[0] ""', '[0] "TAG"').replace('"x"', f'"x"{end}msgstr[2] "TAGE"')


# --- damages ----------------------------------------------------------------------------------------------

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
