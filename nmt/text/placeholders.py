"""Placeholders: spans that a translation must keep unchanged, such as `{name}`, `%s`, URLs, numbers and emoji.

    Click {name} 3 times.  ->  Click ⟦1⟧ ⟦2⟧ times.  ->  translation with ⟦1⟧ and ⟦2⟧  ->  with {name} and 3

The symbols ⟦1⟧ to ⟦6⟧ are in the vocabulary of a model that was trained with `data.placeholders` (compare Post et al.
2019, "An exploration of placeholding in neural machine translation").
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random

import regex

from nmt.errors import ConfigError
from nmt.text.spans import Span, replaced
from nmt.text.syntaxes import ADDRESSES, CODE, DIRECTIVES, TAGS, TEMPLATES
from nmt.text.words import (
    CJK_CLAUSE_MARKS,
    FINAL_MARKS,
    INVISIBLE_SIGNS,
    LONG_WORD,
    NUMERAL_SIGN,
    PLAIN_WORD,
    SPACED_LETTER,
    UNSPACED_CHARACTER,
    UNSPACED_SCRIPTS,
    WORD_CHARACTER,
)

N_SYMBOLS = 6
SYMBOLS = [f"⟦{n}⟧" for n in range(1, N_SYMBOLS + 1)]
# Probability that symbols replace the equal spans of a training pair, and probability that they are inserted otherwise.
REPLACED, INSERTED = 0.5, 0.3
# Lower-case words of at most this many letters are not replaced by symbols. Equal words of this length often differ in
# meaning, such as "was" in German and English.
SHORT_WORD = 4

_EMOJI = "\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u231a-\u23ff"
_IN_NUMBER = "[.,:/'’٫٬-]"
_DIGITS = rf"(?>\d+(?:{_IN_NUMBER}\d+)*{NUMERAL_SIGN}*)"
_NUMBER = rf"(?<!{WORD_CHARACTER})(?<!{WORD_CHARACTER}{_IN_NUMBER}){_DIGITS}(?!{SPACED_LETTER})"
# A sign of a currency and a minus stay with their number.
_AMOUNT = r"(?:(?<![\w)])[-+±−]|\p{Sc}){0,2}+(?=\d)" + _NUMBER + r"(?:\p{Sc}(?!\w))?"
KINDS = [
    "⟦[1-6]⟧",  # text that looks like our symbols
    *ADDRESSES,
    CODE,
    rf"[\U0001f1e6-\U0001f1ff]{{2}}|[#*0-9]\ufe0f?\u20e3|[{_EMOJI}][\ufe0f\u200d\U000e0020-\U000e007f{_EMOJI}]*",
    _AMOUNT,
]
_NAME = rf"(?<![^\s\"'(>|{UNSPACED_SCRIPTS}])[:!][a-zA-Z_][a-zA-Z0-9_]*+"  # :name of Laravel, !name of Drupal
# Adjacent placeholders are one span, so that they stay together.
SPAN = regex.compile(f"(?:{'|'.join(KINDS)}|{_NAME})+")
HINT = regex.compile(rf"[\d%{{<$@#:!\[&⟦{_EMOJI}\U0001f1e6-\U0001f1ff]|www\.")  # every match of `SPAN` has one
# What every document keeps: addresses, and expressions of template languages.
ADDRESS_OR_TEMPLATE = regex.compile("|".join([*ADDRESSES, *TEMPLATES]))
# Spans that a model must not write by itself, with the space before them if the next character needs none.
INVENTED = regex.compile(rf"( )?(?:{'|'.join([*TEMPLATES, *TAGS, *DIRECTIVES])})(?(1)(?=[\s.,;:!?]|\Z))")
# Spans with separators between them, as in a list, a range or a time, and the quotation marks or brackets around them.
# The spans are hidden.
_HIDDEN = "\ufffe"
_LIST = rf"{_HIDDEN}++(?:(?:[\s,;:=/|&+–—−\-{CJK_CLAUSE_MARKS}]{{1,3}}+|[.@_~*#%!?·→×x]{{1,3}}+){_HIDDEN}++)*+"
GROUP = regex.compile(rf"[\"'“„«‘(<\[「『]{_LIST}[>\"'”“»’)\]」』]|{_LIST}")
EQUAL_WORD = regex.compile(LONG_WORD)  # a word that counts as a placeholder in training if both sides have it
NUMBER = regex.compile(_NUMBER)
TOKEN = regex.compile(f"⟦[1-6]⟧|{PLAIN_WORD}")  # the units of word alignment
SYMBOL = regex.compile("⟦[1-6]⟧")
MARK = regex.compile(rf"(\s?)(⟦[1-6]⟧|{_NUMBER})")
NO_SPACE = regex.compile(r"[\s.,;:!?)…]|\Z")
FINAL = regex.compile(FINAL_MARKS)
IN_WORD = regex.compile(WORD_CHARACTER)
INVISIBLE = regex.compile(INVISIBLE_SIGNS)
UNSPACED = regex.compile(UNSPACED_CHARACTER)
# An inserted span gets a space on its left after SPACE_AFTER, and on its right before SPACE_BEFORE.
SPACE_AFTER = regex.compile(rf"[^\s(\[{{«„“'\"¿¡{UNSPACED_SCRIPTS}]")
SPACE_BEFORE = regex.compile(rf"{WORD_CHARACTER}|[⟦{{<$%(\[«„“{_EMOJI}]|[-–—]\s")

Patterns = Sequence[regex.Pattern[str]]


def patterns_of(extra: Iterable[str]) -> Patterns:
    """Compile the user's regular expressions, and append `SPAN`. Raises ConfigError if one is invalid."""
    patterns = []
    for text in extra:
        try:
            patterns.append(regex.compile(text))
        except (regex.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"'{text}' is no regular expression: {error}", hint="--protect 'v[0-9]+'") from error
    return [*patterns, SPAN]


