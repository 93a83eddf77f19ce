"""The options that several commands share, and functions that check options and load models."""

import gc
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli.streams import log
from nmt.decode import EngineName, Precision
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.translate.translator import Translator

# Training
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The run's YAML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="For example train.lr=3e-4")]

# Models and their loading
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

# Search (`SearchOptions` checks the ranges of the values)
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy search. [default: the config's, 5]")]
WholeLines = Annotated[
    bool | None,
    typer.Option("--whole-lines/--sentences", help="Each line as a whole, or each sentence. [default: the model's]"),
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Sentences decoded together. [default: the config's, 64]")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty strength. [default: the config's, 1]")]
Sample = Annotated[bool, typer.Option(help="Sample translations instead of searching for the best.")]
Seed = Annotated[int, typer.Option(help="Seed of sampling.")]
GlossaryFile = Annotated[
    Path | None, typer.Option("--glossary", help="Terms: source term TAB target term; or .csv, .xlsx, .tbx.")
]
MemoryFiles = Annotated[
    list[Path] | None, typer.Option("--memory", help="Translation memory whose exact matches are taken; repeat it.")
]

# Scores
References = Annotated[list[Path] | None, typer.Option(help="Reference lines; repeat it for several.")]
Lowercase = Annotated[bool, typer.Option(help="Ignore case.")]
Tokenize = Annotated[
    str | None, typer.Option(help="sacreBLEU's: 13a, zh, char, none, ... [default: by language and script]")
]

# Output
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Atomic output file; - is stdout.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]

SAMPLING = ("temperature", "top_k", "top_p", "seed")  # the fields of SearchOptions that apply only to sampling


def search_options(**given: Any) -> dict[str, Any]:
    """Return the given options without those that are None.

    Raises InputError if an option of sampling is given without `sample`.
    """
    from nmt.decode.options import SearchOptions

    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.get("sample"):
        return chosen
    for name in SAMPLING:
        # The default value is allowed, because it changes nothing.
        default = SearchOptions.model_fields[name].default
        if chosen.get(name, default) != default:
            raise InputError(f"--{name.replace('_', '-')} applies only to sampling", hint="add --sample")
    return chosen


def terms_of(glossary: Path | None, translator: "Translator", engine: EngineName | None) -> dict[str, str]:
    """Return the terms of --glossary as {source term: target term}.

    Raises InputError if the file is invalid or the engine cannot use it.
    """
    if glossary is None:
        return {}
    # A model that was not trained with glossaries needs torch, whose search can force the terms.
    if engine == "ctranslate2" and not translator.config.data.glossary:
        message = "CTranslate2 uses a --glossary only with models that were trained with data.glossary=true"
        raise InputError(message, hint="leave out --engine")
    from nmt.config import languages_of
    from nmt.documents.memories import is_memory, suffix_of, text_files
    from nmt.text.glossary import read_glossary
    from nmt.text.lines import iter_lines

    lines: Iterable[str] = iter_lines([glossary])
    if is_memory(glossary) and suffix_of(glossary) != ".tsv":
        sources, targets = text_files([glossary], languages_of(translator.config.data))
        lines = map("\t".join, zip(iter_lines(sources), iter_lines(targets), strict=True))
    return read_glossary(glossary, lines)


def indexes_of(memory: list[Path] | None, translator: "Translator") -> list[str]:
    """Return the paths of the indexes of --memory. Raises InputError if a memory is damaged or of other languages."""
    if not memory:
        return []
    from nmt.config import languages_of
    from nmt.documents.memories import memory_files
    from nmt.translate.matches import index_of

    return [str(index_of(*memory_files(memory, languages_of(translator.config.data))))]


def model_paths(named: Path | list[Path] | None, *, always_log: bool = False) -> list[Path]:
    """Return the paths after -m. Without -m, return the path in $NMT_MODEL or the newest run.

    The newest run is always logged. The other paths are logged only with `always_log`.
    """
    from nmt.run.directory import newest_run

    # 1. Find the models.
    from_environment = os.environ.get("NMT_MODEL")
    if not named and from_environment:
        named = Path(from_environment)
    paths = [named] if isinstance(named, Path) else named or [newest_run()]
    # 2. Log the paths.
    if always_log or not named:
        kind = "model" if len(paths) == 1 else "ensemble"
        log.info("%s: %s", kind, " and ".join(map(str, paths)))
    return paths


def load_translator(
    named: Path | list[Path] | None,
    device: str = "cpu",
    precision: Precision | None = None,
    engine: EngineName | None = None,
    *,
    languages: str | None = "",
) -> "Translator":
    """Load the models of `model_paths(named)`.

    `languages` is the direction. If it is None, the caller must choose a direction later.

    Raises ConfigError if the model does not have the direction.
    """
    paths = model_paths(named)
    from nmt.translate.loading import load

    translator = load(paths, device, precision, engine)
    gc.freeze()  # the garbage collector then skips the many objects of torch, which saves time
    return translator if languages is None else translator.to(languages)
