"""What passes through the steps of a translation: units of text, and on the way back their translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nmt.decode.options import Hypothesis, SearchOptions
from nmt.documents.markup import Element
from nmt.text.spans import Span


class Markup(NamedTuple):
    """The tags of a unit."""

    root: Element  # without tags; contains all elements of the unit
    escape: Callable[[str], str]  # from translated text to markup


# Dataclasses that are created for every line are not frozen: creating a frozen one takes three times as long.
@dataclass
class Unit:
    """A text to translate: a line, a paragraph of a document, or after the step `Sentences` a sentence."""

    number: int  # of its line, from 1; names the unit in messages
    text: str
    prefix: Sequence[int] = ()  # target tokens that its translation begins with
    index: int = 0  # of the unit within its line, which in markup may have several
    sentence: int = 0  # index of a sentence within its unit, set by the step `Sentences`
    markup: Markup | None = None


@dataclass
class TextHypothesis(Hypothesis):
    """A hypothesis with its pieces and its text; the tokens of each search request in it end in EOS."""

    pieces: list[str]  # empty without `SearchOptions.scores`
    text: str
    sentences: list[Span] = field(default_factory=list, kw_only=True)  # in `text`, before tags are written


@dataclass
class Translation:
    """A unit's text and its hypotheses, best first; a blank unit has one blank hypothesis."""

    source: str
    hypotheses: list[TextHypothesis]
    number: int = 0  # of the line, from 1; 0 if it is not known
    source_tokens: list[list[int]] = field(default_factory=list)  # of each search request, without EOS
    sentences: list[Span] = field(default_factory=list)  # in `source`
    sentence_pairs: list[tuple[str, str]] = field(default_factory=list)  # with their best translations, without tags

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def is_cut(self) -> bool:
        """Whether the translation reached the length limit before the model ended it."""
        return bool(self.hypotheses) and self.hypotheses[0].is_cut


class Step:
    """A step of a translation. It changes units before the search, and undoes that in their translations.

    A step object serves one search: between `prepare` and `restore`, it remembers what it did to each unit.
    """

    def prepare(self, units: list[Unit]) -> list[Unit]:
        """Return the units that the next step gets."""
        return units

    def restore(self, translations: list[Translation]) -> list[Translation]:
        """Return the translations of the units that `prepare` was given, from those of the units that it returned."""
        return translations

    def preview(self, texts: list[str]) -> list[str]:
        """Like `restore`, for the texts of the best hypotheses of a search that still runs."""
        return texts


def joined(n_bests: Sequence[Sequence[TextHypothesis]], options: SearchOptions, joiner: str) -> list[TextHypothesis]:
    """Join the n-best lists of the parts of a text: the best hypotheses of all parts, then the second best, and so on.

    A part with fewer hypotheses repeats its last one. The length penalty applies to the log-probability of the whole
    text. `joiner` stands between the texts of two parts.
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
            if whole.text and part.text:
                whole.text += joiner
            start = len(whole.text)
            whole.text += part.text
            whole.sentences.append((start, len(whole.text)))
            whole.tokens += part.tokens
            whole.log_probs += part.log_probs
            whole.pieces += part.pieces
            whole.is_cut |= part.is_cut
        if whole.tokens:  # else all parts are blank
            whole.score = whole.log_prob / options.length_divisor(len(whole.tokens))
        hypotheses.append(whole)
    return hypotheses
