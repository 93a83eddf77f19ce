"""The command `nmt eval`."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nmt.cli import options, streams
from nmt.cli.streams import log
from nmt.cli.testset import TestSet, lines_of, read_test_set, search_for_scores, translate_all
from nmt.errors import InputError, NmtError
from nmt.files import hash_file
from nmt.languages import base_language, language_of_file

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.evaluate import Score
    from nmt.run.directory import RunDirectory
    from nmt.translate.options import TranslationOptions
    from nmt.translate.translator import Translator

METRICS = ("bleu", "chrf", "ter")
Figures = dict[str, Any]  # the JSON object that --json prints for one direction


class Tested(NamedTuple):
    """A direction to test."""

    direction: str  # a direction such as de-en; empty if the model has only one
    translator: "Translator | None"  # None if the translations are given
    configs: "list[Config]"  # at most one config, which names the test set


def evaluate(
    model: options.Models = None,
    languages: options.Languages = "",
    src: Annotated[
        Path | None, typer.Option(help="Source lines, or a memory. [default: the config's data.test]")
    ] = None,
    ref: options.References = None,
    hyp: Annotated[Path | None, typer.Option(help="Translations to score; no model is used.")] = None,
    beam: options.Beam = None,
    lowercase: options.Lowercase = False,
    tokenize: options.Tokenize = None,
    bootstrap: Annotated[int, typer.Option(min=0, max=100_000, help="Resamples for 95 % intervals, or 0.")] = 1000,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Score translations: BLEU, chrF, TER.

    Prints each score with sacreBLEU's signature and 95 % interval, and the perplexity of the references. TER counts
    words: it is left out for Thai, Lao, Khmer, Burmese and Tibetan, which have no spaces between them.

    By default, the newest run translates its config's test set; of several languages, all directions or those of -l.
    -m names another model. --src and --ref name another test set. --hyp scores a file of translations without a model;
    if --src is a memory, -l or the name of this file tells the languages.
    """
    from nmt.evaluate import choose_settings, score, warn_if_tokenized

    # 1. Choose what to test: given translations, or a model in one or several directions.
    if hyp is not None:
        if any(option is not None for option in (model, beam, batch_size, precision, engine)) or (languages and ref):
            raise InputError(
                "--hyp uses no model, but -m, --beam, --batch-size, --precision, --engine and, without a memory, -l "
                "need one",
                hint="leave them out",
            )
        tested = [Tested("", None, [])]
        # The references in a memory are in the language of the translations.
        languages = languages or base_language(language_of_file(hyp))
    else:
        paths = options.model_paths(model, always_log=True)
        loaded = options.load_translator(paths, device, precision, engine, languages=None)
        model_hash = hash_file(loaded.run.model_file) if loaded.run else ""  # a training may replace the file later
        if ref and not src:
            raise InputError("--ref needs --src", hint="give both, or neither for the run's data.test")
        tested = directions_to_test(loaded, languages, is_given=src is not None)
    all_hypotheses: list[str] = []
    figures_by_direction: dict[str, Figures] = {}
    for direction, translator, configs in tested:
        # 2. Read the translations, or let the model translate.
        test_set = read_test_set(src, ref, configs, translator, languages)
        figures: Figures = {}
        if hyp is not None:
            hypotheses = lines_of(hyp)
            language = language_of_file(Path(test_set.reference_names[0]))
        elif translator is not None:
            search = search_for_scores(translator, beam)
            hypotheses = translate_all(translator, test_set.sources, search, batch_size)
            language = translator.target_language
            figures = {**model_figures(translator, test_set, search), "models": list(map(str, paths))}
        # 3. Score the translations.
        settings = choose_settings(language, test_set.references, tokenize=tokenize, lowercase=lowercase)
        if settings.left_out:
            log.info("%s%s", f"{direction}: " if direction else "", settings.left_out)
        scores = score(hypotheses, test_set.references, METRICS, settings, n_bootstrap=bootstrap)
        figures = {"n_lines": len(hypotheses), **figures, "scores": [asdict(metric) for metric in scores]}
        # 4. Save the scores of a single model in its run.
        if translator is not None and translator.run is not None and len(paths) == 1:
            keep_scores(translator.run, model_hash, test_set, figures)
        # 5. Print the scores.
        if not json_lines:
            print_scores(direction if len(tested) > 1 else "", scores, figures)
        all_hypotheses += hypotheses
        figures_by_direction[direction] = figures
    warn_if_tokenized(all_hypotheses, "translations", tokenize)
    if json_lines:
        streams.print_json({"directions": figures_by_direction} if len(tested) > 1 else figures)


def directions_to_test(loaded: "Translator", languages: str, *, is_given: bool) -> list[Tested]:
    """Return the directions of data.test that match `languages`.

    If none matches or a test set is given, `languages` is the only direction.
    """
    from nmt.config import is_meant

    config = loaded.run.read_config() if loaded.run else None
    if config is None or not config.data.directions:
        return [Tested("", loaded.to(languages), [config] if config else [])]
    # A given test set has only one direction.
    known = [] if is_given else [corpus.languages for corpus in config.data.test]
    chosen = [direction for direction in known if not languages or is_meant(direction, languages)]
    chosen = list(dict.fromkeys(chosen)) or [languages]
    return [Tested(direction, loaded.to(direction), [config.direction(direction)]) for direction in chosen]


def model_figures(translator: "Translator", test_set: TestSet, search: "TranslationOptions") -> Figures:
    """Return the beam size, the engine, and the perplexity of the first reference."""
    from nmt.evaluate import perplexity

    log_probs = translator.reference_log_probs(test_set.sources, test_set.references[0])
    per_piece = perplexity(log_probs)
    finite = per_piece if math.isfinite(per_piece) else None  # JSON has no infinity
    return {"beam": search.beam, "engine": translator.engine_for(search).name, "perplexity": finite}


def print_scores(title: str, scores: "Sequence[Score]", figures: Figures) -> None:
    """Print the scores under a title. If a model was used, also print engine and perplexity."""
    from nmt.evaluate import readable

    if title:
        print(f"{title}:")
    print(*scores, sep="\n")
    if "engine" in figures:
        per_piece = figures["perplexity"]
        shown = "infinite" if per_piece is None else readable(per_piece, 3)
        print(f"engine = {figures['engine']}")
        print(f"perplexity of the references = {shown} per piece")


def keep_scores(run: "RunDirectory", model_hash: str, test_set: TestSet, figures: Figures) -> None:
    """Append scores to a run's scores.jsonl, for `nmt info`. If this fails, do nothing."""
    files = {"source": test_set.source_name, "references": test_set.reference_names}
    line: Figures = {"time": round(time.time(), 3), "model_sha256": model_hash, **files}
    line |= {key: figures[key] for key in ("n_lines", "beam", "engine", "perplexity", "scores")}
    try:
        run.append_scores(line)
    except (NmtError, OSError) as error:
        log.debug("%s; the scores are not kept in the run", error)