def spans_of(text: str, patterns: Patterns) -> list[Span]:
    """Return the spans that match a pattern, in ascending order.

    Where matches overlap, only the pattern that comes first in `patterns` counts.
    """
    spans = []
    is_taken = bytearray(len(text))  # 1 for each character that is in a span, else 0
    for pattern in patterns:
        if pattern is SPAN and not HINT.search(text):  # most lines have no placeholders, and this search is fast
            continue
        for match in pattern.finditer(text):
            start, end = match.span()
            if start < end and not any(is_taken[start:end]):  # a pattern of the user may match the empty string
                spans.append((start, end))
                is_taken[start:end] = b"\1" * (end - start)
    return sorted(spans)


def inserted(text: str, position: int, span: str, touches_left: bool = False, touches_right: bool = False) -> str:
    """Insert a span between two words. It gets spaces around it if the script has spaces.

    `touches_left` and `touches_right` suppress the space on one side.
    """
    before, after = text[:position], text[position:]
    if not touches_left and SPACE_AFTER.match(before[-1:]):
        span = " " + span
    if not touches_right and SPACE_BEFORE.match(after):
        span += " "
    return before + span + after


def with_symbols(source: str, target: str, links: Iterable[tuple[Span, Span]]) -> tuple[str, str]:
    """Replace spans of a training pair by symbols, insert symbols, or change nothing. Returns both sides.

    The random choices depend only on the pair. With probability `REPLACED`, symbols replace placeholders and words that
    are equal on both sides. If nothing was replaced, symbols are inserted with probability `INSERTED`.

    Args:
        source, target: the training pair.
        links: the spans of source words and of their translations.
    """
    random = Random(f"{source}\n{target}")
    places = []
    if random.random() < REPLACED:
        places = equal_spans(source, target)[:N_SYMBOLS]
    if not places and random.random() < INSERTED:
        places = places_to_insert(source, target, links, random)
    # The symbols are in ascending order in the source, but not always in the target.
    symbols = sorted(random.sample(SYMBOLS, len(places)))
    source = with_each(source, [span for span, _ in places], symbols)
    return source, with_each(target, [span for _, span in places], symbols)


def equal_spans(source: str, target: str) -> list[tuple[Span, Span]]:
    """Return pairs of a source span and a target span that have the same text, in the order of the source."""
    free: dict[str, list[Span]] = {}  # for each text, its spans in the target that have no partner yet
    for start, end in spans_of(target, [SPAN, EQUAL_WORD]):
        free.setdefault(target[start:end], []).append((start, end))
    pairs = []
    for start, end in spans_of(source, [SPAN, EQUAL_WORD]):
        text = source[start:end]
        is_common = len(text) <= SHORT_WORD and text[0].islower()
        if free.get(text) and not is_common:
            pairs.append(((start, end), free[text].pop(0)))
    return pairs


