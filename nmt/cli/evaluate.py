"""`nmt eval`."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.errors import InputError, NmtError
from nmt.files import hash_file, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.evaluate import Score
    from nmt.run.directory import RunDirectory
    from nmt.translate.options import TranslationOptions
    from nmt.translate.translator import Translator

    Tested = dict[str, tuple[Translator | None, list[Config]]]  # by direction; of one direction, by an empty text


@dataclass(frozen=True)
class ScoreOptions:
    """The options of scoring."""

    tokenize: str | None  # sacreBLEU's tokenizer; None: by language and script
    lowercase: bool
    n_bootstrap: int


def evaluate(
    model: options.Models = None,
    languages: options.Languages = "",
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the config's data.test]")] = None,
    ref: options.References = None,
    hyp: Annotated[Path | None, typer.Option(help="Translations to score; no model is used.")] = None,
    beam: options.Beam = None,
    lowercase: options.Lowercase = False,
    tokenize: options.Tokenize = None,
    bootstrap: Annotated[int, typer.Option(min=0, max=100_000, help="Resamples for 95 % intervals, or 0.")] = 1000,
    show: Annotated[int, typer.Option(min=0, help="Print so many translations with source and reference.")] = 0,
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
    -m names another model. --src and --ref name another test set. --hyp scores a file of translations without a model.
    """
    from nmt.config import language_of
    from nmt.evaluate import DEFAULT_TOKENIZER, tokenized_warning

    # What to test: a file of translations, or a model in one or several directions.
    tested: Tested = {"": (None, [])}
    if hyp is not None:
        refuse_with_hyp({"-m": model, "-l": languages, "--beam": beam})
    else:
        paths, loaded = options.load_translator(model, device, precision, engine, languages=None, always_log=True)
        model_hash = hash_file(loaded.run.model_file) if loaded.run else ""  # a training may replace the file
        if ref and not src:
            raise InputError("--ref needs --src", hint="give both, or neither for the run's data.test")
        tested = directions_to_test(loaded, languages, is_given=src is not None)
    score_options = ScoreOptions(tokenize, lowercase, bootstrap)
    all_hypotheses: list[str] = []
    found: dict[str, dict[str, Any]] = {}  # figures by direction
    for direction, (translator, configs) in tested.items():
        # 1) Read or make the translations.
        test = options.read_test_set(src, ref, configs)
        about: dict[str, Any] = {}
        if hyp is not None:
            hypotheses = list(iter_lines([hyp]))
            language = language_of(Path(test.reference_names[0]))
        elif translator is not None:
            chosen = translator.with_options(**options.search_options(beam=beam, scores=False, whole_lines=True))
            hypotheses, about = translated(translator, test, chosen, batch_size)
            about["models"] = [str(path) for path in paths]
            language = translator.target_language
        # 2) Score them.
        scores = scored(hypotheses, test.references, language, score_options, direction)
        all_hypotheses += hypotheses
        figures = {"n_lines": len(hypotheses), **about, "scores": [asdict(score) for score in scores]}
        found[direction] = figures
        # 3) Keep the scores of a run's model, not those of an ensemble; print them.
        if translator is not None and translator.run is not None and len(paths) == 1:
            keep_scores(translator.run, model_hash, test, figures)
        if not json_lines:
            print_examples(test, hypotheses, show)
            print_scores(direction if len(tested) > 1 else "", scores, figures)
    if warning := tokenized_warning(all_hypotheses, "translations", tokenize or DEFAULT_TOKENIZER):
        streams.log.warning("%s", warning)
    if json_lines:
        print(json.dumps({"directions": found} if len(tested) > 1 else figures, ensure_ascii=False))
    elif len(tested) > 1:
        print("", *of_directions(found), sep="\n")


def refuse_with_hyp(of_model: dict[str, Any]) -> None:
    """Raise InputError if an option that needs a model is given together with --hyp."""
    for name, value in of_model.items():
        if value:
            raise InputError(f"--hyp uses no model, but {name} needs one", hint="leave out one of them")


def scored(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str,
    score_options: ScoreOptions,
    direction: str,
) -> "list[Score]":
    """Score the translations of a direction; log it if TER is left out."""
    from nmt.evaluate import choose_settings, score

    settings = choose_settings(language, references, tokenize=score_options.tokenize, lowercase=score_options.lowercase)
    if settings.left_out:
        where = f"{direction}: " if direction else ""
        streams.log.info("%s%s", where, settings.left_out)
    metrics = ("bleu", "chrf", "ter")
    return score(hypotheses, references, metrics, **asdict(settings), n_bootstrap=score_options.n_bootstrap)


