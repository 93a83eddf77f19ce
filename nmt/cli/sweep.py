"""The command `nmt sweep`."""

import logging
import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.train import run_training
from nmt.errors import ConfigError, InputError
from nmt.files import atomic_write
from nmt.processes import prepare_torch

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.train.halving import Candidate, Standing

MAX_CANDIDATES = 1_000  # maximum number of combinations of values


def sweep(
    config: options.ConfigFile,
    grid: Annotated[list[str], typer.Argument(metavar="KEY=VALUE[,VALUE]...", help="train.lr=1e-3,2e-3")],
    minutes: options.Minutes = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead: steps of the first rung.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Directory. [default: RUN-sweep]")] = None,
    device: options.Device = "auto",
) -> None:
    """Find the best of several settings by successive halving.

    Trains every combination of the values for a few steps, then the better half for twice as many steps, until one is
    left. Repeat the command to resume. Prints a table, and writes the winner's config to DIR/winner.yaml.
    """
    # 1. Check the arguments.
    if (minutes is None) == (steps is None):
        raise InputError("a sweep needs --minutes or --steps, and not both", hint="--minutes 60")
    candidates = candidates_of(config, grid)
    prepare_torch()
    from nmt.config import dump_config
    from nmt.train.halving import Budget
    from nmt.train.sweep import Sweep

    # 2. Train the candidates.
    directory = output or Path(f"{candidates[0].config.run}-sweep")

    def train(settings: "Config") -> None:
        (to_stderr,) = streams.log.handlers
        to_stderr.setLevel(logging.ERROR)  # hides all messages except errors; the run's train.log has all messages
        try:
            run_training(settings, device=device)
        finally:
            to_stderr.setLevel(logging.NOTSET)

    standings = Sweep(directory, candidates, Budget(minutes, steps), train, device).run()
    # 3. Write the winner's config, and print the table.
    winner = candidates[standings[0].number - 1]
    comment = streams.printable(f"# {winner}: the best of {len(candidates)} candidates in {directory}")
    file = directory / "winner.yaml"
    atomic_write(file, f"{comment}\n{dump_config(winner.config, only_set=True)}")
    streams.print_lines(table_of_candidates(standings))
    streams.log.info("the winner's config is written to %s", file)


def candidates_of(config: Path, grid: Sequence[str]) -> "list[Candidate]":
    """Return a candidate for each combination of the values in `grid`. Raises ConfigError if `grid` is invalid."""
    from nmt.config import load_config
    from nmt.train.halving import Candidate, check_candidates

    # 1. Parse the arguments.
    choices: dict[str, list[str]] = {}  # key -> its values
    for text in grid:
        key, _, listed = text.partition("=")
        if not key or "=" not in text or key in choices:
            reason = "is given twice" if key in choices else "is not KEY=VALUE,VALUE"
            raise ConfigError(f"'{text}' {reason}", hint="for example train.lr=1e-3,2e-3")
        choices[key] = split_values(listed)
    # Limit the number of candidates, because even loading their configs would take minutes.
    n_candidates = math.prod(map(len, choices.values()))
    if n_candidates > MAX_CANDIDATES:
        raise ConfigError(f"{n_candidates:,} candidates are too many", hint="give fewer values")
    # 2. Combine the values. A key with only one value does not count as varied, so tables do not show it.
    candidates = []
    for combination in product(*choices.values()):
        settings = dict(zip(choices, combination, strict=True))
        loaded = load_config(config, [f"{key}={value}" for key, value in settings.items()])
        varied = {key: value for key, value in settings.items() if len(choices[key]) > 1}
        candidates.append(Candidate(varied, loaded))
    check_candidates(candidates)
    return candidates


def split_values(text: str) -> list[str]:
    """Split a text at commas, except inside brackets and braces, and remove duplicate values."""
    values = re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|[^,])+", text)
    return list(dict.fromkeys(values)) or [""]


def table_of_candidates(standings: "Sequence[Standing]") -> list[str]:
    """Return a table of the candidates as lines, the best candidate first."""
    from nmt.cli.tables import columns

    names = ["rank", *standings[0].settings, "steps", "dev BLEU", "dev nll", "run"]
    rows = []
    for rank, standing in enumerate(standings, 1):
        figures = standing.figures[standing.steps]
        # A candidate that diverged has no figures.
        bleu = f"{figures['dev_bleu']:.2f}" if figures else "diverged"
        nll = f"{figures['dev_nll']:.3f}" if figures else ""
        rows.append([rank, *standing.settings.values(), f"{standing.steps:,}", bleu, nll, standing.run])
    return columns(names, rows)
