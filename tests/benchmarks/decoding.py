"""Decoding: `nmt translate` and other engines with the same weights and options, from text to text."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from measure import NMT, PROGRAMS, ROOT, Options, Sample, Table, interleaved, medians, say, started, timed, told

from nmt.config import language
from nmt.evaluate import bleu_tokenizer, score
from nmt.run.directory import RunDirectory
from nmt.text.lines import read_lines
from nmt.train.preparation import corpus_paths

FEW_LINES = 8  # the time for so many lines counts as startup
COPIES = 3  # of the test set in the long file
BATCH_SIZES = (32, 64, 128)
BEAMS = {1: "greedy", 5: "beam 5"}
STREAMED, UNCOUNTED = 60, 10  # lines sent one at a time, of which the first are warm-up
MEMORY_LINES = (1_000, 100_000)
CT2_FP32, CT2_INT8 = "CTranslate2 fp32", "CTranslate2 int8"


@dataclass(frozen=True)
class Contest:
    """The model and the test set of all systems.

    Attributes:
        run: run directory of the model.
        exports: CTranslate2 exports of the model, by quantization.
        backend: the libraries that multiply CTranslate2's matrices.
        sources, references: the test set.
        tokenize: sacreBLEU's tokenizer for the references.
        few, many: files to translate: a few lines, and several copies of the test set.
    """

    run: Path
    exports: dict[str, Path]
    backend: str
    sources: list[str]
    references: list[str]
    tokenize: str
    few: Path
    many: Path


@cache
def prepare(options: Options) -> Contest:
    """Train a model if there is none, export it, and write the files.

    Raises:
        DataError: the corpus is not there.
    """
    home = options.scratch / "decoding"
    home.mkdir(exist_ok=True)
    path = options.model or options.scratch / "model"
    if not RunDirectory(path).model_file.exists():
        say(f"no model: training one for {options.minutes:g} minutes")
        train = ["train", options.config, f"run={path}", f"train.max_minutes={options.minutes}"]
        subprocess.run([*map(str, [*NMT, *train])], cwd=ROOT, check=True)
    exports = {}
    for kind in ("float32", "int8"):
        exports[kind] = home / kind
        export = ["export", "-m", path, "--to", "ctranslate2", "-o", exports[kind], "--quantization", kind, "-q"]
        subprocess.run([*map(str, [*NMT, *export])], cwd=ROOT, check=True)
    config = RunDirectory(path).read_config()
    assert config.data.test is not None
    source, target = corpus_paths(config, config.data.test)
    sources, references = read_lines(source), read_lines(target)
    files = {"few": sources[:FEW_LINES], "many": sources * COPIES}
    for name, lines in files.items():
        (home / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    tokenize = bleu_tokenizer(language(config.data, "target"))
    for precision in ("fp32", "int8"):  # converts the model into nmt's cache
        timed([*NMT, "translate", "-q", "-m", path, "--precision", precision, sources[0]], options.scratch)
    return Contest(
        path,
        exports,
        backend_of(exports["int8"]),
        sources,
        references,
        tokenize,
        *(home / f"{name}.txt" for name in files),
    )


def backend_of(export: Path) -> str:
    """What CTranslate2 says that it multiplies with, such as "DNNL (packed: false)" in fp32 and in int8."""
    program = "import ctranslate2, sys; ctranslate2.Translator(sys.argv[1])"
    command = [sys.executable, "-c", program, str(export)]
    env = {**os.environ, "CT2_VERBOSE": "1"}
    stderr = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stderr
    names = ("Selected ISA", "SGEMM backend", "GEMM_S8 backend")
    return ", ".join(line.rpartition(" - ")[2] for line in stderr.splitlines() if any(name in line for name in names))


def nmt_command(contest: Contest, precision: str = "fp32", *rest: object) -> list[object]:
    return [*NMT, "translate", "-q", "-m", contest.run, "--precision", precision, *rest]


def ctranslate2_command(contest: Contest, kind: str, *rest: object) -> list[object]:
    return [sys.executable, PROGRAMS / "peer_translate.py", "ctranslate2", "-m", contest.exports[kind], *rest]


def hugging_face_command(contest: Contest, python: Path, *rest: object) -> list[object]:
    return [python, PROGRAMS / "peer_translate.py", "hugging-face", "-m", contest.run, *rest]


# --- files ------------------------------------------------------------------------------------------------


def systems(options: Options, contest: Contest) -> dict[str, list[list[object]]]:
    """The commands of each system, one per setting; only its fastest one is compared."""
    sizes = [["--batch-size", n] for n in BATCH_SIZES]
    shares = [["--translators", n, "--threads", m] for n, m in ((1, 1), (2, 1), (1, 2))]
    found = {name: [[*nmt_command(contest, name), *size] for size in sizes] for name in ("fp32", "int8")}
    found = {f"nmt {name}": commands for name, commands in found.items()}
    by_torch = [*nmt_command(contest), "--engine", "torch"]
    found["nmt, torch"] = [[*by_torch, *size] for size in sizes]
    for name, kind in ((CT2_FP32, "float32"), (CT2_INT8, "int8")):
        found[name] = [[*ctranslate2_command(contest, kind), *size, *share] for size in sizes for share in shares]
    if options.peers:
        found["Hugging Face generate fp32"] = [[*hugging_face_command(contest, options.peers), *s] for s in sizes]
    return found


def translated(command: Sequence[object], contest: Contest, options: Options) -> Sample:
    """Translate both files; return BLEU, and sentences per second without startup: less the lines and time of `few`."""
    out = contest.many.with_name("out.txt")
    few = timed([*command, "-i", contest.few, "-o", out], options.scratch)
    all_ = timed([*command, "-i", contest.many, "-o", out], options.scratch)
    hypotheses = read_lines([out])
    once = hypotheses[: len(contest.references)]
    (bleu,) = score(once, [contest.references], tokenize=contest.tokenize, metrics=("bleu",))
    rate = (len(hypotheses) - len(read_lines([contest.few]))) / (all_.pop("seconds") - few["seconds"])
    return {"sentences_s": rate, "BLEU": bleu.value, **all_}


def throughput(options: Options) -> list[Table]:
    """Sentences per second from file to file, each system at its best settings."""
    contest = prepare(options)
    (bleu,) = score(contest.references, [contest.references], tokenize=contest.tokenize, metrics=("bleu",))
    note = (
        f"The test set {COPIES} times over, less the time for {FEW_LINES} lines: loading does not count. Each "
        f"system by the best of its settings, found in one trial of each. CTranslate2 is a loop over its Python API: "
        f"{contest.backend}. BLEU: `{bleu.signature}`."
    )
    tables = []
    for beam, title in BEAMS.items():
        best: dict[str, list[object]] = {}
        trials: dict[str, list[Sample]] = {}
        for name, settings in systems(options, contest).items():
            commands = {told(command): command for command in ([*one, "--beam", beam] for one in settings)}
            measures = {key: partial(translated, one, contest, options) for key, one in commands.items()}
            found = interleaved(measures, 1)
            best[name] = commands[max(found, key=lambda key: found[key][0]["sentences_s"])]
            trials |= found
        measures = {name: partial(translated, one, contest, options) for name, one in best.items()}
        samples = interleaved(measures, options.rounds)
        bases = [CT2_FP32, CT2_INT8]
        shown = {name: told(command) for name, command in best.items()}
        tables.append(Table(f"Decoding, {title}", note, shown, samples, "sentences_s", bases, trials))
    return tables


# --- one sentence -----------------------------------------------------------------------------------------


def streamed(command: Sequence[object], contest: Contest, options: Options) -> Sample:
    """Median of the milliseconds from sending a line to reading its translation."""
    times = []
    lines = contest.sources * (1 + STREAMED // len(contest.sources))
    with started([*command, "--stream"], options.scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
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
    commands = {f"nmt {precision}": nmt_command(contest, precision) for precision in ("fp32", "int8")}
    commands["nmt, torch"] = nmt_command(contest, "fp32", "--engine", "torch")
    for name, kind in ((CT2_FP32, "float32"), (CT2_INT8, "int8")):
        commands[name] = ctranslate2_command(contest, kind, "--threads", 1)
    if options.peers:
        commands["Hugging Face generate fp32"] = hugging_face_command(contest, options.peers)
    note = f"A line in, flushed, a line out: the median of {STREAMED - UNCOUNTED}. CTranslate2 on one thread."
    tables = []
    for beam, title in BEAMS.items():
        full = {name: [*command, "--beam", beam, "--stream"] for name, command in commands.items()}
        measures = {name: partial(streamed, command, contest, options) for name, command in full.items()}
        samples = interleaved(measures, options.rounds)
        shown = {name: told(command) for name, command in full.items()}
        tables.append(Table(f"One at a time, {title}", note, shown, samples, "ms", [CT2_FP32, CT2_INT8]))
    return tables


def start(options: Options) -> list[Table]:
    """Time of a whole command that translates one sentence."""
    contest = prepare(options)
    commands: dict[str, list[object]] = {
        "import torch": [sys.executable, "-c", "import torch"],
        "nmt translate, one sentence": [*nmt_command(contest), contest.sources[0]],
        "the same in int8": [*nmt_command(contest, "int8"), contest.sources[0]],
        "the same with torch": [*nmt_command(contest, "fp32", "--engine", "torch"), contest.sources[0]],
        "a loop over CTranslate2": ctranslate2_command(contest, "int8", "-i", contest.few, "-o", "/dev/null"),
    }
    measures = {name: partial(timed, command, options.scratch) for name, command in commands.items()}
    samples = interleaved(measures, options.rounds)
    shown = {name: told(command) for name, command in commands.items()}
    return [Table("Start", "From the command to its end.", shown, samples, "seconds", ["import torch"])]


def memory(options: Options) -> list[Table]:
    """Peak memory for files of different lengths."""
    contest = prepare(options)
    out = contest.few.with_name("out.txt")
    commands = {}
    for n_lines in MEMORY_LINES:
        lines = contest.many.with_name(f"{n_lines}.txt")
        copies = contest.sources * (1 + n_lines // len(contest.sources))
        lines.write_text("".join(f"{line}\n" for line in copies[:n_lines]))
        commands[f"{n_lines:,} lines"] = nmt_command(contest, "fp32", "--beam", 1, "-i", lines, "-o", out)
    measures = {name: partial(timed, command, options.scratch) for name, command in commands.items()}
    shown = {name: told(command) for name, command in commands.items()}
    note = "Anonymous memory at its peak, greedy search."
    return [Table("Memory", note, shown, interleaved(measures, 1), "memory_mb", [next(iter(commands))])]
