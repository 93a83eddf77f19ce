"""The search for the places of tags in the translation of a text; see `nmt.translate.tags`.

- An element around words goes around the translations of these words.
- An opaque element goes where the translation has its stand-in, or beside the translation of the word that it touches.
- An edge of an element in a word stays at its character if the word is translated as itself. Otherwise, an element in a
  word goes around the same characters of the translation of the word, or beside it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise

import regex

from nmt.documents.markup import STAND_IN, Element, descendants
from nmt.text.placeholders import SPAN
from nmt.text.spans import Span, indices_between
from nmt.text.words import MARKED_WORD, PLAIN_WORD
from nmt.translate.align import Links, Shares
from nmt.translate.units import Markup, TextHypothesis, Translation

WORD = regex.compile(f"{SPAN.pattern}|{MARKED_WORD}")  # a placeholder is one word, so that no tag is put inside of it
BARE_WORD = regex.compile(PLAIN_WORD)
# An element is placed around target words whose probability of belonging to it is, on the whole, above this.
OUTSIDE = 0.4
RAISED = regex.compile(r"<su[bp]\b|vertAlign|\bbaseline=")  # an opening tag of raised or lowered text
MAX_WORD = 100  # number of characters; a longer word is none, and a search in it for each of its elements takes long


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
        # A placeholder of several sentences, such as `<a b. C>`, is cut between them, as they are aligned one by one.
        self.whole_words = cut_spans(word_spans(self.source), chain.from_iterable(translation.sentences))
        self.source_words = cut_spans(self.whole_words, edges)  # no word is partly in an element
        # For each source word, the number of the innermost element that contains it; 0 for words without an element.
        self.groups = [0] * len(self.source_words)
        for number, element in enumerate(descendants(markup.root), 1):
            for word in indices_between(self.source_words, element.start, element.end):
                self.groups[word] = number
        self.target_words = cut_spans(word_spans(self.target), chain.from_iterable(hypothesis.sentences))
        self.links: Links = []
        self.shares: list[Shares] = [{} for _ in self.target_words]


def linked_targets(pair: TaggedPair) -> list[list[int]]:
    """Return the linked target words of each source word, in ascending order."""
    targets: list[list[int]] = [[] for _ in pair.source_words]
    for source, target in sorted(pair.links):
        targets[source].append(target)
    return targets


def cut_equal_words(pair: TaggedPair) -> set[int]:
    """Cut each target word like the source word that it is linked to and equal to, and link their parts one to one.

    So the edges of elements in such words need no rule of their own. Returns the source words that are such parts.
    """
    # 1. For each source word that contains the edge of an element, find an equal word among its linked target words.
    targets = linked_targets(pair)
    parts_of: dict[int, range] = {}  # indices of source words, by the target word that is cut
    cuts: list[int] = []  # positions in the target
    for start, end in pair.whole_words:
        parts = indices_between(pair.source_words, start, end)
        if len(parts) < 2:
            continue
        for t in chain.from_iterable(targets[s] for s in parts):
            target_start, target_end = pair.target_words[t]
            if t not in parts_of and pair.target[target_start:target_end] == pair.source[start:end]:
                parts_of[t] = parts
                cuts += [pair.source_words[s][0] + target_start - start for s in parts]
                break
    # 2. Cut these target words, and number all target words anew.
    kept_parts = set(chain.from_iterable(parts_of.values()))
    numbers: list[int] = []  # the new number of each target word
    shares: list[Shares] = []
    links: Links = []
    for t, share in enumerate(pair.shares):
        numbers.append(len(shares))
        if t not in parts_of:
            shares.append(share)
            continue
        for s in parts_of[t]:
            links.append((s, len(shares)))
            shares.append({s: 1.0})
    links += [(s, numbers[t]) for s, t in pair.links if s not in kept_parts and t not in parts_of]
    pair.target_words, pair.shares, pair.links = cut_spans(pair.target_words, cuts), shares, links
    return kept_parts


def word_spans(text: str) -> list[Span]:
    """Return the span of each word and punctuation mark."""
    return [match.span() for match in WORD.finditer(text)]


def cut_spans(spans: Iterable[Span], cuts: Iterable[int]) -> list[Span]:
    """Cut spans at positions that are strictly inside of them."""
    edges = sorted(set(cuts))
    parts: list[Span] = []
    for start, end in spans:
        inside = edges[bisect_right(edges, start) : bisect_left(edges, end)]
        parts += pairwise([start, *inside, end])
    return parts


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
        self.kept_parts = cut_equal_words(pair)
        self.link_stand_ins()
        self.linked_targets = linked_targets(pair)
        self.bare_words = [match.span() for match in BARE_WORD.finditer(pair.source)]

    def link_stand_ins(self) -> None:
        """Link each stand-in to itself."""
        pair = self.pair
        targets = {pair.target[start:end]: t for t, (start, end) in enumerate(pair.target_words)}
        for s, (start, end) in enumerate(pair.source_words):
            word = pair.source[start:end]
            if word in targets and STAND_IN.match(word):
                # The share is so large that the interval of each element around the source word contains the target.
                pair.links.append((s, targets[word]))
                pair.shares[targets[word]] = {s: float(len(targets))}

    def written(self) -> str:
        """Return the translation with tags."""
        all_words = range(len(self.pair.target_words))
        return self.render(PlacedElement(self.pair.markup.root, all_words, 0, len(self.pair.target)))

    def render(self, placed: PlacedElement) -> str:
        """Return the content of a placed element, with the tags of its children."""
        # The text between the children is escaped. The tags of the children are markup already.
        text, cursor = "", placed.start
        for child in self.place_children(placed):
            text += self.escaped(cursor, child.start)
            content = self.render(child) if child.element.verbatim is None else child.element.verbatim
            written = child.element.opening + content + child.element.closing
            # A space before an element at the end of a text belongs behind it if a word follows now.
            if child.start == child.end and written.startswith(" ") and BARE_WORD.match(self.pair.target, child.end):
                written = written[1:] + " "
            text += written
            cursor = child.end
        return text + self.escaped(cursor, placed.end)

    def escaped(self, start: int, end: int) -> str:
        """Return target text as markup, without stand-ins whose elements are elsewhere."""
        return self.pair.markup.escape(STAND_IN.sub("", self.pair.target[start:end]))

    def place_children(self, parent: PlacedElement) -> list[PlacedElement]:
        """Place the children of an element in disjoint intervals of the element's words.

        Returns the children in the order of the target.
        """
        children = parent.element.children
        free = set(parent.words)  # target words that no child has yet
        taken = set[int]()  # the positions of characters of children whose characters stay the same
        placed: dict[int, PlacedElement] = {}  # by the index of the child
        # 1. Place the children whose characters stay the same. Then place the other children that get words, the
        # longest child first, because its interval needs many adjacent free words.
        for i, child in enumerate(children):
            place = self.at_same_characters(child, parent, taken)
            if place:
                placed[i] = place
                free -= set(place.words)
                taken.update(range(place.start, place.end))
        longest_first = sorted(range(len(children)), key=lambda i: children[i].start - children[i].end)
        for i in longest_first:
            place = None if i in placed else self.by_links(children[i], parent, free)
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

    def at_same_characters(self, element: Element, parent: PlacedElement, taken: set[int]) -> PlacedElement | None:
        """Place an opaque element at its stand-in, or an element in a word at its characters in a linked target word.

        Returns None for other elements, or if there is no such place.
        """
        content = self.pair.source[element.start : element.end]
        word = self.word_of(element)
        if STAND_IN.fullmatch(content):
            spans = [(parent.start, parent.end)]
        elif word:
            # As many characters of the word are before the element as in the source, or more.
            words = [self.pair.target_words[t] for t in self.targets_of(word)]
            spans = [(start + element.start - word[0], end) for start, end in words]
        else:
            return None
        for start, end in spans:
            at = self.pair.target.find(content, max(start, parent.start), min(end, parent.end))
            span = (at, at + len(content))
            if at >= 0 and taken.isdisjoint(range(*span)):
                n_before = bisect_right(self.pair.target_words, at, key=lambda word: word[0])
                return PlacedElement(element, range(n_before - 1, n_before), *span)
        return None

    def word_of(self, element: Element) -> Span | None:
        """Return the span of the source word in which an element is.

        Returns None if the element has the whole word, or if the word has been cut like its translation.
        """
        if not self.kept_parts.isdisjoint(self.source_words(element)):
            return None
        n_begun = bisect_right(self.bare_words, element.start, key=lambda word: word[0])
        start, end = self.bare_words[n_begun - 1] if n_begun else (0, 0)
        n_characters = element.end - element.start
        return (start, end) if element.end <= end and 0 < n_characters < end - start <= MAX_WORD else None

    def is_small_part(self, element: Element) -> bool:
        """Return whether an element is in a word, and does not stand for the word.

        A part of at least half of the word stands for it, because the rest is often an ending that the translation does
        not have. This does not apply to raised and lowered text, as in `1<sup>er</sup>`.
        """
        word = self.word_of(element)
        if not word:
            return False
        n_characters = element.end - element.start
        return 2 * n_characters < word[1] - word[0] or RAISED.search(element.opening) is not None

    def targets_of(self, source_span: Span) -> list[int]:
        """Return the target words that are linked to the source words within a span."""
        targets: set[int] = set()
        for s in indices_between(self.pair.source_words, *source_span):
            targets.update(self.linked_targets[s])
        return sorted(targets)

    def by_links(self, element: Element, parent: PlacedElement, free: set[int]) -> PlacedElement | None:
        """Place an element around the target words that are linked to its source words.

        Returns None if there are no such target words, or if the element is only a part of a source word.
        """
        if self.is_small_part(element):
            return None
        # 1. Choose the words. An element with all source words of its parent gets all target words of the parent, if
        # they are free.
        own_words = self.source_words(element)
        parent_words = self.source_words(parent.element)
        if own_words == parent_words and len(free) == len(parent.words):
            interval = parent.words
        else:
            interval = self.best_interval(own_words, free)
        if not interval:
            return None
        # 2. Convert the interval of words to an interval of characters.
        start, _ = self.pair.target_words[interval[0]]
        _, end = self.pair.target_words[interval[-1]]
        return PlacedElement(element, interval, start, end)

    def source_words(self, element: Element) -> range:
        """Return the indices of the source words of an element. No word is partly in it, as words are split at tags."""
        return indices_between(self.pair.source_words, element.start, element.end)

    def best_interval(self, own_words: range, free: set[int]) -> range:
        """Return the interval of free target words with the largest sum of p(`own_words` | target word) - `OUTSIDE`.

        It begins and ends between the first and the last link of `own_words`. Without links, it is empty.
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
            # Words of other elements end an interval.
            total = total + self.share_of(own_words, t) - OUTSIDE if t in free else -1.0
            if total > best_total:
                best, best_total = range(start, t + 1), total
            if total < 0:
                start, total = t + 1, 0.0
        return best

    def share_of(self, own_words: range, target_word: int) -> float:
        """Return the probability that a target word translates one of the source words `own_words`."""
        return sum(share for s, share in self.pair.shares[target_word].items() if s in own_words)

    def position(self, element: Element, words: range) -> int:
        """Return the target position of an element without linked words. `words` are the target words of its parent.

        The element goes before the translation of the next word. If it touches only the word before, it goes after the
        translation of that word, and so does a mark that touches both.
        """
        # 1. Find the target words of the source words around the element.
        n_before = bisect_right(self.pair.source_words, element.start, key=lambda word: word[1])
        n_until = bisect_left(self.pair.source_words, element.end, key=lambda word: word[0])
        before = self.targets_in(n_before - 1, words)
        after = self.targets_in(n_until, words)
        # 2. Put the element beside the translation of one of them. The word before is chosen if the element touches
        # this word, or if the next word has no links.
        touches_before = self.pair.source[element.start - 1 : element.start].strip()
        touches_after = self.pair.source[element.end : element.end + 1].strip()
        is_in_word = BARE_WORD.fullmatch(touches_before + touches_after)
        is_mark = not is_in_word and (element.verbatim is not None or not element.opening)
        is_attached = touches_before and (is_mark or not touches_after)
        if before and (is_attached or not after):
            return self.pair.target_words[before[-1]][1]
        # 3. Otherwise, put it before the translation of the next word, so that it touches the word before if it did in
        # the source. If the neighbors have no links, put it at the same relative position as in the source.
        n_words = len(self.pair.target_words)
        index = after[0] if after else round(n_before * n_words / max(len(self.pair.source_words), 1))
        if is_attached and index > 0:
            return self.pair.target_words[index - 1][1]
        return self.pair.target_words[index][0] if index < n_words else len(self.pair.target)

    def targets_in(self, source_word: int, words: range) -> list[int]:
        """Return the words in `words` that are linked to a source word. If its index is out of range, return []."""
        if not 0 <= source_word < len(self.linked_targets):
            return []
        return [t for t in self.linked_targets[source_word] if t in words]
