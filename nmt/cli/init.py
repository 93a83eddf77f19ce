"""The command `nmt init`."""

import contextlib
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.streams import log
from nmt.errors import InputError
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.corpus.split import Facts
    from nmt.train.plan import Plan

MAX_MINUTES = 10_000_000  # upper bound of --minutes, 19 years
SPLIT = (
    "{data}: {facts.n_train:,} pairs to train on, {facts.n_dev:,} for dev, {facts.n_test:,} for test; left out: "
    "{facts.n_blank:,} blank on a side, {facts.n_leaking:,} with a sentence of dev or test"
)
HEADER = """\
# {languages}, written by `nmt init` for {files}.
#
# data      {facts.n_train:,} / {facts.n_dev:,} / {facts.n_test:,} pairs
# expected  {cost}
"""


def init(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="SRC TGT | MEMORY...", help="Two texts, line by line; or .tmx, .csv, .po and the like."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Config to write. [default: SRCLANG-TGTLANG.yaml]")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="About how long to train in all.")] = None,
    source_lang: Annotated[str, typer.Option(help="Language code. [default: the file's]")] = "",
    target_lang: Annotated[str, typer.Option(help="Language code. [default: the file's]")] = "",
    start: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Fine-tune this run, for example on corrections.")
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Write a config, with reasons, for two files of text or for translation memories.

    Splits off dev and test, looks at the text, measures a training step, and chooses sizes and a budget. Train with
    `nmt train CONFIG`.
    """
    from nmt.config import languages_of
    from nmt.corpus.split import split_corpus
    from nmt.documents.memories import corpus_files
    from nmt.files import atomic_write
    from nmt.run.directory import RunDirectory
    from nmt.train import plan as planning

    # 1. Choose names for the config, the data and the run. None of these files may exist.
    start_config = RunDirectory(start).read_config() if start else None
    run_source, run_target = languages_of(start_config.data) if start_config else ("", "")
    sources, targets = corpus_files(files, (source_lang or run_source, target_lang or run_target))
    languages = languages_of_files((sources[0], source_lang, run_source), (targets[0], target_lang, run_target))
    check_direction(start, (run_source, run_target), languages)
    output = output or Path(f"{'-'.join(languages)}.yaml")
    data, run = output.with_suffix(""), Path("runs", output.stem)
    check_arguments(output, data, run, minutes)
    with contextlib.ExitStack() as unfinished:
        # 2. Split the text.
        unfinished.callback(shutil.rmtree, data, ignore_errors=True)
        facts = split_corpus(sources, targets, data, languages)
        log.info(SPLIT.format(data=data, facts=facts))

        # 3. Choose the settings.
        text = planning.data_text(facts, str(run), str(data), languages)
        if not start_config:
            plan = plan_for(text, facts, languages, minutes, device)
            cost = f"{plan.expected_minutes:,.0f} minutes and {plan.memory / 1e9:.1f} GB of memory"
            text += planning.plan_text(plan, facts)
        else:
            cost = f"{minutes:g} minutes" if minutes else "minutes"
            new_sources = set(iter_lines([data / f"train.{languages[0]}"]))
            text += planning.finetuning_text(str(start), start_config, languages[1], minutes, new_sources)

        # 4. Write the config.
        names = streams.printable(" and ".join(file.name for file in files))
        header = HEADER.format(languages=" to ".join(languages), files=names, facts=facts, cost=cost)
        atomic_write(output, header + text)
        unfinished.pop_all()
    log.info("written to %s: expected to take %s; next: nmt train %s", output, cost, output)


def plan_for(text: str, facts: "Facts", languages: tuple[str, str], minutes: float | None, device: str) -> "Plan":
    """Return the sizes for a corpus. `text` is the beginning of the config."""
    import yaml

    from nmt.config import check_config
    from nmt.processes import prepare_torch
    from nmt.train import plan as planning

    prepare_torch()

    def measure(plan: planning.Plan) -> tuple[float, int]:
        settings = yaml.safe_load(text + planning.plan_text(plan, facts))
        return measured(check_config(settings, {}, "the config"), device)

    return planning.fit_machine(planning.size_of(facts, languages), minutes, measure)


def check_direction(start: Path | None, of_run: tuple[str, str], of_files: tuple[str, str]) -> None:
    """Raise InputError if files are in the direction opposite to that of the run `start`."""
    source, target = of_run
    if of_files == (target, source):
        message = f"{start} translates {source} to {target}, not {target} to {source}"
        raise InputError(message, hint="give the source first, and the target second")


def check_arguments(output: Path, data: Path, run: Path, minutes: float | None) -> None:
    """Raise InputError if `minutes` or the suffix of `output` is invalid, or if a path exists already."""
    if minutes is not None and not 0 < minutes < MAX_MINUTES:  # also refuses NaN
        raise InputError(f"no training takes {minutes:g} minutes", hint="give --minutes 60, or leave it out")
    if output.suffix not in (".yaml", ".yml") or data == run:
        hint = "give NAME.yaml; the split is written to NAME, and the run to runs/NAME"
        raise InputError(f"{output} does not end in .yaml, or is in runs/", hint=hint)
    for path in (output, data, run):
        if path.exists():
            raise InputError(f"{path} exists already", hint="give another name with -o")


def languages_of_files(*sides: tuple[Path, str, str]) -> tuple[str, str]:
    """Return the language codes of source and target.

    Each side is a file, a language code and a default. An empty code is that in the file name, or the default.

    Raises InputError if a code is invalid or both are equal.
    """
    from nmt.languages import language_code, language_of_file

    codes = []
    for file, given, default in sides:
        code = language_code(given) if given else language_of_file(file) or default
        if not code:
            hint = "give --source-lang or --target-lang, such as de, deu_Latn or zh-Hans"
            fault = f"'{given}' is not a language code" if given else "the name does not end in a language code"
            raise InputError(f"{file}: {fault}", hint=hint)
        codes.append(code)
    source, target = codes
    if source == target:
        raise InputError(f"both sides are in '{source}'", hint="give --source-lang and --target-lang")
    return source, target


def measured(config: "Config", device: str) -> tuple[float, int]:
    """Measure a training step. Return the seconds per epoch and the peak memory in bytes."""
    from nmt.train.dry_run import measure
    from nmt.train.session import prepare

    # Hide the log of the training, in which the messages of `nmt init` would be lost.
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        measurement = measure(prepare(config, device=device, fresh=True))
    finally:
        log.setLevel(level)
    message = "width %d, %d layers: %.0f s an epoch"
    log.info(message, config.model.d_model, config.model.n_encoder_layers, measurement.epoch_s)
    return measurement.epoch_s, measurement.memory
