"""Subtitles in SRT and WebVTT: the lines of a cue are translated as one text. Times, numbers and notes are copied.

The library pysubs2 is not used, because it would write the whole file anew.
"""

import math
from collections.abc import Iterator
from functools import partial

import regex

from nmt.documents.html import Construct, constructs, escape_html, parse_constructs
from nmt.documents.markup import Format, Part, has_segment, parts_of_text
from nmt.text.words import SYLLABLE, UNSPACED_CHARACTER, UNSPACED_SCRIPTS

TIME = r"(?:\d+:)?\d+:\d\d[,.]\d+"
TIMES = regex.compile(rf"[ \t]*{TIME}[ \t]+-->[ \t]+{TIME}[^\r\n]*")
BEGINS_WITH_TIME = regex.compile(r"\s*\d+:\d\d:\d\d[,.]\d+")
CUE = regex.compile(rf"^{TIMES.pattern}\r?\n(?P<text>(?:[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+)", regex.MULTILINE)
SPEAKER = regex.compile(r"(\r?\n)(?=\s*(?:<[^<>]*>)*[-–—])")  # each line that begins with a dash has a new speaker
POSITION_AND_DASH = regex.compile(r"(?:\{[^}]*\})*(?:[-–—]\s*)?")
TIME_OR_FORMAT = regex.compile(r"(<[\d:.]+>|\{\\[^{}]*\})")  # a time inside of a cue, or a format such as {\i1}
UNSPACED_BREAK = regex.compile(rf"(?<={UNSPACED_CHARACTER})\r?\n(?={UNSPACED_CHARACTER})")
# A unit that stays on one line: a word, or a syllable of an unspaced script with the punctuation marks after it. Tags
# and white space before it belong to the unit.
UNBROKEN = regex.compile(
    rf"\s*(?:<[^<>]*>)*(?:{SYLLABLE}(?:(?![<&])[^\w\s])*|(?:[^\s<{UNSPACED_SCRIPTS}]|</[^<>]*>)+|<|)"
)
ANY_TAG = regex.compile("<[^<>]*>")
# Maximum width of a translation on one line, in characters. Broadcasters usually allow 42. A wider line of the source
# raises the maximum.
MAX_LINE = 42


def parse_subtitles(text: str) -> list[Part]:
    """Return the parts of a subtitle file. Raises ValueError if the file has no cues or malformed times."""
    for number, line in enumerate(text.split("\n"), 1):
        is_time = "-->" in line or BEGINS_WITH_TIME.match(line)
        if is_time and not TIMES.match(line):
            raise ValueError(f"line {number} has no times: {line.strip():.60}")
    replacements = [(cue.span("text"), parts_of_cue(cue["text"])) for cue in CUE.finditer(text)]
    if not replacements and text.strip():
        raise ValueError("no line has times such as 00:00:01,000 --> 00:00:02,000, with text after it")
    return parts_of_text(text, replacements)


def parts_of_cue(text: str) -> list[Part]:
    """Return the parts of a cue. Each speaker's lines are a segment."""
    parts: list[Part] = []
    line_end = "\r\n" if "\r\n" in text else "\n"
    content = text.rstrip("\r\n")
    # The list contains the lines of each speaker, and the line ends between speakers.
    for lines in SPEAKER.split(content):
        start = POSITION_AND_DASH.match(lines)[0]  # type: ignore[index]
        # The parser joins lines with spaces. Unspaced scripts have none, so join their lines here.
        joined = UNSPACED_BREAK.sub("", lines[len(start) :])
        widths = [len(ANY_TAG.sub("", line)) for line in lines.split(line_end)]
        finish = partial(broken, n_lines=len(widths), width=max(MAX_LINE, *widths), line_end=line_end)
        speaker_parts = parse_constructs(constructs_with_marks(joined), finish)
        parts += [start, *speaker_parts] if has_segment(speaker_parts) else [lines]
    return [*parts, text[len(content) :]]


def constructs_with_marks(text: str) -> Iterator[Construct]:
    """Yield the constructs of a text. Each match of `TIME_OR_FORMAT` is an element without content."""
    for i, piece in enumerate(TIME_OR_FORMAT.split(text)):
        if i % 2 == 0:
            yield from constructs(piece)
        else:
            yield Construct(piece, "empty")


def broken(text: str, *, n_lines: int, width: int, line_end: str) -> str:
    """Break a text with tags into `n_lines` lines of similar length. A single line over `width` becomes two lines."""
    words = UNBROKEN.findall(text)
    sizes = [len(ANY_TAG.sub("", word)) for word in words]
    n_characters = sum(sizes)
    # Put each word into the line that would contain its middle if all lines had the same number of characters.
    n_lines = max(n_lines, min(2, math.ceil(n_characters / width)))
    lines = [""] * n_lines
    n_before = 0
    for word, size in zip(words, sizes, strict=True):
        middle = (n_before + size / 2) / (n_characters + 1)  # relative position of the word's middle, 0-1
        lines[int(n_lines * middle)] += word
        n_before += size
    return line_end.join(line.strip() for line in lines if line.strip())


def escape_srt(text: str) -> str:
    """Escape the parts of a text that players of SRT would read as a tag or as times."""
    return regex.sub("<(?=[a-zA-Z/])", "&lt;", text).replace("-->", "--&gt;")


VTT, SRT = Format(parse_subtitles, escape_html), Format(parse_subtitles, escape_srt)
