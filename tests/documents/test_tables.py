"""Tables of strings, and XLIFF: only the chosen strings change, byte for byte."""

import csv
import json
from functools import partial
from io import StringIO
from typing import Any

import pytest
from echo import echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.markup import Format
from nmt.documents.tables import JSON, PO, parse_csv
from nmt.documents.xliff import XLIFF

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('\ufeff{"a" : "b\\/c", "d":["e\\u00e4", true]}\r\n', '\ufeff{"a" : "B/C", "d":["EÄ", true]}\r\n'),
        ('{"a": "ein <b>Hund</b> &amp;"}', '{"a": "EIN <b>HUND</b> &AMP;"}'),
        ('{"a": "Datei <name> an <a@b.de>"}', '{"a": "DATEI <NAME> AN <A@B.DE>"}'),
        ('{"a": "\\u0031", "b": "https://x.de/a", "c": ""}', None),
        ('{"a": "da <code>b\\nc</code>"}', '{"a": "DA <code>b\\nc</code>"}'),
        ('{"n": "{n, plural, one {# Tag} other {# Tage}}"}', None),
        ('{"a": "eins\\n\\nzwei\\n"}', '{"a": "EINS\\n\\nZWEI\\n"}'),
        ('"da"', '"DA"'),
    ],
)
def test_values_of_json(source: str, expected: str | None) -> None:
    assert echoed(source, JSON) == (source if expected is None else expected)


@given(TREES)
def test_keys_and_structure_of_any_json_stay(tree: object) -> None:
    def shape(one: object) -> object:
        if isinstance(one, dict):
            return {key: shape(value) for key, value in one.items()}
        return list(map(shape, one)) if isinstance(one, list) else type(one) if isinstance(one, str) else one

    text = json.dumps(tree)
    assert shape(json.loads(echoed(text, JSON, str.swapcase))) == shape(tree)


TABLES = st.lists(st.tuples(*[st.text("aBä0\",;'")] * 2), min_size=1)
CSV = Format(partial(parse_csv, column="text"), str)


@given(TABLES, st.sampled_from([{}, {"delimiter": ";", "lineterminator": "\n"}, {"delimiter": "\t", "quoting": 1}]))
def test_a_csv_file_of_pythons_writer_is_read_by_its_reader_as_before(table: list[tuple[str, str]], style: Any) -> None:
    csv.writer(file := StringIO(), **style).writerows([("id", "text"), *table])
    new = StringIO(echoed(file.getvalue(), CSV, str.swapcase), newline="")
    reader = csv.reader(new, delimiter=style.get("delimiter", ","))
    assert list(reader) == [["id", "text"], *([one, two.swapcase()] for one, two in table)]


HEADER = '# Titel\nmsgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2;\\n"\n\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('#: a.c:1\n#, c-format\nmsgctxt "k"\nmsgid "da"\nmsgstr ""\n', 'msgid "da"\nmsgstr "DA"\n'),
        ('msgid ""\n"ein \\"Hund\\"\\n"\n"da\\n"\nmsgstr ""\n""\n', 'da\\n"\nmsgstr "EIN \\"HUND\\"\\nDA\\n"\n'),
        ('msgid "da"\nmsgstr "there"\n', None),
        ('#, fuzzy\n#| msgid "alt"\nmsgid "da"\nmsgstr "old"\n', 'msgid "da"\nmsgstr "DA"\n'),
        ('#, fuzzy\nmsgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d"\n', 'msgstr "A"\nmsgid "c"\nmsgstr "d"\n'),
        ('msgid "\\x64a \\303\\244\\q\\v"\nmsgstr ""\n', 'msgstr "DA ÄQ\\v"\n'),
        ('#~ msgid "da"\n#~ msgstr ""\n', None),
        ('msgid "12%"\nmsgstr ""\n', 'msgid "12%"\nmsgstr "12%"\n'),
        (
            'msgid "Tag"\nmsgid_plural "Tage"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n',
            'msgstr[0] "TAG"\nmsgstr[1] "TAGE"\nmsgstr[2] "TAGE"\n',
        ),
        ('msgid "Tag"\nmsgid_plural "Tage"\nmsgstr[0] ""\n\n', 'msgstr[0] "TAGE"\n\n'),
        ('msgid "not fuzzy"\nmsgstr "a"\n#, fuzzy', None),
        ('#, fuzzy-range, no-fuzzy\n# this is fuzzy\nmsgid "da"\nmsgstr "there"\n', None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_messages_of_po(source: str, expected: str | None, end: str) -> None:
    source, expected = HEADER + source, expected or source
    found = echoed(source.replace("\n", end), PO).replace(end, "\n")
    assert found.endswith(expected)
    assert found.startswith(HEADER)
    assert [line for line in found.splitlines() if line[0:1] in "#"] == [
        line for line in source.splitlines() if line[0:1] in "#"
    ]


FINISHED = 'msgid "da"\nmsgstr "there"\n'
STAYS = [  # entries of PO files in which nothing is translated
    FINISHED,
    f"#. seen\n#: a.c:1\n#, c-format\n{FINISHED}",
    '#, fuzzy\n#~ msgid "da"\n#~ msgstr "gone"\n',
    '# old\n#, fuzzy\n#~| msgid "older"\n#~ msgid "da"\n#~ msgid_plural "ds"\n#~ msgstr[0] ""\n',
    '#, fuzzy\ndomain "menu"\n',
    "# a note\n",
]
TRANSLATED = [  # entries before and after the translation
    ('msgctxt "k"\nmsgid "da"\nmsgstr ""\n', 'msgctxt "k"\nmsgid "da"\nmsgstr "DA"\n'),
    (f"#, c-format\n#, fuzzy\n{FINISHED}", '#, c-format\n#, fuzzy\nmsgid "da"\nmsgstr "DA"\n'),
    ('#, fuzzy\n#| msgid "a"\nmsgid ""\n"b"\nmsgstr ""\n"x"\n', '#, fuzzy\n#| msgid "a"\nmsgid ""\n"b"\nmsgstr "B"\n'),
    (
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] "x"\n',
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "A"\nmsgstr[1] "x"\n',
    ),
]
ENTRIES = st.sampled_from([*((entry, entry) for entry in STAYS), *TRANSLATED])


