"""Markdown: markdown-it-py finds the texts and their inline elements. Everything outside of the texts is copied."""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

from nmt.documents.html import Parser, constructs
from nmt.documents.markup import Format, Part, has_segment, parts_of_text
from nmt.errors import InputError
from nmt.text.spans import Span

FRONT_MATTER = re.compile(r"\ufeff?(?:---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z))?", re.DOTALL | re.MULTILINE)
LINE_END = re.compile(r"\r\n?|\n")
# Templates, formulas, footnote marks and checkboxes. No match contains the beginning of another one of its kind, so a
# search takes linear time.
TEMPLATE_OR_MARK = re.compile(
    r"(\{\{(?:(?!\{\{).)*?\}\}|\{%(?:(?!\{%).)*?%\}|\$[^$\s](?:[^$]*[^$\s])?\$|\[\^[^\[\]\s]+\](?::\s)?|^\[[ xX]\]\s)"
)
ESCAPED = re.compile(
    r"\\(?=[!-/:-@[-`{-~])|[`]|\*(?=\S)|(?<=\S)\*|(?<!\w)_|_(?!\w)|~~|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\](?=[(\[])"
)
# These functions escape a translation: marks of lists and headings at the start of a paragraph, and "|" in a cell.
AS_PARAGRAPH = partial(re.compile(r"^(\d{0,9})([-+.)>=]|#{1,6})(?=\s|$)").sub, r"\1\\\2")
AS_CELL = partial(re.compile(r"(?<!\\)\|").sub, r"\\|")


@cache
def markdown_it() -> Any:
    """Return a parser for GitHub's Markdown. The `map` of an inline token is the token's span in the block."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise InputError("markdown-it-py is not installed", hint="pip install 'nmt-trainer[documents]'") from error
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, with_span(rule))
    return parser


def with_span(rule: Callable[..., bool]) -> Callable[..., bool]:
    """Wrap an inline rule of markdown-it-py, so that it sets `map` of each token to its span in the block.

    The span of a `link_close` token covers `](…)`.
    """

    def run(state: Any, silent: bool) -> bool:
        start, n_tokens = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        for token in state.tokens[n_tokens:]:
            if token.type == "link_close" and token.markup != "autolink" and not token.map:
                token.map = [state.md.helpers.parseLinkLabel(state, start), state.pos]
            # Tokens inside of a link already have spans from other rules.
            token.map = token.map or [start, state.pos]
        return True

    return run


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
            finish = str if parent.type == "heading_open" else AS_PARAGRAPH
        if span is None:  # the parser changed the text, for example tabs, so the block is copied
            continue
        _, searched = span
        block_parts = parts_of_block(block.children, block.content, finish)
        if has_segment(block_parts):
            replacements.append((span, block_parts))
    return parts_of_text(text, replacements)


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


def parts_of_block(tokens: Sequence[Any], content: str, finish: Callable[[str], str]) -> list[Part]:
    """Return the parts of a block.

    Templates and formulas stay unchanged in the text to translate. Footnote marks, checkboxes and images are copied
    like tags.
    """
    parser = Parser(finish)
    n_read = 0  # tokens before this index have been read
    html_end = 0  # the end of the last HTML tag
    for i, token in enumerate(tokens):
        start, end = token.map or (0, 0)
        if token.type == "html_inline":
            if parser.kept:  # the loop has skipped the tokens before this tag
                keep_raw(parser, content[html_end:start])
            for construct in constructs(token.content):
                parser.read(*construct)
            html_end = end
        elif parser.kept or i < n_read:
            continue
        elif token.type == "hardbreak":  # the break separates two texts; it is copied with the spaces before it
            parser.finish()
            line = content[:start].rstrip(" ")
            parser.parts.append(content[len(line) : end])
        elif token.markup == "autolink":
            parser.copy(content[start:end])
            n_read = i + 3  # skip the text and the end of the link, which are already copied
        else:
            read_token(parser, token, content[start:end], content)
    if parser.kept:
        keep_raw(parser, content[html_end:])
    parser.finish()
    return parser.parts


def read_token(parser: Parser, token: Any, raw: str, content: str) -> None:
    """Let a parser read an inline token. `raw` is the source of the token, and `content` the source of its block."""
    name = token.type.removesuffix("_open").removesuffix("_close")
    if name == "text":
        read_text(parser, token.content, content)
    elif name == "softbreak":
        parser.write(" ", " ")
    elif name == "code_inline":
        parser.copy(raw, token.content)
    elif name == "image":
        parser.copy(raw)
    elif token.nesting > 0:
        parser.read("[" if name == "link" else token.markup, "start", f"{name} ")
    elif token.nesting < 0:
        parser.read(raw if name == "link" else token.markup, "end", f"{name} ")


def keep_raw(parser: Parser, raw: str) -> None:
    """Let a parser copy a part of an element that is copied."""
    parser.keep(raw.replace("\n", " "), "text")


def read_text(parser: Parser, text: str, content: str) -> None:
    """Let a parser read the text of a token. `content` is the source of the token's block."""
    for i, part in enumerate(TEMPLATE_OR_MARK.split(text)):
        if i % 2 == 0:
            parser.write(part, part)
            continue
        # If the source writes this part differently, for example with entities, escape it anew.
        raw = part if part in content else escape_markdown(part)
        parser.copy(raw, part if part[0] in "{$" else "")


def escape_markdown(text: str) -> str:
    """Put a backslash before each character of a text that would otherwise be markup."""
    return ESCAPED.sub(r"\\\g<0>", text)


MARKDOWN = Format(parse_markdown, escape_markdown)
