"""The command `nmt compare`."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.tables import comparison_text
from nmt.cli.testset import lines_of, read_test_set, search_for_scores, translate_all
from nmt.errors import DataError, InputError

if TYPE_CHECKING:
    from nmt.config import Config


def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(metavar="A B", help="Runs, model files, or files of translations; A is the baseline."),
    ],
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the runs' data.test]")] = None,
    ref: options.References = None,
    languages: options.Languages = "",
    lowercase: options.Lowercase = False,
    tokenize: options.Tokenize = None,
    json_object: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page, too.")] = None,
    beam: options.Beam = None,
    batch_size: options.BatchSize = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Say which of several systems translates better.

    Prints differences of BLEU, chrF and TER from the baseline A with 95 % interval and p-value (1: no difference).
    --html and --json also have the lines that differ most.
    """
    from nmt.evaluate import check_references, choose_settings, warn_if_tokenized
    from nmt.insight import compare as comparing
    from nmt.languages import base_language, language_of_file
    from nmt.run.directory import RunDirectory

    if not 2 <= len(systems) <= comparing.MAX_SYSTEMS:
        raise InputError(f"systems to compare: {len(systems)}", hint=f"give 2 to {comparing.MAX_SYSTEMS}")
    # 1. Read the given test set, or the test set of the runs.
    configs = [RunDirectory(path).read_config() for path in systems if path.is_dir()]
    languages = languages or only_direction(configs)
    configs = [config.direction(languages) if config.data.directions else config for config in configs]
    # If no run tells the languages of a memory, its references are in the language of the translations.
    test_set = read_test_set(src, ref, configs, None, languages or base_language(language_of_file(systems[0])))
    if not test_set.references[0]:
        raise DataError(f"nothing to compare: {test_set.reference_names[0]} is empty", hint="give at least one line")
    # Files of translations can be compared without the source lines.
    if not test_set.sources and any(map(is_model, systems)):
        raise InputError("a model needs the source lines", hint="add --src FILE")
    # 2. Read or make the translations of each system. Files are read before a model translates, which takes long.
    given = {path: lines_of(path) for path in systems if not is_model(path)}
    outputs = []
    language = language_of_file(ref[0]) if ref else ""
    for path in systems:
        if is_model(path):
            options.model_paths([path], always_log=True)
            translator = options.load_translator([path], device, engine=engine, languages=None)
            # -l applies only to the models with several directions.
            translator = translator.to(languages if translator.tokenizers.source.targets else "")
            hypotheses = translate_all(translator, test_set.sources, search_for_scores(translator, beam), batch_size)
            language = translator.target_language or language
        else:
            hypotheses = given[path]
        check_references(test_set.references, hypotheses, f"lines in {path}")
        outputs.append(hypotheses)
    # 3. Compare the translations.
    settings = choose_settings(language, test_set.references, tokenize=tokenize, lowercase=lowercase)
    warn_if_tokenized(list(chain.from_iterable(outputs)), "translations", settings.tokenize)
    evaluation_set = comparing.EvaluationSet(
        test_set.reference_names[0], test_set.sources, test_set.references, settings
    )
    comparison = comparing.compare(list(map(str, systems)), outputs, evaluation_set)
    # 4. Write the page, and print the comparison.
    if html is not None:
        streams.write_text(html, comparing.as_page(comparison))
    if json_object:
        streams.print_json(asdict(comparison))
    else:
        streams.print_lines(comparison_text(comparison))


def only_direction(configs: "Sequence[Config]") -> str:
    """Return the direction of multilingual runs, or "" if there are none. Raises InputError if there are several."""
    directions = set[str]().union(*[config.data.directions for config in configs])
    if len(directions) > 1:
        raise InputError("a model translates in several directions", hint="choose one with -l")
    return "".join(directions)


def is_model(path: Path) -> bool:
    """Return whether a path is a run, an export or a model file. Any other path is a file of translations."""
    return path.is_dir() or path.suffix == ".safetensors"
