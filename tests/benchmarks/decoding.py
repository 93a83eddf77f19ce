"""Decoding: `nmt translate` and a loop over CTranslate2 with the same weights and options, from text to text."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median

from experiments import run_nmt
from measure import NMT, PROGRAMS, Options, Sample, Table, interleaved, say, started, timed, write_lines

from nmt.config import language
from nmt.evaluate import ScoreSettings, choose_settings, score
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train.corpora import corpus_paths

FEW_LINES = 8  # the time for so many lines counts as startup
COPIES = 3  # of the test set in the long file
BEAMS = {1: "greedy", 5: "beam 5"}
KINDS = ["float32", "int8"]  # of numbers
STREAMED, UNCOUNTED = 60, 10  # lines sent one at a time, of which the first are warm-up
CT2_FP32 = "CTranslate2 fp32"
CT2_INT8 = "CTranslate2 int8"
# Marian's command with nmt's limit of a batch, on as many threads as nmt has.
MARIAN_DECODE = "decode --quiet --cpu-threads 2 --mini-batch 64 --maxi-batch 100 --maxi-batch-sort src"
Command = list[object]


@dataclass(frozen=True)
class Contest:
    """The model and the test set of all systems."""

    run: Path
    exports: dict[str, Path]  # of CTranslate2, by quantization
    sources: list[str]
    references: list[str]
    settings: ScoreSettings
    few: Path  # the first lines
    many: Path  # several copies of the test set
    marian: dict[str, Command]  # Marian's command by the kind of numbers, if it can run the model


@cache
def prepare(options: Options) -> Contest:
    """Train a model if there is none, export it, and write the files."""
    # 1. The model, its exports, and nmt's own conversions, which go into its cache.
    home = options.scratch / "decoding"
    home.mkdir(exist_ok=True)
    path = options.model or options.scratch / "model"
    if not RunDirectory(path).model_file.exists():
        run_nmt("train", options.config, f"run={path}", f"train.max_minutes={options.minutes}")
    exports = {kind: home / kind for kind in KINDS}
    for kind, export in exports.items():
        run_nmt("export", "-q", "-m", path, "--to", "ctranslate2", "-o", export, "--quantization", kind)
        run_nmt("translate", "-q", "-m", path, "--precision", kind.replace("float", "fp"), "a")

    # 2. The test set, in part and several times over.
    config = RunDirectory(path).read_config()
    (files,) = config.data.test
    sources, references = ([*iter_lines(paths)] for paths in corpus_paths(config, files))
    few = home / "few.txt"
    many = home / "many.txt"
    write_lines(few, sources[:FEW_LINES])
    write_lines(many, sources * COPIES)
    settings = choose_settings(language(config.data, "target"), [references])
    marian = marian_commands(path, home / "marian", options.peers) if options.peers else {}
    return Contest(path, exports, sources, references, settings, few, many, marian)


def marian_commands(run: Path, export: Path, python: Path) -> dict[str, Command]:
    """Export a model of Marian's shape, and convert it to int8. Returns the commands, or none for another model."""
    if RunDirectory(run).read_config().model.positions != "marian":
        say("Marian cannot run this model: train one of configs/browser.yaml")
        return {}
    pymarian = python.with_name("pymarian")
    run_nmt("export", "-q", "-m", run, "--to", "marian", "-o", export)
    convert: Command = [pymarian, "convert", "-f", export / "model.npz", "-t", export / "model.bin", "-g", "intgemm8"]
    subprocess.run([str(word) for word in convert], check=True, capture_output=True)
    commands = {}
    for kind, name in (("float32", "model.npz"), ("int8", "model.bin")):
        files = ["-m", export / name, "-v", export / "vocab.spm", export / "vocab.spm"]
        commands[kind] = [pymarian, *MARIAN_DECODE.split(), *files]
    return commands


def nmt_command(contest: Contest, precision: str = "fp32", *rest: object) -> Command:
    return [*NMT, "translate", "-q", "-m", contest.run, "--precision", precision, *rest]


