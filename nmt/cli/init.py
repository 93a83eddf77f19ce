"""`nmt init`."""

import contextlib
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.config import Config


def init(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Text in the source language, a sentence per line.")],
    target: Annotated[Path, typer.Argument(metavar="TGT", help="Its translation: as many lines.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Config to write. [default: SRCLANG-TGTLANG.yaml]")
    ] = None,
    minutes: options.Minutes = None,
    source_lang: Annotated[str, typer.Option(help="Language code. [default: the suffix of SRC]")] = "",
    target_lang: Annotated[str, typer.Option(help="Language code. [default: the suffix of TGT]")] = "",
    device: options.Device = "auto",
) -> None:
    """Write a config, with reasons, for two files of text.

    Splits off dev and test, looks at the text, measures a training step, and chooses sizes and a budget. Train with
    `nmt train CONFIG`.
    """
    import yaml

    from nmt.config import check_config
    from nmt.corpus.split import split_corpus
    from nmt.files import atomic_write
    from nmt.processes import prepare_torch
    from nmt.train import plan as planning

    languages = languages_of((source, source_lang), (target, target_lang))
    output = output or Path(f"{'-'.join(languages)}.yaml")
    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output} does not end in .yaml", hint="the name without it is the directory of the split")
    data, run = output.with_suffix(""), Path("runs", output.stem)
    for path in (output, data, run):
        if path.exists():
            raise InputError(f"{path} exists already", hint="give another name with -o")
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(shutil.rmtree, data, ignore_errors=True)
        facts = split_corpus([source], [target], data, languages)
        streams.log.info(
            f"{data}: {facts.n_train:,} pairs to train on, {facts.n_dev:,} for dev, {facts.n_test:,} for test; left "
            f"out: {facts.n_blank:,} blank on a side, {facts.n_leaking:,} with a sentence of dev or test"
        )
        prepare_torch()

        def text(plan: planning.Plan) -> str:
            return planning.config_text(plan, facts, str(run), str(data), languages)

        def measure(plan: planning.Plan) -> tuple[float, int]:
            return measured(check_config(yaml.safe_load(text(plan)), {}, str(output)), device)

        plan = planning.fit_machine(planning.size_of(facts), minutes, measure)
        cost = f"{plan.expected_minutes:,.0f} minutes and {plan.memory / 1e9:.1f} GB of memory"
        header = f"""\
# {languages[0]} to {languages[1]}, written by `nmt init` for {streams.printable(f"{source.name} and {target.name}")}.
#
# data      {facts.n_train:,} / {facts.n_dev:,} / {facts.n_test:,} pairs
# expected  {cost}, by a step measured on this machine
"""
        atomic_write(output, header + text(plan))
        unfinished.pop_all()
    streams.log.info("written to %s: expected to take %s; next: nmt train %s", output, cost, output)


def languages_of(*sides: tuple[Path, str]) -> tuple[str, str]:
    """Return the languages of source and target, as given, else from the file names; they become suffixes of files."""
    from nmt.config import language_of

    source, target = (given or language_of(file) for file, given in sides)
    for (file, _), code in zip(sides, (source, target), strict=True):
        if not code or language_of(Path(f"x.{code}")) != code:
            hint = "give --source-lang or --target-lang in small letters, as de or zh_Hans"
            raise InputError(f"{file}: '{code}' is not a language code for the names of files", hint=hint)
    if source == target:
        raise InputError(f"both sides are in '{source}'", hint="give --source-lang and --target-lang")
    return source, target


def measured(config: "Config", device: str) -> tuple[float, int]:
    """Measure the seconds per epoch and the peak memory in bytes."""
    from nmt.train.dry_run import measure
    from nmt.train.session import prepare

    level = streams.log.level
    streams.log.setLevel(logging.WARNING)
    try:
        found = measure(prepare(config, device=device, fresh=True))
    finally:
        streams.log.setLevel(level)
    model = config.model
    streams.log.info(f"width {model.d_model}, {model.n_encoder_layers} layers: {found.epoch_s:.0f} s an epoch")
    return found.epoch_s, found.memory
