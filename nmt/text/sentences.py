"""Where the sentences of a text begin and end."""

import re

from nmt.text.spans import Span
from nmt.text.words import SENTENCE_END

END = re.compile(SENTENCE_END)


def sentence_spans(text: str) -> list[Span]:
    """Return the span of each sentence of a text, without the white space between them.

    No sentence begins with a lower-case letter: such a mark belongs to an abbreviation.
    """
    spans = []
    start = 0
    for match in END.finditer(text):
        space, letter = match[1], match[2]
        if space is None:  # Chinese and Japanese
            spans.append((start, match.start()))
            start = match.end()
        elif not letter.islower():
            spans.append((start, match.start(1)))
            start = match.end(1)
    return [*spans, (start, len(text))]