def places_to_insert(
    source: str, target: str, links: Iterable[tuple[Span, Span]], random: Random
) -> list[tuple[Span, Span]]:
    """Choose random places where symbols can be inserted into source and target. They are pairs of empty spans.

    Possible places are the beginning, the end, and the edges of linked words. The order is that of the source.
    """
    places = [(0, 0)]
    for (source_start, source_end), (target_start, target_end) in links:
        places += [(source_start, target_start), (source_end, target_end)]
    places.append((end_of_words(source), end_of_words(target)))
    n_symbols = random.randint(1, N_SYMBOLS)
    chosen = sorted(random.choices(places, k=n_symbols))
    return [((in_source, in_source), (in_target, in_target)) for in_source, in_target in chosen]


def end_of_words(text: str) -> int:
    """Return the position after the last word of a text."""
    return FINAL.search(text).start()  # type: ignore[union-attr]


def with_each(text: str, spans: Sequence[Span], symbols: Sequence[str]) -> str:
    """Replace each span of a text by a symbol. A symbol in place of an empty span gets spaces around it."""
    for (start, end), symbol in sorted(zip(spans, symbols, strict=True), reverse=True):
        text = inserted(text, start, symbol) if start == end else text[:start] + symbol + text[end:]
    return text


@dataclass
class Kept:
    """A span of a text that the translation must keep, and the mark that replaces it in the masked text."""

    original: str
    source_span: Span
    before: str  # the character before the span, or an empty string
    after: str  # the character after the span, or an empty string
    mark: str = ""  # a symbol, an empty string if the span is removed, or `original` if the span stays
    span: Span = (0, 0)  # the span of the mark in the masked text


@dataclass
class Masked:
    """A text in which marks replace the spans that the translation must keep."""

    text: str  # the masked text
    kept: list[Kept]  # the replaced spans in ascending order

    @classmethod
    def of(
        cls,
        text: str,
        patterns: Patterns,
        symbols: Sequence[str],
        unknown: Collection[str] = (),
        is_known: Callable[[str], bool] = bool,
        tag: str = "",
    ) -> "Masked":
        """Replace spans that match a pattern, and words with unknown characters, by symbols.

        If there are too few symbols, numbers that the model can read stay, and all other spans are removed: a model
        garbles text of an unknown kind. Unknown characters outside of words are always removed.

        Args:
            text: the text to mask.
            patterns: patterns of the spans to keep.
            symbols: symbols that the model knows.
            unknown: characters that the model cannot read.
            is_known: returns whether the model can read a number.
            tag: the tag of the target language at the beginning of the text, such as `>>fra<<`. It stays.
        """
        kept = find_kept(text, patterns, unknown, len(tag), len(symbols))
        # Without words outside of the spans, nothing is left to translate.
        rest = replaced(text, [(item.source_span, "") for item in kept])
        if kept and not regex.search(r"\w", rest[len(tag) :]):
            return cls("", [])
        choose_marks(kept, symbols, unknown, is_known)
        return cls(write_masked(text, kept), kept)

    @property
    def marks(self) -> list[str]:
        """The mark of each span, in ascending order of the spans."""
        return [item.mark for item in self.kept]

    def settled(self, translation: str) -> tuple[str, list[int]]:
        """Correct the marks in a translation. Returns the result, and the indices of the spans whose marks are missing.

        A symbol that the model has invented or repeated is replaced by a missing symbol. If no symbol is missing, it is
        removed. A number that is a mark is removed where it occurs too often. A directive or a tag that the model has
        invented is removed.
        """
        if INVENTED.search(translation) and not INVENTED.search(self.text):
            translation = INVENTED.sub("", translation).strip(" ")
        # The translation must have each mark as often as the masked text. The mark of a removed span is empty, so it is
        # always missing.
        marks = self.marks
        missing = [mark for mark in marks if mark in SYMBOLS and mark not in translation]
        n_lacking = Counter(marks) | Counter(mark for _, mark in MARK.findall(self.text))

        def settle(match: regex.Match[str]) -> str:
            space, mark = match.groups()
            if mark not in SYMBOLS and mark not in marks:
                return match[0]  # a number that is the mark of no span stays
            if mark in SYMBOLS and not n_lacking[mark] and missing:
                mark = missing.pop(0)  # the model wrote a wrong symbol in place of this missing symbol
            if not n_lacking[mark]:  # the translation already has this mark often enough
                return ""
            n_lacking[mark] -= 1
            return f"{space}{mark}"

        translation = MARK.sub(settle, translation)
        indices = []
        for i, mark in enumerate(marks):
            if n_lacking[mark]:
                n_lacking[mark] -= 1
                indices.append(i)
        return translation, indices

    def filled(self, translation: str) -> str:
        """Replace the symbols in a translation by the spans that they stand for.

        Between a span and text of an unspaced script, the source has no space. The translation gets one if its script
        has spaces.
        """
        kept = {item.mark: item for item in self.kept}

        def fill(symbol: regex.Match[str]) -> str:
            if symbol[0] not in kept:
                return symbol[0]
            item = kept[symbol[0]]
            start, end = symbol.span()
            left = " " if UNSPACED.match(item.before) and IN_WORD.match(translation[start - 1 : start]) else ""
            right = " " if UNSPACED.match(item.after) and IN_WORD.match(translation, end) else ""
            return left + item.original + right

        return SYMBOL.sub(fill, translation)


