"""The models that answer requests: which one fits a request, and what the API says about them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import langcodes
from starlette.exceptions import HTTPException

from nmt.config import base_language, language
from nmt.corpus import language as identification
from nmt.errors import InputError
from nmt.serve import schema
from nmt.serve.batcher import Batcher
from nmt.serve.models import LoadedModel
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator

UNKNOWN_LANGUAGE = "und"  # BCP 47's code for undetermined


class ServedModel:
    """A translator with its languages and the batcher of its engine."""

    def __init__(self, translator: Translator, batcher: Batcher, sha256: str) -> None:
        self.translator = translator
        self.batcher = batcher
        self.sha256 = sha256  # of the model file
        self.source = language(translator.config.data, "source") or UNKNOWN_LANGUAGE
        self.target = language(translator.config.data, "target") or UNKNOWN_LANGUAGE

    def options(self, given: schema.Search) -> TranslationOptions:
        """Return the search options of a request. Raises ConfigError if they are inconsistent."""
        values = given.model_dump(include=set(TranslationOptions.model_fields), exclude_none=True)
        if values.get("sample") and "beam" not in values:
            values["beam"] = values.get("n_best", 1)
        return self.translator.with_options(**values)

    def translates(self, source: str, target: str | None) -> bool:
        """Whether the model translates from source to target; source `auto` and target None fit every model."""
        return (source == "auto" or base_language(source) == base_language(self.source)) and (
            target is None or base_language(target) == base_language(self.target)
        )

    def described(self) -> schema.ModelAnswer:
        defaults = self.translator.options
        return schema.ModelAnswer(
            source=self.source,
            target=self.target,
            source_name=name_of(self.source),
            target_name=name_of(self.target),
            explains=self.translator.engine.explains,
            beam=defaults.beam,
            alpha=defaults.alpha,
            joiner=self.translator.joiner,
        )

    def health(self) -> schema.ModelHealth:
        return schema.ModelHealth(
            source=self.source,
            target=self.target,
            sha256=self.sha256,
            run=Path(self.translator.config.run).name,
            step=self.translator.progress.get("step"),
        )


class ServedModels:
    """All models that answer, at most one for each pair of languages."""

    def __init__(self, loaded: Sequence[LoadedModel], max_waiting: int, on_batch: Callable[[int], None]) -> None:
        """`max_waiting` and `on_batch` are those of each `Batcher`. Raises InputError if two models fit a pair."""
        self.max_waiting = max_waiting
        self.on_batch = on_batch
        # One per model. A reloaded model keeps it: in a new thread, torch would compile its kernels again.
        self.threads = [ThreadPoolExecutor(1, "nmt model") for _ in loaded]
        self.loaded = list(loaded)
        self.models: list[ServedModel] = []
        self.models = self.served(loaded)

    def replace(self, index: int, loaded: LoadedModel) -> None:
        """Answer new requests with another model; those in work go on with theirs. Raises InputError as `__init__`."""
        changed = [*self.loaded]
        changed[index] = loaded
        self.models = self.served(changed)
        self.loaded = changed

    def served(self, loaded: Sequence[LoadedModel]) -> list[ServedModel]:
        """Return the models to serve. An engine that is served already keeps its batcher."""
        batchers = {id(model.translator.engine): model.batcher for model in self.models}
        models: list[ServedModel] = []
        for one, thread in zip(loaded, self.threads, strict=True):
            for translator in one.translators:
                engine = translator.engine
                if id(engine) not in batchers:
                    batchers[id(engine)] = Batcher(engine, self.max_waiting, self.on_batch, thread)
                model = ServedModel(translator, batchers[id(engine)], one.sha256)
                if any(known.translates(model.source, model.target) for known in models):
                    raise InputError(f"two models translate {model.source} to {model.target}", hint="serve one of them")
                models.append(model)
        return models

    def n_waiting(self) -> int:
        """The number of requests that wait for a model."""
        batchers = {model.batcher for model in self.models}
        return sum(len(batcher.waiting) for batcher in batchers)

    def pick(self, source: str, target: str | None, detected: Iterable[str] = ()) -> ServedModel:
        """Return the model for a language pair; for the source `auto`, that of the first detected language with one.

        Raises HTTPException 400 unless exactly one model fits.
        """
        found = [model for model in self.models if model.translates(source, target)]
        if len(found) > 1 and target is not None:
            of_each = ([model for model in found if model.translates(code, target)] for code in detected)
            found = next(filter(None, of_each), found)
        if len(found) == 1:
            return found[0]
        pairs = ", ".join(f"{model.source} to {model.target}" for model in self.models)
        problem = "several models fit" if found else f"no model translates {source:.20} to {target or 'any'}"
        raise HTTPException(400, f"{problem}; this server translates {pairs}")

    async def choices(self, source: str, texts: str | list[str]) -> dict[str, float]:
        """Return the detected languages if the source is `auto` and there are several models, else nothing."""
        if source != "auto" or len(self.models) < 2:
            return {}
        return await asyncio.to_thread(self.detected, texts)  # the first call loads a model, which takes half a second

    def detected(self, texts: str | list[str]) -> dict[str, float]:
        """The source languages of all models with their probabilities in percent, if the texts are in one of them."""
        of_each = identification.probabilities("\n".join(as_list(texts)))
        codes = dict.fromkeys(base_language(model.source) for model in self.models)
        known = {code: of_each.get(two_letters(code), 0.0) + 1e-9 for code in codes}  # no division by 0
        ranked = sorted(known, key=lambda code: -known[code])
        return {code: round(100 * known[code] / sum(known.values()), 1) for code in ranked}


def name_of(code: str) -> str:
    return langcodes.Language.get(code).display_name() if langcodes.tag_is_valid(code) else code


def two_letters(code: str) -> str:
    """A language code as ISO 639-1 has it, if it does: de for deu."""
    return langcodes.standardize_tag(code) if langcodes.tag_is_valid(code) else code


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts
