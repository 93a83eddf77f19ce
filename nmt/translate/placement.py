"""The search for the places of tags in the translation of a text; see `nmt.translate.tags`."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import regex

from nmt.documents.markup import Element, descendants
from nmt.text.placeholders import SPAN
from nmt.text.spans import Span, indices_between
from nmt.text.words import MARKED_WORD, WORD_EDGE
from nmt.translate.align import Links, Shares
from nmt.translate.units import Markup, TextHypothesis, Translation

WORD = regex.compile(f"{SPAN.pattern}|{MARKED_WORD}")  # a placeholder is one word, so that no tag is put inside of it
EDGE = regex.compile(WORD_EDGE)


class TaggedPair:
    """A unit with markup, and one of its hypotheses. `nmt.translate.tags` sets the links and shares."""

    def __init__(self, markup: Markup, translation: Translation, hypothesis: TextHypothesis) -> None:
        self.markup = markup
        self.source = translation.source
        self.target = hypothesis.text  # the text without tags
        self.hypothesis = hypothesis
        self.sentences = list(zip(translation.sentences, hypothesis.sentences, strict=True))
        edges = []
        for element in descendants(markup.root):
            edges += [element.start, element.end]
        self.source_words = word_spans(self.source, edges)
        # For each source word, the number of the innermost element that contains it; 0 for words without an element.
        self.groups = [0] * len(self.source_words)
        for number, element in enumerate(descendants(markup.root), 1):
            for word in indices_between(self.source_words, element.start, element.end):
                self.groups[word] = number
        self.target_words = word_spans(self.target)
        self.links: Links = []
        self.shares: list[Shares] = [{} for _ in self.target_words]


def word_spans(text: str, cuts: Iterable[int] = ()) -> list[Span]:
    """Return the span of each word and punctuation mark. A word is split at the positions in `cuts`."""
    edges = sorted(set(cuts))
    spans: list[Span] = []
    for match in WORD.finditer(text):
        start, end = match.span()
        # Split only at positions that are strictly inside of the word.
        inside = edges[bisect_right(edges, start) : bisect_left(edges, end)]
        spans += pairwise([start, *inside, end])
    return spans


@dataclass
class PlacedElement:
    """An element and its place in the translation."""

    element: Element
    words: range  # indices of target words
    start: int  # the span of these words in the target text
    end: int

    def nearer_edge(self, at: int) -> int:
        """Move a position that is inside of the element to the nearer edge."""
        if at >= self.end:
            return at
        return self.start if at - self.start < self.end - at else self.end


class Placement:
    """A writer of tags, which finds the target words of each element of a pair."""

    def __init__(self, pair: TaggedPair) -> None:
        self.pair = pair
        self.linked_sources: list[list[int]] = [[] for _ in pair.target_words]  # for each target word
        self.linked_targets: list[list[int]] = [[] for _ in pair.source_words]  # for each source word
        for source, target in sorted(pair.links):
            self.linked_sources[target].append(source)
            self.linked_targets[source].append(target)

    def written(self) -> str:
        """Return the translation with tags."""
        all_words = range(len(self.pair.target_words))
        return self.render(PlacedElement(self.pair.markup.root, all_words, 0, len(self.pair.target)))

    def render(self, placed: PlacedElement) -> str:
        """Return the content of a placed element, with the tags of its children."""
        escape = self.pair.markup.escape
        # The text between the children is escaped. The tags of the children are markup already.
        text, cursor = "", placed.start
        for child in self.place_children(placed):
            text += escape(self.pair.target[cursor : child.start])
            text += child.element.opening
            text += self.render(child) if child.element.verbatim is None else child.element.verbatim
            text += child.element.closing
            cursor = child.end
        return text + escape(self.pair.target[cursor : placed.end])

    def place_children(self, parent: PlacedElement) -> list[PlacedElement]:
        """Place the children of an element in disjoint intervals of the element's words.

        Returns the children in the order of the target.
        """
        children = parent.element.children
        free = set(parent.words)  # target words that no child has yet
        placed: dict[int, PlacedElement] = {}  # by the index of the child
        # 1. Place the children that get words, the longest child first.
        search_from = Counter[str]()  # text to copy -> where the next search for it in the translation starts
        # Long children come first, because their intervals need many adjacent free words.
        longest_first = sorted(range(len(children)), key=lambda i: children[i].start - children[i].end)
        for i in longest_first:
            place = self.copied(children[i], parent, free, search_from)
            if place is None:
                place = self.by_links(children[i], parent, free)
            if place:
                placed[i] = place
                free -= set(place.words)
        # 2. Place the children without words between the children that have words.
        with_words = sorted(placed.values(), key=lambda place: place.start)
        for i, child in enumerate(children):
            if i in placed:
                continue
            at = self.position(child, parent.words)
            at = min(max(at, parent.start), parent.end)
            # If the position is inside of another child, move it to the nearer edge of this child.
            n_before = bisect_left(with_words, at, key=lambda place: place.start)
            if n_before:
                at = with_words[n_before - 1].nearer_edge(at)
            placed[i] = PlacedElement(child, range(0), at, at)
        # The sort is stable, so children at the same position stay in the order of the source.
        in_source_order = [placed[i] for i in range(len(children))]
        return sorted(in_source_order, key=lambda place: (place.start, place.end))

    def copied(
        self, element: Element, parent: PlacedElement, free: set[int], search_from: Counter[str]
    ) -> PlacedElement | None:
        """Place a copied element, such as code, where the translation contains its text.

        Returns None if there is no such place, or if its words are not free.
        """
        # The text of any other element is translated, so it is not searched for.
        content = self.pair.source[element.start : element.end]
        if element.verbatim is None or not content.strip():
            return None
        # Equal elements are found one after the other, from left to right.
        start = self.pair.target.find(content, max(search_from[content], parent.start), parent.end)
        while start >= 0:
            end = start + len(content)
            search_from[content] = end
            # The found text must not overlap another element. `cuts_a_word` tells which words it may split.
            words = self.overlapped_words((start, end))
            if free.issuperset(words) and not self.cuts_a_word(element, (start, end), words):
                return PlacedElement(element, words, start, end)
            start = self.pair.target.find(content, end, parent.end)
        return None

    def overlapped_words(self, span: Span) -> range:
        """Return the indices of the target words that a span overlaps."""
        start, end = span
        first = bisect_right(self.pair.target_words, start, key=lambda word: word[1])
        return range(first, bisect_left(self.pair.target_words, end, key=lambda word: word[0]))

    def cuts_a_word(self, element: Element, span: Span, words: range) -> bool:
        """Return whether a copied element at this target span splits a word that it may not split.

        A split is allowed in two cases: the word is linked to the element, as in l'`option`, or the same edge of the
        element splits a word in the source.
        """
        start, end = span
        first, last = words[0], words[-1]
        return self.cuts_at(element, element.start, start, first) or self.cuts_at(element, element.end, end, last)

    def cuts_at(self, element: Element, source_edge: int, target_edge: int, word: int) -> bool:
        """Return the result of `cuts_a_word` for one edge of the element."""
        start, end = self.pair.target_words[word]
        if not start < target_edge < end:
            return False
        # The edge may split the word in these two cases.
        cuts_in_source = not EDGE.match(self.pair.source, source_edge)
        own_words = self.source_words(element)
        is_own = any(s in own_words for s in self.linked_sources[word])
        return not cuts_in_source and not is_own

    def by_links(self, element: Element, parent: PlacedElement, free: set[int]) -> PlacedElement | None:
        """Place an element around the target words that are linked to its source words.

        Returns None if there are no such target words.
        """
        # 1. Choose the words. An element with all source words of its parent gets all target words of the parent, if
        # they are free.
        own_words = self.source_words(element)
        parent_words = self.source_words(parent.element)
        if own_words == parent_words and len(free) == len(parent.words):
            interval = parent.words
        else:
            interval = self.best_interval(own_words, free, only_own=element.verbatim is not None)
        if not interval:
            return None
        # 2. Convert the interval of words to an interval of characters.
        start, _ = self.pair.target_words[interval[0]]
        _, end = self.pair.target_words[interval[-1]]
        return PlacedElement(element, interval, start, end)

    def source_words(self, element: Element) -> range:
        """Return the indices of the source words of an element. No word is partly in it, as words are split at tags."""
        return indices_between(self.pair.source_words, element.start, element.end)

    def best_interval(self, own_words: range, free: set[int], *, only_own: bool) -> range:
        """Return the interval of free target words with the largest sum of p(`own_words` | target word) - 0.5.

        If no probability is over 0.5, return the best single word with a link to `own_words`, or an empty range.
        `only_own` excludes words that have no links, or links to other words.
        """
        targets: list[int] = []
        for s in own_words:
            targets += self.linked_targets[s]
        if not targets:
            return range(0)
        # Find the interval with the largest sum in one pass (Kadane): if a sum is below 0, a new interval begins.
        start = min(targets)
        best, best_total, total = range(0), -1.0, 0.0
        for t in range(start, max(targets) + 1):
            # The word belongs to the element if all of its links are to words of the element.
            sources = self.linked_sources[t]
            n_own = bisect_left(sources, own_words.stop) - bisect_left(sources, own_words.start)
            is_own = n_own > 0 and n_own == len(sources)
            share = self.share_of(own_words, t)
            # Words of other elements end an interval.
            if t in free and (is_own or not only_own):
                total += share - 0.5
                if total > best_total and (n_own or share > 0.5):
                    best, best_total = range(start, t + 1), total
            else:
                total = -1.0
            if total < 0:
                start, total = t + 1, 0.0
        return best

    def share_of(self, own_words: range, target_word: int) -> float:
        """Return p(`own_words` | target word). The loop is over words or shares, whichever are fewer."""
        shares = self.pair.shares[target_word]
        if len(own_words) < len(shares):
            return sum(shares.get(s, 0.0) for s in own_words)
        return sum(share for s, share in shares.items() if s in own_words)

    def position(self, element: Element, words: range) -> int:
        """Return the target position of an element without linked words. `words` are the target words of its parent.

        The element goes before the translation of the next word. If it touches only the word before, it goes after the
        translation of that word.
        """
        # 1. Find the target words of the source words around the element.
        n_before = bisect_right(self.pair.source_words, element.start, key=lambda word: word[1])
        before = self.targets_in(n_before - 1, words)
        after = self.targets_in(n_before, words)
        # 2. Put the element beside the translation of one of them. The word before is chosen if the element touches
        # only this word, or if the next word has no links.
        character_before = self.pair.source[: element.start][-1:]
        character_after = self.pair.source[element.end :][:1]
        is_attached = character_before.strip() and not character_after.strip()
        if before and (is_attached or not after):
            return self.pair.target_words[before[-1]][1]
        if after:
            return self.pair.target_words[after[0]][0]
        # 3. If the neighbors have no links, put the element at the same relative position as in the source.
        n_words = len(self.pair.target_words)
        index = round(n_before * n_words / max(len(self.pair.source_words), 1))
        return self.pair.target_words[index][0] if index < n_words else len(self.pair.target)

    def targets_in(self, source_word: int, words: range) -> list[int]:
        """Return the words in `words` that are linked to a source word. If its index is out of range, return []."""
        if not 0 <= source_word < len(self.linked_targets):
            return []
        return [t for t in self.linked_targets[source_word] if t in words]
