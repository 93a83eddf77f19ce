"""Subtitles in SRT and WebVTT: each sentence, speaker and line of a song is a text. Times and notes are copied.

The library pysubs2 is not used, because it would write the whole file anew.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import cast

import regex

from nmt.documents.constructs import Construct, ConstructKind
from nmt.documents.html import escape_html, parse_constructs
from nmt.documents.markup import Format, Part, Replacement, has_segment, parts_of_text
from nmt.documents.tables import line_number
from nmt.text.sentences import sentence_spans
from nmt.text.words import END_MARKS, SYLLABLE, UNSPACED_CHARACTER, UNSPACED_SCRIPTS, WIDE_CHARACTER

LINE_START = r"(?:(?<![^\r\n])(?<!\r(?=\n))|(?<=\A\ufeff))"
EOL = r"(?:\r\n?+|\n)"
TIME = r"(?:\d+:)?\d+:\d\d[,.]\d+"
TIMES = rf"[ \t]*{TIME}[ \t]*-->[ \t]*{TIME}[^\r\n]*"
# The times at which a cue begins, with the number before them. A number directly after the text of another cue, too.
CUE_START = regex.compile(rf"{LINE_START}(?:[ \t]*\d+[ \t]*{EOL})?{TIMES}(?:{EOL}|\Z)")
# A line with damaged times. A note of WebVTT may contain any.
DAMAGED_TIMES = regex.compile(
    rf"{LINE_START}(?!\ufeff?+{TIMES}|NOTE)"
    r"(?:[ \t]*+\d++:\d\d:\d\d[,.]\d++[ \t]*+[-\d]|(?=[^\r\n]*\d)[^\r\n]*-->)[^\r\n]*"
)
VTT_START = regex.compile(r"\ufeff?WEBVTT(?!\S)")
EMPTY_LINE = regex.compile(LINE_START + EOL)
# White space between two texts (`separator`), or between two lines of one text. A new text begins after blank lines, at
# a line that begins with a dash, a music note or a voice tag, and at a dash after a sentence (another speaker).
GAP = regex.compile(
    r"""(?P<separator>\A\s++
    | (?<!\s)\s++\Z
    | (?<!\s)(?=[^\S\r\n]*+(?:\r\n?+|\n)[^\S\r\n]*+[\r\n])\s++
    | (?<!\s)(?=[^\S\r\n]*+[\r\n])(?<=[♪♫♬](?:</[^<>]*>)*)\s++
    | (?<!\s)(?=[^\S\r\n]*+[\r\n])\s++(?=(?:</?(?!v)[^<>]*>|\{[^{}\r\n]*\})*+(?:[\p{Pd}♪♫♬]|<v[\s.]))
    | (?=[ \t])(?<=["""
    + END_MARKS
    + r"""]['"”’»)]?(?:</[^<>]*>)?)[ \t]++(?=(?:<[^/<>]*>)*+\p{Pd})
    | (?<=\S)[ \t]*+(?=<v[\s.]))
    | (?<!\s)(?=[^\S\r\n]*+[\r\n])\s++""",
    regex.VERBOSE,
)
# What is copied before and after a text: formats such as {\an8}; dashes and notes of music, and tags outside of them.
HEAD = regex.compile(r"\A(?:\{[^{}\r\n]*\})*+(?:(?:</?(?!v)[^<>]*>|\{[^{}\r\n]*\})*+(?:\s*+[\p{Pd}♪♫♬])++\s*+)?")
TAIL = regex.compile(r"(?:(?<![\s♪♫♬])(?:\s*+[♪♫♬])++(?:</?[^<>]*>|\{[^{}\r\n]*\}|\s)*+)?\Z")
# Times, formats, and the readings of ruby are elements without content.
CUE_CONSTRUCT = regex.compile(
    r"""(?P<empty><rt\b[^<>]*>[^<]*+(?:</rt>)?|<[\d:.]+>|\{\\[^{}\r\n]*\})
    | (?P<end></(?P<name>[a-zA-Z]+)[^<>]*>)
    | (?P<start><(?P<name>[a-zA-Z]+)[^<>]*>)
    | (?P<text>[^<{]++|[<{])""",
    regex.VERBOSE,
)
INNER_TIME = regex.compile(r"<[\d:.]+>")
UNSPACED_BREAK = regex.compile(rf"(?<={UNSPACED_CHARACTER})(?<!\s)\s*+(?<=[\r\n]\s*)(?={UNSPACED_CHARACTER})")
# A unit that stays on one line: a word, or a syllable of an unspaced script with the punctuation marks after it. Tags
# and white space before it belong to the unit.
UNBROKEN = regex.compile(
    rf"\s*(?:<[^<>]*>)*(?:{SYLLABLE}(?:(?![<&])[^\w\s])*|(?:[^\s<{UNSPACED_SCRIPTS}]|</[^<>]*>)+|<|)"
)
ANY_TAG = regex.compile(r"<[^<>]*>|\{\\[^{}\r\n]*\}")
WIDE = regex.compile(WIDE_CHARACTER)
# Maximum width of a translation on one line, in characters, and if most of them are full-width. Broadcasters usually
# allow these. A wider line of the source raises the maximum.
MAX_LINE, MAX_WIDE_LINE = 42, 16


def parse_subtitles(text: str) -> list[Part]:
    """Return the parts of a subtitle file. Raises ValueError if SRT has no cues, or if times are malformed.

    In WebVTT, the text of a cue ends at an empty line. In SRT, it ends where the next cue begins.
    """
    if damaged := DAMAGED_TIMES.search(text):
        number = line_number(text, damaged.start())
        raise ValueError(f"line {number} has no times: {damaged[0].strip():.60}")
    is_vtt = VTT_START.match(text)
    line_end = "".join(regex.findall(EOL, text)[:1])
    replacements: list[Replacement] = []
    cues = [match.span() for match in CUE_START.finditer(text)]
    # The text between a cue's times and the start of the next cue. The end of the file is the end of the last one.
    for (_, start), (end, _) in pairwise([*cues, (len(text), 0)]):
        if is_vtt and (empty := EMPTY_LINE.search(text, start, end)):
            end = empty.start()
        cue = text[start:end]
        if cue.strip():
            replacements.append(((start, end), parts_of_cue(cue, line_end)))
    if not replacements and text.strip() and not is_vtt:
        raise ValueError("no line has times such as 00:00:01,000 --> 00:00:02,000, with text after it")
    return parts_of_text(text, replacements)


def parts_of_cue(cue: str, line_end: str) -> list[Part]:
    """Return the parts of a cue. A line end that is also the end of a sentence separates two texts."""
    parts: list[Part] = []
    # Tags take no part in finding sentences. Invisible characters stand for them, so that positions stay.
    visible = ANY_TAG.sub(lambda tag: "\u2060" * len(tag[0]), cue)
    ends = {end for _, end in sentence_spans(visible)}
    start = 0
    for gap in GAP.finditer(cue):
        if gap["separator"] is not None or gap.start() in ends:
            parts += [*parts_of_cue_text(cue[start : gap.start()], line_end), gap[0]]
            start = gap.end()
    return [*parts, *parts_of_cue_text(cue[start:], line_end)]


def parts_of_cue_text(text: str, line_end: str) -> list[Part]:
    """Return the parts of one text of a cue."""
    start = HEAD.match(text).end()  # type: ignore[union-attr]
    end = TAIL.search(text, start).start()  # type: ignore[union-attr]
    # The parser joins lines with spaces. Unspaced scripts have none, so join their lines here.
    joined = UNSPACED_BREAK.sub("", text[start:end])
    finish = partial(finished_cue, source=text, line_end=line_end)
    inner = parse_constructs(cue_constructs(joined), finish)
    return [text[:start], *inner, text[end:]] if has_segment(inner) else [text]


def cue_constructs(text: str) -> Iterator[Construct]:
    """Yield the constructs of a text."""
    for match in CUE_CONSTRUCT.finditer(text):
        yield Construct(match[0], cast("ConstructKind", match.lastgroup), (match["name"] or "").lower())


def finished_cue(text: str, source: str, line_end: str) -> str:
    """Put the times inside of a translation into their order in the source, and break it into as many lines."""
    times = iter(INNER_TIME.findall(source))
    text = INNER_TIME.sub(lambda time: next(times, time[0]), text)
    lines = regex.split(EOL, source)
    limit = max_width(text)
    widths = [n_visible(line) for line in lines if max_width(line) == limit]
    width = max([limit, *widths])
    return broken(text, n_lines=len(lines), width=width, line_end=line_end)


def max_width(text: str) -> int:
    """Return the maximum width of a line, which depends on the script of its letters."""
    n_wide = len(WIDE.findall(text))
    return MAX_WIDE_LINE if 2 * n_wide > n_visible(text) else MAX_LINE


def n_visible(text: str) -> int:
    """Return the number of characters of a text without its tags."""
    return len(ANY_TAG.sub("", text))


def broken(text: str, *, n_lines: int, width: int, line_end: str) -> str:
    """Break a text with tags into `n_lines` lines of similar length. A single line over `width` becomes two lines."""
    words = UNBROKEN.findall(text)
    sizes = list(map(n_visible, words))
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
