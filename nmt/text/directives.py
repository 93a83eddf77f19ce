"""Directives of format strings, such as `%s` and `{}`: which argument each takes, in a text and in its translation.

    %s buys %d books.  ->  %1$s buys %2$d books.  ->  translation with %2$d before %1$s

A translation may need its directives in another order. So they are numbered before the translation. Afterward, the
numbers are removed, or stay if they are needed.
"""

from collections import Counter
from collections.abc import Collection
from itertools import count

import regex

from nmt.text.spans import replaced
from nmt.text.syntaxes import ARGUMENT, CODE, CONVERSION, FLAGS, PRINTF, SIZE

# The syntaxes of directives that gettext names in its flags, such as c-format. These have directives of printf.
PRINTF_SYNTAXES = {
    *("awk", "c", "gcc-internal", "gfc-internal", "java-printf", "javascript", "lua", "objc", "object-pascal", "perl"),
    *("php", "python", "ruby", "tcl"),
}
WITHOUT_NUMBERS = {"gfc-internal", "lua", "object-pascal", "python"}  # %1$s is an error in them
NUMBERED_SYNTAXES = {"%": PRINTF_SYNTAXES - WITHOUT_NUMBERS, "{": {"python-brace"}}

_NAMED_PARTS = rf"(?P<argument>{ARGUMENT})(?P<rest>{FLAGS}(?P<size>{SIZE})(?P<conversion>{CONVERSION}))"
PRINTF_DIRECTIVE = regex.compile(rf"%%|%{_NAMED_PARTS}")
# Without a syntax: three letters after a conversion make it a name, as in %user.
LIKELY_DIRECTIVE = regex.compile(rf"%%|(?={'|'.join(PRINTF)})%{_NAMED_PARTS}(?![a-z0-9_]{{3}})")
BRACE_DIRECTIVE = regex.compile(r"\{\{|\{(?P<argument>\d*+)(?P<rest>(?:![rsa])?+(?::[^\s{}]*+)?+\})")
# A directive that `numbered` has written, or `%%`, which is none.
NUMBERED_DIRECTIVE = regex.compile(rf"%%|%{_NAMED_PARTS}|\{{\d++(?:![rsa])?+(?::[^\s{{}}]*+)?+\}}")
# Every directive for gettext, which allows a space and I as flags. A percent sign alone is an error.
STRICT_DIRECTIVE = regex.compile(rf"%(?:%|{ARGUMENT}(?:{FLAGS}[ I]?+)*+{SIZE}{CONVERSION})?+")
CODES = regex.compile(CODE)


def unnumbered_directives(text: str, syntaxes: Collection[str]) -> list[regex.Match[str]]:
    """Return the directives that take the arguments in their order. There are none if another one names its argument.

    If a text has directives of printf and of Python's braces, the braces are text.
    """
    printf = LIKELY_DIRECTIVE if PRINTF_SYNTAXES.isdisjoint(syntaxes) else PRINTF_DIRECTIVE
    for pattern in (printf, BRACE_DIRECTIVE):
        matches = [match for match in pattern.finditer(text) if match["rest"]]
        if matches:
            return [] if any(match["argument"] for match in matches) else matches
    return []


def numbered(text: str, syntaxes: Collection[str] = ()) -> str:
    """Number the directives that take the arguments in their order, if there are several: see `numbers_of`.

    `syntaxes` are those that the file names for this text, such as "c" or "python-brace".
    """
    numbers = numbers_of(text, syntaxes)
    return replaced(text, [(directive.span(), name) for directive, name in numbers])


def numbers_of(text: str, syntaxes: Collection[str]) -> list[tuple[regex.Match[str], str]]:
    """Return each directive that takes the arguments in their order, and the same directive with a number.

    There are none if the text has only one directive. A `*` takes an argument, too: `%*d` becomes `%2$*1$d`.
    """
    if "%" not in text and "{" not in text:
        return []
    directives = unnumbered_directives(text, syntaxes)
    if len(directives) < 2:
        return []
    names = []
    numbers = count(1 if directives[0][0].startswith("%") else 0)
    for directive in directives:
        if not directive[0].startswith("%"):
            names.append(f"{{{next(numbers)}{directive['rest']}")
            continue
        rest = regex.sub(r"\*", lambda _: f"*{next(numbers)}$", directive["rest"])
        names.append(f"%{next(numbers)}${rest}")
    return list(zip(directives, names, strict=True))


def settled(source: str, translation: str, syntaxes: Collection[str] = ()) -> tuple[str, bool]:
    """Return a translation of `numbered(source)` without the numbers, and whether this has changed its order.

    If the order of the directives differs from the source, the numbers stay if one of the syntaxes has them. Otherwise,
    the directives are written in the order of the source.
    """
    # 1. Find the numbered directives in the translation.
    originals = {name: directive[0] for directive, name in numbers_of(source, syntaxes)}
    if not originals:
        return translation, False
    directives = [match for match in NUMBERED_DIRECTIVE.finditer(translation) if match[0] in originals]
    names = [directive[0] for directive in directives]
    # 2. Compare their order with the source.
    order = {name: index for index, name in enumerate(originals)}
    in_source_order = sorted(names, key=order.__getitem__)
    is_moved = names != in_source_order
    if is_moved and not NUMBERED_SYNTAXES[names[0][0]].isdisjoint(syntaxes):
        return translation, False
    # 3. Write the directives of the source.
    spans = [directive.span() for directive in directives]
    new = [originals[name] for name in in_source_order]
    return replaced(translation, zip(spans, new, strict=True)), is_moved


def directive_faults(source: str, translation: str, syntaxes: Collection[str] = ()) -> list[str]:
    """Return what is wrong with the directives and other placeholders of a translation, such as "lacks %d".

    Args:
        source, translation: both texts as the file has them. `settled` has checked their order.
        syntaxes: the syntaxes that the file names for this text. With one of printf, only its directives are compared.
    """
    pattern = CODES if PRINTF_SYNTAXES.isdisjoint(syntaxes) else STRICT_DIRECTIVE
    written = Counter(pattern.findall(translation))
    if written == Counter(pattern.findall(numbered(source, syntaxes))):
        return []
    expected = Counter(pattern.findall(source))
    faults = [f"lacks {directive}" for directive in expected - written]
    return faults + [f"has {directive}, which is not in the source" for directive in written - expected]
