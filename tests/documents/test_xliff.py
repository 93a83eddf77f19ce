"""XLIFF and TMX: each unit without a finished target gets one; all else stays."""

import re
from functools import partial

import pytest
from conftest import rows_of
from echo import echoed

from nmt.documents.html import escape_html
from nmt.documents.markup import Format
from nmt.documents.xliff import XLIFF, parse_tmx, with_target_language

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

a <sm id='1' translate='no'/>b<em startRef='1'/> c
A <sm id='1' translate='no'/>b<em startRef='1'/> C

a <x id="START_LINK_1"/>b <x id="START_BOLD"/>c<x id="CLOSE_BOLD"/><x id="CLOSE_LINK"/>
A <x id="START_LINK_1"/>B <x id="START_BOLD"/>C<x id="CLOSE_BOLD"/><x id="CLOSE_LINK"/>

a<x id="1" ctype="lb"/>b
A<x id="1" ctype="lb"/>B

 a  b|  c
 A  B|  C

{n, plural, =1 {<x/> day} other {<x/> days}}
{n, plural, =1 {<x/> day} other {<x/> days}}
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
    "<target> <g><!--b--></g> </target>": "<target>A</target>",
    "<target state='new'>b</target>": "<target state='needs-review-translation'>A</target>",
    "<target state='new' state-qualifier='x'/>": "<target state='needs-review-translation'>A</target>",
    "<target>b</target>": "<target>b</target>",
    "<target><x/></target>": "<target><x/></target>",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_a_target_is_written_if_it_is_empty_or_new(target: str, version: str) -> None:
    source = file_of(unit_of("a", target), version)
    expected = unit_of("a", TARGETS[target])
    result = echoed(source, XLIFF)
    assert result == file_of(expected, version)


def test_the_state_of_a_segment_in_version_2_says_that_it_is_translated() -> None:
    source = "<segment state='initial' subState='x:y'><source>a</source></segment>"
    expected = "<segment state='translated'><source>a</source><target>A</target></segment>"
    written = echoed(file_of(source), XLIFF)
    assert written == file_of(expected)


def test_a_file_may_name_its_version_by_the_namespace_only() -> None:
    file = '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.1"><file>{}</file></xliff>'
    written = echoed(file.format("<trans-unit><source>a</source></trans-unit>"), XLIFF)
    assert written == file.format("<trans-unit><source>a</source><target>A</target></trans-unit>")


ROOTS = {
    '<?xml version="1.0"?><xliff version="2.0" srcLang="de">': ' trgLang="en"',
    '<x:xliff srcLang="de" version="2.1">': ' trgLang="en"',
    '<xliff version="2.0" srcLang="de" trgLang="fr">': "",
    '<xliff version="1.2">': "",
}


@pytest.mark.parametrize("root", ROOTS)
def test_version_2_names_the_language_of_the_targets(root: str) -> None:
    assert with_target_language(root, "en") == root.replace("xliff", f"xliff{ROOTS[root]}")


def test_an_approved_unit_stays() -> None:
    text = file_of("<trans-unit approved='yes'><source>a</source><target/></trans-unit>", "1.2")
    assert echoed(text, XLIFF) == text


# Units in elements that say whether they are translated. The nearest one counts.
NEAREST = {
    "<group translate='yes'><unit translate='no'><segment><source>a</source></segment></unit></group>": "",
    "<group translate='no'><unit translate='yes'><segment><source>a</source></segment></unit></group>": "A",
    "<group translate='no'><unit><segment><source>a</source></segment></unit></group>": "",
}


@pytest.mark.parametrize("unit", NEAREST)
def test_the_nearest_element_says_whether_a_unit_is_translated(unit: str) -> None:
    written = echoed(file_of(unit), XLIFF)
    targets = re.findall("<target>(.*)</target>", written)
    assert "".join(targets) == NEAREST[unit]


# The target of a unit with two segments, and what becomes of it. `1=` is the first segment without text.
SEGMENTED_TARGETS = {
    "": "<target>1=A. 2=B.</target>",
    "<target/>": "<target>1=A. 2=B.</target>",
    "<target>1= 2=</target>": "<target>1=A. 2=B.</target>",
    "<target>2=c. 1=</target>": "<target>2=c. 1=A.</target>",
    "<target>c 2=c.</target>": "<target>c 2=c. 1=A.</target>",
    "<target>1=c. 2=d.</target>": "<target>1=c. 2=d.</target>",
    "<target state='new'>1=a. 2=b.</target>": "<target state='needs-review-translation'>1=A. 2=B.</target>",
    "<target>c.</target>": "<target>c.</target>",
}


