"""Lists of languages, scripts and sentence ends are in one place, so that they cannot contradict each other."""

import ast
from pathlib import Path

import langcodes
import pytest
import regex

import nmt

PACKAGE = Path(nmt.__file__).parent
NOT_LOOKED_AT = {
    # The one place.
    "languages.py",
    "text/words.py",
    "text/scripts.py",
    "text/sentences.py",
    "sandbox.py",  # a text in several scripts, with which the sandbox is tested
    "insight/pages/boxes.js",  # formulas with Greek letters
}
# A property of the characters of one script, such as \p{Han}; a letter beyond Latin; a sentence end beyond ASCII.
SCRIPT = regex.compile(r"\\p\{(?!.{1,2}\})|Script(?:_Extensions)?=|\p{L}(?<!\p{Latin})|(?![\x00-\x7f…])\p{SB=STerm}")
TWO_CODES = regex.compile(r"[{\[(]'([a-z]{2})'(?:: [^,]*)?, '([a-z]{2})'")  # in a collection


def code_of(file: Path) -> str:
    """The code of a module without comments and docstrings."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".js":
        return "\n".join(line.partition("// ")[0] for line in text.splitlines())
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.unparse(tree)


def lists_in(code: str) -> list[str]:
    """What is in a list of scripts, sentence ends, or codes of ISO 639-1."""
    codes = [match[0] for match in TWO_CODES.finditer(code) if all(map(langcodes.tag_is_valid, match.groups()))]
    return SCRIPT.findall(code) + codes


def test_nothing_else_lists_languages_scripts_or_sentence_ends() -> None:
    found = {}
    for file in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.js")]:
        name = file.relative_to(PACKAGE).as_posix()
        if name not in NOT_LOOKED_AT:
            found[name] = lists_in(code_of(file))
    result = {name: lists for name, lists in found.items() if lists}
    assert result == {}


@pytest.mark.parametrize(
    "code", [r"\p{Han}", r"\p{Script=Thai}", "[а-я]", "。！", "।", "{'zh', 'ja'}", "{'zh': 1, 'ja': 2}"]
)
def test_a_list_would_be_found(code: str) -> None:
    assert lists_in(code)
