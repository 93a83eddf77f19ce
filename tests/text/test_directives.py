"""Directives are numbered before a translation, and checked after it."""

import pytest

from nmt.text.directives import directive_faults, numbered, settled

NUMBERED = {
    "%s kauft %d": "%1$s kauft %2$d",
    "%*d und %.*f": "%2$*1$d und %4$.*3$f",
    "{} kauft {!r:>3}": "{0} kauft {1!r:>3}",
    "%d {} {}": "%d {} {}",
    "{0} von {} und {}": "{0} von {} und {}",
    "nur %s": "nur %s",
    "50%% von %s": "50%% von %s",
    "%(a)s und %(b)s": "%(a)s und %(b)s",
    "%1$s und %2$s": "%1$s und %2$s",
    "100% der %s %d": "100% der %1$s %2$d",
    "%user und %signature": "%user und %signature",
}


@pytest.mark.parametrize("text", NUMBERED)
def test_several_directives_without_numbers_are_numbered(text: str) -> None:
    assert numbered(text) == NUMBERED[text]


@pytest.mark.parametrize("text", NUMBERED)
def test_in_the_order_of_the_source_the_numbers_are_removed(text: str) -> None:
    result = settled(text, numbered(text), {"c"})
    assert result == (text, False)


def test_a_name_after_a_percent_sign_is_no_name_in_a_format_of_c() -> None:
    assert numbered("%slesen und %ssehen", {"c"}) == "%1$slesen und %2$ssehen"


SWAPPED = [
    ("%s kauft %d", {"c"}, "%2$d von %1$s", False),
    ("%s kauft %d", {"python"}, "%s von %d", True),
    ("%s kauft %s", set(), "%s von %s", True),
    ("{} kauft {}", {"python-brace"}, "{1} von {0}", False),
    ("{} kauft {}", {"c"}, "{} von {}", True),
]


@pytest.mark.parametrize(("source", "syntaxes", "written", "is_moved"), SWAPPED)
def test_in_another_order_the_numbers_stay_if_the_syntax_has_them(
    source: str, syntaxes: set[str], written: str, is_moved: bool
) -> None:
    first, _, second = numbered(source).split()
    result = settled(source, f"{second} von {first}", syntaxes)
    assert result == (written, is_moved)


FAULTS: list[tuple[str, str, set[str], list[str]]] = [
    ("%s von %d", "%2$d by %1$s", {"c"}, []),
    ("%s von %d", "%s by %d", {"c"}, []),
    ("%s von %d", "%s", {"c"}, ["lacks %d"]),
    ("%s", "% of %s", {"c"}, ["has % o, which is not in the source"]),
    ("ab %s", "from 5 % on %s", {"python"}, ["has % o, which is not in the source"]),
    ("{a} von %{b}", "%{b} by {a}", set(), []),
    ("{{ a }}", "{{ b }}", {"no-c"}, ["lacks {{ a }}", "has {{ b }}, which is not in the source"]),
]


@pytest.mark.parametrize(("source", "translation", "syntaxes", "faults"), FAULTS)
def test_faults_of_directives(source: str, translation: str, syntaxes: set[str], faults: list[str]) -> None:
    assert directive_faults(source, translation, syntaxes) == faults
