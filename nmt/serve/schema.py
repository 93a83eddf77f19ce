"""Schemas of requests and answers. The page /docs shows the descriptions of their fields."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from nmt.documents.markup import Match

MAX_BEAM = 16  # maximum beam size of a request, so that no client occupies a model for long


def without_surrogates(value: Any) -> Any:
    """Replace lone surrogates in a text. JSON may contain them, but an answer in UTF-8 cannot."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


# Types of fields that occur in several requests.
Encodable = Annotated[str, BeforeValidator(without_surrogates)]
Text = Annotated[Encodable, Field(description="Text; each of its lines is translated by itself.")]
Texts = Text | Annotated[list[Text], Field(description="Several texts.")]
SomeTexts = Annotated[Texts, Field(min_length=1)]
Term = Annotated[Encodable, Field(min_length=1, max_length=100)]
Code = Annotated[Encodable, Field(max_length=20)]
Source = Annotated[
    Code, Field(description="Language code, or auto: the language that the text is in, of those that fit the target.")
]
Key = Annotated[
    str,
    BeforeValidator(lambda key: str(key or "")),  # some clients send null
    Field(description="If the server needs one; or as Authorization: Bearer KEY."),
]


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


# --- requests and answers of LibreTranslate's API ---------------------------------------------------------


class LibreRequest(BaseModel):
    """A request of LibreTranslate's API. Unknown fields are ignored."""

    q: SomeTexts
    source: Source
    target: Code
    format: Annotated[Literal["text", "html"], BeforeValidator(lambda name: name or "text")] = Field(
        "text", description="html: tags stay around the words that the tagged ones become."
    )
    alternatives: int = Field(0, ge=0, lt=MAX_BEAM, description="Further translations, best first.")
    confidence: bool = Field(False, description="Answer with the confidence of each text, not of html.")
    api_key: Key = ""


# The body of a request to /detect.
class DetectRequest(BaseModel):
    q: SomeTexts
    api_key: Key = ""


class DetectedLanguage(BaseModel):
    language: str
    confidence: float = Field(
        description="Probability in percent, if it is a source language; 0 if there is only one model."
    )


# The answer of /translate. Fields that are None are left out.
class LibreAnswer(BaseModel):
    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    confidence: float | list[float] | None = Field(None, description="0-1: expected share of right words.")
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815


# An element of the answer of /languages.
class Language(BaseModel):
    code: str
    name: str
    targets: list[str] = Field(description="Codes of the languages that it is translated to, and its own.")


class ModelHealth(BaseModel):
    """The model of one direction, as `/health` describes it."""

    source: str
    target: str
    sha256: str = Field(description="Of the model file.")
    run: str = Field(description="The name of the run that trained it.")
    step: int | None = Field(description="Of the training; null if the file does not say it.")


class Health(BaseModel):
    """The status of the server, and its models."""

    status: str = "ok"
    models: list[ModelHealth]


# --- requests and answers of nmt's own API ----------------------------------------------------------------


class Search(BaseModel):
    """Languages and search options of a request. Missing options have the model's defaults."""

    model_config = ConfigDict(extra="forbid")

    source: Source = "auto"
    target: Code | None = Field(None, description="Needed if several models are served.")
    api_key: Key = ""
    prefix: Encodable | list[int] = Field(
        "", description="What the translation begins with, as text or tokens; for one line only."
    )
    # `SearchOptions` has the fields below, too, and checks their ranges.
    beam: int | None = Field(None, ge=1, le=MAX_BEAM, description="Beam size; samples if `sample` is true.")
    alpha: float | None = Field(None, description="Strength of the length penalty.")
    sample: bool | None = Field(None, description="Draw translations at random.")
    temperature: float | None = Field(None, description="Divides the logits in sampling.")
    top_k: int | None = Field(None, description="Draw from the k most probable tokens only; 0 is all.")
    top_p: float | None = Field(None, description="Draw from the most probable tokens that reach p.")
    seed: int | None = Field(None, description="Of random draws.")


class TranslateRequest(Search):
    """A request to /v1/translate."""

    q: Texts
    glossary: dict[Term, Term] = Field(
        {}, max_length=100, description="Translations of at most 100 terms; they come before the server's glossary."
    )
    memory: bool = Field(True, description="Whether the server's translation memories are used.")
    min_match: float | None = Field(
        None, description="Lowest similarity of matches that replace translations, from 0.7; 1 takes equal texts only."
    )
    confidence: bool = Field(False, description="Answer with the confidence of each line.")
    n_best: int = Field(1, ge=1, le=MAX_BEAM, description="Hypotheses per line, at most `beam`.")
    stream: bool = Field(
        False, description="Answer with server-sent events: `partial` while the search runs, then `done`."
    )


class ExplainRequest(Search):
    """A sentence to explain."""

    q: Encodable = Field(description="One sentence.")


class HypothesisAnswer(BaseModel):
    text: str
    score: float = Field(description="Log-probability over the length penalty.")
    log_prob: float
    pieces: list[str]  # spelled as in the tokenizer's vocabulary
    tokens: list[int] = Field(description="Token ids; a beginning of them can be a `prefix`.")
    log_probs: list[float] = Field(description="Of each token, given those before it.")


class LineAnswer(BaseModel):
    source: str
    matches: list[Match] = Field(
        description="The best match in translation memories; 1 is the similarity of an equal text."
    )
    hypotheses: list[HypothesisAnswer] = Field(description="Best first.")
    confidence: float | None = Field(None, description="0-1: expected share of right words, if asked for.")


class TranslateAnswer(BaseModel):
    """The translations of all lines of all texts, in order."""

    source: str
    target: str
    translations: list[LineAnswer]


class ModelAnswer(BaseModel):
    """A served model."""

    source: str
    target: str
    source_name: str
    target_name: str
    # The translation page sets its controls by the fields below.
    explains: bool = Field(description="Whether /v1/explain can look into it.")
    beam: int
    alpha: float


# The answer of /v1/models.
class ModelsAnswer(BaseModel):
    models: list[ModelAnswer]
    # The limits of one request.
    max_characters: int
    max_lines: int
    max_file_bytes: int
    needs_key: bool