def ctranslate2_command(contest: Contest, kind: str, *rest: object) -> Command:
    return [sys.executable, PROGRAMS / "ctranslate2_loop.py", "-m", contest.exports[kind], *rest]


def all_systems(contest: Contest, nmt_options: Command, loop_options: Command) -> dict[str, Command]:
    commands = {}
    commands["nmt fp32"] = nmt_command(contest, "fp32", *nmt_options)
    commands["nmt int8"] = nmt_command(contest, "int8", *nmt_options)
    commands["nmt, torch"] = nmt_command(contest, "fp32", "--engine", "torch", *nmt_options)
    commands[CT2_FP32] = ctranslate2_command(contest, "float32", *loop_options)
    commands[CT2_INT8] = ctranslate2_command(contest, "int8", *loop_options)
    for name, command in commands.items():
        commands[name] = [*command, "--beam"]
    return commands


def compared(
    title: str, note: str, systems: dict[str, Command], measure: Callable[[Command], Sample], figure: str, n_rounds: int
) -> list[Table]:
    """Measure all systems greedily and with a beam, its size being the last argument, beside CTranslate2."""
    tables = []
    for beam, search in BEAMS.items():
        commands = {}
        measures = {}
        for name, command in systems.items():
            commands[name] = [*command, beam]
            measures[name] = partial(measure, commands[name])
        samples = interleaved(measures, n_rounds)
        baselines = [CT2_FP32, CT2_INT8]
        tables.append(Table(f"{title}, {search}", note, commands, samples, figure, baselines))
    return tables


def translated(command: Command, contest: Contest, options: Options) -> Sample:
    """Translate both files; return BLEU, and sentences per second without startup: less the lines and time of `few`."""
    out = contest.many.with_name("out.txt")
    few = timed([*command, "-i", contest.few, "-o", out], options.scratch)
    n_few = len(list(iter_lines([out])))
    many = timed([*command, "-i", contest.many, "-o", out], options.scratch)
    hypotheses = list(iter_lines([out]))
    first_copy = hypotheses[: len(contest.references)]
    (bleu,) = score(first_copy, [contest.references], ("bleu",), contest.settings)
    rate = (len(hypotheses) - n_few) / (many.pop("seconds") - few["seconds"])
    return {"sentences_s": rate, "BLEU": bleu.value, **many}


def throughput(options: Options) -> list[Table]:
    """Sentences per second from file to file."""
    contest = prepare(options)
    note = f"The test set {COPIES} times over, less the time for {FEW_LINES} lines: loading does not count."
    measure = partial(translated, contest=contest, options=options)
    systems = all_systems(contest, [], [])
    for kind, command in contest.marian.items():
        systems[f"Marian {kind}"] = [*command, "--beam-size"]
    return compared("Decoding", note, systems, measure, "sentences_s", options.rounds)


def streamed(command: Command, contest: Contest, options: Options) -> Sample:
    """Median of the milliseconds from sending a line to reading its translation."""
    times_ms = []
    lines = itertools.cycle(contest.sources)
    with started(command, options.scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        stdin = run.process.stdin
        stdout = run.process.stdout
        assert stdin is not None
        assert stdout is not None
        for _ in range(STREAMED):
            start = time.perf_counter()
            print(next(lines), file=stdin, flush=True)
            if not stdout.readline():
                run.wait()
            times_ms.append(1000 * (time.perf_counter() - start))
        return {"ms": median(times_ms[UNCOUNTED:]), **run.figures()}


def latency(options: Options) -> list[Table]:
    """Latency of one sentence at a time."""
    contest = prepare(options)
    systems = all_systems(contest, ["--stream"], ["--translators", 1])
    note = f"A line in, flushed, a line out: the median of {STREAMED - UNCOUNTED}. CTranslate2 on one thread."
    measure = partial(streamed, contest=contest, options=options)
    return compared("One at a time", note, systems, measure, "ms", options.rounds)
