"""Exact matches of a memory are translations, similar ones are offered; the index finds what a full search finds."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from lxml.etree import fromstring
from models import small_translator
from rapidfuzz.distance import Levenshtein

from nmt.documents.html import HTML
from nmt.documents.markup import Match
from nmt.documents.memories import memory_files
from nmt.errors import ConfigError, OutputError
from nmt.translate.documents import DocumentTranslation
from nmt.translate.markup import MarkupTranslator
from nmt.translate.matches import best_match, index_of, is_whole, key_of
from nmt.translate.units import Translation, Unit

TRANSLATOR = small_translator(train={"source": "a.en", "target": "a.fr"})
HELLO, BONJOUR = "The red dog runs in the garden of an old house.", "Le chien rouge court dans le jardin."
SIMILAR = HELLO.replace("red", "big")
SIMILARITY = 10 / 11  # 10 of 11 words are equal
NAMES = ("en", "fr", "context")
MENU = ("Open", "Ouvrir", "menu")
STATE = ("Open", "Ouvert", "state")


def indexed(folder: Path, *units: tuple[str, ...]) -> str:
    """Return the index of a memory with these units: a source, a target, and a context if there is one."""
    folder.mkdir(exist_ok=True)
    path = folder / "memory.jsonl"
    with path.open("w") as file:
        for unit in units:
            texts = zip(NAMES, unit, strict=False)
            print(json.dumps(dict(texts)), file=file)
    return index_of_file(path)


def index_of_file(path: Path) -> str:
    files = memory_files([path], ("en", "fr"))
    return str(index_of(*files))


@pytest.fixture
def memory(tmp_path: Path) -> str:
    return indexed(tmp_path, ("A cat", "Un chat"), (HELLO, BONJOUR))


def translation_of(text: str, memory: str, **options: Any) -> Translation:
    changed = TRANSLATOR.with_options(memory=[memory], **options)
    (translation,) = TRANSLATOR.translate_lines([text], changed)
    return translation


# --- the step ---------------------------------------------------------------------------------------------


def test_an_exact_match_is_the_translation(memory: str) -> None:
    translation = translation_of(f"  {HELLO} ", memory)
    assert translation.source == f"  {HELLO} "
    assert translation.text == BONJOUR
    assert translation.matches == [Match(HELLO, BONJOUR, 1.0, is_taken=True)]
    assert translation.doubts is None


def test_a_similar_unit_is_offered_beside_the_translation_of_the_model(memory: str) -> None:
    translation = translation_of(SIMILAR, memory)
    assert translation.text == TRANSLATOR.translate([SIMILAR])[0]
    (match,) = translation.matches
    assert match == Match(HELLO, BONJOUR, match.similarity)
    assert match.similarity == pytest.approx(SIMILARITY)


def test_another_text_has_no_match(memory: str) -> None:
    assert translation_of("Nothing like it.", memory).matches == []


def test_above_the_threshold_a_similar_unit_is_taken_and_doubtful(memory: str) -> None:
    translation = translation_of(SIMILAR, memory, min_match=0.9)
    assert translation.text == BONJOUR
    assert translation.doubts == ["match of 91%"]
    assert [part.text for part in translation.parts] == [BONJOUR]
    assert translation_of(SIMILAR, memory, min_match=0.95).text != BONJOUR


def test_a_threshold_below_that_of_matches_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_match"):
        TRANSLATOR.with_options(min_match=0.5)


def test_a_text_with_other_spaces_is_no_exact_match(memory: str) -> None:
    translation = translation_of(HELLO.replace(" ", "  "), memory)
    assert [match.similarity for match in translation.matches] == [0.99]


def test_a_match_with_other_placeholders_is_not_taken(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("Open {file}", "Ouvrir"), ("Close {file}", "Fermer {file}"))
    assert not translation_of("Open {file}", index).matches[0].is_taken
    assert translation_of("Close {file}", index, protect_placeholders=True).text == "Fermer {file}"


def test_a_match_does_not_replace_a_translation_with_a_prefix(memory: str) -> None:
    unit = Unit(1, HELLO, prefix=TRANSLATOR.encode_prefix("a"))
    (translation,) = TRANSLATOR.translate_lines([unit], TRANSLATOR.with_options(memory=[memory]))
    assert translation.text.startswith("a")


def test_exact_matches_of_sentences_are_taken(memory: str) -> None:
    first, second = translation_of(f"{HELLO} No dog!", memory).parts
    assert (first.source, first.text) == (HELLO, BONJOUR)
    assert second.text == TRANSLATOR.translate(["No dog!"])[0]


def test_the_best_match_of_several_memories_is_taken(tmp_path: Path, memory: str) -> None:
    other = indexed(tmp_path / "other", (SIMILAR, "Le grand chien"))
    options = TRANSLATOR.with_options(memory=[memory, other], min_match=0.7)
    first, second = TRANSLATOR.translate_lines([SIMILAR, HELLO], options)
    assert first.text == "Le grand chien"
    assert second.text == BONJOUR


# The memory lacks the context "verb".
CONTEXTS = {"menu": "Ouvrir", "state": "Ouvert", "two\nlines": "Ouverte", "": "Ouvre", "verb": "Ouvert"}


@pytest.mark.parametrize("context", CONTEXTS)
def test_of_equal_units_the_one_with_the_context_of_the_text_is_taken(context: str, tmp_path: Path) -> None:
    index = indexed(tmp_path, ("Open", "Ouvre"), ("Open", "Ouverte", "two\nlines"), MENU, STATE)
    options = TRANSLATOR.with_options(memory=[index])
    unit = Unit(1, "Open", context=context)
    (translation,) = TRANSLATOR.translate_lines([unit], options)
    assert translation.text == CONTEXTS[context]


@pytest.mark.parametrize("context", ["", "menu"])
def test_an_equal_text_counts_more_than_an_equal_context(context: str, tmp_path: Path) -> None:
    index = indexed(tmp_path, ("a dog", "un", "state"), ("a  dog", "deux", context))
    match = best_match("a dog", index, context)
    assert match == Match("a dog", "un", 1.0)


def test_an_accelerator_does_not_hide_a_context(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("_Open", "_Ouvrir", "menu"), STATE)
    match = best_match("Open", index, "menu")
    assert match == Match("_Open", "Ouvrir", 1.0)


def test_a_unit_without_an_accelerator_is_taken_as_it_is(tmp_path: Path) -> None:
    index = indexed(tmp_path, (HELLO, "Run _init of Marks &Spencer."))
    assert best_match(HELLO, index) == Match(HELLO, "Run _init of Marks &Spencer.", 1.0)


def test_a_context_is_found_among_thousands_of_equal_texts(tmp_path: Path) -> None:
    others = [STATE] * 3_000
    index = indexed(tmp_path, MENU, *others)
    match = best_match("Open", index, "menu")
    assert match == Match("Open", "Ouvrir", 1.0)


def test_tags_are_put_into_an_exact_match(memory: str) -> None:
    translator = MarkupTranslator(TRANSLATOR, HTML)
    line = HELLO.replace("red", "<b>red</b>")
    (translation,) = translator.translate_lines([line], TRANSLATOR.with_options(memory=[memory]))
    result = translation.text.replace("<b>", "").replace("</b>", "")
    assert result == BONJOUR
    assert "<b>" in translation.text


def test_explanations_know_no_memory(memory: str) -> None:
    assert TRANSLATOR.requests_of(HELLO, TRANSLATOR.with_options(memory=[memory]))


# --- documents --------------------------------------------------------------------------------------------


def translated(suffix: str, text: str, memory: str, **options: Any) -> str:
    """Return the translation of a document."""
    changed = TRANSLATOR.with_options(memory=[memory], scores=False, **options)
    content = text.encode()
    document = DocumentTranslation(TRANSLATOR, f"a{suffix}", suffix, content, 10_000, "en", "fr", options=changed)
    assert list(document.translations())
    return document.content().decode()


def po(source: str) -> str:
    return f'#: a.c:1\nmsgid "{source}"\nmsgstr ""\n'


def test_in_a_po_file_accelerators_and_directives_stay(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("_Save", "_Enregistrer"), ("Copy %s to %s", "Copier %s vers %s"))
    assert 'msgstr "_Enregistrer"\n' in translated(".po", po("_Save"), index)
    assert 'msgstr "_Enregistrer"\n' in translated(".po", po("Sa_ve"), index)
    assert 'msgstr "Copier %s vers %s"\n' in translated(".po", po("Copy %s to %s"), index)


PO_UNITS = """
msgctxt "menu"
msgid "Open"
msgstr "Ouvrir"

