"""Small translation memories of each format with the same pairs, for the tests of memories."""

from collections.abc import Sequence
from pathlib import Path

from nmt.documents.memories import copy_memories, text_files

TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de-DE" adminlang="en"/><body>
<tu><prop type="x" xml:lang="fr">P</prop><tuv xml:lang="en-US"><note xml:lang="fr">N</note><seg>A <ph>&lt;br&gt;</ph>dog
  &amp; a <hi>cat</hi></seg></tuv>
<tuv xml:lang="de"><seg>Ein <bpt i="1">{\\b </bpt>Hund<ept i="1">}</ept> &amp; eine Katze</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Nur</seg></tuv></tu>
<tu><tuv xml:lang="de-AT"><seg>Tee</seg></tuv><tuv xml:lang="en"><seg>tea</seg></tuv></tu></body></tmx>"""
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="de" target-language="en"><body>
<trans-unit id="1"><source>Ein <g id="1">Hund</g> &amp; eine Katze</source><target>A dog &amp; a cat</target>
<alt-trans><target>bad</target></alt-trans></trans-unit>
<trans-unit id="2" approved="no"><source>da</source><target>there</target></trans-unit>
<trans-unit id="3"><source>da</source><target state="needs-review-translation">there</target></trans-unit>
<trans-unit id="4"><source>da</source><alt-trans><target>there</target></alt-trans></trans-unit>
<trans-unit id="5" approved="yes"><source>Tee</source><target state="final">tea</target></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="de" trgLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="1"><segment><source>Ein <pc id="1">Hund</pc> &amp; eine Katze</source>
<target>A dog &amp; a cat</target></segment>
<segment state="initial"><source>da</source><target>there</target></segment>
<segment state="final"><source>Tee<ph id="2"/></source><target>tea</target></segment></unit></file></xliff>"""
TBX = """<martif type="TBX"><text><body>
<termEntry><langSet xml:lang="de"><tig><term>Ein Hund &amp; eine Katze</term></tig></langSet>
<langSet xml:lang="en"><tig><term>A dog &amp; a cat</term></tig><tig><term>2nd</term></tig></langSet></termEntry>
<termEntry><langSet xml:lang="de"><tig><term>Tee</term></tig></langSet>
<langSet xml:lang="en"><tig><term>tea</term></tig></langSet></termEntry></body></text></martif>"""
PO = """msgid ""
msgstr "Language: de_AT\\n"

msgid "A dog\\n& a cat"
msgstr "Ein Hund "
"& eine Katze"

#, fuzzy
msgid "there"
msgstr "da"

msgid "new"
msgstr ""

msgid "tea"
msgstr "Tee"
"""
TEXTS = {  # file name -> content
    "a.tmx": TMX,
    "b.xlf": XLIFF,
    "c.xliff": XLIFF_2,
    "d.tbx": TBX,
    "e.csv": 'id,de,en\n1,Ein Hund & eine Katze,"A dog\n& a cat"\n\n2,da,\n3,Tee,tea\n',
    "f.csv": '\ufeffsep=|\r\nen|de\r\n"A dog & a cat"|Ein Hund & eine Katze\r\n|da\r\ntea|Tee\r\n',
    "g.tsv": "de\ten\nEin Hund & eine Katze\tA dog & a cat\nda\t\nTee\ttea\n",
    "h.jsonl": '{"en": "A dog & a cat", "n": 1, "de": "Ein Hund & eine Katze"}\n\n{"de": "Tee", "en": "tea"}\n',
    "i.jsonl": '{"id": "1", "translation": {"de": "Ein Hund & eine Katze", "en": "A dog & a cat"}}\n'
    '{"id": "2", "translation": {"de": "Tee", "en": "tea"}}\n',
    "j.po": PO,
    "k.csv": '\ufeffen;de\r\n"A dog & a cat";Ein Hund & eine Katze\r\n;da\r\ntea;Tee\r\n',
}
PAIRS = [("Ein Hund & eine Katze", "A dog & a cat"), ("Tee", "tea")]
DE_EN = ("de", "en")


def pairs_of(path: Path, languages: Sequence[str] = ("", "")) -> list[tuple[str, str]]:
    """The pairs of a memory."""
    (source,), (target,) = text_files([path], languages)
    sources, targets = source.read_text(encoding="utf-8"), target.read_text(encoding="utf-8")
    return list(zip(sources.splitlines(), targets.splitlines(), strict=True))


def memory(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def copy_of(path: Path, source: str, target: str, kept: set[int]) -> str:
    """A copy of a memory in which these lines are the texts of the pairs that are kept."""
    texts = memory(path.parent, "new.de", source), memory(path.parent, "new.en", target)
    copies = path.parent / "copies"
    copies.mkdir()
    copy_memories([path], copies, DE_EN, texts, kept)
    (copy,) = copies.iterdir()
    return copy.read_text(encoding="utf-8")
