"""Messages of ICU whose text depends on an argument, such as {n, plural, one {# day} other {# days}}."""

from typing import Literal, NamedTuple

import regex

TOKEN = regex.compile(
    r"""(?P<argument> \{\s*+\w++\s*+,\s*+(?:plural|selectordinal|select)\s*+, )
    | (?P<open> \{ ) | (?P<close> \} ) | (?P<number> \# )
    | '[{}\#|][^']*+'?+ | [^{}\#']++ | '""",  # an apostrophe before a sign of the syntax begins a quotation
    regex.VERBOSE,
)


class MessagePiece(NamedTuple):
    """A piece of a message: syntax around the branches, the sign `#` in a branch, or text of a branch."""

    raw: str
    kind: Literal["syntax", "number", "text"]


def message_pieces(text: str) -> list[MessagePiece]:
    """Split a message at its branches, which may contain arguments with branches of their own.

    Arguments without branches, such as {name}, are text. Raises ValueError if a brace has no partner.
    """
    pieces: list[MessagePiece] = []
    open_braces = ["branch"]  # what the open braces contain; the text outside of all braces counts as a branch
    for token in TOKEN.finditer(text):
        inside = open_braces[-1]
        kind: Literal["syntax", "number", "text"] = "syntax" if inside == "argument" else "text"
        if token["argument"] and inside == "branch":
            open_braces.append("argument")
            kind = "syntax"
        elif token["argument"] or token["open"]:
            open_braces.append("branch" if inside == "argument" else "value")
        elif token["close"]:
            open_braces.pop()
            kind = "text" if inside == "value" else "syntax"
        elif token["number"] and kind == "text" and len(open_braces) > 1:
            kind = "number"
        if not open_braces:
            raise ValueError("a closing brace has no partner")
        # Join pieces of the same kind.
        if pieces and pieces[-1].kind == kind:
            pieces[-1] = MessagePiece(pieces[-1].raw + token[0], kind)
        else:
            pieces.append(MessagePiece(token[0], kind))
    if len(open_braces) > 1:
        raise ValueError("an opening brace has no partner")
    return pieces
