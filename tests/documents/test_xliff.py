"""XLIFF: each unit without a finished target gets one; all else stays."""

import pytest
from conftest import rows_of
from echo import echoed

from nmt.documents.xliff import XLIFF

# The content of a source, and below it that of its target.
SOURCES = """
a <g><g>b</g> c</g> d<x/>
A <g><g>B</g> C</g> D<x/>

<bpt id='1' rid='9'/>b<ept rid='9'/> c
<bpt id='1' rid='9'/>B<ept rid='9'/> C

a <ph>%s</ph> <pc>b</pc>
A <ph>%s</ph> <pc>B</pc>

a <mrk mtype='protected'>b|c</mrk> d
A <mrk mtype='protected'>b|c</mrk> D

&lt;b&gt;b&lt;/b&gt;|<![CDATA[c&]]>
&lt;b&gt;B&lt;/b&gt;|C&amp;
"""


def file_of(unit: str, version: str = "2.0") -> str:
    return f'<?xml version="1.0"?>\n<xliff xmlns:x="y" version="{version}">{unit}</xliff>'


def unit_of(source: str, target: str) -> str:
    return f"<trans-unit><source>{source}</source><seg-source/>{target}<note/></trans-unit>"


@pytest.mark.parametrize("case", rows_of(SOURCES, "\n\n"))
def test_a_missing_target_follows_its_source(case: str) -> None:
    source, target = case.split("\n")  # a bar is a line break
    unit = unit_of(source, "").replace("|", "\n")
    expected = unit_of(source, f"<target>{target}</target>").replace("|", "\n")
    written = echoed(file_of(unit), XLIFF)
    assert written == file_of(expected)


# What becomes of a target.
TARGETS = {
    "<target id='1'/>": "<target id='1'>A</target>",
    "<target state='new'>b</target>": "<target state='new'>A</target>",
    "<target>b</target>": "<target>b</target>",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_a_target_is_written_if_it_is_empty_or_new(target: str, version: str) -> None:
    source = file_of(unit_of("a", target), version)
    expected = unit_of("a", TARGETS[target])
    assert echoed(source, XLIFF) == file_of(expected, version)


def test_a_segment_with_a_prefix_gets_a_target_with_this_prefix() -> None:
    # Prefixes are those of namespaces.
    expected = "<x:segment><x:source>a</x:source><x:target>A</x:target></x:segment>"
    source = expected.replace("<x:target>A</x:target>", "")
    assert echoed(file_of(source), XLIFF) == file_of(expected)


@pytest.mark.parametrize("name", ["ignorable", "segment translate='no'"])
def test_units_that_are_not_translated_stay(name: str) -> None:
    text = file_of(f"<{name}><source>a</source></{name.split()[0]}>")
    assert echoed(text, XLIFF) == text


# Damaged files, and what is said about them.
BAD = {
    "<a/>": "it is no XLIFF",
    "<!DOCTYPE xliff [<!ENTITY a SYSTEM '/etc/passwd'>]><xliff>&a;</xliff>": "a document type",
    '<?xml version="1.0" encoding="latin-1"?><xliff version="1.2"/>': "another encoding than UTF-8",
    '<xliff version="1.2"><trans-unit id="7"/></xliff>': 'there is no source in <trans-unit id="7"/>',
}


@pytest.mark.parametrize("source", BAD)
def test_a_damaged_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD[source]):
        XLIFF.parse(source)
