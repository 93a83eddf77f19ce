"""Placeholders: spans that a translation has to keep as they are, such as `{name}`, `%s`, URLs, numbers and emoji.

    Click {name} 3 times.  ->  Click ⟦1⟧ ⟦2⟧ times.  ->  translation with ⟦1⟧ and ⟦2⟧  ->  with {name} and 3

The symbols are in the vocabulary of a model that was trained with `data.placeholders` (compare Post et al. 2019, "An
exploration of placeholding in neural machine translation"). Independent of models and tokenizers.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from nmt.errors import ConfigError
from nmt.text.lines import UNSPACED_SCRIPTS, Span, replaced
from nmt.text.vocabulary import split_tag

N_SYMBOLS = 6
SYMBOLS = [f"⟦{n}⟧" for n in range(1, N_SYMBOLS + 1)]
REPLACED, INSERTED = 0.5, 0.3  # shares of the training pairs with equal spans, and of the others

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
NUMBER = re.compile(KINDS[-1])
TOKEN = re.compile(rf"⟦[1-6]⟧|[{UNSPACED_SCRIPTS}]|{_IN_WORD}+")  # what is aligned
SYMBOL = re.compile(r"(\s?)(⟦[1-6]⟧)")
MARK = re.compile(rf"(\s?)(⟦[1-6]⟧|{KINDS[-1]})")
NO_SPACE = re.compile(r"[\s.,;:!?)…]|\Z")
FINAL = re.compile(r"(?<![\s.!?…。！？\"'”’»」』)])[\s.!?…。！？\"'”’»」』)]*\Z")
IN_WORD = re.compile(_IN_WORD)
# Whether an inserted span needs a space on its left, by the character there, and on its right, by the text there.
SPACE_AFTER = re.compile(rf"[^\s(\[{{«„“'\"¿¡{UNSPACED_SCRIPTS}]")
SPACE_BEFORE = re.compile(rf"{_IN_WORD}|[⟦{{<$%{_EMOJI}]")

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
    found, taken = list[Span](), bytearray(len(text))  # 1 for each character in a span
    for start, end in (match.span() for pattern in patterns for match in pattern.finditer(text)):
        if start < end and not any(taken[start:end]):
            found.append((start, end))
            taken[start:end] = b"\1" * (end - start)
    return sorted(found)


def inserted(text: str, at: int, span: str, touches_left: bool = False, touches_right: bool = False) -> str:
    """Insert a span between two words of a text, with spaces where the script has them, unless it touches a word."""
    left = "" if touches_left or not SPACE_AFTER.match(text[:at][-1:]) else " "
    return text[:at] + left + span + ("" if touches_right or not SPACE_BEFORE.match(text, at) else " ") + text[at:]


def with_symbols(source: str, target: str, links: Iterable[tuple[Span, Span]]) -> tuple[str, str]:
    """Put symbols in place of spans that both sides have, in some pairs; a function of the pair.

    Besides placeholders, words count that are the same on both sides, such as names: few texts have placeholders. Some
    of the other pairs get symbols at their ends and around words; `links` are words and their translations. The symbols
    of a pair are in the order of the source.
    """
    random = Random(f"{source}\n{target}")
    places = equal_spans(source, target)[:N_SYMBOLS] if random.random() < REPLACED else []
    if not places and random.random() < INSERTED:
        ends = [FINAL.search(text).start() for text in (source, target)]  # type: ignore[union-attr]
        around = [edges for (a, b), (c, d) in links for edges in ((a, c), (b, d))]
        chosen = sorted(random.choices([(0, 0), *around, (ends[0], ends[1])], k=random.randint(1, N_SYMBOLS)))
        places = [((a, a), (b, b)) for a, b in chosen]
    symbols = sorted(random.sample(SYMBOLS, len(places)))
    texts = [source, target]
    for side in (0, 1):
        text, spans = texts[side], [of_both[side] for of_both in places]
        for (start, end), symbol in sorted(zip(spans, symbols, strict=True), reverse=True):
            text = inserted(text, start, symbol) if start == end else text[:start] + symbol + text[end:]
        texts[side] = text
    return texts[0], texts[1]


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


@dataclass
class Masked:
    """A text with something else in place of its spans."""

    text: str
    spans: list[Span]  # in `text`
    marks: list[str]  # in place of each span: a symbol, nothing, or the span itself if it is kept
    originals: list[str]
    around: list[tuple[str, str]]  # the character before each span, and that after it

    @classmethod
    def of(
        cls,
        text: str,
        patterns: Patterns,
        symbols: Sequence[str],
        unknown: Collection[str] = (),
        is_known: Callable[[str], bool] = bool,
    ) -> "Masked":
        """Replace spans that match a pattern, and words with characters in `unknown`, by symbols.

        If there are too few symbols, numbers that the model knows stay, and other spans are removed, because a model
        garbles what it has never seen and the words around it. Unknown characters outside of words are always removed.
        A text without other words becomes empty: it needs no translation.
        """

        def need(span: str) -> int:  # look-alikes of symbols first, known numbers last
            return 0 if SYMBOL.search(span) else 2 if NUMBER.fullmatch(span) and is_known(span) else 1

        sign = f"[{re.escape(''.join(sorted(unknown)))}]"
        words_or_signs = rf"(?<!{_IN_WORD}){_IN_WORD}*(?={_IN_WORD}){sign}{_IN_WORD}*|{sign}+"
        tag, _ = split_tag(text)
        spans = spans_of(text, [*patterns, re.compile(words_or_signs)] if unknown else patterns)
        spans = [span for span in spans if span[0] >= len(tag)]
        originals = [text[start:end] for start, end in spans]
        around = [(text[start - 1 : start], text[end : end + 1]) for start, end in spans]
        if spans and not re.search(r"\w", replaced(text, spans, [""] * len(spans))):
            return cls("", [], [], [], [])
        is_sign = [not re.search(r"\w", one) and all(sign in unknown for sign in one) for one in originals]
        by_need = sorted((i for i in range(len(spans)) if not is_sign[i]), key=lambda i: need(originals[i]))
        chosen = dict(zip(sorted(by_need[: len(symbols)]), symbols, strict=False))
        marks = [chosen.get(i, text if need(text) == 2 else "") for i, text in enumerate(originals)]
        masked, cursor, moved = "", 0, []
        for (start, end), mark in zip(spans, marks, strict=True):
            masked += text[cursor:start]
            cursor = end
            if not mark and NO_SPACE.match(text, end):  # leave one of the spaces around it, or none
                masked = masked.removesuffix(" ")
            if not mark and not masked and text.startswith(" ", end):
                cursor += 1
            if not mark and text[start:end].isprintable() and IN_WORD.match(masked[-1:]) and IN_WORD.match(text, end):
                masked += " "
            moved.append((len(masked), len(masked) + len(mark)))
            masked += mark
        return cls(masked + text[cursor:], moved, marks, originals, around)

    def settled(self, translation: str) -> tuple[str, list[int]]:
        """Remove surplus marks from a translation; return it, and the indices of the spans that it lacks.

        A symbol that is invented or repeated becomes one that is missing, if any, else nothing.
        """
        written = {mark for _, mark in MARK.findall(translation)}
        missing = [mark for mark in self.marks if mark in SYMBOLS and mark not in written]
        lacking = Counter(self.marks) | Counter(mark for _, mark in MARK.findall(self.text))

        def settle(match: re.Match[str]) -> str:
            space, mark = match.groups()
            if mark in SYMBOLS and not lacking[mark] and missing:
                mark = missing.pop(0)
            elif mark not in SYMBOLS and mark not in self.marks:
                return match[0]
            is_lacking = lacking[mark] > 0
            lacking[mark] -= is_lacking
            return str(space + mark) * is_lacking

        translation, indices = MARK.sub(settle, translation), []
        for i, mark in enumerate(self.marks):
            if lacking[mark]:
                lacking[mark] -= 1
                indices.append(i)
        return translation, indices

    def filled(self, translation: str) -> str:
        """The translation with spans in place of symbols."""
        originals = dict(zip(self.marks, self.originals, strict=True))
        return SYMBOL.sub(lambda match: match[1] + originals.get(match[2], match[2]), translation)
