"""Subtitles, SRT and WebVTT: the lines of a cue are translated as one text; times, numbers and notes are copied.

pysubs2 would write the whole file anew.
"""

import math
import re
from functools import partial
from itertools import chain

from nmt.documents import html
from nmt.documents.html import HTML, constructs
from nmt.documents.markup import Format, Part, Segment
from nmt.text.lines import UNSPACED_SCRIPTS

TIME = r"(?:\d+:)?\d+:\d\d[,.]\d+"
TIMES = re.compile(rf"[ \t]*{TIME}[ \t]+-->[ \t]+{TIME}[^\r\n]*")
BEGINS_WITH_TIME = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+")
CUE = re.compile(rf"^{TIMES.pattern}\r?\n(?P<text>(?:[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+)", re.MULTILINE)
SPEAKER = re.compile(r"\n(?=\s*(?:<[^<>]*>)*[-–—])")  # a line that begins with a dash is another speaker's
POSITION_AND_DASH = re.compile(r"(?:\{[^}]*\})*(?:[-–—]\s*)?")
MARK = re.compile(r"(<[\d:.]+>|\{\\[^{}]*\})")  # a time inside of a cue, and a format such as {\i1}
CHARACTER = rf"[{UNSPACED_SCRIPTS}]"  # of a script without spaces
# A word, or a character with the punctuation marks after it, with the tags and the space before it.
WORD = re.compile(rf"\s*(?:<[^<>]*>)*(?:{CHARACTER}[^\w\s<&]*|(?:[^\s<{UNSPACED_SCRIPTS}]|</[^<>]*>)+|<|)")
TAG = re.compile("<[^<>]*>")
MAX_LINE = 42  # characters, as broadcasters have it; a line of the source may be longer


def parse(text: str) -> list[Part]:
    """Return the parts of a file. Raises ValueError if it has no cues, or a cue without times."""
    for number, line in enumerate(text.split("\n"), 1):
        if ("-->" in line or BEGINS_WITH_TIME.match(line)) and not TIMES.fullmatch(line.rstrip("\r")):
            raise ValueError(f"line {number} has no times: {line.strip():.60}")
    parts, at = list[Part](), 0
    for found in CUE.finditer(text):
        parts += [text[at : found.start("text")], *parts_of_cue(found["text"])]
        at = found.end()
    if not at and text.strip():
        raise ValueError("no line has times such as 00:00:01,000 --> 00:00:02,000, with text after it")
    return [*parts, text[at:]]


def parts_of_cue(text: str) -> list[Part]:
    """The parts of a cue, which has a segment for each speaker."""
    parts, at = list[Part](), len(text.rstrip("\r\n"))
    end = "\r\n" if "\r\n" in text else "\n"
    for i, lines in enumerate(SPEAKER.split(text[:at].replace(end, "\n"))):
        start = POSITION_AND_DASH.match(lines)[0]  # type: ignore[index]
        joined = re.sub(rf"(?<={CHARACTER})\n(?={CHARACTER})", "", lines[len(start) :]).replace("\n", " ")
        pieces = (
            [(piece, "empty", "")] if MARK.fullmatch(piece) else constructs(piece) for piece in MARK.split(joined)
        )
        found = html.parse(chain(*pieces))
        segments = [part for part in found if isinstance(part, Segment)]
        widths = [len(TAG.sub("", line)) for line in lines.split("\n")]
        for segment in segments:
            segment.finish = partial(broken, n_lines=len(widths), width=max(MAX_LINE, *widths), end=end)
        parts += [end * (i > 0), *([start, *found] if segments else [lines.replace("\n", end)])]
    return [*parts, text[at:]]


def broken(text: str, *, n_lines: int, width: int, end: str) -> str:
    """Break text with tags into `n_lines` lines of similar length; one line that is too wide becomes two."""
    words = WORD.findall(text)
    sizes = [len(TAG.sub("", word)) for word in words]
    total = sum(sizes)
    n_lines = max(n_lines, min(2, math.ceil(total / width)))
    lines, n_before = [""] * n_lines, 0
    for word, size in zip(words, sizes, strict=True):
        lines[int(n_lines * (n_before + size / 2) / (total + 1))] += word
        n_before += size
    return end.join(line.strip() for line in lines if line.strip())


VTT = Format(parse, HTML.escape)
SRT = Format(parse, lambda text: re.sub("<(?=[a-zA-Z/])", "&lt;", text).replace("-->", "--&gt;"))
