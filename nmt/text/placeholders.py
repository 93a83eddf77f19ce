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
from nmt.text.spans import Span, replaced
from nmt.text.vocabulary import split_tag
from nmt.text.words import FINAL_MARKS, LONG_WORD, PLAIN_WORD, SPACED_LETTER, UNSPACED_SCRIPTS, WORD_CHARACTER

N_SYMBOLS = 6
SYMBOLS = [f"⟦{n}⟧" for n in range(1, N_SYMBOLS + 1)]
REPLACED, INSERTED = 0.5, 0.3  # shares of the training pairs with equal spans, and of the others
SHORT_WORD = 4  # letters; a shorter or equally long word such as "was" is often another word in the other language

_IN_URL = r"a-zA-Z0-9\u00c0-\u052f\-._~:/?#@!$&'*+,;=%"
_EMOJI = "\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u231a-\u23ff"
_NUMBER = rf"(?<!{WORD_CHARACTER})(?<!{WORD_CHARACTER}[.,:/-])(?>\d+(?:[.,:/-]\d+)*)(?!{SPACED_LETTER})"
KINDS = [
    "⟦[1-6]⟧",  # what looks like our symbols
    rf"(?:https?://|ftp://|www\.)[()\[\]{_IN_URL}]*[a-zA-Z0-9\u00c0-\u052f/=#]",
    r"[a-zA-Z0-9_.+-]{1,64}@[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+",  # mail addresses
    r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?/?>",  # tags
    r"\$?\{\{? ?[^\s{}]* ?\}?\}",  # {name}, ${x}, {{ x }}
    r"%(?:\(\w+\)|\d+\$)?[-+0#]*+\d*(?:\.\d+)?[sdifguxc@](?![a-zA-Z])",  # %s, %1$d
    rf"[\U0001f1e6-\U0001f1ff]{{2}}|[#*0-9]\ufe0f?\u20e3|[{_EMOJI}][\ufe0f\u200d\U000e0020-\U000e007f{_EMOJI}]*",
    _NUMBER,
]
SPAN = re.compile(f"(?:{'|'.join(KINDS)})+")  # adjacent ones are one span, so that they stay together
EQUAL_WORD = re.compile(LONG_WORD)  # which counts as a placeholder in training, if both sides have it
NUMBER = re.compile(_NUMBER)
TOKEN = re.compile(f"⟦[1-6]⟧|{PLAIN_WORD}")  # what is aligned
SYMBOL = re.compile(r"(\s?)(⟦[1-6]⟧)")
MARK = re.compile(rf"(\s?)(⟦[1-6]⟧|{_NUMBER})")
NO_SPACE = re.compile(r"[\s.,;:!?)…]|\Z")
FINAL = re.compile(FINAL_MARKS)
IN_WORD = re.compile(WORD_CHARACTER)
# Whether an inserted span needs a space on its left, by the character there, and on its right, by the text there.
SPACE_AFTER = re.compile(rf"[^\s(\[{{«„“'\"¿¡{UNSPACED_SCRIPTS}]")
SPACE_BEFORE = re.compile(rf"{WORD_CHARACTER}|[⟦{{<$%{_EMOJI}]")

Patterns = Sequence[re.Pattern[str]]


def patterns_of(extra: Iterable[str]) -> Patterns:
    """Return the user's regular expressions, then `SPAN`. Raises ConfigError if one is invalid."""
    patterns = []
    for text in extra:
        try:
            patterns.append(re.compile(text))
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"'{text}' is no regular expression: {error}", hint="--protect 'v[0-9]+'") from error
    return [*patterns, SPAN]


def spans_of(text: str, patterns: Patterns) -> list[Span]:
    """Return the spans that match, in order; where matches of two patterns overlap, that of the first is taken."""
    spans = []
    is_taken = bytearray(len(text))  # 1 for each character in a span
    for pattern in patterns:
        for match in pattern.finditer(text):
            start, end = match.span()
            if start < end and not any(is_taken[start:end]):  # a pattern of the user may match nothing
                spans.append((start, end))
                is_taken[start:end] = b"\1" * (end - start)
    return sorted(spans)


def inserted(text: str, position: int, span: str, touches_left: bool = False, touches_right: bool = False) -> str:
    """Insert a span between two words of a text, with spaces where the script has them, unless it touches a word."""
    before, after = text[:position], text[position:]
    if not touches_left and SPACE_AFTER.match(before[-1:]):
        before += " "
    if not touches_right and SPACE_BEFORE.match(after):
        after = " " + after
    return before + span + after


def with_symbols(source: str, target: str, links: Iterable[tuple[Span, Span]]) -> tuple[str, str]:
    """Put symbols in place of spans that both sides have, in some pairs; a function of the pair.

    Besides placeholders, words count that are the same on both sides, such as names: few texts have placeholders. Some
    of the other pairs get symbols at their ends and around words; `links` are words and their translations. The symbols
    of a pair are in the order of the source.
    """
    random = Random(f"{source}\n{target}")
    places = []
    if random.random() < REPLACED:
        places = equal_spans(source, target)[:N_SYMBOLS]
    if not places and random.random() < INSERTED:
        places = places_to_insert(source, target, links, random)
    # The first places in the source get the first symbols, whatever their order in the target.
    symbols = sorted(random.sample(SYMBOLS, len(places)))
    source = with_each(source, [span for span, _ in places], symbols)
    target = with_each(target, [span for _, span in places], symbols)
    return source, target


