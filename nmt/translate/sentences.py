"""The step that splits units into sentences, because most models are trained on single sentences."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from nmt.text.sentences import join_sentences, sentence_spans
from nmt.text.spans import Span
from nmt.translate.options import TranslationOptions
from nmt.translate.units import Step, Translation, Unit, grouped, joined


class Sentences(Step):
    """The step that splits units into sentences, and joins the translations of the sentences."""

    def __init__(
        self,
        options: TranslationOptions,
        split_tag: Callable[[str], tuple[str, str]],
        kept_spans: Callable[[str], Sequence[Span]] = lambda _: (),
    ) -> None:
        """Set up the step.

        Args:
            options: with `whole_lines`, each unit is one sentence.
            split_tag: a function that splits a text into its language tag and the rest. Each sentence gets the tag.
            kept_spans: a function that returns the spans of a text that must not be split, such as placeholders.
        """
        self.options = options
        self.split_tag = split_tag
        self.kept_spans = kept_spans
        self.units: list[Unit] = []
        self.spans: list[list[Span]] = []  # for each unit, the spans of its sentences

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        sentences: list[Unit] = []
        for unit in units:
            # 1. Find the sentences. The first sentence contains the tag of the target language, if there is a tag.
            tag, _ = self.split_tag(unit.text)
            spans = [(0, len(unit.text))]
            if not self.options.whole_lines:
                spans = self.spans_of(unit.text, len(tag))
            self.spans.append(spans)
            # 2. Make a unit of each sentence. The first sentence gets the prefix. All other sentences get the tag.
            for i, (start, end) in enumerate(spans):
                text = unit.text[start:end]
                if i == 0:
                    sentences.append(Unit(unit.number, text, unit.prefix, unit.index))
                else:
                    sentences.append(Unit(unit.number, tag + text, (), unit.index, i))
        return sentences

    def spans_of(self, text: str, tag_length: int) -> list[Span]:
        """Return the span of each sentence of a text. The span of the first sentence contains the tag of the text."""
        sentences = sentence_spans(text[tag_length:], self.options.abbreviations)
        spans = [(start + tag_length, end + tag_length) for start, end in sentences]
        # Extend the first sentence over the tag.
        spans[0] = (0, spans[0][1])
        if len(spans) == 1:
            return spans
        # Merge sentences whose boundary is inside of a kept span.
        kept = self.kept_spans(text)
        merged = spans[:1]
        for start, end in spans[1:]:
            if any(kept_start < start < kept_end for kept_start, kept_end in kept):
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged

    def restore(self, translations: list[Translation]) -> list[Translation]:
        restored = []
        groups = grouped(translations, map(len, self.spans))
        for unit, spans, sentences in zip(self.units, self.spans, groups, strict=True):
            # 1. Join the hypotheses of the same rank.
            hypotheses = joined([sentence.hypotheses for sentence in sentences], self.options)
            # 2. Keep each sentence with its translation. The source comes from the unit, because later steps may have
            # changed it. The hypothesis is copied, because the step `Tags` changes the one of a unit.
            for (start, end), sentence in zip(spans, sentences, strict=True):
                sentence.source = unit.text[start:end]
                sentence.hypotheses = [replace(sentence.hypotheses[0])]
            restored.append(Translation(unit.text, hypotheses, unit.number, spans, sentences))
        return restored

    def preview(self, texts: list[str]) -> list[str]:
        groups = grouped(texts, map(len, self.spans))
        return [join_sentences(sentences) for sentences in groups]
