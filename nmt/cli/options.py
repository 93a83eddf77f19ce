"""Options that several commands share; the models, search options and corpora that they name."""

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nmt.cli.streams import log
from nmt.decode import EngineName, Precision
from nmt.errors import InputError, ModelError

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.translate.translator import Translator

MAX_MINUTES = 10_000_000  # 19 years
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The run's YAML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="For example train.lr=3e-4")]
MODEL_HELP = "A run or model file. [default: $NMT_MODEL, else the newest under runs/]"
Model = Annotated[Path | None, typer.Option("--model", "-m", help=MODEL_HELP)]
Models = Annotated[list[Path] | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Several form an ensemble.")]
PrecisionName = Annotated[
    Precision | None,
    typer.Option(help="int8 (CTranslate2 on a CPU) and bf16 (GPU) are faster. [default: fp32, or an export's]"),
]
Engine = Annotated[
    EngineName | None, typer.Option(help="auto is ctranslate2 on a CPU if it can, else torch. [default: the config's]")
]
Device = Annotated[str, typer.Option(help="auto (cuda, else mps, else cpu), cuda, cuda:1, mps or cpu.")]
Languages = Annotated[
    str, typer.Option("--languages", "-l", help="Of a model of several: source and target, de-en, or the target, en.")
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Atomic output file; - is stdout.")]
GlossaryFile = Annotated[Path | None, typer.Option("--glossary", help="Terms to use: source term TAB target term.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
References = Annotated[list[Path] | None, typer.Option(help="Reference lines; repeat it for several.")]
Lowercase = Annotated[bool, typer.Option(help="Ignore case.")]
Tokenize = Annotated[
    str | None, typer.Option(help="sacreBLEU's: 13a, zh, char, none, ... [default: by language and script]")
]


def checked_minutes(minutes: float | None) -> float | None:
    """Refuse a time that is not positive, infinite or NaN."""
    if minutes is not None and not 0 < minutes < MAX_MINUTES:
        raise typer.BadParameter(f"{minutes:g} is not in the range 0<x<{MAX_MINUTES}")
    return minutes


Minutes = Annotated[float | None, typer.Option(callback=checked_minutes, help="About how long to train in all.")]
# SearchOptions checks the ranges of the following options.
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy search. [default: the config's, 5]")]
WholeLines = Annotated[
    bool | None,
    typer.Option(
        "--whole-lines/--sentences", help="Translate a line of several sentences as a whole. [default: the model's]"
    ),
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Sentences decoded together. [default: the config's, 64]")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty strength. [default: the config's, 1]")]
Sample = Annotated[bool, typer.Option(help="Sample translations instead of searching for the best.")]
Temperature = Annotated[float, typer.Option(help="Sampling: divide logits by this; below 1 is more conservative.")]
TopK = Annotated[int, typer.Option(help="Sampling: only the k most probable pieces; 0 is all.")]
TopP = Annotated[float, typer.Option(help="Sampling: only the most probable pieces that together reach p.")]
Seed = Annotated[int, typer.Option(help="Seed of sampling.")]
SAMPLING = ("temperature", "top_k", "top_p", "seed")  # fields of SearchOptions


def search_options(**given: Any) -> dict[str, Any]:
    """Return the given fields of `SearchOptions` that are not None. Refuses those of sampling without `sample`."""
    from nmt.decode.options import SearchOptions

    found = {name: value for name, value in given.items() if value is not None}
    if not found.get("sample"):
        for name in found.keys() & set(SAMPLING):
            if found[name] != SearchOptions.model_fields[name].default:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} applies only to sampling", hint="add --sample")
    return found


def terms_of(glossary: Path | None, translator: "Translator", engine: EngineName | None) -> dict[str, str]:
    """Return the terms of --glossary. Raises InputError if the file is invalid, or --engine cannot use it."""
    if glossary is None:
        return {}
    if engine == "ctranslate2" and not translator.config.data.glossary:
        message = "CTranslate2 uses a --glossary only with models that were trained with data.glossary=true"
        raise InputError(message, hint="leave out --engine")
    from nmt.text.glossary import read_glossary

    return read_glossary(glossary)


def newest_run() -> Path:
    """Return the run under runs/ whose model was written last."""
    from nmt.run.directory import newest_model

    if not (newest := newest_model()):
        raise ModelError("no model under runs/", hint="train one with `nmt train CONFIG`, or name one")
    return newest.parent


def model_paths(named: Path | list[Path] | None, *, always_log: bool = False) -> list[Path]:
    """The paths of -m, else of $NMT_MODEL, else the newest run, which is logged."""
    if not named and (from_environment := os.environ.get("NMT_MODEL")):
        named = Path(from_environment)
    paths = [named] if isinstance(named, Path) else named or [newest_run()]
    if always_log or not named:
        log.info("%s: %s", "model" if len(paths) == 1 else "ensemble", " and ".join(map(str, paths)))
    return paths


def load_translator(
    named: Path | list[Path] | None,
    device: str = "cpu",
    precision: Precision | None = None,
    engine: EngineName | None = None,
    *,
    languages: str | None = "",
    always_log: bool = False,
) -> tuple[list[Path], "Translator"]:
    """Load the models of -m, else of $NMT_MODEL, else the newest under runs/ (logged); return paths and translator.

    `languages` chooses a direction; None leaves that to the caller. Raises ConfigError if there is no such direction.
    """
    paths = model_paths(named, always_log=always_log)
    log.debug("loading %s on %s", " and ".join(map(str, paths)), device)
    from nmt.translate.loading import load

    translator = load(paths, device, precision, engine)
    translator = translator if languages is None else translator.to(languages)
    gc.freeze()  # excludes the many objects of torch from garbage collection
    return paths, translator


class TestSet(NamedTuple):
    """Source lines and their references; all lists have the same length."""

    source_name: str  # the names are kept in the run's scores.jsonl
    reference_names: list[str]
    sources: list[str]  # empty if there is no --src
    references: list[list[str]]


def read_test_set(src: Path | None, ref: list[Path] | None, configs: "Sequence[Config]") -> TestSet:
    """Read --src and --ref, or else the data.test that all configs name. Raises InputError or DataError."""
    from nmt.evaluate import check_references
    from nmt.text.lines import iter_lines
    from nmt.train.corpora import corpus_paths

    if ref:
        names = str(src), [*map(str, ref)]
        sources, references = list(iter_lines([src])) if src else [], [list(iter_lines([path])) for path in ref]
    elif src:
        raise InputError("--src needs --ref", hint="give both, or neither for the run's data.test")
    else:
        tests = [(config, files) for config in configs for files in config.data.test]
        found = [(files, *corpus_paths(config, files)) for config, files in tests]
        if not found:
            raise InputError("--ref is missing, and no run names a data.test", hint="for models, give --src, too")
        if any(one[1:] != found[0][1:] for one in found):
            raise InputError("the runs name different test sets", hint="give --src and --ref")
        files, source_files, target_files = found[0]
        names = " ".join(files.source), [" ".join(files.target)]
        sources, references = list(iter_lines(source_files)), [list(iter_lines(target_files))]
    check_references(references, references[0], "lines in reference 1")
    if src or not ref:
        check_references(references, sources, "source lines")
    return TestSet(*names, sources, references)
