"""The step that writes the tags of a text into its translation, around the translations of the tagged words.

    text with a tree of elements -> translation, with word alignments of its sentences
    -> an interval of target words for each element -> translation with tags

Every tag of the source is written exactly once. An element gets the interval of target words that best fits its word
alignment (compare Zenkel et al. 2021, "Automatic bilingual markup transfer"). The parsers of `nmt.documents` find the
tags of a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.decode.options import Attention, Engine
from nmt.documents.markup import STAND_IN, between_segments, shown_by_stand_in
from nmt.text.spans import Span, indices_between
from nmt.text.tokenizer import Tokenizers
from nmt.text.words import WordText
from nmt.translate.align import align_for_markup, links, shares_of_words
from nmt.translate.placement import Placement, TaggedPair
from nmt.translate.units import Step, Translation, Unit

PLACED = 64  # number of hypotheses that are aligned together, so that their alignments share batches


class Tags(Step):
    """The step that writes the tags of units into their translations, and escapes the text between the tags."""

    def __init__(self, engine: Engine, tokenizers: Tokenizers) -> None:
        """Set up the step with the engine and the tokenizers that align words."""
        self.engine = engine
        self.tokenizers = tokenizers
        self.units: list[Unit] = []

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        return units

    def restore(self, translations: list[Translation]) -> list[Translation]:
        # 1. Pair every hypothesis with the markup of its unit, if the unit has markup. Then, in the plain texts, write
        # what a reader sees instead of stand-ins.
        tagged = []
        for unit, translation in zip(self.units, translations, strict=True):
            if unit.markup:
                for hypothesis in translation.hypotheses:
                    tagged.append(TaggedPair(unit.markup, translation, hypothesis))
                show_opaque(translation, shown_by_stand_in(unit.markup.root, unit.text))
        # 2. Align the words of the pairs that have tags, and write the tags. Alignment takes most of the time.
        for start in range(0, len(tagged), PLACED):
            pairs = tagged[start : start + PLACED]
            with_tags = [pair for pair in pairs if pair.markup.root.children]
            align_words(self.engine, self.tokenizers, with_tags)
            for pair in pairs:
                pair.hypothesis.text = Placement(pair).written()
                # Here, a server can process other requests first.
                between_segments.get()()
        return translations


def show_opaque(translation: Translation, shown: dict[int, str]) -> None:
    """Replace the stand-ins in the source of a translation, and in its sentences and their translations."""
    translation.source = translation.source.translate(shown)
    for sentence in translation.parts:
        sentence.source = sentence.source.translate(shown)
        sentence.hypotheses[0].text = sentence.text.translate(shown)


@dataclass
class SentenceWords:
    """The words of one sentence of a text."""

    words: WordText
    indices: list[int]  # indices of these words among the words of the whole text


def align_words(engine: Engine, tokenizers: Tokenizers, pairs: Sequence[TaggedPair]) -> None:
    """Align the words of each pair sentence by sentence, and set the links and shares of the pair."""
    # 1. Split the pairs into sentences, because the model aligns single sentences best.
    sentences: list[tuple[TaggedPair, SentenceWords, SentenceWords]] = []
    groups: list[list[int]] = []  # of the source words of each sentence
    known: Attention = {}
    for pair in pairs:
        known |= pair.hypothesis.attention
        for source_span, target_span in pair.sentences:
            source = within(pair.source, pair.source_words, source_span)
            target = within(pair.target, pair.target_words, target_span)
            sentences.append((pair, source, target))
            groups.append([pair.groups[i] for i in source.indices])
    # 2. Align the sentences of all pairs together.
    words = [(source.words, target.words) for _, source, target in sentences]
    scores = align_for_markup(engine, tokenizers, words, groups, known)
    # 3. Join the alignments of each pair's sentences. Words are counted in the whole text.
    for (pair, source, target), matrix in zip(sentences, scores, strict=True):
        for s, t in links(matrix):
            pair.links.append((source.indices[s], target.indices[t]))
        for t, shares in zip(target.indices, shares_of_words(matrix), strict=False):
            pair.shares[t] = {source.indices[s]: share for s, share in shares.items()}


def within(text: str, words: Sequence[Span], sentence: Span) -> SentenceWords:
    """Return the words of a text that are in a sentence, given the spans of all words and of the sentence.

    Stand-ins are left out, because the model does not know them.
    """
    start, end = sentence
    indices = [i for i in indices_between(words, start, end) if not STAND_IN.match(text, words[i][0])]
    spans = []
    # Convert spans in the text to spans in the sentence.
    for i in indices:
        word_start, word_end = words[i]
        spans.append((word_start - start, word_end - start))
    return SentenceWords(WordText(text[start:end], spans), indices)
