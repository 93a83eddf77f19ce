"""The syntax of Markdown: CommonMark, GitHub's extensions, and lines and marks of well-known generators of pages.

markdown-it-py parses CommonMark, and mdit-py-plugins footnotes and definition lists. The other extensions are patterns
here: the plugins for them give no positions, or read a container or a formula otherwise than most programs.
"""

from collections.abc import Callable
from copy import copy
from functools import cache
from types import SimpleNamespace
from typing import Any

import regex

from nmt.documents.markdown_delimiters import link_end
from nmt.errors import InputError
from nmt.text.placeholders import KINDS

ADDRESS = f"(?P<address>{KINDS[1]}|{KINDS[2]})"  # of a page, or of mail
# No match of a pattern below contains the beginning of another one of its kind, so a search takes linear time.
TEMPLATE = r"\{\{(?:(?!\{\{).)*?\}\}\}?|\{%(?:(?!\{%).)*?%\}|<%(?:(?!<%).)*?%>"
ATTRIBUTES = r"\{(?::|/\*|[ \t]*(?:[#.]|[\w-]+=))[^{}\n]*\}"
# "costs $5 or $10" is no formula: a formula has no space at its edges, and no digit or letter touches it.
_DOLLARS = r"\$\$(?:[^$\\]|\\.)++\$\$|\$(?=[^$\s])(?:[^$\\]|\\.)*+(?<!\s)\$"
# "\(see below\)" is no formula either: it has a word, and none of these signs.
_SIGNS = r"\\^_={}<>+*/|"
_PROSE = rf"(?>[^{_SIGNS}]*?\p{{L}}{{3}})[^{_SIGNS}]*+\\[)\]]"
FORMULA = (
    rf"(?<![$0-9A-Za-z])(?:{_DOLLARS})(?![$0-9A-Za-z])"
    rf"|\\\((?!{_PROSE})(?:(?!\\[()]).)+?\\\)|\\\[(?!{_PROSE})(?:(?!\\[\[\]]).)+?\\\]"
)
COPIED = rf"""
    (?P<verbatim> {TEMPLATE} | {FORMULA} | !?\[\[[^\[\]\n]+\]\](?![(\[])
        | \[[vV]?\d[\w.+-]*\](?:\[\]|(?![(\[:])) )  # also wiki links, and versions in changelogs
    | (?P<mark> \[\^[^\[\]\s]+\] | (?<![^\W_])(?<!:):[a-z0-9_+-]+:(?![^\W_])(?!:)  # footnote, emoji
        | \{{[\w:.-]+\}}(?=`)  # a role
        | (?<=\])\[[^\[\]\s]*[.:_/][^\[\]\s]*\](?!\() )  # a label that another page defines
    | (?P<edge> \A(?:\[[ xX]\]|\[!\w+\][-+]?)[ \t]+ )  # a checkbox, or the mark of an alert with a title
    | (?P<attributes> {ATTRIBUTES} )
"""
_TERMINATORS = r"\n!\#$%&*+\-:<=>@\[\\\]^_`{}~"  # characters at which another rule of markdown-it-py may apply
CONSTRUCT = regex.compile(
    rf"{COPIED} | {ADDRESS} | (?P<text> (?:(?!{COPIED}|{ADDRESS})[^{_TERMINATORS}])++ )", regex.VERBOSE | regex.DOTALL
)
_IN_ADDRESS = r"[^\s()<>{}]"
ADDRESS_WITH_TEMPLATE = regex.compile(
    rf"(?<!{_IN_ADDRESS}){_IN_ADDRESS}*+(?:{TEMPLATE})(?:{TEMPLATE}|{_IN_ADDRESS})*+", regex.DOTALL
)
# Lines that are copied. A formula ends at a blank line at the latest.
COPIED_LINES = rf"""
    (?: \{{%-?[ ]*highlight\b(?:(?!\{{%-?[ ]*highlight\b).)*?\{{%-?[ ]*endhighlight[ ]*-?%\}}
    | :::[^\n]* | ///[^\n]*  # containers
    | \[!\w+\]  # alerts
    | (?i:@?\[\[?_?toc_?\]\]?)
    | \*\[[^\]\n]+\]:[^\n]*  # abbreviations
    | --8<--[^\n]*
    | import[ ][^\n]+[ ]from[ ]["'][^\n]*
    | (?: (?: {TEMPLATE} | {FORMULA} | \{{[^{{}}\n]*\}} )[ \t]* )+
    | \$\$(?:(?!\$\$|\n[ \t]*\n).)++\$\$
    | \\\[[ \t]*\n(?:(?!\n[ \t]*\n|(?<!\\)\\[\[\]]).)*+\\\]
    )[ \t]*$
"""
LINES = regex.compile(COPIED_LINES, regex.VERBOSE | regex.DOTALL | regex.MULTILINE)
# The first line of an admonition or a tab, whose content is indented.
INDENTED = regex.compile(r"""(?:(?:!!!|\?\?\?\+?)[ \t]*[a-z][\w -]*(?:"[^"\n]*")?|===[!+]*[ \t]+["'][^\n]*)[ \t]*$""")


