"""Where the sentences of a text begin and end."""

import re

from nmt.text.lines import Span

# A sentence ends at a mark after a word of three letters or more, which few abbreviations have. See `sentence_spans`.
SENTENCE_END = re.compile(r"(?<=\w{3}[.!?…])[\"”’»)\]]*(\s+)(?=[^\s\w]*(\w))|(?<=[。！？])()(?=([^。！？”’」』）\s]))")


def sentence_spans(text: str) -> list[Span]:
    """The span of each sentence of a text, without the white space between them.

    No sentence begins with a lower-case letter: such a mark belongs to an abbreviation.
    """
    ends = [found.span(1 if found[2] else 3) for found in SENTENCE_END.finditer(text) if not (found[2] or "").islower()]
    return list(zip([0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)], strict=True))
