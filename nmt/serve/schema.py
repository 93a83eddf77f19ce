"""Schemas of the bodies of requests and answers. /docs shows the descriptions of fields."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_BEAM = 16  # with a wider beam, one client could occupy a model for a long time
MAX_PREFIX = 5_000  # characters or tokens


def without_surrogates(value: Any) -> Any:
    """Replace lone surrogates: JSON may contain them, but an answer in UTF-8 cannot repeat them."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


ENCODABLE = BeforeValidator(without_surrogates)


Text = Annotated[str, ENCODABLE, Field(description="Text; each of its lines is translated by itself.")]
Texts = Text | Annotated[list[Text], Field(description="Several texts.")]
Code = Annotated[str, Field(max_length=20), ENCODABLE]
Source = Annotated[
    Code, Field(description="Language code, or auto: the language that the text is in, of those that fit the target.")
]
Key = Annotated[str, Field(description="If the server needs one; or as Authorization: Bearer KEY.")]
Prefix = Annotated[
    Annotated[str, Field(max_length=MAX_PREFIX), ENCODABLE] | Annotated[list[int], Field(max_length=MAX_PREFIX)],
    Field(description="What the translation begins with, as text or tokens; for one line only."),
]


class LibreRequest(BaseModel):
    """A request of LibreTranslate's API; unknown fields are ignored."""

    q: Texts
    source: Source
    target: Code
    format: Annotated[
        Literal["text", "html"], Field(description="html: tags stay around the words that the tagged ones become.")
    ] = "text"
    alternatives: Annotated[int, Field(ge=0, lt=MAX_BEAM, description="Further translations, best first.")] = 0
    confidence: Annotated[bool, Field(description="Answer with the confidence of each text, not of html.")] = False
    api_key: Key = ""


class DetectRequest(BaseModel):
    q: Texts
    api_key: Key = ""


class DetectedLanguage(BaseModel):
    language: str
    confidence: Annotated[
        float, Field(description="Probability in percent, if it is a source language; 0 if there is only one model.")
    ] = 0.0


class LibreAnswer(BaseModel):
    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    confidence: Annotated[float | list[float] | None, Field(description="0-1: expected share of right words.")] = None
    detectedLanguage: DetectedLanguage | None = None  # noqa: N815


class Search(BaseModel):
    """Languages and search options of a request. A field that is left out takes the model's default."""

    model_config = ConfigDict(extra="forbid")

    source: Source = "auto"
    target: Annotated[Code | None, Field(description="Needed if several models are served.")] = None
    api_key: Key = ""
    prefix: Prefix = ""
    beam: Annotated[int | None, Field(ge=1, le=MAX_BEAM, description="Beam size; samples if `sample` is true.")] = None
    alpha: Annotated[float | None, Field(description="Length penalty: log-probability / length^alpha.")] = None
    sample: Annotated[bool | None, Field(description="Draw translations at random.")] = None
    temperature: Annotated[float | None, Field(description="Divides the logits in sampling.")] = None
    top_k: Annotated[int | None, Field(description="Draw from the k most probable tokens only; 0 is all.")] = None
    top_p: Annotated[float | None, Field(description="Draw from the most probable tokens that reach p.")] = None
    seed: Annotated[int | None, Field(description="Of random draws.")] = None


class TranslateRequest(Search):
    """A request of our own API."""

    q: Texts
    n_best: Annotated[int, Field(ge=1, le=MAX_BEAM, description="Hypotheses per line, at most `beam`.")] = 1
    stream: Annotated[
        bool, Field(description="Answer with server-sent events: `partial` while the search runs, then `done`.")
    ] = False


class ExplainRequest(Search):
    """One sentence to explain."""

    q: Annotated[str, ENCODABLE, Field(description="One sentence.")]


class HypothesisAnswer(BaseModel):
    text: str
    score: Annotated[float, Field(description="Log-probability over the length penalty.")]
    log_prob: float
    pieces: list[str]
    tokens: Annotated[list[int], Field(description="Token ids; a beginning of them can be a `prefix`.")]
    log_probs: Annotated[list[float], Field(description="Of each token, given those before it.")]


class LineAnswer(BaseModel):
    source: str
    hypotheses: Annotated[list[HypothesisAnswer], Field(description="Best first.")]


class TranslateAnswer(BaseModel):
    """The translations of all lines of all texts, in order."""

    source: str
    target: str
    translations: list[LineAnswer]


class Language(BaseModel):
    code: str
    name: str
    targets: Annotated[list[str], Field(description="Codes of the languages that it is translated to.")]


class ModelAnswer(BaseModel):
    """A served model."""

    source: str
    target: str
    source_name: str
    target_name: str
    explains: Annotated[bool, Field(description="Whether /v1/explain can look into it.")]
    beam: int
    alpha: float
    joiner: Annotated[str, Field(description="Written between sentences of the target language.")]


class ModelHealth(BaseModel):
    """Which model translates a pair of languages."""

    source: str
    target: str
    sha256: Annotated[str, Field(description="Of the model file.")]
    run: Annotated[str, Field(description="The name of the run that trained it.")]
    step: Annotated[int | None, Field(description="Of the training; null if the file does not say it.")]


class Health(BaseModel):
    """LibreTranslate's answer, and the models."""

    status: str = "ok"
    models: list[ModelHealth]


class ModelsAnswer(BaseModel):
    models: list[ModelAnswer]
    max_characters: int
    max_lines: int
    max_file_bytes: int
    needs_key: bool


class ErrorAnswer(BaseModel):
    error: str
