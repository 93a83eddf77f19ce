"""Books in the format EPUB: web pages, and a table of contents in the format NCX in older books."""

import re
from html import unescape

from nmt.documents.html import Parser, escape_html, parse_html
from nmt.documents.markup import Format, Part, Replacement, parts_of_text

# The labels of an NCX file contain text only, so an expression finds them.
NCX = re.compile(r"<(?:[^\s<>:]+:)?ncx[\s>]")
LABEL = re.compile(r"<(?:[^\s<>:]+:)?text(?:\s[^<>]*)?>([^<]+)<")


def parse_epub(text: str) -> list[Part]:
    """Return the parts of a member of a book."""
    if not NCX.search(text[:2000]):
        return parse_html(text)
    labels: list[Replacement] = []
    for match in LABEL.finditer(text):
        parser = Parser()
        parser.write(match[1], unescape(match[1]))
        parser.finish()
        labels.append((match.span(1), parser.parts))
    return parts_of_text(text, labels)


EPUB = Format(parse_epub, escape_html)
