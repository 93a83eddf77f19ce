"""`nmt eval`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.errors import InputError, NmtError
from nmt.files import hash_file, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.decode.options import SearchOptions
    from nmt.decode.translator import Translator
    from nmt.run.directory import RunDirectory

    Tested = dict[str, tuple[Translator | None, list[Config]]]  # by direction; of one direction, by an empty text


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

    Prints each score with sacreBLEU's signature and 95 % interval, and the perplexity of the references.

    By default, the newest run translates its config's test set; of several languages, all directions or those of -l.
    -m names another model. --src and --ref name another test set. --hyp scores a file of translations without a model.
    """
    from nmt.config import language_of
    from nmt.evaluate import bleu_tokenizer, score

    tested: Tested = {"": (None, [])}
    if hyp is not None:
        of_model = {"-m": model, "-l": languages, "--beam": beam}
        if needing := [name for name, value in of_model.items() if value]:
            raise InputError(f"--hyp uses no model, but {needing[0]} needs one", hint="leave out one of them")
    else:
        paths, loaded = options.load_translator(model, device, precision, engine, languages=None, always_log=True)
        model_hash = hash_file(loaded.run.model_file) if loaded.run else ""  # a training may replace the file
        if ref and not src:
            raise InputError("--ref needs --src", hint="give both, or neither for the run's data.test")
        tested = directions_to_test(loaded, languages, is_given=src is not None)
    found: dict[str, dict[str, Any]] = {}  # figures by direction
    for direction, (translator, configs) in tested.items():
        test, about = options.read_test_set(src, ref, configs), dict[str, Any]()
        if hyp is not None:
            hypotheses, language = list(iter_lines([hyp])), language_of(Path(test.reference_names[0]))
        elif translator is not None:
            chosen = translator.with_options(**options.search_options(beam=beam, scores=False))
            hypotheses, about = translated(translator, test, chosen, batch_size)
            about["models"], language = list(map(str, paths)), translator.target_language
        scoring: dict[str, Any] = {"tokenize": tokenize or bleu_tokenizer(language), "lowercase": lowercase}
        scores = score(hypotheses, test.references, ("bleu", "chrf", "ter"), **scoring, n_bootstrap=bootstrap)
        figures = {"n_lines": len(hypotheses), **about, "scores": [vars(one) for one in scores]}
        found[direction] = figures
        if translator is not None and translator.run is not None and len(paths) == 1:
            keep_scores(translator.run, model_hash, test, figures)
        if not json_lines:
            print_examples(test, hypotheses, show)
            print(*[f"{direction}:"] * (len(tested) > 1), *scores, sep="\n")
            if translator is not None:
                print(f"engine = {figures['engine']}")
                print(f"perplexity of the references = {figures['perplexity']:.3f} per piece")
    if json_lines:
        print(json.dumps({"directions": found} if len(tested) > 1 else figures, ensure_ascii=False))
    elif len(tested) > 1:
        print("", *of_directions(found), sep="\n")


def translated(
    translator: "Translator", test: options.TestSet, search: "SearchOptions", batch_size: int | None
) -> tuple[list[str], dict[str, Any]]:
    """Translate a test set; return the translations, and figures that need the model."""
    from nmt.evaluate import perplexity

    translations = translator.translate_lines(test.sources, search, batch_size=batch_size)
    hypotheses = [found.text for found in streams.with_bar(translations, len(test.sources))]
    log_probs = translator.reference_log_probs(test.sources, test.references[0])
    engine = translator.engine_for(search).name
    return hypotheses, {"beam": search.beam, "engine": engine, "perplexity": perplexity(log_probs)}


def print_examples(test: options.TestSet, hypotheses: list[str], n: int) -> None:
    for i in [k * len(hypotheses) // n for k in range(min(n, len(hypotheses)))]:
        source = test.sources[i] if test.sources else ""
        print(f"source       {source}\nreference    {test.references[0][i]}\ntranslation  {hypotheses[i]}\n")


def directions_to_test(loaded: "Translator", languages: str, *, is_given: bool) -> "Tested":
    """Return the directions to test: those of data.test that `languages` means; with a given test set, `languages`."""
    from nmt.config import corpora_of, directed, directions, is_meant

    config = loaded.run.read_config() if loaded.run else None
    if config is None or not directions(config.data):
        return {"": (loaded.to(languages), [config] if config else [])}
    known = [] if is_given else [files.languages for files in corpora_of(config.data.test)]
    chosen = [one for one in known if not languages or is_meant(one, languages)] or [languages]
    return {one: (loaded.to(one), [directed(config, one)]) for one in chosen}


def of_directions(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return a table of the scores of each direction, and their means."""
    from nmt.insight.tables import columns

    names = [score["name"] for score in next(iter(found.values()))["scores"]]
    values = [[score["value"] for score in figures["scores"]] for figures in found.values()]
    values.append([sum(column) / len(values) for column in zip(*values, strict=True)])
    rows = [[direction, *(f"{x:.2f}" for x in row)] for direction, row in zip([*found, "mean"], values, strict=True)]
    return columns(["direction", *names], rows, numbers=names)


def keep_scores(run: "RunDirectory", model_hash: str, test: options.TestSet, figures: dict[str, Any]) -> None:
    """Add the scores of a run's model to its scores.jsonl, which `nmt info` shows, if the run can be written to."""
    source_hash, *reference_hashes = (sha256("\n".join(side).encode()) for side in (test.sources, *test.references))
    line = {
        "source": test.source_name,
        "references": test.reference_names,
        "source_sha256": source_hash,
        "references_sha256": reference_hashes,
        "time": round(time.time(), 3),
        "model_sha256": model_hash,
        "search": {key: figures[key] for key in ("beam", "engine")},
        **{key: figures[key] for key in ("n_lines", "perplexity", "scores")},
    }
    try:
        run.append_scores(line)
    except (NmtError, OSError) as error:
        streams.log.debug("%s; the scores are not kept in the run", error)