@given(st.lists(ENTRIES), st.sampled_from(["", "\n"]), st.sampled_from(["\n", "\r\n"]))
def test_flags_of_po_belong_to_the_entry_after_them(entries: list[tuple[str, str]], blank: str, end: str) -> None:
    """A finished message stays as it is, whatever fuzzy and obsolete entries are beside it."""
    source = HEADER + blank.join(before for before, _ in entries)
    expected = HEADER + blank.join(after for _, after in entries)
    assert echoed(source.replace("\n", end), PO) == expected.replace("\n", end)


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        ("a <g><g>b</g> c</g> d<x/>", "", "<target>A <g><g>B</g> C</g> D<x/></target>"),
        ("<bpt id='1' rid='9'/>b<ept rid='9'/> c", "", "<target><bpt id='1' rid='9'/>B<ept rid='9'/> C</target>"),
        ("a <ph>%s</ph> <pc>b</pc>", "<target id='1'/>", "<target id='1'>A <ph>%s</ph> <pc>B</pc></target>"),
        ("a <mrk mtype='protected'>b\nc</mrk> d", "", "<target>A <mrk mtype='protected'>b\nc</mrk> D</target>"),
        ("&lt;b&gt;b&lt;/b&gt;\n<![CDATA[c&]]>", "", "<target>&lt;b&gt;B&lt;/b&gt;\nC&amp;</target>"),
        ("a", "<target state='new'>b</target>", "<target state='new'>A</target>"),
        ("a", "<target>b</target>", "<target>b</target>"),
    ],
)
@pytest.mark.parametrize("name", ["trans-unit", "x:segment", "ignorable", "segment translate='no'"])
def test_targets_of_xliff(name: str, source: str, old: str, new: str) -> None:
    prefix = "x:" if name == "x:segment" else ""
    unit = f"<{name}><{prefix}source>{source}</{prefix}source><seg-source/>{{}}<note/></{name.split()[0]}>"
    text = f'<?xml version="1.0"?>\n<xliff xmlns:x="y" version="2.0">{unit}</xliff>'
    old, new = (target.replace("target", f"{prefix}target") for target in (old, new))
    assert echoed(text.format(old), XLIFF) == text.format(new if name in ("trans-unit", "x:segment") else old)


@pytest.mark.parametrize(
    ("markup", "source", "message"),
    [
        (CSV, 'a,text\n1,"da\n', "line 2 has a quote at a wrong place, or without its partner"),
        (CSV, 'a,text\n\n1,"da" \n', "line 3 has a quote at a wrong place"),
        (CSV, "a,text\n1\n", "line 2 has 1 fields instead of 2"),
        (XLIFF, "<a/>", "it is no XLIFF"),
        (XLIFF, "<!DOCTYPE xliff [<!ENTITY a SYSTEM '/etc/passwd'>]><xliff>&a;</xliff>", "a document type"),
        (XLIFF, '<?xml version="1.0" encoding="latin-1"?><xliff version="1.2"/>', "another encoding than UTF-8"),
        (XLIFF, '<xliff version="1.2"><trans-unit id="7"/></xliff>', 'there is no source in <trans-unit id="7"/>'),
        (JSON, "", "Expecting value"),
        (JSON, '{"a": "\\ud800b"}', "surrogates not allowed"),
        (JSON, '{"a": "b}', "Unterminated string"),
        (PO, 'msgid "a"\nmsgstr "\n', "line 2 is no comment, name or string"),
        (PO, 'msgid "a"\nmsgid "b"\nmsgstr ""\n', "the message at line 1 needs one msgid and a msgstr"),
        (PO, 'msgstr ""\n', "line 1 needs one msgid"),
        (PO, 'msgid "b"\nmsgstr ""\n\nmsgid "a"\n', "line 4 needs one msgid and a msgstr"),
        (PO, "# da\n", "it has no msgid"),
        (PO, 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n', "another encoding than UTF-8"),
    ],
)
def test_a_damaged_table_is_an_error(markup: Format, source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        markup.parse(source)
