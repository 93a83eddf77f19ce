"""The syntaxes of placeholders: the patterns of spans that template languages and string tables mean as code.

All patterns are linear in time: none of them reads on over the beginning of another span of its kind. They are for the
library `re`, too.
"""

from nmt.text.words import URL_LETTERS

_IN_URL = rf"0-9{URL_LETTERS}\-._~:/?#@!$&'*+,;=%"
ADDRESSES = [
    # URLs. Parts of them may be placeholders in braces.
    rf"(?:https?://|ftp://|www\.)(?:[()\[\]{_IN_URL}]|\{{[^\s{{}}]*+\}})*(?:[0-9{URL_LETTERS}/=#]|\{{[^\s{{}}]*+\}})",
    r"(?<![a-zA-Z0-9_.+-])[a-zA-Z0-9_.+-]{1,64}+@[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+",  # mail addresses
]
TEMPLATES = [
    r"\{%(?:[^%{]|%(?!\})|\{(?!%))*+%\}",  # {% if a > 1 %} of Jinja and Liquid
    r"@?\{{2,3}+(?:[^{}]|\}(?!\}))*+\}{2,3}+",  # {{ a | f }}, {{- x}}, {{{x}}} of Vue, Handlebars, i18next
    r"\{[#/@:!][^{}]*+\}",  # {# note #}, {#if x}, {!! $x !!} of Jinja, Svelte, Blade
    r"<%(?:[^%<]|%(?!>)|<(?!%))*+%>",  # <%= x %> of ERB
    r"<\?(?:[^?<]|\?(?!>)|<(?!\?))*+\?>",  # <?= $x ?> of PHP
]

# The parts of a printf directive after its percent sign: %1$-5.2ld, %(name)s, %*d.
ARGUMENT = r"(?:\d++\$|\([\w.\- ]++\)|<(?!PRI)\w++>)?+"
FLAGS = r"[-+0#',]*+"
SIZE = r"(?:\d++|\*(?:\d++\$)?+)?+(?:\.(?:\d++|\*(?:\d++\$)?+)?+)?+"
CONVERSION = r"(?:(?:hh|ll|[hlLqjzt])?+[diouxXeEfFgGaAcCsSprn@]|<PRI\w++>)"
_SIZED = rf"(?={FLAGS.removesuffix('+')}[\d.*])"  # a size, or a flag that is a digit
# A percent sign after a number belongs to it, as in "100%ig". So only a whole word can be a directive there.
PRINTF = [
    rf"%{ARGUMENT}{FLAGS}{SIZE}{CONVERSION}(?![a-zA-Z])",
    # %dMB, and other letters: %Y of strftime, %user of Drupal. A word that begins with a capital is text: %sRead.
    rf"(?<!\d)(?<!\d\s)%{ARGUMENT}[a-zA-Z@](?:[a-z0-9_]*+|[A-Z]{{,3}}+)(?![a-zA-Z])",
    rf"(?<!\d)(?<!\d\s)%{ARGUMENT}{FLAGS}{SIZE}{CONVERSION}(?=[A-Z])",
    rf"(?<!\d)(?<!\d\s)%{ARGUMENT}(?:{_SIZED}{FLAGS}{SIZE}{CONVERSION}|[a-zA-Z@][a-zA-Z0-9_]*+)",  # %.1fMB
]
# Messages of ICU, in which branches with braces are nested. Deeper ones are no placeholders.
_BRACES_1 = r"(?:[^{}]|\{[^{}]*+\})*+"
_BRACES_2 = rf"(?:[^{{}}]|\{{{_BRACES_1}\}})*+"
_BRACES_3 = rf"(?:[^{{}}]|\{{{_BRACES_2}\}})*+"
DIRECTIVES = [
    rf"\{{\s*+\w++\s*+,\s*+(?:choice|plural|select|selectordinal)\s*+,{_BRACES_3}\}}",
    r"\{\s*+\w++\s*+[,:][^{}]*+\}",  # {n, number}, {0:dd MMM}
    r"[$#%]?\{ ?[^\s{}]* ?\}",  # {name}, {0}, {}, {name!r:>10}, ${x}, #{x}, %{x}
    "%%",
    r"%[a-zA-Z_]{2}\w*+%(?![\w%])",  # %name% of Symfony
    r"%(?:\d++\$)?+#@\w++@",  # %#@files@ of Apple: a plural form is inserted here
    *PRINTF,
]
TAGS = [
    r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?/?>",
    r"</?\d++\s?/?>",  # <0>, </0>, <1/> of React
]
_VARIABLES = [
    r"%L?\d{1,2}+(?!\d)%?+",  # %1 and %L1 of Qt, %1% of Boost
    r"\$t\([^()]*+\)",  # i18next
    r"\$(?:\d++|[a-zA-Z_]\w*+)\$",  # $USER$ of Chrome
    r"\$[a-zA-Z_][a-zA-Z0-9_]*+",  # shell and PHP
    r"(?<![\w@])@[a-zA-Z_][a-zA-Z0-9_-]*+",  # @name of Drupal
    r"@(?:\.\w++)?+:(?:\w++(?:[.-]\w++)*+|\([^()]*+\))",  # @:key and @.lower:key of Vue
    r"\[X\d++X\]",  # Weblate
    r"&(?:[a-zA-Z][a-zA-Z0-9]++|#[0-9]++|#[xX][0-9a-fA-F]++);",  # entities
]
CODE = rf"(?=[%{{<$@#\[&])(?:{'|'.join([*TEMPLATES, *TAGS, *DIRECTIVES, *_VARIABLES])})"  # the set makes it fast
