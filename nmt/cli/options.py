"""Options that several commands share, declared once, and what they stand for."""

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli.stderr import log
from nmt.decode import EngineName, Precision, Utility
from nmt.errors import InputError, ModelError
from nmt.processes import prepare_torch

if TYPE_CHECKING:
    from nmt.decode.translator import Translator

USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # click's; typer may bundle click

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The run's YAML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="For example train.lr=3e-4")]
MODEL_HELP = "A run or model file. [default: $NMT_MODEL, else the newest under runs/]"
Model = Annotated[Path | None, typer.Option("--model", "-m", help=MODEL_HELP)]
Models = Annotated[list[Path] | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Several form an ensemble.")]
Device = Annotated[str, typer.Option(help="auto (cuda, else mps, else cpu), cuda, cuda:1, mps or cpu.")]
Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 keeps torch's default.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")]
# SearchOptions checks the ranges of these.
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy search. [default: the config's, 5]")]
BatchSize = Annotated[int | None, typer.Option(help="Sentences decoded together. [default: the config's, 64]")]
Mbr = Annotated[Utility | None, typer.Option(help="Minimum Bayes risk: the sample most similar to the others.")]
Samples = Annotated[int | None, typer.Option(help="Samples that --mbr chooses from. [default: 32]")]
Temperature = Annotated[float, typer.Option(help="Sampling: divide logits by this; below 1 is more conservative.")]
TopK = Annotated[int, typer.Option(help="Sampling: only the k most probable pieces; 0 is all.")]
TopP = Annotated[float, typer.Option(help="Sampling: only the most probable pieces that together reach p.")]
Seed = Annotated[int, typer.Option(help="Seed of sampling.")]


class Command(typer.core.TyperCommand):
    """A command that refuses repeated options; click would silently use the last one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        *_, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            is_repeated = option.param_type_name == "option" and given.count(option) > 1
            if is_repeated and not option.multiple and not getattr(option, "is_flag", False):
                raise USAGE_ERROR(f"{option.opts[0]} is given {given.count(option)} times", ctx)
        return super().parse_args(ctx, args)


def check_mbr(mbr: Utility | None, samples: int | None, beam: int | None) -> None:
    """Refuse options that contradict --mbr, or need it."""
    if mbr and beam is not None:
        raise InputError("--mbr chooses among samples, not beams", hint="use --samples instead of --beam")
    if samples is not None and not mbr:
        raise InputError("--samples needs --mbr", hint="add --mbr chrf; with --sample, use --beam")


def refuse_sampling(given: Mapping[str, Any], needed: str) -> None:
    """Refuse options of sampling that have no effect without the needed option."""
    from nmt.decode.options import SearchOptions

    for name, value in given.items():
        if value != SearchOptions.model_fields[name].default:
            raise InputError(f"--{name.replace('_', '-')} applies only to sampling", hint=f"add {needed}")


def find_models(named: Sequence[Path] | None, *, always_log: bool = False) -> Sequence[Path]:
    """The models named by -m, else by $NMT_MODEL, else the newest under runs/ (logged)."""
    from nmt.run.directory import newest_model

    from_environment = os.environ.get("NMT_MODEL")
    paths = named or ([Path(from_environment)] if from_environment else [])
    if not paths:
        newest = newest_model()
        if newest is None:
            raise ModelError("no model under runs/", hint="train one with `nmt train CONFIG`, or name one with -m")
        paths, always_log = [newest.parent], True
    if always_log:
        log.info("%s: %s", "model" if len(paths) == 1 else "ensemble", " and ".join(map(str, paths)))
    return paths


def load_translator(
    paths: Sequence[Path],
    device: str = "cpu",
    threads: int = 0,
    precision: Precision | None = None,
    engine: EngineName | None = None,
) -> "Translator":
    """See `nmt.load`."""
    log.debug("loading %s on %s", " and ".join(map(str, paths)), device)
    prepare_torch(threads)
    from nmt.decode.translator import load

    translator = load(paths, device, precision, engine)
    gc.freeze()  # keeps the many objects of torch out of garbage collection
    return translator