def translated(
    translator: "Translator", test: options.TestSet, search: "TranslationOptions", batch_size: int | None
) -> tuple[list[str], dict[str, Any]]:
    """Translate a test set; return the translations, and figures that need the model."""
    from nmt.evaluate import perplexity

    translations = translator.translate_lines(test.sources, search, batch_size=batch_size)
    hypotheses = [found.text for found in streams.with_bar(translations, len(test.sources))]
    log_probs = translator.reference_log_probs(test.sources, test.references[0])
    engine = translator.engine_for(search).name
    per_piece = perplexity(log_probs)
    finite = per_piece if math.isfinite(per_piece) else None  # JSON has no infinity
    return hypotheses, {"beam": search.beam, "engine": engine, "perplexity": finite}


def print_scores(title: str, scores: "Sequence[Score]", figures: dict[str, Any]) -> None:
    """Print the scores of a direction, and the figures that need a model if there is one."""
    from nmt.evaluate import readable

    if title:
        print(f"{title}:")
    print(*scores, sep="\n")
    if "engine" in figures:
        per_piece = figures["perplexity"]
        shown = "infinite" if per_piece is None else readable(per_piece, 3)
        print(f"engine = {figures['engine']}")
        print(f"perplexity of the references = {shown} per piece")


def print_examples(test: options.TestSet, hypotheses: list[str], n: int) -> None:
    """Print n translations from all over the test set."""
    for k in range(min(n, len(hypotheses))):
        # Equally spaced, the first line included.
        i = k * len(hypotheses) // n
        source = test.sources[i] if test.sources else ""
        print(f"source       {source}")
        print(f"reference    {test.references[0][i]}")
        print(f"translation  {hypotheses[i]}\n")


def directions_to_test(loaded: "Translator", languages: str, *, is_given: bool) -> "Tested":
    """Return the directions to test: those of data.test that `languages` means; with a given test set, `languages`."""
    from nmt.config import is_meant

    config = loaded.run.read_config() if loaded.run else None
    if config is None or not config.data.directions:
        return {"": (loaded.to(languages), [config] if config else [])}
    known = [] if is_given else [files.languages for files in config.data.test]
    chosen = [one for one in known if not languages or is_meant(one, languages)] or [languages]
    return {one: (loaded.to(one), [config.direction(one)]) for one in chosen}


def of_directions(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return a table of the scores of each direction, and their means.

    A direction may lack TER; then the mean, which would be that of other directions, is left out, too.
    """
    from nmt.cli.tables import columns

    values: dict[str, dict[str, float]] = {}
    for direction, figures in found.items():
        values[direction] = {score["name"]: score["value"] for score in figures["scores"]}
    names = list(dict.fromkeys(chain.from_iterable(values.values())))  # without repetitions, in order
    means = {}
    for name in names:
        known = [scores[name] for scores in values.values() if name in scores]
        if len(known) == len(values):
            means[name] = sum(known) / len(known)
    rows = []
    for title, scores in {**values, "mean": means}.items():
        cells = [f"{scores[name]:.2f}" if name in scores else "–" for name in names]
        rows.append([title, *cells])
    return columns(["direction", *names], rows, numbers=names)


def keep_scores(run: "RunDirectory", model_hash: str, test: options.TestSet, figures: dict[str, Any]) -> None:
    """Add the scores of a run's model to its scores.jsonl, which `nmt info` shows, if the run can be written to."""
    sides = [test.sources, *test.references]
    source_hash, *reference_hashes = (sha256("\n".join(side).encode()) for side in sides)
    line = {
        "source": test.source_name,
        "references": test.reference_names,
        "source_sha256": source_hash,
        "references_sha256": reference_hashes,
        "time": round(time.time(), 3),
        "model_sha256": model_hash,
        "search": {"beam": figures["beam"], "engine": figures["engine"]},
        "n_lines": figures["n_lines"],
        "perplexity": figures["perplexity"],
        "scores": figures["scores"],
    }
    try:
        run.append_scores(line)
    except (NmtError, OSError) as error:
        streams.log.debug("%s; the scores are not kept in the run", error)
