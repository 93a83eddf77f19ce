"""The models that answer requests, and the choice of the model for a request."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product
from pathlib import Path

import langcodes
from starlette.exceptions import HTTPException

from nmt.config import languages_of
from nmt.corpus.language import probabilities
from nmt.errors import InputError
from nmt.languages import base_language
from nmt.serve import schema
from nmt.serve.batcher import Batcher
from nmt.serve.metrics import Metrics
from nmt.serve.models import LoadedModel
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator

UNKNOWN_LANGUAGE = "und"  # the code of BCP 47 for an undetermined language


class ServedModel:
    """A translator for one direction, with the batcher of its engine."""

    def __init__(self, translator: Translator, batcher: Batcher, sha256: str) -> None:
        self.translator = translator
        self.batcher = batcher
        self.sha256 = sha256  # hash of the model file
        data = translator.config.data
        self.source, self.target = (code or UNKNOWN_LANGUAGE for code in languages_of(data))
        # The choice of a model ignores region and script, so that a request for pt-BR fits a model for pt.
        self.base_source = base_language(self.source)
        self.base_target = base_language(self.target)

    def options(self, request: schema.Search) -> TranslationOptions:
        """Return the search options of a request. Raises ConfigError if they are invalid."""
        values = request.model_dump(include=set(TranslationOptions.model_fields), exclude_none=True)
        # By default, sampling draws only as many translations as the answer has.
        if values.get("sample"):
            values.setdefault("beam", values.get("n_best", 1))
        # A request cannot name a memory, only leave out those of the server.
        if not values.pop("memory", True):
            values["memory"] = []
        values["glossary"] = self.translator.options.glossary | values.get("glossary", {})
        return self.translator.with_options(**values)

    def translates(self, source: str, target: str | None) -> bool:
        """Return whether the model translates `source` to `target`. "auto" and None fit every language."""
        if target is not None and base_language(target) != self.base_target:
            return False
        return source == "auto" or base_language(source) == self.base_source

    def as_answer(self) -> schema.ModelAnswer:
        translator = self.translator
        defaults = translator.options
        return schema.ModelAnswer(
            source=self.source,
            target=self.target,
            source_name=name_of(self.source),
            target_name=name_of(self.target),
            explains=translator.engine.explains,
            beam=defaults.beam,
            alpha=defaults.alpha,
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
    """All models of a server, with at most one model for each pair of languages."""

    def __init__(self, loaded: Sequence[LoadedModel], max_waiting: int, metrics: Metrics) -> None:
        """Create a batcher for each loaded model. For `max_waiting` and `metrics`, see `Batcher`.

        Raises InputError if two models translate the same pair of languages.
        """
        self.max_waiting = max_waiting
        self.metrics = metrics
        # Each model has one thread. A reloaded model keeps it, because torch compiles its kernels for each thread.
        self.threads = [ThreadPoolExecutor(1, "nmt model") for _ in loaded]
        # For each loaded model, one served model per direction.
        self.directions: list[list[ServedModel]] = [[] for _ in loaded]
        for index, model in enumerate(loaded):
            self.replace(index, model)

    def replace(self, index: int, loaded: LoadedModel) -> None:
        """Answer new requests with another model. Requests that have already arrived keep the old model.

        Raises InputError if two models would then translate the same pair of languages.
        """
        engine = loaded.translators[0].engine  # all directions share this engine
        batcher = Batcher(engine, self.max_waiting, self.metrics, self.threads[index])
        new_models = [ServedModel(translator, batcher, loaded.sha256) for translator in loaded.translators]
        # Two languages that differ only in region or script count as the same.
        others = chain.from_iterable(self.directions[:index] + self.directions[index + 1 :])
        for model, other in product(new_models, others):
            if other.translates(model.source, model.target):
                raise InputError(f"two models translate {model.source} to {model.target}", hint="serve one of them")
        self.directions[index] = new_models

    @property
    def models(self) -> list[ServedModel]:
        return list(chain.from_iterable(self.directions))

    def n_waiting(self) -> int:
        """Return the number of requests that wait for a model."""
        return sum(models[0].batcher.n_waiting() for models in self.directions)

    def pick(self, source: str, target: str | None, detected: Mapping[str, float] | None = None) -> ServedModel:
        """Return the model for a language pair.

        `detected` has the probability of each source language. If several models fit the source "auto" and a target,
        the most probable source decides.

        Raises HTTPException 400 if no model fits, or several do.
        """
        candidates = [model for model in self.models if model.translates(source, target)]
        # Models with the same target have different sources, so this leaves one model.
        if candidates and target is not None and detected:
            candidates = [max(candidates, key=lambda model: detected[model.base_source])]
        if len(candidates) == 1:
            return candidates[0]
        problem = "several models fit" if candidates else f"no model translates {source:.20} to {target or 'any'}"
        pairs = ", ".join(f"{model.source} to {model.target}" for model in self.models)
        raise HTTPException(400, f"{problem}; this server translates {pairs}")

    def detect(self, texts: Sequence[str]) -> dict[str, float]:
        """Return the probability of each source language in percent, the most probable first.

        The first call takes half a second, because it loads the language identifier.
        """
        # 1. Compute the probabilities of all languages that can be identified.
        known = probabilities("\n".join(texts))
        # 2. Select the source languages of the models. The small constant keeps the sum above 0.
        weights = {}
        for model in self.models:
            weights[model.base_source] = known.get(model.base_source, 0.0) + 1e-9
        # 3. Normalize to percentages.
        total = sum(weights.values())
        ranked = sorted(weights, key=weights.__getitem__, reverse=True)
        return {code: round(100 * weights[code] / total, 1) for code in ranked}


def name_of(code: str) -> str:
    """Return the English name of a language, or the code itself if it is not a valid language tag."""
    return langcodes.Language.get(code).display_name() if langcodes.tag_is_valid(code) else code
