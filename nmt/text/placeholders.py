"""Placeholders: spans that a translation has to keep as they are, such as `{name}`, `%s`, URLs, numbers and emoji.

    Click {name} 3 times.  ->  Click ⟦1⟧ ⟦2⟧ times.  ->  translation with ⟦1⟧ and ⟦2⟧  ->  with {name} and 3

The symbols are in the vocabulary of a model that was trained with `data.placeholders` (compare Post et al. 2019, "An
exploration of placeholding in neural machine translation"). Independent of models and tokenizers.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random

from nmt.errors import ConfigError
from nmt.text.lines import UNSPACED_SCRIPTS, Pair, Span

N_SYMBOLS = 6
SYMBOLS = [f"⟦{n}⟧" for n in range(1, N_SYMBOLS + 1)]
REPLACED, INSERTED = 0.5, 0.1  # shares of the training pairs with equal spans, and of the others

_IN_WORD = rf"[^\W{UNSPACED_SCRIPTS}]"
_LETTER = rf"[^\W\d_{UNSPACED_SCRIPTS}]"
_IN_URL = r"a-zA-Z0-9\u00c0-\u052f\-._~:/?#@!$&'*+,;=%"
_EMOJI = "\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u231a-\u23ff"
KINDS = [
    "⟦[1-6]⟧",
    rf"(?:https?://|ftp://|www\.)[()\[\]{_IN_URL}]*[a-zA-Z0-9\u00c0-\u052f/=#]",
    r"[a-zA-Z0-9_.+-]{1,64}@[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+",
    r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?/?>",
    r"\$?\{\{? ?[^\s{}]* ?\}?\}",
    r"%(?:\(\w+\)|\d+\$)?[-+0#]*+\d*(?:\.\d+)?[sdifguxc@](?![a-zA-Z])",
    rf"[\U0001f1e6-\U0001f1ff]{{2}}|[#*0-9]\ufe0f?\u20e3|[{_EMOJI}][\ufe0f\u200d\U000e0020-\U000e007f{_EMOJI}]*",
    rf"(?<!{_IN_WORD})(?<!{_IN_WORD}[.,:/-])(?>\d+(?:[.,:/-]\d+)*)(?!{_LETTER})",
]
SPAN = re.compile(f"(?:{'|'.join(KINDS)})+")  # adjacent ones are one span, so that they stay together
WORD = re.compile(rf"(?<!{_IN_WORD}){_LETTER}{{3,}}(?!{_IN_WORD})")
NUMBER = re.compile(r"[\d.,:/-]+")
TOKEN = re.compile(rf"⟦[1-6]⟧|[{UNSPACED_SCRIPTS}]|{_IN_WORD}+")  # what is aligned
SYMBOL = re.compile(r"(\s?)(⟦[1-6]⟧)")
NO_SPACE = re.compile(r"[\s.,;:!?)…]|\Z")
FINAL = re.compile(r"(?<![\s.!?…。！？\"'”’»」』)])[\s.!?…。！？\"'”’»」』)]*\Z")
# An inserted span is separated by a space from such a character before it, and from a letter or digit after it.
SPACE_AFTER = re.compile(rf"[^\s(\[{{«„“'\"¿¡{UNSPACED_SCRIPTS}]")
SPACE_BEFORE = re.compile(rf"{_IN_WORD}|⟦")

Patterns = Sequence[re.Pattern[str]]


def patterns_of(extra: Iterable[str]) -> Patterns:
    """Return the user's regular expressions, then `SPAN`. Raises ConfigError if one is invalid."""
    found = []
    for text in extra:
        try:
            found.append(re.compile(text))
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"'{text}' is no regular expression: {error}", hint="--protect 'v[0-9]+'") from error
    return [*found, SPAN]


def spans_of(text: str, patterns: Patterns) -> list[Span]:
    """The spans of a text that match, in order; where matches of two patterns overlap, that of the first is taken."""
    found: list[Span] = []
    for pattern in patterns:
        taken = list(found)
        spans = (match.span() for match in pattern.finditer(text))
        found += [(a, b) for a, b in spans if a < b and all(b <= start or end <= a for start, end in taken)]
    return sorted(found)


def spans_beside_symbols(text: str, patterns: Patterns) -> list[Span]:
    """The spans of a text that are no symbols."""
    return spans_of(SYMBOL.sub(lambda match: " " * len(match[0]), text), patterns)


def replaced(text: str, spans: Sequence[Span], new: Sequence[str]) -> str:
    """The text with new strings in place of spans, which are in order."""
    for (start, end), one in zip(reversed(spans), reversed(new), strict=True):
        text = text[:start] + one + text[end:]
    return text


def inserted(text: str, at: int, span: str) -> str:
    """Insert a span between two words of a text, with spaces around it where the script has them."""
    left = " " if SPACE_AFTER.match(text[:at][-1:]) else ""
    return text[:at] + left + span + (" " if SPACE_BEFORE.match(text, at) else "") + text[at:]


