"""Tags: they are taken out of a text, and put around the words that the tagged ones became.

    segments of plain text, each with a tree of elements -> translations, with word alignments
    -> an interval of target words for each element -> translations with tags

Every tag of the source is written once. An element gets the one interval of target words that has the most words linked
to its own, and the fewest linked to others (compare Zenkel et al. 2021, "Automatic bilingual markup transfer"). This
module does not know which text is a tag: see `nmt.documents`.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from nmt.documents.markup import Element, Format, Part, Segment, between_segments, descendants, sentences_of
from nmt.text.lines import Pause
from nmt.text.placeholders import SPAN
from nmt.text.spans import Span, indices_between
from nmt.text.words import MARKED_WORD, WORD_EDGE, WordText
from nmt.translate.align import Links, Shares, align_for_markup
from nmt.translate.segments import Line, TextHypothesis, Translation, naming_cut_lines
from nmt.translate.translator import Translator
from nmt.translate.windows import read_window

WINDOW = 1000  # lines parsed and translated together
PLACED = 64  # segments whose tags are placed together, because their alignments share batches

WORD = re.compile(f"{SPAN.pattern}|{MARKED_WORD}")  # a placeholder is one word, so that no tag ends inside of it
EDGE = re.compile(WORD_EDGE)


class MarkupTranslator:
    """A `Translator` of text with markup; its translations have no scores, and one hypothesis each."""

    def __init__(self, translator: Translator, markup: Format) -> None:
        self.translator = translator
        self.markup = markup

    def translate_lines(
        self,
        lines: Iterable[str | Pause],
        *,
        window: int = WINDOW,
        fixed_windows: bool = False,
        first: int = 1,
        after_window: Callable[[], object] = lambda: None,
        **arguments: Any,
    ) -> Iterator[Translation]:
        """Translate a stream of lines, each of them a piece of markup; see `Translator.translate_lines`."""
        if fixed_windows:
            arguments |= {"window": window, "fixed_windows": True}
        stream, before = iter(lines), ""
        with naming_cut_lines(at_once=window == 1) as take_note:
            while (chunk := read_window(stream, first, window)) is not None:
                first += len(chunk)
                documents = [self.markup.parse(line.text) for line in chunk]

                # Each text keeps the number of its line, on which its random seed and its messages depend.
                texts = list[Line]()
                for line, parts in zip(chunk, documents, strict=True):
                    sentences = sentences_of(parts)
                    for part, sentence in enumerate(sentences):
                        texts.append(Line(line.number, sentence, before=before, part=part))
                        before = sentence
                    if not sentences:
                        before = ""

                translations = list(chain.from_iterable(self.translator.translate_windows(texts, **arguments)))
                take_note(translations)
                written = self.written(documents, [translation.text for translation in translations])
                for line, text in zip(chunk, written, strict=True):
                    yield Translation(line.text, [TextHypothesis([], [], 0.0, [], text)], line.number)
                after_window()

    def written(self, documents: Sequence[Sequence[Part]], translations: Iterable[str]) -> list[str]:
        """Write parsed documents with the translations of all their sentences; see `sentences_of`."""
        texts = iter(translations)
        segments = iter([part for parts in documents for part in parts if isinstance(part, Segment)])
        written: list[str] = []
        while window := list(islice(segments, PLACED)):
            pairs = [Pair.made(one, list(islice(texts, len(one.sentences))), self.translator.joiner) for one in window]
            align_words(self.translator, [pair for pair in pairs if pair.segment.root.children])
            for pair in pairs:
                written.append(pair.segment.finish(Placement(pair, self.markup.escape).written()))
                between_segments.get()()
        in_order = iter(written)
        return ["".join(part if isinstance(part, str) else next(in_order) for part in parts) for parts in documents]


def words_of(text: str, cuts: Iterable[int] = ()) -> list[Span]:
    """The span of each word and punctuation mark, cut where a tag is inside of it."""
    edges = sorted(set(cuts))
    spans = []
    for match in WORD.finditer(text):
        cut = edges[bisect_right(edges, match.start()) : bisect_left(edges, match.end())]
        spans += list(zip([match.start(), *cut], [*cut, match.end()], strict=True))
    return spans


@dataclass
class Pair:
    """A segment and its translation, by sentences and by words."""

    segment: Segment
    text: str  # the translation
    sentences: list[tuple[Span, Span]]  # of source and target
    source: list[Span]  # words, cut at tags
    target: list[Span]
    links: Links = field(default_factory=list)
    shares: list[Shares] = field(default_factory=list)  # of each target word

    @classmethod
    def made(cls, segment: Segment, translations: Sequence[str], joiner: str) -> "Pair":
        """Join the translations of a segment's sentences."""
        text, sentences = "", []
        for span, translation in zip(segment.sentences, translations, strict=True):
            text += joiner if text else ""
            sentences.append((span, (len(text), len(text) + len(translation))))
            text += translation
        cuts = [edge for element in descendants(segment.root) for edge in (element.start, element.end)]
        target = words_of(text)
        return cls(segment, text, sentences, words_of(segment.text, cuts), target, shares=[{} for _ in target])


