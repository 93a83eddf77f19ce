"""The options of a translation: options of the search, and options of the steps before and after the search."""

from pydantic import Field

from nmt.decode.options import SearchOptions


class TranslationOptions(SearchOptions):
    """The options of a translation. Raises ConfigError for an unknown option, a wrong type or a value out of range."""

    whole_lines: bool = Field(False, description="translate each line as a whole, not sentence by sentence")
    abbreviations: list[str] = Field([], description="words that have a full stop within sentences")
    glossary: dict[str, str] = Field({}, description="target terms that the translations of source terms contain")
    protect_placeholders: bool = Field(False, description="keep numbers, URLs, {name} and the like as they are")
    protect: list[str] = Field([], description="regular expressions of further spans to keep as they are")