def find_kept(text: str, patterns: Patterns, unknown: Collection[str], start: int, n_symbols: int) -> list[Kept]:
    """Return the spans from `start` on that match a pattern, and the words and signs with unknown characters.

    Unknown signs that touch a placeholder are a part of it, so that `$5` keeps its sign. If there are too few symbols,
    spans are grouped. All marks are still empty.
    """
    spans = [span for span in spans_of(text, patterns) if span[0] >= start]
    if len(spans) > n_symbols:
        spans = in_groups(text, spans)
    if unknown:
        spans = with_unknown(text, spans, unknown, start)
    kept = []
    for first, last in spans:
        kept.append(Kept(text[first:last], (first, last), text[first - 1 : first], text[last : last + 1]))
    return kept


def hidden(text: str, spans: Iterable[Span]) -> str:
    """Replace each character of these spans by `_HIDDEN`."""
    return replaced(text, [(span, _HIDDEN * (span[1] - span[0])) for span in spans])


def in_groups(text: str, spans: Sequence[Span]) -> list[Span]:
    """Join spans of a list, such as `{a}, {b}`, and extend spans over brackets around them. Numbers stay single.

    Without this, removed spans would leave commas and empty brackets in the text.
    """
    numbers = {span for span in spans if NUMBER.fullmatch(text, *span)}
    others = sorted(set(spans) - numbers)
    groups = GROUP.finditer(hidden(text, others))
    return sorted([*numbers, *(match.span() for match in groups)])


def with_unknown(text: str, spans: Sequence[Span], unknown: Collection[str], start: int) -> list[Span]:
    """Add the words and signs from `start` on with unknown characters. Signs that touch a span are a part of it."""
    sign = f"[{regex.escape(''.join(sorted(unknown)))}]"
    word = rf"(?<!{WORD_CHARACTER}){WORD_CHARACTER}*(?={WORD_CHARACTER}){sign}{WORD_CHARACTER}*"
    span = rf"(?:{_HIDDEN}++(?:(?!\w){sign})*+)"
    pattern = regex.compile(f"{word}|{sign}++{span}*|{span}+")
    return [match.span() for match in pattern.finditer(hidden(text, spans), start)]


def choose_marks(
    kept: Sequence[Kept], symbols: Sequence[str], unknown: Collection[str], is_known: Callable[[str], bool]
) -> None:
    """Set the mark of each span; see `Masked.of`. Known numbers are the last to get a symbol."""

    def is_known_number(item: Kept) -> bool:
        return NUMBER.fullmatch(item.original) is not None and is_known(item.original)

    # Unknown characters outside of words get no symbol, so they are removed.
    is_unknown = set(unknown).issuperset
    words = [item for item in kept if regex.search(r"\w", item.original) or not is_unknown(item.original)]
    with_symbol = sorted(words, key=is_known_number)[: len(symbols)]
    with_symbol.sort(key=lambda item: item.source_span)
    for item, symbol in zip(with_symbol, symbols, strict=False):
        item.mark = symbol
    for item in kept:
        if not item.mark and is_known_number(item):
            item.mark = item.original


def write_masked(text: str, kept: Sequence[Kept]) -> str:
    """Replace each span by its mark, and set `Kept.span`. Returns the masked text."""
    masked, cursor = "", 0
    for item in kept:
        start, end = item.source_span
        masked += text[cursor:start]
        cursor = end
        if not item.mark:
            # Remove the span. Remove the space before it if a space, a punctuation mark or the end of the text follows.
            # At the beginning of the text, remove the space after it. Add a space where two words would touch.
            if NO_SPACE.match(text, end):
                masked = masked.removesuffix(" ")
            if not masked and text.startswith(" ", end):
                cursor += 1
            if not INVISIBLE.fullmatch(item.original) and IN_WORD.match(masked[-1:]) and IN_WORD.match(text, end):
                masked += " "
        position = len(masked)
        item.span = (position, position + len(item.mark))
        masked += item.mark
    return masked + text[cursor:]
