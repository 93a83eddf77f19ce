"""Markdown: markdown-it-py finds the texts and what is in them; only their spans of the source are replaced."""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

from nmt.documents.html import Parser, constructs
from nmt.documents.markup import Format, Part, Segment
from nmt.errors import InputError

FRONT_MATTER = re.compile(r"\ufeff?(?:---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z))?", re.DOTALL | re.MULTILINE)
COPIED = re.compile(  # each alternative ends where it could begin anew, or it would take quadratic time
    r"(\{\{(?:(?!\{\{).)*?\}\}|\{%(?:(?!\{%).)*?%\}|\$[^$\s](?:[^$]*[^$\s])?\$|\[\^[^\[\]\s]+\](?::\s)?|^\[[ xX]\]\s)"
)
ESCAPED = re.compile(
    r"\\(?=[!-/:-@[-`{-~])|[`]|\*(?=\S)|(?<=\S)\*|(?<!\w)_|_(?!\w)|~~|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\](?=[(\[])"
)
AS_PARAGRAPH = partial(re.compile(r"^(\d{0,9})([-+.)>=]|#{1,6})(?=\s|$)").sub, r"\1\\\2")  # no list, no heading
AS_CELL = partial(re.compile(r"(?<!\\)\|").sub, r"\\|")


@cache
def parser() -> Any:
    """A parser for GitHub's Markdown whose inline tokens know their span of the text as `map`."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise InputError("markdown-it-py is not installed", hint="pip install 'nmt-trainer[documents]'") from error
    found = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for name, rule in zip(found.get_active_rules()["inline"], found.inline.ruler.getRules(""), strict=True):
        found.inline.ruler.at(name, with_span(rule))
    return found


def with_span(rule: Callable[..., bool]) -> Callable[..., bool]:
    """Wrap an inline rule so that its tokens get their span of the source as `map`; `link_close` spans `](…)`."""

    def run(state: Any, silent: bool) -> bool:
        start, n_tokens = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        new = [] if silent else state.tokens[n_tokens:]
        for token in new:
            token.map = token.map or [start, state.pos]
        if new and new[-1].type == "link_close" and new[-1].markup != "autolink":
            new[-1].map = [state.md.helpers.parseLinkLabel(state, start), state.pos]
        return True

    return run


def parse(text: str) -> list[Part]:
    """Return the parts of a text, which cover it without gaps."""
    front = FRONT_MATTER.match(text).end()  # type: ignore[union-attr]
    starts = [front, *(front + found.end() for found in re.finditer(r"\r\n?|\n", text[front:])), len(text)]
    parts, cursor, seen = list[Part](), 0, front
    for before, block in pairwise(parser().parse(text[front:])):
        if block.type != "inline" or not block.content:
            continue
        is_cell = before.type in ("th_open", "td_open")
        lines = [block.content.replace("|", r"\|")] if is_cell else block.content.split("\n")
        # Where its first, second and last lines start, and where it ends.
        first, second, last, stop = (starts[block.map[0] + i] for i in (0, 1, len(lines) - 1, len(lines)))
        start = text.find(lines[0], max(first, seen), second) if is_cell else text.rfind(lines[0], first, second)
        end = start if is_cell else text.rfind(lines[-1], last, stop)
        if not first <= start <= end:  # the parser changed the text, such as tabs or NUL: copy the block
            continue
        seen = end + len(lines[-1])
        found = parts_of(block.children, block.content)
        segments = [part for part in found if isinstance(part, Segment)]
        for segment in segments:
            segment.finish = AS_CELL if is_cell else str if before.type == "heading_open" else AS_PARAGRAPH
        if segments:
            parts += [text[cursor:start], *found]
            cursor = seen
    return [*parts, text[cursor:]]


def parts_of(tokens: Sequence[Any], content: str) -> list[Part]:
    """Return the parts of a block. Templates and formulas are text; footnote marks, checkboxes, images are not."""
    texts, until, done = Parser(), 0, 0
    for i, token in enumerate(tokens):
        start, end = token.map or (0, 0)
        raw, name = content[start:end], token.type.removesuffix("_open").removesuffix("_close")
        if token.type == "html_inline":
            if texts.kept:  # what is inside of it is copied as it is written
                texts.keep(content[done:start].replace("\n", " "), "text", "")
            for construct in constructs(token.content):
                texts.read(*construct)
            done = end
        elif i < until or texts.kept:
            continue
        elif token.type == "text":
            for j, text in enumerate(COPIED.split(token.content)):
                written = text if text in content else MARKDOWN.escape(text)  # it is written with entities
                texts.copy(written, text if text[0] in "{$" else "") if j % 2 else texts.write(text, text)
        elif token.type == "softbreak":
            texts.write(" ", " ")
        elif token.type == "hardbreak":
            texts.finish()
            texts.parts.append(content[len(content[:start].rstrip(" ")) : end])
        elif token.type in ("code_inline", "image") or token.markup == "autolink":
            texts.copy(raw, token.content if token.type == "code_inline" else "")
            until = i + 3 if name == "link" else 0  # its text and its end are in `raw`
        elif token.nesting:
            raw = raw if token.type == "link_close" else "[" if name == "link" else token.markup
            texts.read(raw, "start" if token.nesting > 0 else "end", f"{name} ")
    if texts.kept:
        texts.keep(content[done:].replace("\n", " "), "text", "")
    texts.finish()
    return texts.parts


MARKDOWN = Format(parse, lambda text: ESCAPED.sub(r"\\\g<0>", text))