@cache
def markdown_it() -> Any:
    """Return a parser of Markdown. The `map` of an inline token is the token's span in the block."""
    try:
        from markdown_it import MarkdownIt
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.footnote import footnote_plugin
    except ImportError as error:
        hint = "pip install 'nmt-trainer[documents]'"
        raise InputError("markdown-it-py and mdit-py-plugins are not installed", hint=hint) from error
    parser: Any = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.options["strikethrough_single_tilde"] = True  # as on GitHub
    parser.use(footnote_plugin, inline=False, move_to_end=False).use(deflist_plugin)
    ends_blocks = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "copied_lines", read_copied_lines, ends_blocks)
    parser.block.ruler.before("table", "indented", read_indented, ends_blocks)
    parser.inline.ruler.at("text", read_construct)
    parser.helpers = SimpleNamespace(**{**vars(parser.helpers), "parseLinkDestination": link_address})
    parser.validateLink = lambda _: True  # accept every address, because addresses stay unchanged
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, with_span(rule))
    return parser


def with_span(rule: Callable[..., bool]) -> Callable[..., bool]:
    """Wrap an inline rule of markdown-it-py, so that it sets `map` of each token to its span in the block.

    The content of a `link_close` token is what follows the text of the link, such as `](…)`.
    """

    def run(state: Any, silent: bool) -> bool:
        start, n_tokens = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        for token in state.tokens[n_tokens:]:
            if token.type == "link_close" and token.markup != "autolink" and not token.map:
                end = state.md.helpers.parseLinkLabel(state, start)
                token.content = link_end(state.src[start + 1 : end], state.src[end : state.pos])
            # Tokens inside of a link already have spans from other rules.
            token.map = token.map or [start, state.pos]
        return True

    return run


def link_address(text: str, start: int, stop: int) -> Any:
    """Read the address of a link for markdown-it-py. It may contain templates, and so spaces."""
    from markdown_it.helpers import parseLinkDestination

    match = ADDRESS_WITH_TEMPLATE.match(text, start, stop)
    if match:
        return SimpleNamespace(ok=True, pos=match.end(), str=match[0])
    return parseLinkDestination(text, start, stop)


def read_construct(state: Any, silent: bool) -> bool:
    """Read a text, or a construct that is copied. This is an inline rule of markdown-it-py.

    The type of the token of a copied construct is the name of its group in `CONSTRUCT`.
    """
    match = CONSTRUCT.match(state.src, state.pos, state.posMax)
    # In `silent` mode, the parser counts brackets to find the end of a link. So do not consume brackets.
    if not match or (silent and match[0][0] == "["):
        return False
    end = match.end()
    if silent and match.lastgroup == "address":
        end = max(state.src.find("]", state.pos, end), state.pos + 1)
    if not silent and match.lastgroup == "text":
        state.pending += match[0]
    elif not silent:
        state.push(match.lastgroup, "", 0).content = match[0]
    state.pos = end
    return True


def read_copied_lines(state: Any, first: int, stop: int, silent: bool) -> bool:
    """Skip lines that are copied. This is a block rule of markdown-it-py for the lines from `first` to `stop`."""
    match = LINES.match(state.src, state.bMarks[first] + state.tShift[first], state.eMarks[stop - 1])
    if not match or state.is_code_block(first):
        return False
    if not silent:
        state.line = first + 1 + match[0].count("\n")
    return True


def read_indented(state: Any, first: int, stop: int, silent: bool) -> bool:
    """Read the indented content of an admonition or a tab. This is a block rule of markdown-it-py."""
    match = INDENTED.match(state.src, state.bMarks[first] + state.tShift[first], state.eMarks[first])
    if not match or state.is_code_block(first):
        return False
    # 1. Find the end of the content.
    indent, end = state.sCount[first] + 4, first + 1
    while end < stop and (state.isEmpty(end) or state.sCount[end] >= indent):
        end += 1
    if end == first + 1:
        return False
    # 2. Parse the content as blocks. The parser limits `level`.
    if not silent:
        inner = copy(state)
        inner.blkIndent, inner.lineMax, inner.level = indent, end, state.level + 1
        state.md.block.tokenize(inner, first + 1, end)
        state.line = end
    return True
