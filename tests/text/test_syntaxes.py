"""Placeholders of the template languages and string tables of applications."""

import re

import pytest
from conftest import check_linear, rows_of

from nmt.text.placeholders import patterns_of, spans_of


def marked(text: str) -> str:
    """The text with brackets around its placeholders."""
    for start, end in reversed(spans_of(text, patterns_of([]))):
        text = f"{text[:start]}⟪{text[start:end]}⟫{text[end:]}"
    return text


PRINTF = """
⟪%ld⟫ ⟪%zu⟫ ⟪%hhd⟫ ⟪%'d⟫ ⟪%*d⟫ ⟪%-5.2f⟫ ⟪%1$*2$d⟫ ⟪%<PRIu64>⟫ ⟪%%⟫ ⟪%r⟫
⟪%dMB⟫ ⟪%.1f⟫GB ⟪%dx%d⟫ ⟪%s⟫Lesen ⟪%(name)s⟫: ⟪%s⟫的⟪%d⟫个
⟪%Y⟫-⟪%m⟫ ⟪%user⟫ ⟪%count%⟫ ⟪%1⟫ ⟪%L1⟫ ⟪%n⟫ ⟪%1%⟫
der %-Satz in % des Preises, ⟪100⟫%ig, ⟪5⟫ %-ige
"""
BRACES = """
⟪{}⟫ ⟪{name!r:>10}⟫ ⟪{0:N2}⟫ ⟪{n, number}⟫ ⟪%{x}⟫ ⟪#{x}⟫ ⟪${x}⟫ {wie hier}
⟪{n, plural, one {# Tag} other {{x} Tage}}⟫ und
⟪{0,choice,0#kein Tag|1#ein Tag|1<{0} Tage}⟫ und
⟪{{ a | f }}⟫ ⟪{{- x}}⟫ ⟪{{{x}}}⟫ ⟪@{{ x }}⟫ ⟪{!! $x !!}⟫ ⟪{# a #}⟫
⟪{% if a > 1 %}⟫ja⟪{% endif %}⟫ ⟪<%= a %>⟫ ⟪<?= $a ?>⟫
"""
OTHERS = """
⟪<0>⟫Buch⟪</0>⟫ ⟪<1/>⟫ ⟪$t(key)⟫ ⟪$USER$⟫ ⟪$HOME⟫ ⟪[X13X]⟫
⟪:name⟫ und ⟪!name⟫ und ⟪@name⟫, aber Wort:wort Ja!nein
⟪%#@files@⟫ und ⟪%1$#@files@⟫, ⟪@:common.dog⟫. ⟪@.lower:key⟫ ⟪@:(key)⟫
⟪$5⟫ ⟪-5⟫ ⟪€10⟫ ⟪10€⟫ ⟪10-20⟫ ⟪5⟫ %
"""


@pytest.mark.parametrize("expected", rows_of(PRINTF + BRACES + OTHERS))
def test_placeholders_of_applications(expected: str) -> None:
    assert marked(re.sub("[⟪⟫]", "", expected)) == expected


UNCLOSED = ["{%", "{{", "<%", "<?", "%(", "$t(", "{n,plural,", "{n,plural,{a}", "%*", "{n:", "a@b."]


@pytest.mark.parametrize("part", UNCLOSED)
def test_unclosed_placeholders_take_linear_time(part: str) -> None:
    check_linear(lambda n: spans_of(part * n, patterns_of([])), 30_000)
