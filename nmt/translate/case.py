"""The step that changes headlines to sentence case, and restores the case of the headline in the translation.

The step also replaces characters that the model has not learned by similar ones.
"""

from collections.abc import Callable
from dataclasses import replace

from nmt.text.capitals import as_read
from nmt.text.tokenizer import Tokenizer
from nmt.translate.units import Step, Translation, Unit


class Case(Step):
    """The step that changes a sentence to the case that the model knows, and restores the case in the translation."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Set up the step with the tokenizer of the source side."""
        self.tokenizer = tokenizer
        # For each unit, a function that puts the translation into the case of the original.
        self.styles: list[Callable[[str], str]] = []

    def prepare(self, units: list[Unit]) -> list[Unit]:
        prepared = []
        for unit in units:
            text, style = as_read(unit.text, self.tokenizer)
            self.styles.append(style)
            # Most texts do not change, so their units are not copied.
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
