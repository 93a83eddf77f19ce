"""The units of text to translate, their translations, and the base class of the steps of a translation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from nmt.decode.options import Hypothesis, SearchOptions
from nmt.documents.markup import Element, Match
from nmt.text.sentences import join_sentences
from nmt.text.spans import Span

Item = TypeVar("Item")


class Markup(NamedTuple):
    """The tags of a unit."""

    root: Element  # an element without tags that contains all elements of the unit
    escape: Callable[[str], str]  # a function that converts translated text to markup


# These dataclasses are created for every line. They are not frozen, because creating a frozen one takes three times
# as long.
@dataclass(slots=True)
class Unit:
    """A text to translate: a line or a paragraph of a document. After the step `Sentences`, a unit is a sentence."""

    number: int  # the number of the unit's line, from 1, for messages and random seeds
    text: str
    prefix: Sequence[int] = ()  # target tokens that the translation must begin with
    index: int = 0  # index of the unit in its line; only a line of markup has several units
    sentence: int = 0  # index of the sentence in its text; the step `Sentences` sets it
    markup: Markup | None = None
    context: str = ""  # see `Segment`; only matches with translation memories depend on it


@dataclass
class TextHypothesis(Hypothesis):
    """A hypothesis with its pieces and its text. If the text was translated in several search
    requests, `tokens` has an EOS at the end of each request.
    """

    pieces: list[str]  # empty without `SearchOptions.scores`
    text: str
    sentences: list[Span] = field(default_factory=list, kw_only=True)  # spans in `text` without tags


@dataclass
class Translation:
    """The text of a unit and its hypotheses, the best first. A blank unit has one blank hypothesis."""

    source: str
    hypotheses: list[TextHypothesis]
    number: int = 0  # the number of the line, from 1; 0 if the number is not known
    sentences: list[Span] = field(default_factory=list)  # spans in `source`
    # The sentences with their best translations, without tags. Of a line of markup, its units.
    parts: list["Translation"] = field(default_factory=list)
    confidence: float | None = None  # 0-1; None if it is not known
    doubts: list[str] | None = None  # why a person has to check the best hypothesis; None if this is not known
    matches: list[Match] = field(default_factory=list)  # the best match in translation memories, if there is one

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    def hypothesis(self, rank: int) -> TextHypothesis:
        """Return the hypothesis at this rank, or else the last one. The best one has rank 0."""
        return self.hypotheses[min(rank, len(self.hypotheses) - 1)]

    @property
    def is_cut(self) -> bool:
        """Whether the best hypothesis reached the length limit before the model ended the translation."""
        return self.hypotheses[0].is_cut


class Step:
    """A step of a translation, which changes units before the search, and undoes the changes in the translations.

    A step object is used for only one search: `prepare` stores data about each unit that `restore` needs.
    """

    def prepare(self, units: list[Unit]) -> list[Unit]:
        """Return the changed units. The next step gets these units."""
        return units

    def restore(self, translations: list[Translation]) -> list[Translation]:
        """Undo the changes of `prepare`.

        Turns translations of the changed units into translations of the units that `prepare` was given.
        """
        return translations

    def preview(self, texts: list[str]) -> list[str]:
        """Undo this step in partial translations, one for each unit."""
        return texts


def grouped(items: Iterable[Item], sizes: Iterable[int]) -> list[list[Item]]:
    """Split items into consecutive groups of the given sizes."""
    rest = iter(items)
    return [list(islice(rest, size)) for size in sizes]


def joined(n_bests: Sequence[Sequence[TextHypothesis]], options: SearchOptions) -> list[TextHypothesis]:
    """Join the n-best lists of the parts of a text to one n-best list of the text.

    Hypotheses of the same rank are joined. If a part has too few hypotheses, its last one is repeated. Scores have the
    length penalty of the whole text.
    """
    if len(n_bests) == 1:
        for hypothesis in n_bests[0]:
            hypothesis.sentences = [(0, len(hypothesis.text))]
        return list(n_bests[0])
    hypotheses = []
    for rank in range(max(len(n_best) for n_best in n_bests)):
        whole = TextHypothesis([], [], 0.0, [], "")
        for n_best in n_bests:
            part = n_best[min(rank, len(n_best) - 1)]
            whole.text = join_sentences([whole.text, part.text])
            whole.sentences.append((len(whole.text) - len(part.text), len(whole.text)))
            whole.tokens += part.tokens
            whole.log_probs += part.log_probs
            whole.pieces += part.pieces
            whole.is_cut |= part.is_cut
            whole.attention |= part.attention
        if whole.tokens:  # false if all parts are blank
            whole.score = whole.log_prob / options.length_divisor(len(whole.tokens))
        hypotheses.append(whole)
    return hypotheses
