"""The models that answer requests: which one fits a request, and what the API says about them."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from operator import itemgetter
from pathlib import Path

import langcodes
from starlette.exceptions import HTTPException

from nmt.config import base_language, language
from nmt.corpus.language import probabilities
from nmt.errors import InputError
from nmt.serve import schema
from nmt.serve.batcher import Batcher
from nmt.serve.models import LoadedModel
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator

UNKNOWN_LANGUAGE = "und"  # BCP 47's code for undetermined


class ServedModel:
    """A translator of one direction, with the batcher of its engine."""

    def __init__(self, translator: Translator, batcher: Batcher, sha256: str) -> None:
        self.translator = translator
        self.batcher = batcher
        self.sha256 = sha256  # of the model file
        data = translator.config.data
        self.source = language(data, "source") or UNKNOWN_LANGUAGE
        self.target = language(data, "target") or UNKNOWN_LANGUAGE
        # Requests choose a model without regard to regions and scripts.
        self.base_source = base_language(self.source)
        self.base_target = base_language(self.target)

    def options(self, request: schema.Search) -> TranslationOptions:
        """Return the search options of a request. Raises ConfigError if they are inconsistent."""
        values = request.model_dump(include=set(TranslationOptions.model_fields), exclude_none=True)
        # Sampling draws as many translations as it returns.
        if values.get("sample"):
            values.setdefault("beam", values.get("n_best", 1))
        return self.translator.with_options(**values)

    def translates(self, source: str, target: str | None) -> bool:
        """Return whether the model translates from source to target; source `auto` and target None fit every model."""
        if target is not None and base_language(target) != self.base_target:
            return False
        return source == "auto" or base_language(source) == self.base_source

    def as_answer(self) -> schema.ModelAnswer:
        translator = self.translator
        defaults = translator.options
        explains = translator.engine.explains
        return schema.ModelAnswer(
            source=self.source,
            target=self.target,
            source_name=name_of(self.source),
            target_name=name_of(self.target),
            explains=explains,
            beam=defaults.beam,
            alpha=defaults.alpha,
            joiner=translator.joiner,
        )

    def health(self) -> schema.ModelHealth:
        run = Path(self.translator.config.run)
        step = self.translator.progress.get("step")
        return schema.ModelHealth(source=self.source, target=self.target, sha256=self.sha256, run=run.name, step=step)


class ServedModels:
    """All models that answer, at most one for each pair of languages."""

    def __init__(self, loaded: Sequence[LoadedModel], max_waiting: int, on_batch: Callable[[int], None]) -> None:
        """`max_waiting` and `on_batch` are those of each `Batcher`. Raises InputError if two models fit a pair."""
        self.max_waiting = max_waiting
        self.on_batch = on_batch
        # One per model. A reloaded model keeps it: in a new thread, torch would compile its kernels again.
        self.threads = [ThreadPoolExecutor(1, "nmt model") for _ in loaded]
        self.loaded = list(loaded)
        # The directions of a model share its engine, and with it a queue.
        self.directions = list(map(self._serve, loaded, self.threads))  # of each loaded model
        self.models = list_all(self.directions)

    def replace(self, index: int, loaded: LoadedModel) -> None:
        """Answer new requests with another model; those in work go on with theirs. Raises InputError as `__init__`."""
        # Nothing changes before the new models are known to fit together.
        directions = list(self.directions)
        directions[index] = self._serve(loaded, self.threads[index])
        self.models = list_all(directions)
        self.directions = directions
        self.loaded[index] = loaded

    def _serve(self, loaded: LoadedModel, thread: ThreadPoolExecutor) -> list[ServedModel]:
        engine = loaded.translators[0].engine  # the one of all directions
        batcher = Batcher(engine, self.max_waiting, self.on_batch, thread)
        return [ServedModel(translator, batcher, loaded.sha256) for translator in loaded.translators]

    def n_waiting(self) -> int:
        """Return the number of requests that wait for a model."""
        batchers = {model.batcher for model in self.models}
        return sum(len(batcher.waiting) for batcher in batchers)

    def pick(self, source: str, target: str | None, detected: Iterable[str] = ()) -> ServedModel:
        """Return the model for a language pair; for the source `auto`, that of the first detected language with one.

        Raises HTTPException 400 unless exactly one model fits.
        """
        candidates = [model for model in self.models if model.translates(source, target)]
        # Several models have the same target only if their sources differ.
        ranking = list(detected)
        if target is not None and ranking:
            candidates.sort(key=lambda model: ranking.index(model.base_source))
            del candidates[1:]
        if len(candidates) == 1:
            return candidates[0]
        # Say what would fit.
        problem = "several models fit" if candidates else f"no model translates {source:.20} to {target or 'any'}"
        pairs = ", ".join(f"{model.source} to {model.target}" for model in self.models)
        raise HTTPException(400, f"{problem}; this server translates {pairs}")

    def detect(self, texts: Sequence[str]) -> dict[str, float]:
        """Return the probability, in percent, that texts are in each source language, if they are in one of them.

        The most probable language comes first. The first call loads a model, which takes half a second.
        """
        # 1. The probabilities of all languages that can be identified, whether a model has them or not.
        known = probabilities("\n".join(texts))
        # 2. Those of the models; their sum is never 0.
        weights = {}
        for model in self.models:
            code = model.base_source
            weights[code] = known.get(two_letters(code), 0.0) + 1e-9
        # 3. Percentages.
        total = sum(weights.values())
        ranked = sorted(weights.items(), key=itemgetter(1), reverse=True)
        return {code: round(100 * weight / total, 1) for code, weight in ranked}


def list_all(directions: Iterable[Sequence[ServedModel]]) -> list[ServedModel]:
    """Return the models of all directions. Raises InputError if two translate the same pair of languages."""
    models: list[ServedModel] = []
    # Regions and scripts do not tell two models apart.
    for model in chain.from_iterable(directions):
        if any(other.translates(model.source, model.target) for other in models):
            raise InputError(f"two models translate {model.source} to {model.target}", hint="serve one of them")
        models.append(model)
    return models


def name_of(code: str) -> str:
    """Return the English name of a language."""
    return langcodes.Language.get(code).display_name() if langcodes.tag_is_valid(code) else code


def two_letters(code: str) -> str:
    """Return a language code as ISO 639-1 has it, if it does: de for deu."""
    return langcodes.standardize_tag(code) if langcodes.tag_is_valid(code) else code
