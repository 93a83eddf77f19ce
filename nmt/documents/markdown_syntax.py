"""The syntax of Markdown: CommonMark, GitHub's extensions, and lines and marks of well-known generators of pages.

markdown-it-py parses CommonMark, and mdit-py-plugins footnotes and definition lists. The other extensions are patterns
here: the plugins for them give no positions, or read a container or a formula otherwise than most programs.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import regex

from nmt.errors import InputError
from nmt.text.placeholders import KINDS

_, URL, MAIL_ADDRESS, *_ = KINDS
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
    (?P<verbatim> {TEMPLATE} | {FORMULA} | !?\[\[[^\[\]\n]+\]\](?![(\[]) )
    | (?P<mark> \[\^[^\[\]\s]+\] | (?<![\w:]):[a-z0-9_+-]+:(?![\w:]) | \{{[\w:.-]+\}}(?=`) )  # footnote, emoji, role
    | (?P<edge> \A(?:\[[ xX]\]|\[!\w+\][-+]?)[ \t]+ )  # a checkbox, or the mark of an alert with a title
    | (?P<attributes> {ATTRIBUTES} )
"""
ADDRESS = rf"(?P<address> {URL} | {MAIL_ADDRESS} )"
_TERMINATORS = r"\n!\#$%&*+\-:<=>@\[\\\]^_`{}~"  # characters at which another rule of markdown-it-py may apply
CONSTRUCT = regex.compile(
    rf"{COPIED} | {ADDRESS} | (?P<text> (?:(?!{COPIED}|{ADDRESS})[^{_TERMINATORS}])++ )", regex.VERBOSE | regex.DOTALL
)
# Lines that are copied. A formula ends at a blank line at the latest.
COPIED_LINES = rf"""
    (?: \{{%-?[ ]*highlight\b.{{0,50000}}?\{{%-?[ ]*endhighlight[ ]*-?%\}}
    | :::[^\n]* | ///[^\n]*  # containers
    | \[!\w+\]  # alerts
    | (?i:@?\[\[?_?toc_?\]\]?)
    | \*\[[^\]\n]+\]:[^\n]*  # abbreviations
    | --8<--[^\n]*
    | import[ ][^\n]+[ ]from[ ]["'][^\n]*
    | (?: (?: {TEMPLATE} | {FORMULA} | \{{[^{{}}\n]*\}} )[ \t]* )+
    | \$\$(?:(?!\$\$|\n[ \t]*\n).)++\$\$
    | \\\[[ \t]*\n(?:(?!\n[ \t]*\n|(?<!\\)\\[\[\]]).)*+\\\]
    | \\begin\{{(?P<environment>\w+\*?)\}}(?:(?!\n[ \t]*\n).){{0,5000}}?\\end\{{(?P=environment)\}}
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
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.use(footnote_plugin, inline=False, move_to_end=False).use(deflist_plugin)
    ends_blocks = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "copied_lines", read_copied_lines, ends_blocks)
    parser.block.ruler.before("table", "indented", read_indented, ends_blocks)
    parser.inline.ruler.at("text", read_construct)
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, with_span(rule))
    return parser


def with_span(rule: Callable[..., bool]) -> Callable[..., bool]:
    """Wrap an inline rule of markdown-it-py, so that it sets `map` of each token to its span in the block.

    The span of a `link_close` token covers what follows the text of the link, such as `](…)`. Its content is that text.
    """

    def run(state: Any, silent: bool) -> bool:
        start, n_tokens = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        for token in state.tokens[n_tokens:]:
            if token.type == "link_close" and token.markup != "autolink" and not token.map:
                end = state.md.helpers.parseLinkLabel(state, start)
                token.map = [end, state.pos]
                token.content = state.src[start + 1 : end]
            # Tokens inside of a link already have spans from other rules.
            token.map = token.map or [start, state.pos]
        return True

    return run


def read_construct(state: Any, silent: bool) -> bool:
    """Read a text, or a construct that is copied. This is an inline rule of markdown-it-py.

    The type of the token of a copied construct is the name of its group in `CONSTRUCT`.
    """
    match = CONSTRUCT.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    end = match.end()
    if silent and match.lastgroup == "address":  # the parser looks for the end of a link
        end = max(state.src.find("]", state.pos, end), state.pos + 1)
    if not silent:
        last = state.tokens[-1] if state.tokens and not state.pending else None
        if match.lastgroup == "text":
            state.pending += match[0]
        elif match.lastgroup == "attributes" and last and last.type in ("link_close", "code_inline", "image"):
            last.map[1] = end  # attributes stay with what they belong to
        else:
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
    if silent or end == first + 1:
        return end > first + 1
    # 2. Parse the content as blocks. The parser limits `level`.
    outer = state.blkIndent, state.lineMax
    state.blkIndent, state.lineMax = indent, end
    state.level += 1
    state.md.block.tokenize(state, first + 1, end)
    state.level -= 1
    state.blkIndent, state.lineMax = outer
    state.line = end
    return True
