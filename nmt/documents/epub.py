"""Books in the format EPUB: web pages, and a table of contents in the format NCX in older books."""

import re

from nmt.documents.html import escape_html, parse_html
from nmt.documents.markup import Format, Part, parts_of_text

# The labels of an NCX file contain text only, so an expression finds them.
NCX = re.compile(r"<(?:[^\s<>:]+:)?ncx[\s>]")
LABEL = re.compile(r"<(?:[^\s<>:]+:)?text(?:\s[^<>]*)?>([^<]+)<")


def parse_epub(text: str) -> list[Part]:
    """Return the parts of a member of a book."""
    if not NCX.search(text[:2000]):
        return parse_html(text)
    labels = [(match.span(1), parse_html(match[1])) for match in LABEL.finditer(text)]
    return parts_of_text(text, labels)


EPUB = Format(parse_epub, escape_html)