def align_words(translator: Translator, pairs: Sequence[Pair]) -> None:
    """Set the links and shares of each pair, whose words are aligned sentence by sentence."""
    parts = [
        (pair, within(pair.segment.text, pair.source, source), within(pair.text, pair.target, target))
        for pair in pairs
        for source, target in pair.sentences
    ]
    aligned = align_for_markup(translator, [(source, target) for _, (source, _), (target, _) in parts])
    for (pair, (_, first_source), (_, first_target)), (links, shares) in zip(parts, aligned, strict=True):
        pair.links += [(first_source + s, first_target + t) for s, t in links]
        for t, of_word in enumerate(shares, first_target):
            pair.shares[t] = {first_source + s: share for s, share in of_word.items()}


def within(text: str, words: Sequence[Span], sentence: Span) -> tuple[WordText, int]:
    """The words of a text that lie in a sentence, and the index of the first."""
    start, end = sentence
    indices = indices_between(words, start, end)
    return WordText(text[start:end], [(words[i][0] - start, words[i][1] - start) for i in indices]), indices.start


@dataclass
class Placed:
    """Where an element goes: its interval of target words, and where this begins and ends in the text."""

    element: Element
    words: range
    start: int
    end: int


class Placement:
    """Finds an interval of target words for each element of a pair, and writes the tags there."""

    def __init__(self, pair: Pair, escape: Callable[[str], str]) -> None:
        self.pair = pair
        self.escape = escape
        self.linked: list[list[int]] = [[] for _ in pair.target]  # source words of each target word
        self.targets: list[list[int]] = [[] for _ in pair.source]  # and the reverse
        for source, target in sorted(pair.links):
            self.linked[target].append(source)
            self.targets[source].append(target)

    def written(self) -> str:
        """The translation with tags."""
        return self.render(Placed(self.pair.segment.root, range(len(self.linked)), 0, len(self.pair.text)))

    def render(self, placed: Placed) -> str:
        """The content of a placed element, with the tags of its children."""
        text, cursor = "", placed.start
        for child in self.place(placed):
            text += self.escape(self.pair.text[cursor : child.start]) + child.element.opening
            text += self.render(child) if child.element.verbatim is None else child.element.verbatim
            text += child.element.closing
            cursor = child.end
        return text + self.escape(self.pair.text[cursor : placed.end])

    def place(self, parent: Placed) -> list[Placed]:
        """Place the children of an element in disjoint intervals of its own, and return them in the target's order."""
        children, free, placed = parent.element.children, set(parent.words), dict[int, Placed]()
        seen = Counter[str]()  # text to copy -> where the next search for it in the translation starts
        for i in sorted(range(len(children)), key=lambda i: children[i].start - children[i].end):  # the longest first
            found = self.copied(children[i], parent, free, seen) or self.by_links(children[i], parent, free)
            if found:
                placed[i] = found
                free -= set(found.words)
        with_words = sorted(placed.values(), key=lambda one: one.start)
        for i, child in enumerate(children):
            if i not in placed:
                at = min(max(self.position(child, parent.words), parent.start), parent.end)
                n_before = bisect_left(with_words, at, key=lambda one: one.start)
                for other in with_words[max(n_before - 1, 0) : n_before]:
                    if at < other.end:
                        at = other.start if at - other.start < other.end - at else other.end
                placed[i] = Placed(child, range(0), at, at)
        return sorted((placed[i] for i in range(len(children))), key=lambda one: (one.start, one.end))

    def copied(self, element: Element, parent: Placed, free: set[int], seen: Counter[str]) -> Placed | None:
        """Place an element that is copied, such as code, where free words of the translation contain its text.

        It may cut a word that is linked to its own, as in l'`option`, or any word if it cuts one in the source.
        """
        source, text, words = self.pair.segment.text, self.pair.text, self.pair.target
        content = source[element.start : element.end]
        if element.verbatim is None or not content.strip():
            return None
        may_cut, own = [not EDGE.match(source, at) for at in (element.start, element.end)], self.source_words(element)
        for found in re.compile(re.escape(content)).finditer(text, max(seen[content], parent.start), parent.end):
            end = seen[content] = found.end()
            first = bisect_right(words, found.start(), key=lambda word: word[1])
            overlapped = range(first, bisect_left(words, end, key=lambda word: word[0]))
            is_cut = any(
                not may and words[i][0] < at < words[i][1] and not any(s in own for s in self.linked[i])
                for at, i, may in zip(found.span(), (first, overlapped[-1]), may_cut, strict=True)
            )
            if not is_cut and free.issuperset(overlapped):
                return Placed(element, overlapped, found.start(), end)
        return None

    def by_links(self, element: Element, parent: Placed, free: set[int]) -> Placed | None:
        """Place an element around the words that are linked to its own; None if there are none."""
        own, around = self.source_words(element), self.source_words(parent.element)
        if own == around and len(free) == len(parent.words):
            interval = parent.words
        else:
            interval = self.best_interval(own, free, only_own=element.verbatim is not None)
        if not interval:
            return None
        if element.verbatim is None:
            interval = self.extended(interval, own, around, parent.words, free)
        return Placed(element, interval, self.pair.target[interval[0]][0], self.pair.target[interval[-1]][1])

    def source_words(self, element: Element) -> range:
        """The indices of an element's words; these are cut at tags, so a word is inside of an element or outside."""
        return indices_between(self.pair.source, element.start, element.end)

    def best_interval(self, own: range, free: set[int], *, only_own: bool) -> range:
        """Return the interval of free target words that maximizes the sum of p(`own` | target word) - 0.5.

        If no p is over 0.5: the best single word that is linked to `own`, or an empty range. With `only_own`, all
        words of the interval are linked to `own` alone.
        """
        targets = [t for s in own for t in self.targets[s]]
        start = min(targets, default=0)
        best, most, total = range(0), -1.0, 0.0
        for t in range(start, max(targets, default=-1) + 1):
            n_own = bisect_left(self.linked[t], own.stop) - bisect_left(self.linked[t], own.start)
            share = sum(share for s, share in self.pair.shares[t].items() if s in own)
            if t in free and (0 < n_own == len(self.linked[t]) or not only_own):
                total += share - 0.5
                if total > most and (n_own or share > 0.5):
                    best, most = range(start, t + 1), total
            else:
                total = -1.0
            if total < 0:
                start, total = t + 1, 0.0
        return best

    def extended(self, interval: range, own: range, inside: range, around: range, free: set[int]) -> range:
        """Extend an interval over unlinked words to the parent's edge, if the element begins or ends there."""
        before, after = range(around.start, interval.start), range(interval.stop, around.stop)
        may_begin = own.start == inside.start and all(t in free and not self.linked[t] for t in before)
        may_end = own.stop == inside.stop and all(t in free and not self.linked[t] for t in after)
        return range(around.start if may_begin else interval.start, around.stop if may_end else interval.stop)

    def position(self, element: Element, around: range) -> int:
        """Where an element goes that has no linked words: to the neighbor that it touches, or before the next word."""
        text, words = self.pair.segment.text, self.pair.target
        n_before = bisect_right(self.pair.source, element.start, key=lambda word: word[1])
        neighbors = (self.targets[i] if 0 <= i < len(self.targets) else [] for i in (n_before - 1, n_before))
        before, after = ([t for t in targets if t in around] for targets in neighbors)
        is_attached = text[: element.start][-1:].strip() and not text[element.end :][:1].strip()
        if before and (is_attached or not after):
            return words[before[-1]][1]
        if after:
            return words[after[0]][0]
        index = round(n_before * len(words) / max(len(self.pair.source), 1))
        return words[index][0] if index < len(words) else len(self.pair.text)
