"""Step: headlines are translated in sentence case, and characters that the model has not learned as similar ones."""

from collections.abc import Callable
from dataclasses import replace

from nmt.text.capitals import as_read
from nmt.text.tokenizer import Tokenizer
from nmt.translate.units import Step, Translation, Unit


class Case(Step):
    """Gives each sentence the case in which the model has read it, and its translation the case that it had."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """`tokenizer` is that of the source."""
        self.tokenizer = tokenizer
        self.styles: list[Callable[[str], str]] = []  # puts each translation into capitals or title case

    def prepare(self, units: list[Unit]) -> list[Unit]:
        prepared = []
        for unit in units:
            text, style = as_read(unit.text, self.tokenizer)
            self.styles.append(style)
            # Most texts stay as they are, and so do their units.
            if text != unit.text:
                unit = replace(unit, text=text)
            prepared.append(unit)
        return prepared

    def restore(self, translations: list[Translation]) -> list[Translation]:
        for translation, style in zip(translations, self.styles, strict=True):
            for hypothesis in translation.hypotheses:
                hypothesis.text = style(hypothesis.text)
        return translations

    def preview(self, texts: list[str]) -> list[str]:
        return [style(text) for text, style in zip(texts, self.styles, strict=True)]