def equal_spans(source: str, target: str) -> list[tuple[Span, Span]]:
    """Return spans of source and target with the same text, in the order of the source."""
    free: dict[str, list[Span]] = {}  # the spans of the target by their text
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
    """Return empty spans of both sides, at the ends of the pair and around some linked words, in order."""
    places = [(0, 0)]
    for (source_start, source_end), (target_start, target_end) in links:
        places += [(source_start, target_start), (source_end, target_end)]
    places.append((end_of_words(source), end_of_words(target)))
    chosen = sorted(random.choices(places, k=random.randint(1, N_SYMBOLS)))
    return [((in_source, in_source), (in_target, in_target)) for in_source, in_target in chosen]


def end_of_words(text: str) -> int:
    """Return where the punctuation marks and spaces after the last word begin."""
    return FINAL.search(text).start()  # type: ignore[union-attr]


def with_each(text: str, spans: Sequence[Span], symbols: Sequence[str]) -> str:
    """Return a text with a symbol in place of each span; one that replaces nothing gets spaces around it."""
    for (start, end), symbol in sorted(zip(spans, symbols, strict=True), reverse=True):
        is_insertion = start == end
        text = inserted(text, start, symbol) if is_insertion else text[:start] + symbol + text[end:]
    return text


@dataclass
class Kept:
    """A span of a text that its translation has to keep, and what takes its place in the masked text."""

    original: str
    source_span: Span
    before: str  # the character before the span, and that after it
    after: str
    mark: str = ""  # in place of the span: a symbol, nothing, or the span itself if it stays
    span: Span = (0, 0)  # of the mark in the masked text


@dataclass
class Masked:
    """A text with something else in place of its spans."""

    text: str
    kept: list[Kept]

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
        kept = find_kept(text, patterns, unknown)
        # Without words, there is nothing to translate.
        rest = replaced(text, [item.source_span for item in kept], [""] * len(kept))
        if kept and not re.search(r"\w", rest):
            return cls("", [])
        choose_marks(kept, symbols, unknown, is_known)
        return cls(write_masked(text, kept), kept)

    @property
    def marks(self) -> list[str]:
        """What takes the place of each span."""
        return [item.mark for item in self.kept]

    def settled(self, translation: str) -> tuple[str, list[int]]:
        """Remove surplus marks from a translation; return it, and the indices of the spans that it lacks.

        A symbol that is invented or repeated becomes one that is missing, if any, else nothing.
        """
        # How often each mark has to be written, once for each span and number.
        marks = self.marks
        written = {mark for _, mark in MARK.findall(translation)}
        missing = [mark for mark in marks if mark in SYMBOLS and mark not in written]
        in_source = Counter(mark for _, mark in MARK.findall(self.text))
        n_lacking = Counter(marks) | in_source

        def settle(match: re.Match[str]) -> str:
            space, mark = match.groups()
            if mark in SYMBOLS and not n_lacking[mark] and missing:
                mark = missing.pop(0)  # the model has confused two symbols
            elif mark not in SYMBOLS and mark not in marks:
                return match[0]  # a number that the model wrote
            if not n_lacking[mark]:  # repeated
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
        """Return the translation with spans in place of symbols."""
        originals = {item.mark: item.original for item in self.kept}
        return SYMBOL.sub(lambda match: match[1] + originals.get(match[2], match[2]), translation)


def find_kept(text: str, patterns: Patterns, unknown: Collection[str]) -> list[Kept]:
    """Return the spans that match a pattern, or are words or signs with unknown characters; without marks."""
    if unknown:
        sign = f"[{re.escape(''.join(sorted(unknown)))}]"
        word = rf"(?<!{WORD_CHARACTER}){WORD_CHARACTER}*(?={WORD_CHARACTER}){sign}{WORD_CHARACTER}*"
        patterns = [*patterns, re.compile(f"{word}|{sign}+")]
    # The tag of a target language looks like a tag of HTML.
    tag, _ = split_tag(text)
    kept = []
    for start, end in spans_of(text, patterns):
        if start >= len(tag):
            before, after = text[start - 1 : start], text[end : end + 1]
            kept.append(Kept(text[start:end], (start, end), before, after))
    return kept


def choose_marks(
    kept: Sequence[Kept], symbols: Sequence[str], unknown: Collection[str], is_known: Callable[[str], bool]
) -> None:
    """Set the mark of each span; see `Masked.of`."""

    def is_known_number(item: Kept) -> bool:
        return NUMBER.fullmatch(item.original) is not None and is_known(item.original)

    def urgency(item: Kept) -> int:
        if SYMBOL.search(item.original):
            return 0  # without a symbol, it would be taken for one
        return 2 if is_known_number(item) else 1

    # Unknown signs outside of words are removed.
    is_unknown = set(unknown).issuperset
    words = [item for item in kept if re.search(r"\w", item.original) or not is_unknown(item.original)]
    with_symbol = sorted(words, key=urgency)[: len(symbols)]
    with_symbol.sort(key=lambda item: item.source_span)
    for item, symbol in zip(with_symbol, symbols, strict=False):
        item.mark = symbol
    for item in kept:
        if not item.mark and is_known_number(item):
            item.mark = item.original


def write_masked(text: str, kept: Sequence[Kept]) -> str:
    """Return the text with the marks in place of the spans, and set where they are."""
    masked, cursor = "", 0
    for item in kept:
        start, end = item.source_span
        masked += text[cursor:start]
        cursor = end
        if not item.mark:
            # Leave one of the spaces around a span that is removed, or none at an end of the line.
            if NO_SPACE.match(text, end):
                masked = masked.removesuffix(" ")
            if not masked and text.startswith(" ", end):
                cursor += 1
            if item.original.isprintable() and IN_WORD.match(masked[-1:]) and IN_WORD.match(text, end):
                masked += " "
        mark_start = len(masked)
        masked += item.mark
        item.span = (mark_start, len(masked))
    return masked + text[cursor:]
