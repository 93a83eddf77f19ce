"""Step: tags are taken out of a text, and put around the words that the tagged ones became.

    text with a tree of elements -> translation, with word alignments of its sentences
    -> an interval of target words for each element -> translation with tags

Every tag of the source is written once. An element gets the one interval of target words that has the most words linked
to its own, and the fewest linked to others (compare Zenkel et al. 2021, "Automatic bilingual markup transfer"). Which
text is a tag, the readers of `nmt.documents` know.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.decode.options import Engine
from nmt.documents.markup import between_segments
from nmt.text.spans import Span, indices_between
from nmt.text.tokenizer import Tokenizers
from nmt.text.words import WordText
from nmt.translate.align import align_for_markup
from nmt.translate.placement import Placement, TaggedPair
from nmt.translate.units import Step, Translation, Unit

PLACED = 64  # units whose tags are placed together, because their alignments share batches


class Tags(Step):
    """Writes the tags of units into their translations, and escapes what a format writes as markup."""

    def __init__(self, engine: Engine, tokenizers: Tokenizers) -> None:
        """`engine` and `tokenizers` align words."""
        self.engine = engine
        self.tokenizers = tokenizers
        self.units: list[Unit] = []

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        return units

    def restore(self, translations: list[Translation]) -> list[Translation]:
        # 1. A pair for every hypothesis of a unit with markup.
        tagged = []
        for unit, translation in zip(self.units, translations, strict=True):
            if unit.markup:
                for hypothesis in translation.hypotheses:
                    tagged.append(TaggedPair(unit.markup, translation, hypothesis))
        # 2. Align the words of those that have tags, and write the tags. Alignment takes most of the time.
        for start in range(0, len(tagged), PLACED):
            pairs = tagged[start : start + PLACED]
            with_tags = [pair for pair in pairs if pair.markup.root.children]
            align_words(self.engine, self.tokenizers, with_tags)
            for pair in pairs:
                pair.hypothesis.text = Placement(pair).written()
                # A server lets other requests have their turn here.
                between_segments.get()()
        return translations


@dataclass
class SentenceWords:
    """The words of one sentence of a pair."""

    words: WordText
    first: int  # index of the first of them among the words of the whole text


def align_words(engine: Engine, tokenizers: Tokenizers, pairs: Sequence[TaggedPair]) -> None:
    """Set the links and shares of each pair, whose words are aligned sentence by sentence."""
    # 1. Cut the pairs into sentences, which the model aligns best.
    owners: list[TaggedPair] = []
    sentences: list[tuple[SentenceWords, SentenceWords]] = []
    for pair in pairs:
        for source_span, target_span in pair.sentences:
            owners.append(pair)
            source = within(pair.source, pair.source_words, source_span)
            target = within(pair.target, pair.target_words, target_span)
            sentences.append((source, target))
    # 2. Align the sentences of all pairs together.
    words = [(source.words, target.words) for source, target in sentences]
    alignments = align_for_markup(engine, tokenizers, words)
    # 3. Put the alignments of sentences together. The indices of words are those in the whole text from here on.
    for pair, (source, target), alignment in zip(owners, sentences, alignments, strict=True):
        for s, t in alignment.links:
            pair.links.append((source.first + s, target.first + t))
        for t, shares in enumerate(alignment.shares, target.first):
            pair.shares[t] = {source.first + s: share for s, share in shares.items()}


def within(text: str, words: Sequence[Span], sentence: Span) -> SentenceWords:
    """Return the words of a text that lie in a sentence."""
    start, end = sentence
    indices = indices_between(words, start, end)
    spans = []
    # Spans in the sentence, not in the whole text.
    for i in indices:
        word_start, word_end = words[i]
        spans.append((word_start - start, word_end - start))
    return SentenceWords(WordText(text[start:end], spans), indices.start)
