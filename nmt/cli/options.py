"""Options that several commands share, and functions that check them and load the models that they name."""

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli.streams import log
from nmt.decode import EngineName, Precision, Utility
from nmt.errors import InputError, ModelError
from nmt.processes import prepare_torch

if TYPE_CHECKING:
    from nmt.decode.translator import Translator

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The run's YAML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="For example train.lr=3e-4")]
MODEL_HELP = "A run or model file. [default: $NMT_MODEL, else the newest under runs/]"
Models = Annotated[list[Path] | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Several form an ensemble.")]
PrecisionName = Annotated[
    Precision | None,
    typer.Option(help="int8 (CTranslate2 on a CPU) and bf16 (GPU) are faster. [default: fp32, or an export's]"),
]
Engine = Annotated[
    EngineName | None, typer.Option(help="auto is ctranslate2 on a CPU if it can, else torch. [default: the config's]")
]
Device = Annotated[str, typer.Option(help="auto (cuda, else mps, else cpu), cuda, cuda:1, mps or cpu.")]
Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 keeps torch's default.")]
ShardOf = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only part I of N, from 0; resumable; see nmt merge.")
]
InputFile = Annotated[Path, typer.Option("--input", "-i", help="Lines to translate.")]
Generators = Annotated[list[Path], typer.Option("--model", "-m", help="A run or model file. Several form an ensemble.")]
Processes = Annotated[int, typer.Option(min=1, max=1024, help="Processes that share the CPU and the lines.")]
# SearchOptions checks the ranges of the following options.
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy search. [default: the config's, 5]")]
BatchSize = Annotated[int | None, typer.Option(help="Sentences decoded together. [default: the config's, 64]")]
Mbr = Annotated[Utility | None, typer.Option(help="Minimum Bayes risk: the sample most similar to the others.")]
Samples = Annotated[int | None, typer.Option(help="Samples that --mbr chooses from. [default: 32]")]
Sample = Annotated[bool, typer.Option(help="Sample translations instead of searching for the best.")]
Temperature = Annotated[float, typer.Option(help="Sampling: divide logits by this; below 1 is more conservative.")]
TopK = Annotated[int, typer.Option(help="Sampling: only the k most probable pieces; 0 is all.")]
TopP = Annotated[float, typer.Option(help="Sampling: only the most probable pieces that together reach p.")]
Seed = Annotated[int, typer.Option(help="Seed of sampling.")]
SAMPLING = ("temperature", "top_k", "top_p", "seed")  # fields of SearchOptions


def check_search(given: Mapping[str, Any], needed: str) -> None:
    """Refuse search options that contradict each other or have no effect; `needed` names the option to add."""
    from nmt.decode.options import SearchOptions

    if given["mbr"]:
        if given["beam"] is not None:
            raise InputError("--mbr chooses among samples, not beams", hint="use --samples instead of --beam")
        return
    if given["n_samples"] is not None:
        raise InputError("--samples needs --mbr", hint="add --mbr chrf; with --sample, use --beam")
    for name in SAMPLING:
        default = SearchOptions.model_fields[name].default
        if not given.get("sample") and given.get(name, default) != default:
            raise InputError(f"--{name.replace('_', '-')} applies only to sampling", hint=f"add {needed}")


def newest_run() -> Path:
    """Return the run under runs/ whose model was written last."""
    from nmt.run.directory import newest_model

    if not (newest := newest_model()):
        raise ModelError("no model under runs/", hint="train one with `nmt train CONFIG`, or name one")
    return newest.parent


def load_translator(
    named: list[Path] | None,
    device: str = "cpu",
    threads: int = 0,
    precision: Precision | None = None,
    engine: EngineName | None = None,
    *,
    always_log: bool = False,
) -> tuple[list[Path], "Translator"]:
    """Load the models of -m, else of $NMT_MODEL, else the newest under runs/ (logged); return paths and translator."""
    from_environment = os.environ.get("NMT_MODEL")
    paths = named or ([Path(from_environment)] if from_environment else [])
    if not paths:
        paths, always_log = [newest_run()], True
    names = " and ".join(map(str, paths))
    if always_log:
        log.info("%s: %s", "model" if len(paths) == 1 else "ensemble", names)
    log.debug("loading %s on %s", names, device)
    prepare_torch(threads)
    from nmt.decode.translator import load

    translator = load(paths, device, precision, engine)
    gc.freeze()  # excludes the many objects of torch from garbage collection
    return paths, translator
