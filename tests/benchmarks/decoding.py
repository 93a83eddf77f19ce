"""Decoding: `nmt translate` and a loop over CTranslate2 with the same weights and options, from text to text."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from experiments import run_nmt
from measure import NMT, PROGRAMS, Options, Sample, Table, interleaved, medians, started, timed

from nmt.config import language
from nmt.evaluate import bleu_tokenizer, score
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train.corpora import corpus_paths

FEW_LINES = 8  # the time for so many lines counts as startup
COPIES = 3  # of the test set in the long file
BEAMS = {1: "greedy", 5: "beam 5"}
KINDS = ["float32", "int8"]  # of numbers
STREAMED, UNCOUNTED = 60, 10  # lines sent one at a time, of which the first are warm-up
CT2_FP32, CT2_INT8 = "CTranslate2 fp32", "CTranslate2 int8"


@dataclass(frozen=True)
class Contest:
    """The model and the test set of all systems."""

    run: Path
    exports: dict[str, Path]  # of CTranslate2, by quantization
    sources: list[str]
    references: list[str]
    tokenize: str  # sacreBLEU's tokenizer for the references
    few: Path  # the first lines
    many: Path  # several copies of the test set


@cache
def prepare(options: Options) -> Contest:
    """Train a model if there is none, export it, and write the files."""
    home = options.scratch / "decoding"
    home.mkdir(exist_ok=True)
    path = options.model or options.scratch / "model"
    if not RunDirectory(path).model_file.exists():
        run_nmt("train", options.config, f"run={path}", f"train.max_minutes={options.minutes}")
    exports = {kind: home / kind for kind in KINDS}
    for kind, export in exports.items():
        run_nmt("export", "-q", "-m", path, "--to", "ctranslate2", "-o", export, "--quantization", kind)
    config = RunDirectory(path).read_config()
    (files,) = config.data.test
    sources, references = ([*iter_lines(paths)] for paths in corpus_paths(config, files))
    few, many = home / "few.txt", home / "many.txt"
    for file, lines in ((few, sources[:FEW_LINES]), (many, sources * COPIES)):
        file.write_text("".join(f"{line}\n" for line in lines))
    for kind in KINDS:  # converts the model into nmt's cache
        run_nmt("translate", "-q", "-m", path, "--precision", kind.replace("float", "fp"), sources[0])
    tokenize = bleu_tokenizer(language(config.data, "target"))
    return Contest(path, exports, sources, references, tokenize, few, many)


def nmt_command(contest: Contest, precision: str = "fp32", *rest: object) -> list[object]:
    return [*NMT, "translate", "-q", "-m", contest.run, "--precision", precision, *rest]


def ctranslate2_command(contest: Contest, kind: str, *rest: object) -> list[object]:
    return [sys.executable, PROGRAMS / "ctranslate2_loop.py", "-m", contest.exports[kind], *rest]


def systems(contest: Contest, *rest: object) -> dict[str, list[object]]:
    """The command of each system; `rest` are options of the loop over CTranslate2."""
    return {
        "nmt fp32": nmt_command(contest),
        "nmt int8": nmt_command(contest, "int8"),
        "nmt, torch": nmt_command(contest, "fp32", "--engine", "torch"),
        CT2_FP32: ctranslate2_command(contest, "float32", *rest),
        CT2_INT8: ctranslate2_command(contest, "int8", *rest),
    }


def translated(command: Sequence[object], contest: Contest, options: Options) -> Sample:
    """Translate both files; return BLEU, and sentences per second without startup: less the lines and time of `few`."""
    out = contest.many.with_name("out.txt")
    few = timed([*command, "-i", contest.few, "-o", out], options.scratch)
    all_ = timed([*command, "-i", contest.many, "-o", out], options.scratch)
    hypotheses = list(iter_lines([out]))
    once = hypotheses[: len(contest.references)]
    (bleu,) = score(once, [contest.references], tokenize=contest.tokenize, metrics=("bleu",))
    rate = (len(hypotheses) - len(list(iter_lines([contest.few])))) / (all_.pop("seconds") - few["seconds"])
    return {"sentences_s": rate, "BLEU": bleu.value, **all_}


def throughput(options: Options) -> list[Table]:
    """Sentences per second from file to file."""
    contest = prepare(options)
    note = f"The test set {COPIES} times over, less the time for {FEW_LINES} lines: loading does not count."
    tables = []
    for beam, title in BEAMS.items():
        commands = {name: [*command, "--beam", beam] for name, command in systems(contest).items()}
        measures = {name: partial(translated, command, contest, options) for name, command in commands.items()}
        samples = interleaved(measures, options.rounds)
        tables.append(Table(f"Decoding, {title}", note, commands, samples, "sentences_s", [CT2_FP32, CT2_INT8]))
    return tables


def streamed(command: Sequence[object], contest: Contest, options: Options) -> Sample:
    """Median of the milliseconds from sending a line to reading its translation."""
    times = []
    lines = contest.sources * (1 + STREAMED // len(contest.sources))
    with started(command, options.scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.process.stdin is not None
        assert run.process.stdout is not None
        for number, line in enumerate(lines[:STREAMED]):
            if number == UNCOUNTED:
                run.begin()
            start = time.perf_counter()
            print(line, file=run.process.stdin, flush=True)
            if not run.process.stdout.readline():
                run.wait()
            times.append(1000 * (time.perf_counter() - start))
        return medians([{"ms": ms} for ms in times[UNCOUNTED:]]) | run.figures()


def latency(options: Options) -> list[Table]:
    """Latency of one sentence at a time."""
    contest = prepare(options)
    note = f"A line in, flushed, a line out: the median of {STREAMED - UNCOUNTED}. CTranslate2 on one thread."
    tables = []
    for beam, title in BEAMS.items():
        commands = {
            name: [*command, "--beam", beam, *["--stream"] * name.startswith("nmt")]
            for name, command in systems(contest, "--translators", 1).items()
        }
        measures = {name: partial(streamed, command, contest, options) for name, command in commands.items()}
        samples = interleaved(measures, options.rounds)
        tables.append(Table(f"One at a time, {title}", note, commands, samples, "ms", [CT2_FP32, CT2_INT8]))
    return tables


def start(options: Options) -> list[Table]:
    """Time of a whole command that translates one sentence."""
    contest = prepare(options)
    commands: dict[str, list[object]] = {
        "import torch": [sys.executable, "-c", "import torch"],
        "nmt translate, one sentence": nmt_command(contest, "fp32", contest.sources[0]),
        "the same with torch": nmt_command(contest, "fp32", "--engine", "torch", contest.sources[0]),
        "a loop over CTranslate2": ctranslate2_command(contest, "int8", "-i", contest.few, "-o", "/dev/null"),
    }
    measures = {name: partial(timed, command, options.scratch) for name, command in commands.items()}
    samples = interleaved(measures, options.rounds)
    return [Table("Start", "From the command to its end.", commands, samples, "seconds", ["import torch"])]