def segmented(target: str) -> str:
    unit = f"<trans-unit><source>a. b.</source><seg-source>1=a. 2=b.</seg-source>{target}</trans-unit>"
    unit = re.sub(r"([12])=([\w.]*)", r"<mrk mtype='seg' mid='\1'>\2</mrk>", unit)
    return file_of(unit, "1.2")


@pytest.mark.parametrize("target", SEGMENTED_TARGETS)
def test_segments_without_text_are_filled(target: str) -> None:
    written = echoed(segmented(target), XLIFF)
    assert written == segmented(SEGMENTED_TARGETS[target])


def test_a_segment_with_a_prefix_gets_a_target_with_this_prefix() -> None:
    # Prefixes are those of namespaces.
    expected = "<x:segment><x:source>a</x:source><x:target>A</x:target></x:segment>"
    source = expected.replace("<x:target>A</x:target>", "")
    result = echoed(file_of(source), XLIFF)
    assert result == file_of(expected)


@pytest.mark.parametrize("name", ["ignorable", "segment translate='no'"])
def test_units_that_are_not_translated_stay(name: str) -> None:
    text = file_of(f"<{name}><source>a</source></{name.split()[0]}>")
    assert echoed(text, XLIFF) == text


# Damaged files, and what is said about them.
BAD = {
    "<a/>": "it is no XLIFF",
    "<!DOCTYPE xliff [<!ENTITY a SYSTEM '/etc/passwd'>]><xliff>&a;</xliff>": "a document type",
    '<?xml version="1.0" encoding="latin-1"?><xliff version="1.2"/>': "another encoding than UTF-8",
    "<\0x\0l\0i\0f\0f\0/\0>\0": "another encoding than UTF-8",
    '<xliff version="1.2"><trans-unit id="7"/></xliff>': 'there is no source in <trans-unit id="7"/>',
}


@pytest.mark.parametrize("source", BAD)
def test_a_damaged_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD[source]):
        XLIFF.parse(source)


# --- TMX --------------------------------------------------------------------------------------------------

TMX = Format(partial(parse_tmx, source="de", target="en"), escape_html)
MEMORY = '<!DOCTYPE tmx SYSTEM "a"><tmx version="1.4"><header srclang="de"/><body><tu>{}</tu></body></tmx>'
# Units of a memory, in two rows each: the unit, and what becomes of it.
MEMORIES = """
<tuv xml:lang="de-AT"><seg>a <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept></seg></tuv>
<tuv xml:lang="de-AT"><seg>a <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept></seg></tuv>\
<tuv xml:lang="en" creationid="nmt"><seg>A <bpt i="1">&lt;b></bpt>B<ept i="1">&lt;/b></ept></seg></tuv>

<tuv lang="DE"><seg>a <hi>b</hi></seg></tuv><tuv lang="EN-US"><seg/></tuv>
<tuv lang="DE"><seg>a <hi>b</hi></seg></tuv><tuv lang="EN-US"><seg>A <hi>B</hi></seg></tuv>

<tuv xml:lang="de"><seg>a</seg></tuv><tuv xml:lang="en"><seg>b</seg></tuv>
<tuv xml:lang="de"><seg>a</seg></tuv><tuv xml:lang="en"><seg>b</seg></tuv>
"""


@pytest.mark.parametrize("case", rows_of(MEMORIES, "\n\n"))
def test_a_unit_of_a_memory_gets_a_text_in_the_target_language(case: str) -> None:
    source, expected = case.strip().split("\n")
    written = echoed(MEMORY.format(source), TMX)
    assert written == MEMORY.format(expected)


def test_a_memory_of_other_languages_is_an_error() -> None:
    memory = MEMORY.format('<tuv xml:lang="fr"/><tuv xml:lang="it"/>')
    with pytest.raises(ValueError, match="it has no texts in de, but in fr, it"):
        TMX.parse(memory)
