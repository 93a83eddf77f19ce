"""Files of keys and values: only the values change, in the manner of the file."""

import pytest
from conftest import rows_of
from echo import echoed

from nmt.documents.markup import Format
from nmt.documents.resources import FLUENT, PROPERTIES, STRINGS

# Entries, and what each becomes.
PROPERTY_FILES = r"""
a.b = ein Hund
a.b = EIN HUND

a\ b\==da
a\ b\==DA

a:\ \ da
a:\ \ DA

a=\u0020da¶b \:da
a=\u0020DA¶b \:DA

  a da
  a DA

a=ein \¶   Hund¶b=da
a=EIN HUND¶b=DA

a=\u00e4\ud83d\ude00 \q\n\\
a=Ä😀 Q\n\\

=da
=DA

a=12\
a=12\

# a=da¶! b=da¶¶a=¶b
# a=da¶! b=da¶¶a=¶b
"""
STRINGS_FILES = r"""
"a" = "ein \"Hund\" \U00e4\n%@";
"a" = "EIN \"HUND\" Ä\n%@";

/* "a" = "da"; */ a.b // "¶= /**/ "eins" ;
/* "a" = "da"; */ a.b // "¶= /**/ "EINS" ;

"a" = "12";¶"b" = "";¶
"a" = "12";¶"b" = "";¶
"""
FLUENT_FILES = r"""
a = ein { $n } Hund { -b }
a = EIN { $n } HUND { -b }

-b = da¶    .gender = da¶# da¶
-b = da¶    .gender = da¶# da¶

a =¶    .title = da¶    .accesskey = d
a =¶    .title = DA¶    .accesskey = d

a =¶    ein¶    Hund { F(x: "a b") }¶¶      da
a =¶    EIN HUND { F(x: "a b") }¶¶      DA

a = hat { $n ->¶    [one] ein Tag¶   *[other]¶        { $n } Tage¶ } da
a = HAT { $n ->¶    [one] EIN TAG¶   *[other]¶        { $n } TAGE¶ } DA

a = da <a data-l10n-name="x">{ $n }</a> da
a = DA <a data-l10n-name="x">{ $n }</a> DA

style = [da] .da
style = [DA] .DA
"""


def cases_of(text: str, markup: Format) -> list[tuple[str, str, Format]]:
    """The cases of a table: a file, what it becomes, and its format. A pilcrow is a line end."""
    cases = []
    for row in rows_of(text, "\n\n"):
        before, after = row.replace("¶", "\0").split("\n")
        cases.append((before, after, markup))
    return cases


CASES = cases_of(PROPERTY_FILES, PROPERTIES) + cases_of(STRINGS_FILES, STRINGS) + cases_of(FLUENT_FILES, FLUENT)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("before", "after", "markup"), CASES)
def test_values_are_translated(before: str, after: str, markup: Format, end: str) -> None:
    written = echoed("\ufeff" + before.replace("\0", end), markup)
    assert written == "\ufeff" + after.replace("\0", end)


# The source, the translation, and what is written.
APOSTROPHES = [
    ("da {0} it''s", "l'un {0}", "l''un {0}"),
    ("da {0}", "l'un {0}", "l’un {0}"),
    ("it's {0}", "l'un {0}", "l'un {0}"),
    ("it''s", "l'un", "l'un"),
]


@pytest.mark.parametrize(("source", "translation", "written"), APOSTROPHES)
def test_apostrophes_of_java_messages(source: str, translation: str, written: str) -> None:
    result = echoed(f"a={source}", PROPERTIES, lambda _: translation)
    assert result == f"a={written}"


TRANSLATIONS = {"{x} da": '{"{"}x{"}"} da', "*da": '{"*"}da', "[da]": '{"["}da]', ".da": '{"."}da'}


@pytest.mark.parametrize("translation", TRANSLATIONS)
def test_signs_of_fluent_are_escaped_at_the_start_of_a_line(translation: str) -> None:
    result = echoed("a =\n    da", FLUENT, lambda _: translation)
    assert result == f"a =\n    {TRANSLATIONS[translation]}"


def test_translated_values_are_escaped() -> None:
    assert echoed('"a" = "eins\nzwei";', STRINGS) == r'"a" = "EINS\nZWEI";'
    assert echoed('"a" = "da";', STRINGS, lambda _: 'a "b" \\') == r'"a" = "a \"b\" \\";'
    assert echoed("a=da", PROPERTIES, lambda _: 'a "b" \\') == r'a=a "b" \\'


DAMAGES = [
    (STRINGS, '"a" = "b"\n"c" = "d";', "line 1 is no comment, and no key with its value"),
    (STRINGS, '"a" = "b";\n\n"c" "d";', "line 3 is no comment"),
    (STRINGS, '"a" = "\\341";', "line 1 is no comment"),
    (STRINGS, '"a" = "b";\n/* da', "line 2 is no comment"),
    (PROPERTIES, "a=b\nc=\\u12", "line 2 is no comment"),
    (PROPERTIES, "a=\\ud83d", "can't decode"),
    (FLUENT, "a = b\n\nc = {", "line 3: Expected an inline expression"),
]


@pytest.mark.parametrize(("markup", "text", "message"), DAMAGES)
def test_a_damaged_file_is_an_error(markup: Format, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        markup.parse(text)
