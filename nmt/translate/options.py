"""The options of a translation: options of the search, and options of the steps before and after the search."""

from pydantic import Field

from nmt.decode.options import SearchOptions

LEAST = 0.7  # the lowest similarity of a match: at most 3 of 10 words differ


class TranslationOptions(SearchOptions):
    """The options of a translation. Raises ConfigError for an unknown option, a wrong type or a value out of range."""

    whole_lines: bool = Field(False, description="translate each line as a whole, not sentence by sentence")
    abbreviations: list[str] = Field([], description="words that have a full stop within sentences")
    glossary: dict[str, str] = Field({}, description="target terms that the translations of source terms contain")
    protect_placeholders: bool = Field(False, description="keep numbers, URLs, {name} and the like as they are")
    memory: list[str] = Field([], description="indexes of translation memories, see nmt.translate.matches")
    min_match: float = Field(1.0, ge=LEAST, le=1, description="lowest similarity of matches that replace translations")
    protect: list[str] = Field([], description="regular expressions of further spans to keep as they are")