msgctxt "state"
msgid "Open"
msgstr "Ouvert"
"""
TMX_UNITS = """<tmx version="1.4"><body>
<tu><prop type="x-context">menu</prop><tuv xml:lang="en"><seg>Open</seg></tuv>
<tuv xml:lang="fr"><seg>Ouvrir</seg></tuv></tu>
<tu><prop type="x-context">state</prop><tuv xml:lang="en"><seg>Open</seg></tuv>
<tuv xml:lang="fr"><seg>Ouvert</seg></tuv></tu></body></tmx>"""
XLIFF_UNITS = """<xliff version="1.2"><file source-language="en" target-language="fr"><body>
<trans-unit id="1"><source>Open</source><target>Ouvrir</target>
<alt-trans><target/><context-group><context context-type="x-po-msgctxt">state</context></context-group></alt-trans>
<context-group><context context-type="x-po-msgctxt">menu</context></context-group></trans-unit>
<trans-unit id="2"><source>Open</source><target>Ouvert</target>
<context-group><context context-type="sourcefile">menu</context>
<context context-type='x-gettext-msgctxt'>state</context></context-group></trans-unit></body></file></xliff>"""
CSV_UNITS = "context,en,fr\nmenu,Open,Ouvrir\nstate,Open,Ouvert\n"
TARGETS = re.compile("Ouvrir|Ouvert")
CATALOGS = {"fr.po": PO_UNITS, "a.tmx": TMX_UNITS, "b.xlf": XLIFF_UNITS, "c.csv": CSV_UNITS}


@pytest.mark.parametrize("memory_name", CATALOGS)
@pytest.mark.parametrize("name", CATALOGS)
def test_a_context_of_one_format_is_that_of_another(name: str, memory_name: str, tmp_path: Path) -> None:
    path = tmp_path / memory_name
    path.write_text(CATALOGS[memory_name])
    index = index_of_file(path)
    suffix = Path(name).suffix
    without_targets = TARGETS.sub("", CATALOGS[name])
    result = translated(suffix, without_targets, index)
    assert TARGETS.findall(result) == ["Ouvrir", "Ouvert"]


def test_a_po_file_has_a_note_about_a_match(memory: str) -> None:
    text = translated(".po", po(SIMILAR), memory)
    assert f"#: a.c:1\n# 91% match: {HELLO} -> {BONJOUR}\nmsgid" in text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_in_a_po_file_a_similar_match_that_is_taken_is_fuzzy(end: str, memory: str) -> None:
    message = po(SIMILAR).replace("\n", end)
    text = translated(".po", message, memory, min_match=0.9)
    assert f'#: a.c:1{end}#, fuzzy{end}#| msgid "{HELLO}"{end}msgid' in text
    assert f'msgstr "{BONJOUR}"' in text


def test_in_a_po_file_an_exact_match_is_not_fuzzy(memory: str) -> None:
    text = translated(".po", po("A cat"), memory, min_match=0.9)
    assert text == '#: a.c:1\nmsgid "A cat"\nmsgstr "Un chat"\n'


def test_the_previous_source_in_a_po_file_is_written_as_in_the_memory(tmp_path: Path) -> None:
    index = indexed(tmp_path, ('Copy "%s" to %s in _one step', 'Copier "%s" vers %s'))
    message = po(r"Copy \"%s\" to %s in two _steps")
    text = translated(".po", message, index, min_match=0.7)
    assert '#, fuzzy\n#| msgid "Copy \\"%s\\" to %s in _one step"\nmsgid' in text


PREVIOUS = '#| msgid "old"\n'
# Messages that a previous msgid would not fit: a line of several, a plural form, and one that has a previous msgid.
OTHER_MESSAGES = [
    po(f"{SIMILAR}\\nA cat"),
    f'msgid "{SIMILAR}"\nmsgid_plural "{SIMILAR}"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    f"#, fuzzy\n{PREVIOUS}{po(SIMILAR)}",
]


@pytest.mark.parametrize("message", OTHER_MESSAGES)
def test_a_match_that_is_no_previous_msgid_is_noted_once(message: str, memory: str) -> None:
    text = translated(".po", message, memory, min_match=0.9)
    note = f"# 91% match: {HELLO} -> {BONJOUR}\n"
    assert text.count(note) == 1
    assert "#| msgid" not in text.replace(PREVIOUS, "")


@pytest.mark.skipif(not shutil.which("msgcat"), reason="needs gettext")
def test_gettext_reads_a_previous_source(memory: str) -> None:
    text = translated(".po", po(SIMILAR), memory, min_match=0.9)
    command = ["msgcat", "--no-wrap", "-"]
    result = subprocess.check_output(command, input=text, text=True)
    assert result == text


def xliff(unit: str) -> str:
    """Return an XLIFF file with a unit, given its content."""
    root = 'xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"'
    file = '<file source-language="en" target-language="fr"><body>'
    return f'<{root}>{file}<trans-unit id="1">{unit}</trans-unit></body></file></xliff>'


def test_in_xliff_a_similar_match_that_is_taken_is_to_be_reviewed(memory: str) -> None:
    document = xliff(f"<source>{SIMILAR}</source>")
    text = translated(".xlf", document, memory, min_match=0.9)
    assert f'<target state="needs-review-translation">{BONJOUR}</target>' in text


def test_in_xliff_a_similar_match_is_a_proposal(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("The red dog & the cat", "Le <chien>"))
    document = xliff("<source>The big dog &amp; the cat</source><note>n</note>")
    text = translated(".xlf", document, index)
    root = fromstring(text)
    (unit,) = root.iter("{*}trans-unit")
    _, _, proposal, note = unit  # after source and target, as the schema has it
    assert note.text == "n"
    assert proposal.tag.endswith("}alt-trans")
    assert proposal.attrib == {"match-quality": "83", "origin": "memory"}
    source, target = proposal
    assert source.text == "The red dog & the cat"
    assert target.text == "Le <chien>"


def test_in_xliff_a_match_has_only_characters_of_xml(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("The red dog runs", "Le \a chien"))
    document = xliff("<source>The big dog runs</source>")
    for least in (0.7, 1.0):
        text = translated(".xlf", document, index, min_match=least)
        assert "Le  chien</target></alt-trans>" in text
        assert "\a" not in text


def test_in_xliff_an_exact_match_needs_no_proposal(memory: str) -> None:
    document = xliff("<source>A cat</source>")
    text = translated(".xlf", document, memory)
    assert "<target>Un chat</target></trans-unit>" in text


def test_a_proposal_for_a_segment_names_it(memory: str) -> None:
    segments = f'<mrk mtype="seg" mid="7">A cat</mrk> <mrk mtype="seg" mid="8">{SIMILAR}</mrk>'
    document = xliff(f"<source/><seg-source>{segments}</seg-source>")
    text = translated(".xlf", document, memory)
    assert text.count("<alt-trans") == 1
    assert '</target><alt-trans mid="8" match-quality="91" ' in text


def test_a_proposal_is_one_for_the_whole_source(memory: str) -> None:
    document = xliff(f"<source>{SIMILAR}\nA cat</source>")
    text = translated(".xlf", document, memory)
    assert "alt-trans" not in text


def test_a_proposal_has_the_prefix_of_its_unit(memory: str) -> None:
    unit = f"<x:trans-unit><x:source>{SIMILAR}</x:source></x:trans-unit>"
    document = f'<x:xliff version="1.2" xmlns:x="y">{unit}</x:xliff>'
    text = translated(".xlf", document, memory)
    proposal = f"<x:source>{HELLO}</x:source><x:target>{BONJOUR}</x:target></x:alt-trans></x:trans-unit>"
    assert proposal in text


def test_version_2_of_xliff_has_no_proposals(memory: str) -> None:
    segment = f"<segment><source>{SIMILAR}</source></segment>"
    document = f'<xliff version="2.0"><unit>{segment}</unit></xliff>'
    text = translated(".xlf", document, memory)
    assert HELLO not in text


@pytest.mark.parametrize("suffix", [".html", ".md", ".txt"])
def test_documents_have_exact_matches(suffix: str, memory: str) -> None:
    assert BONJOUR in translated(suffix, HELLO, memory)


def test_in_a_format_without_states_a_similar_match_that_is_taken_is_named(
    memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert BONJOUR in translated(".txt", SIMILAR, memory, min_match=0.9)
    assert f"text 1 is doubtful: match of 91%: {SIMILAR} -> {BONJOUR}" in caplog.text


# --- the index --------------------------------------------------------------------------------------------


def test_the_last_one_of_equal_units_is_found(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("a dog", "un"), ("a dog", "deux"), ("a  dog", "trois"))
    match = best_match("a dog", index)
    assert match == Match("a dog", "deux", 1.0)


def similarity(text: str, unit: str) -> float:
    return Levenshtein.normalized_similarity(text.split(), unit.split())


def test_matches_are_those_of_a_full_search(tmp_path: Path) -> None:
    generator = random.Random(1)
    texts = []
    for _ in range(800):
        n_words = generator.randint(2, 12)
        texts.append(" ".join(generator.choices("abcde", k=n_words)))
    units = texts[:700]
    index = indexed(tmp_path, *zip(units, units, strict=True))
    n_matches = 0
    for text in texts[700:]:
        best = max(similarity(text, unit) for unit in units)
        match = best_match(text, index)
        if best < 0.7:
            assert match is None
        else:
            assert match is not None
            assert match.similarity == pytest.approx(best)
            n_matches += 1
    assert n_matches > 30


@pytest.mark.parametrize(("text", "n_words"), [("I don't!", 2), ("Copied “%s” to “%s”", 4), ("猫在家。", 4)])
def test_each_word_has_a_character(text: str, n_words: int) -> None:
    assert len(key_of(text)) == n_words


def test_long_and_blank_texts_have_no_matches(tmp_path: Path) -> None:
    long = "word " * 2_000_000
    index = indexed(tmp_path, (long, "mot"), ("", ""), ("da", "there"))
    assert best_match(long, index) is None
    assert best_match("", index) is None
    assert best_match("da", index)


def test_an_index_is_made_once_and_anew_if_it_is_damaged(tmp_path: Path) -> None:
    index = Path(indexed(tmp_path, ("a", "b")))
    made = index.stat().st_mtime_ns
    result = indexed(tmp_path, ("a", "b"))
    assert result == str(index)
    assert index.stat().st_mtime_ns == made
    for content in (b"", b"another program's file", index.read_bytes()[:5000]):
        index.write_bytes(content)
        indexed(tmp_path, ("a", "b"))
        assert is_whole(index.parent)
    assert best_match("a", str(index))


def test_an_index_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"another program's file")
    with pytest.raises(OutputError, match="index cannot be used: file is not a database"):
        best_match("a", str(tmp_path / "index"))


MAKE = """
from pathlib import Path
from nmt.translate.matches import best_match, index_of
index = str(index_of(Path("contexts"), Path("source.en"), Path("target.fr")))
print(index, best_match("The dog", index))
"""


def test_two_processes_make_one_index(tmp_path: Path) -> None:
    (tmp_path / "source.en").write_text("A dog\nThe dog\n" * 5000)
    (tmp_path / "target.fr").write_text("Un chien\nLe chien\n" * 5000)
    (tmp_path / "contexts").write_text("\n" * 10_000)
    processes = []
    for _ in range(2):
        command = [sys.executable, "-c", MAKE]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
        processes.append(process)
    first, second = [process.communicate()[0] for process in processes]
    assert first == second
    assert "Le chien" in first