def with_symbols(pair: Pair) -> Pair:
    """Put symbols in place of spans that both sides have, in some pairs; a function of the pair.

    Besides placeholders, words count that are the same on both sides, such as names: few texts have placeholders. Some
    of the other pairs get symbols at their beginning or end. The symbols of a pair are in the order of the source.
    """
    random = Random(blake2b(f"{pair.source}\n{pair.target}".encode(), digest_size=8).digest()).random
    share = random()
    equal = equal_spans(pair.source, pair.target)[:N_SYMBOLS] if share < REPLACED else []
    if share >= (REPLACED if equal else INSERTED):
        return pair
    if equal:
        symbols = some_symbols(len(equal), random)
        source, target = ([spans[side] for spans in equal] for side in (0, 1))
        in_target = sorted(zip(target, symbols, strict=True))
        new_target = replaced(pair.target, [span for span, _ in in_target], [symbol for _, symbol in in_target])
        return replace(pair, source=replaced(pair.source, source, symbols), target=new_target)
    texts = [pair.source, pair.target]
    symbols = some_symbols(1 + int(random() * 3), random)
    n_first = int(random() * (len(symbols) + 1))
    for symbol in reversed(symbols[:n_first]):
        texts = [inserted(text, 0, symbol) for text in texts]
    for symbol in symbols[n_first:]:
        texts = [inserted(text, FINAL.search(text).start(), symbol) for text in texts]  # type: ignore[union-attr]
    return replace(pair, source=texts[0], target=texts[1])


def equal_spans(source: str, target: str) -> list[tuple[Span, Span]]:
    """Spans of source and target with the same text, in the order of the source."""
    free: dict[str, list[Span]] = {}
    for start, end in spans_of(target, [SPAN, WORD]):
        free.setdefault(target[start:end], []).append((start, end))
    found = []
    for start, end in spans_of(source, [SPAN, WORD]):
        text = source[start:end]
        is_common = len(text) < 5 and text[0].islower()  # a short word such as "was" is often another word
        if free.get(text) and not is_common:
            found.append(((start, end), free[text].pop(0)))
    return found


def some_symbols(n: int, random: Callable[[], float]) -> list[str]:
    """Draw n different symbols, sorted. A random choice trains all symbols equally often."""
    order = sorted((random(), symbol) for symbol in SYMBOLS)
    return sorted(symbol for _, symbol in order[:n])


def need(span: str) -> int:
    """Sort key of spans for masking: look-alikes of symbols first, numbers last, because most models copy them."""
    return 0 if SYMBOL.search(span) else 2 if NUMBER.fullmatch(span) else 1


@dataclass
class Masked:
    """A text with something else in place of its spans."""

    text: str
    spans: list[Span]  # in `text`
    marks: list[str]  # in place of each span: a symbol, nothing, or the span itself if it is kept
    originals: list[str]

    @classmethod
    def of(cls, text: str, patterns: Patterns, symbols: Sequence[str]) -> "Masked":
        """Replace the spans that match a pattern by symbols; if there are too many, numbers are left.

        Without symbols, all spans but numbers are taken out: a model garbles what it has never seen, and what is around
        it. A text without other words becomes empty: it needs no translation.
        """
        spans = spans_of(text, patterns)
        originals = [text[start:end] for start, end in spans]
        if spans and not re.search(r"\w", replaced(text, spans, [""] * len(spans))):
            return cls("", [], [], [])
        if sum(need(one) == 0 for one in originals) > len(symbols):  # the rest would be taken for symbols
            symbols = []
        by_need = sorted(range(len(spans)), key=lambda i: need(originals[i]))
        chosen = dict(zip(sorted(by_need[: len(symbols)]), symbols, strict=False))
        marks = [chosen.get(i, text if symbols or need(text) == 2 else "") for i, text in enumerate(originals)]
        masked, cursor, moved = "", 0, []
        for (start, end), mark in zip(spans, marks, strict=True):
            masked += text[cursor:start]
            cursor = end
            if not mark and NO_SPACE.match(text, end):  # leave one of the spaces around it, or none
                masked = masked.removesuffix(" ")
            if not mark and not masked and text.startswith(" ", end):
                cursor += 1
            moved.append((len(masked), len(masked) + len(mark)))
            masked += mark
        return cls(masked + text[cursor:], moved, marks, originals)

    def settled(self, translation: str, patterns: Patterns) -> tuple[str, list[int]]:
        """Remove surplus marks from a translation; return it, and the indices of the spans that it lacks.

        A symbol that is invented or repeated becomes one that is missing, if any, else nothing.
        """
        written = {symbol for _, symbol in SYMBOL.findall(translation)}
        missing = [mark for mark in self.marks if mark in SYMBOLS and mark not in written]
        lacking, repeated = Counter(self.marks), []
        lacking |= Counter(self.text[start:end] for start, end in spans_beside_symbols(self.text, patterns))

        def settle(match: re.Match[str]) -> str:
            space, symbol = match.groups()
            if not lacking[symbol]:
                if not missing:
                    return ""
                symbol = missing.pop(0)
            lacking[symbol] -= 1
            return str(space + symbol)

        translation = SYMBOL.sub(settle, translation)
        for start, end in spans_beside_symbols(translation, patterns):
            text = translation[start:end]
            if lacking[text]:
                lacking[text] -= 1
            elif text in self.marks:
                repeated.append((start - translation.startswith(" ", start - 1), end))
        indices = []
        for i, mark in enumerate(self.marks):
            if lacking[mark]:
                lacking[mark] -= 1
                indices.append(i)
        return replaced(translation, repeated, [""] * len(repeated)), indices

    def filled(self, translation: str) -> str:
        """The translation with spans in place of symbols."""
        originals = dict(zip(self.marks, self.originals, strict=True))
        return SYMBOL.sub(lambda match: match[1] + originals.get(match[2], match[2]), translation)
