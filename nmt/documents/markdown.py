"""Markdown: texts and their inline elements. Everything outside of the texts is copied."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import regex

from nmt.documents.constructs import constructs
from nmt.documents.html import Parser
from nmt.documents.markdown_delimiters import CLOSED, OPENED, SPACE, close_emphasis, unmarked
from nmt.documents.markdown_syntax import COPIED, COPIED_LINES, markdown_it
from nmt.documents.markup import Format, Part, has_segment, parts_of_text
from nmt.text.spans import Span

# YAML, TOML and JSON.
FRONT_MATTER = regex.compile(
    r"""\ufeff?(?:
        (?: (?P<mark>---|\+\+\+|;;;)[ \t]*\r?\n .*? ^(?:(?P=mark)|\.\.\.) | \{[ \t]*\r?\n .*? ^\} )
        [ \t]*(?:\r?\n|\Z)
    )?""",
    regex.DOTALL | regex.MULTILINE | regex.VERBOSE,
)
LINE_END = regex.compile(r"\r\n?|\n")
LINE_BREAK = regex.compile(r"(?:\r\n?|\n)[ \t>]*+")
ESCAPED = regex.compile(
    rf"""\\(?=[!-/:-@[-`{{-~]|\Z) | [`] | \*(?=\S) | (?<=\S)\* | (?<=(?:\A|\W)_{{0,9}})_ | _(?=_{{0,9}}(?!\w))
    | ~(?=~) | (?<=\S)~ | <(?=[A-Za-z/!?])
    | &(?=\#?\w+;) | \](?=\(\s*+(?:<|[^\s()]*+(?:[()]|\s++["'()])))
    | (?<!\[[^\[\]]{{0,200}})\] | (?<=\s)\#(?=\#*\Z) | (?={COPIED})[\[{{$:!<]""",
    regex.VERBOSE | regex.DOTALL,
)
# These escape a translation: marks of lists, headings and copied lines at the start of a paragraph, and in a cell, "|".
# A comment at the start of a paragraph would copy its line, so a space of no width precedes it.
COMMENT_START = regex.compile(r"\A(?=<[!?])")
MARK_START = regex.compile(
    rf"\A (\d{{0,9}}) ((?:[-+.)*=]|\#{{1,6}})(?=\s|$) | > | (?={COPIED_LINES})[:/\[{{-])",
    regex.VERBOSE | regex.DOTALL,
)
AS_CELL = partial(regex.compile(r"(?<!\\)\|").sub, r"\\|")
TITLE = regex.compile(r"\[!\w[^\n]*")  # the title of an alert has a line of its own


def parse_markdown(text: str) -> list[Part]:
    """Return the parts of a Markdown text."""
    n_front = FRONT_MATTER.match(text).end()  # type: ignore[union-attr]
    # The parser gets only the text after the front matter, so count lines from there.
    line_starts = [n_front, *(match.end() for match in LINE_END.finditer(text, n_front)), len(text)]
    replacements = []
    searched = n_front  # the end of the last block; the next table cell is searched from here
    for parent, block in pairwise(markdown_it().parse(text[n_front:])):
        if block.type != "inline" or not block.content:
            continue
        line = block.map[0]
        if parent.type in ("th_open", "td_open"):
            span = cell_span(text, block.content, max(line_starts[line], searched), line_starts[line + 1])
            finish: Callable[[str], str] = AS_CELL
        else:
            span = block_span(text, block.content, line_starts, line)
            finish = str if parent.type == "heading_open" else as_paragraph
        if span is None:  # the parser changed the text, for example tabs, so the block is copied
            continue
        _, searched = span
        block_parts = parts_of_block(
            block.children, block.content, line_breaks(text[slice(*span)], block.content), finish
        )
        if has_segment(block_parts):
            replacements.append((span, block_parts))
    return parts_of_text(text, replacements)


def as_paragraph(text: str) -> str:
    """Escape what would begin another block at the start of a paragraph."""
    return COMMENT_START.sub(SPACE, MARK_START.sub(r"\1\\\2", text))


def cell_span(text: str, content: str, start: int, stop: int) -> Span | None:
    """Return the span of a table cell within text[start:stop]. None if the source writes `content` differently."""
    written = content.replace("|", r"\|")
    position = text.find(written, start, stop)
    return (position, position + len(written)) if position >= 0 else None


def block_span(text: str, content: str, line_starts: Sequence[int], first: int) -> Span | None:
    """Return the span of a block that begins in line `first`. None if the source writes `content` differently."""
    lines = content.split("\n")
    last = first + len(lines) - 1
    start = text.rfind(lines[0], line_starts[first], line_starts[first + 1])
    last_start = text.rfind(lines[-1], line_starts[last], line_starts[last + 1])
    return (start, last_start + len(lines[-1])) if min(start, last_start) >= 0 else None


def line_breaks(block: str, content: str) -> dict[int, str]:
    """Return what the source of a block writes for each newline of `content`, such as "\\n> "."""
    newlines = [match.start() for match in LINE_END.finditer(content)]
    return dict(zip(newlines, LINE_BREAK.findall(block), strict=False))


def parts_of_block(
    tokens: Sequence[Any], content: str, breaks: Mapping[int, str], finish: Callable[[str], str]
) -> list[Part]:
    """Return the parts of a block. `breaks` separate its lines. `finish` is applied to each translation.

    Code, formulas, templates and addresses stay unchanged in the text to translate. Footnote marks and images are
    copied like tags.
    """
    parser = Parser(lambda text: finish(close_emphasis(text)))
    joined = content.replace("\n", " ")
    html_end = 0  # the end of the last HTML tag
    n_read = 0  # tokens before this index have been read
    for i, token in enumerate(tokens):
        start, end = token.map or (0, 0)
        if token.type == "html_inline":
            if parser.kept:  # the loop has skipped the tokens before this tag
                parser.keep(joined[html_end:start])
            for construct in constructs(token.content):
                parser.read(*construct)
            html_end = end
        elif parser.kept or i < n_read:
            continue
        elif token.type == "hardbreak" or (token.type == "softbreak" and TITLE.fullmatch(content, 0, start)):
            # A line break separates texts. It is copied with the spaces before it, which its token does not cover.
            parser.finish()
            line = content[:start].rstrip(" ")
            newline = content.index("\n", start)
            parser.parts += [content[len(line) : newline], breaks[newline]]
        elif token.type == "edge" or (token.type == "attributes" and end == len(content)):
            parser.finish()
            parser.parts.append(content[start:end])
        elif token.markup == "autolink":
            parser.copy(content[start:end])
            n_read = i + 3  # skip the text and the end of the link, which are already copied
        else:
            read_token(parser, token, joined[start:end])
    if parser.kept:
        parser.keep(joined[html_end:])
    parser.finish()
    return [unmarked(part) if isinstance(part, str) else part for part in parser.parts]


def read_token(parser: Parser, token: Any, raw: str) -> None:
    """Let a parser read an inline token. `raw` is the source of the token."""
    name = token.type.removesuffix("_open").removesuffix("_close")
    if name == "text":
        parser.write(escape_markdown(token.content), token.content)
    elif name == "softbreak":
        parser.write(" ", " ")
    elif name in ("code_inline", "verbatim", "address"):
        parser.copy(OPENED + raw if name == "code_inline" else raw, token.content)
    elif name in ("image", "mark", "attributes"):
        parser.copy(raw)
    elif token.nesting > 0:
        parser.read("[" if name == "link" else OPENED + token.markup, "start", f"{name} ")
    elif token.nesting < 0:
        parser.read(token.content or token.markup + CLOSED, "end", f"{name} ")


def escape_markdown(text: str) -> str:
    """Put a backslash before each character of a text that would otherwise be markup."""
    return ESCAPED.sub(r"\\\g<0>", text)


MARKDOWN = Format(parse_markdown, escape_markdown)
