"""`nmt compare`."""

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.tables import comparison_text
from nmt.errors import DataError, InputError
from nmt.text.lines import iter_lines

Systems = Annotated[
    list[Path], typer.Argument(metavar="A B", help="Runs, model files, or files of translations; A is the baseline.")
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page, too.")]


def compare(
    systems: Systems,
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the runs' data.test]")] = None,
    ref: options.References = None,
    languages: options.Languages = "",
    lowercase: options.Lowercase = False,
    tokenize: options.Tokenize = None,
    json_object: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Html = None,
    beam: options.Beam = None,
    batch_size: options.BatchSize = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Say which of several systems translates better.

    Prints differences of BLEU, chrF and TER from the baseline A with 95 % interval and p-value (1: no difference);
    BLEU and wins by length; and the lines that differ most.
    """
    from nmt.config import language_of
    from nmt.evaluate import check_references, choose_settings, tokenized_warning
    from nmt.insight import compare as comparing
    from nmt.run.directory import RunDirectory

    if not 2 <= len(systems) <= comparing.MAX_SYSTEMS:
        raise InputError(f"systems to compare: {len(systems)}", hint=f"give 2 to {comparing.MAX_SYSTEMS}")
    # 1) The test set: that of the runs, or the given one.
    configs = [RunDirectory(path).read_config() for path in systems if path.is_dir()]
    if any(config.data.directions for config in configs) and not languages:
        raise InputError("a model translates in several directions", hint="choose one with -l")
    configs = [config.direction(languages) if config.data.directions else config for config in configs]
    _, names, sources, references = options.read_test_set(src, ref, configs)
    if not references[0]:
        raise DataError(f"nothing to compare: {names[0]} is empty", hint="give at least one line")
    if not sources and any(map(is_model, systems)):
        raise InputError("a model needs the source lines", hint="add --src FILE")
    # 2) The translations of each system. A model knows its target language; else the name of the reference tells it.
    outputs = []
    language = language_of(ref[0]) if ref else ""
    for path in systems:
        if is_model(path):
            _, translator = options.load_translator([path], device, engine=engine, languages=None, always_log=True)
            translator = translator.to(languages if translator.tokenizers.source.targets else "")
            search = translator.with_options(**options.search_options(beam=beam, scores=False))
            translations = translator.translate_lines(sources, search, batch_size=batch_size)
            lines = [found.text for found in streams.with_bar(translations, len(sources))]
            language = translator.target_language or language
        else:
            lines = list(iter_lines([path]))
        check_references(references, lines, f"lines in {path}")
        outputs.append(lines)
    # 3) Compare them.
    settings = choose_settings(language, references, tokenize=tokenize, lowercase=lowercase)
    all_lines = list(chain.from_iterable(outputs))
    if warning := tokenized_warning(all_lines, "translations", settings.tokenize):
        streams.log.warning("%s", warning)
    test_set = comparing.EvaluationSet(names[0], sources or None, references, settings)
    found = comparing.compare(list(map(str, systems)), outputs, test_set)
    if html is not None:
        streams.write_text(html, comparing.as_page(found))
    text = "\n".join(map(streams.printable, comparison_text(found)))
    print(json.dumps(asdict(found), ensure_ascii=False) if json_object else text)


def is_model(path: Path) -> bool:
    """Whether this is a run, an export or a model file, not a file of translations."""
    return path.is_dir() or path.suffix == ".safetensors"
