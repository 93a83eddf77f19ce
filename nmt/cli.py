"""Every command: parse, call one function, print.

The one place that prints errors and sets exit codes: 0 done; 1 failed; 2 the user's files, config or arguments;
130 Ctrl-C and 143 SIGTERM, after saving. Data goes to stdout, all else to stderr. Imports torch only in commands
that compute, so that `--help` answers at once.
"""

import contextlib
import gc
import io
import json
import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from nmt import __version__
from nmt.decode import EngineName, Precision, Utility
from nmt.distributed import launched, rank, ranks_joined, start_workers
from nmt.errors import (
    ConfigError,
    DataError,
    DivergedError,
    InputError,
    LostRankError,
    ModelError,
    NmtError,
    OutputError,
    StoppedError,
)
from nmt.files import atomic_writer, is_special
from nmt.processes import end_with_parent, prepare_torch

if TYPE_CHECKING:
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.text.lines import Pause

log = logging.getLogger("nmt")

USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # of the click that this typer carries
PAUSE_S = 1.0  # without a further line on stdin, after which those that have come are translated


class Command(typer.core.TyperCommand):
    """A command that refuses an option given twice, where otherwise the last one would win silently."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        *_, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            single = (
                option.param_type_name == "option" and not option.multiple and not getattr(option, "is_flag", False)
            )
            if single and given.count(option) > 1:
                raise USAGE_ERROR(f"{option.opts[0]} is given {given.count(option)} times", ctx)
        return super().parse_args(ctx, args)


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The run's YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings over the file's, dotted: train.lr=3e-4"),
]
Device = Annotated[str, typer.Option(help="auto (cuda, else mps, else cpu), cuda, cuda:1, mps or cpu.")]
Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 leaves it to torch.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More on what is done.")]
Model = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A run or model file; else $NMT_MODEL, else the newest under runs/."),
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help="A run or model file; several translate together; else $NMT_MODEL, else the newest under runs/.",
    ),
]
# the ranges of search options are checked by SearchOptions
Beam = Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy. [default: the config's, 5]")]
Mbr = Annotated[
    Utility | None,
    typer.Option(help="Minimum Bayes risk: the sample that is most like the others, by chrF or BLEU."),
]
Samples = Annotated[int | None, typer.Option(help="With --mbr, samples to choose from. [default: 32]")]
Temperature = Annotated[float, typer.Option(help="In sampling: below 1 is safer, above 1 wilder.")]
TopK = Annotated[int, typer.Option(help="In sampling: only the k likeliest pieces; 0 is all.")]
TopP = Annotated[float, typer.Option(help="In sampling: only the likeliest pieces that reach p together.")]
Seed = Annotated[int, typer.Option(help="Of sampling.")]
BatchSize = Annotated[int | None, typer.Option(help="Sentences decoded together. [default: the config's, 64]")]


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def nmt(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train translation models and translate with them.

    A run: nmt train CONFIG, then nmt translate < in > out, then nmt eval. Every setting of CONFIG: nmt config.
    """


@app.command(cls=Command)
def tokenize(
    config: ConfigFile,
    overrides: Overrides = None,
    show: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Print the pieces of TEXT.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train the tokenizer (SentencePiece).

    On the config's training text; `nmt train` does it too where there is none yet. Every setting:
    `nmt config tokenizer`.
    """
    set_up(quiet, verbose)
    from nmt.config import load_config
    from nmt.train.preparation import tokenize

    run, tokenizers, notes, figures = tokenize(load_config(config, overrides or []))
    for note in notes:
        log.info("%s", note)
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        log.info(
            "%s: %d pieces in the vocabulary; on dev %.2f pieces a word, %.2f %% byte pieces",
            side,
            len(tokenizer),
            figures[side].pieces_per_word,
            100 * figures[side].byte_share,
        )
    log.info("written to %s", run.path)
    for text in show or []:
        print(" ".join(tokenizers.source.pieces(tokenizers.source.encode(text))))


@app.command(cls=Command)
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    fresh: Annotated[bool, typer.Option(help="Begin anew; an old run is moved aside, never deleted.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Check everything, say what it would take, write nothing.")] = False,
    workers: Annotated[
        int,
        typer.Option(min=0, max=1024, help="Parts of a step worked on at once on a CPU; 0 is as many as pay."),
    ] = 0,
    device: Device = "auto",
    threads: Threads = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model, or go on with one.

    The same command again resumes. Ends by train.max_steps, max_epochs, max_minutes or patience. Several GPUs
    or machines: torchrun --nproc-per-node 2 -m nmt train CONFIG. Every setting: `nmt config`.
    """
    set_up(quiet, verbose)
    from nmt.config import load_config

    settings = load_config(config, overrides or [])
    prepare_torch(threads)
    from nmt.train import session

    if launched().rank > 0:
        if not dry_run:
            session.train_along(settings, device=device)
        return
    prepared = session.prepare(settings, device=device, fresh=fresh)
    if dry_run:
        for note in prepared.corpus.notes:
            log.info("%s", note)
        from nmt.train.dry_run import dry_run as trial

        print("\n".join(trial(prepared)))
    else:
        session.train(prepared, quiet=quiet, n_workers=workers or None)


@app.command(cls=Command)
def translate(
    text: Annotated[str | None, typer.Argument(help="One sentence; else lines from -i or stdin.")] = None,
    model: Models = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", help="Lines to translate; - is stdin.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Written whole or not at all; - is stdout.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what is done in FILE.part, and go on after its last line.")
    ] = False,
    beam: Beam = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses a line, with --json.")] = 1,
    length_penalty: Annotated[
        str | None, typer.Option(help="average: S / L^alpha; gnmt: S / ((5+L)/6)^alpha. [default: the config's]")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="The length penalty's strength, 0 to 10. [default: the config's, 1]")
    ] = None,
    min_length: Annotated[int | None, typer.Option(help="Least number of pieces. [default: the config's, 1]")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Most pieces, whatever the source. [default: 1.5 x source + 10]")
    ] = None,
    prefix: Annotated[str, typer.Option(help="What every translation must begin with.")] = "",
    sample: Annotated[bool, typer.Option(help="Draw translations at random instead of searching the best.")] = False,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 1,
    mbr: Mbr = None,
    samples: Samples = None,
    scores: Annotated[
        bool,
        typer.Option(help="Put the score and a tab before each translation; --mbr's is its expected utility."),
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="A JSON object a line: hypotheses, scores, pieces.")
    ] = False,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Answer each line as it comes. [default: on a terminal]"),
    ] = None,
    batch_size: BatchSize = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="bf16 and, on a CPU, int8 are quicker. [default: fp32, or what an export is stored in]"),
    ] = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(help="What searches. [default: ctranslate2 for what `nmt export` wrote, else torch]"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes that share the CPU and the lines.")] = 1,
    device: Device = "auto",
    threads: Threads = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Translate lines, a sentence, or at a prompt.

    As many lines out as in, in order, blank ones blank: nmt translate < in > out; nmt translate "one
    sentence"; or at a prompt on a terminal.
    """
    set_up(quiet, verbose)
    if text is not None and input_file is not None:
        raise InputError("both a TEXT and -i were given", hint="give one of them")
    if n_best > 1 and not json_lines:
        raise InputError("several hypotheses do not fit on one line", hint="add --json")
    text = text.encode(errors="surrogateescape").decode(errors="replace") if text is not None else None
    if text is not None and is_file(text):
        raise InputError(
            f"'{text}' is a file, not a text",
            hint=f"nmt translate -i {quote(text)}; to translate its name, pipe it in",
        )
    on_terminal = text is None and input_file in (None, Path("-")) and sys.stdin is not None and sys.stdin.isatty()
    several = max(workers, launched().n_ranks) > 1
    window = {"window": 1} if (on_terminal and not several if stream is None else stream) else {}
    if window and several:
        raise InputError("--stream answers line by line, which processes cannot share", hint="leave it out")
    if resume and any(path is None or path == Path("-") or is_special(path) for path in (input_file, output)):
        raise InputError("--resume goes from file to file", hint="nmt translate --resume -i FILE -o FILE")
    check_mbr(mbr, samples, beam)
    changes: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    check_drawn(changes, "" if sample or mbr else "--sample or --mbr chrf")
    changes |= {"n_best": n_best, "sample": sample, "mbr": mbr}
    chosen = {"beam": beam, "length_penalty": length_penalty, "alpha": alpha, "min_length": min_length}
    chosen |= {"n_samples": samples}
    changes |= {key: value for key, value in chosen.items() if value is not None}
    if sample and beam is None:
        changes["beam"] = n_best
    if max_length is not None:
        changes |= {"max_length_a": 0.0, "max_length_b": max_length}

    if workers > 1:
        threads = max((threads or n_cores()) // workers, 1)
    paths = find_models(model)
    translator = load_translator(paths, device, threads, precision, engine)
    if workers > 1 and device not in ("auto", "cpu"):
        raise ConfigError("--workers share a CPU", hint="for several GPUs: torchrun -m nmt translate …")
    options = translator.with_options(**changes)
    translator.encode_prefix(prefix)  # a wrong one is an error before there are processes or output
    if launched().n_ranks > 1:
        workers = 1
    with start_workers(workers, sys.argv[1:], threads) as check, ranks_joined(check):
        if rank() > 0:  # all it has to say is said by the first
            for _ in translator.translate_lines([], options, batch_size=batch_size, prefix=prefix):
                pass
            return
        with contextlib.ExitStack() as stack:
            n_done = 0
            if resume and input_file is not None and output is not None:
                from nmt.decode.resumable import hash_of, resumed_output
                from nmt.decode.translator import model_files

                form = {**options.model_dump(), "prefix": prefix, "json": json_lines, "scores": scores}
                origin = {
                    "input": hash_of([input_file]),
                    "model": hash_of([file for path in paths for file in model_files(path)]),
                }
                origin["option"] = json.dumps({**form, "precision": precision, "engine": engine})
                out, n_done = stack.enter_context(resumed_output(output, origin))
            else:
                out = stack.enter_context(open_output(output))
            lines = stack.enter_context(open_input(text, input_file, on_terminal))
            translations = translator.translate_lines(
                islice(lines, n_done, None),
                options,
                batch_size=batch_size,
                prefix=prefix,
                first=n_done + 1,
                **window,
            )
            to_terminal = output in (None, Path("-")) and sys.stdout is not None and sys.stdout.isatty()
            n_lines = None if quiet or to_terminal or text is not None else lines_to_show(input_file)
            for translation in with_bar(translations, n_lines, n_done):
                out.write(as_line(translation, json_lines, scores).encode() + b"\n")
                out.flush()  # whoever reads a pipe, or goes on after a kill, has every line that is done


@app.command(name="eval", cls=Command)
def evaluate(
    model: Models = None,
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: the config's data.test]")] = None,
    ref: Annotated[list[Path] | None, typer.Option(help="Reference lines; several times for several.")] = None,
    hyp: Annotated[Path | None, typer.Option(help="Translations to score; no model is used.")] = None,
    beam: Beam = None,
    mbr: Mbr = None,
    samples: Samples = None,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 1,
    lowercase: Annotated[bool, typer.Option(help="Compare without case.")] = False,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's: 13a, zh, ja-mecab, char, none, ... [default: by language]")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=100_000, help="Resamplings for the 95 % interval; 0 is none.")
    ] = 1000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Keep the translations here.")] = None,
    show: Annotated[int, typer.Option(min=0, help="Print so many translations beside source and reference.")] = 0,
    heads: Annotated[bool, typer.Option("--heads", help="Tell what each attention head looks at.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    batch_size: BatchSize = None,
    device: Device = "auto",
    threads: Threads = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Score translations: BLEU, chrF, TER.

    Each with sacreBLEU's signature and its 95 % interval; and the perplexity of the references. --heads: a line
    for each attention head, means over the pieces of the corpus (`nmt.HeadSummary` explains them).

    The newest run on its config's test set; or -m, --src and --ref; or --hyp against --ref with no model.
    """
    set_up(quiet, verbose)
    from nmt import evaluate
    from nmt.config import language_of
    from nmt.text.lines import read_lines

    figures: dict[str, Any] = {}
    if hyp is not None:
        if not ref:
            raise InputError("--hyp needs --ref", hint="nmt eval --hyp translations.en --ref test.en")
        of_model = {"-m": model, "--beam": beam, "--mbr": mbr, "-o": output, "--heads": heads}
        if given := [name for name, value in of_model.items() if value]:
            raise InputError(
                f"--hyp are translations already, {given[0]} asks for a model's", hint="leave out one of them"
            )
        references = [read_lines([path]) for path in ref]
        sources = read_lines([src]) if src is not None else [""] * len(references[0])
        hypotheses = read_lines([hyp])
        if src is not None and len(sources) != len(hypotheses):
            raise DataError(
                f"{len(sources)} source lines but {len(hypotheses)} hypotheses",
                hint="line N of --hyp must translate line N of --src",
            )
        lang = language_of(ref[0])
    else:
        check_mbr(mbr, samples, beam)
        drawn: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        check_drawn(drawn, "" if mbr else "--mbr chrf")
        paths = find_models(model, tell=True)
        figures["models"] = [str(path) for path in paths]
        translator = load_translator(paths, device, threads)
        sources, references, lang = test_set(translator, src, ref)
        for number, lines in enumerate(references, 1):
            if len(lines) != len(sources):
                raise DataError(
                    f"{len(sources)} source lines but {len(lines)} lines in reference {number}",
                    hint="line N of a reference must translate line N of the source",
                )
        drawn |= {"mbr": mbr, "n_samples": samples or translator.options.n_samples}
        summaries = []
        if heads:
            from nmt.heads import attention_summary, table

            summaries = attention_summary(translator, list(zip(sources, references[0], strict=True)))
            figures["heads"] = [vars(one) for one in summaries]
        options = translator.with_options(**({"beam": beam} if beam else {}), **(drawn if mbr else {}))
        translations = translator.translate_lines(sources, options, batch_size=batch_size)
        n_lines = None if quiet else len(sources)
        hypotheses = [found.text for found in with_bar(translations, n_lines)]
        figures |= drawn if mbr else {"beam": options.beam}
        figures["perplexity"] = evaluate.perplexity(translator.reference_log_probs(sources, references[0]))
        if output is not None:
            with open_output(output) as out:
                out.writelines(line.encode() + b"\n" for line in hypotheses)
    found = evaluate.score(
        hypotheses,
        references,
        tokenize=tokenize or evaluate.bleu_tokenizer(lang),
        lowercase=lowercase,
        metrics=("bleu", "chrf", "ter"),
        n_bootstrap=bootstrap,
    )
    if json_lines:
        figures["scores"] = [vars(one) for one in found]
        print(json.dumps({"n_lines": len(hypotheses), **figures}, ensure_ascii=False))
        return
    for i in [n * len(hypotheses) // show for n in range(min(show, len(hypotheses)))]:
        print(f"source       {sources[i]}\nreference    {references[0][i]}\ntranslation  {hypotheses[i]}\n")
    for one in found:
        print(one)
    if "perplexity" in figures:
        print(f"perplexity of the references = {figures['perplexity']:.3f} a piece")
    if heads:
        print("\n" + "\n".join(table(summaries)))


@app.command(cls=Command)
def export(
    to: Annotated[str, typer.Option(help="The engine: ctranslate2.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A directory, written whole or not at all; an old export is replaced."),
    ],
    model: Model = None,
    quantization: Annotated[
        str, typer.Option(help="How weights are stored: float32, float16, bfloat16 or int8.")
    ] = "float32",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a model for another engine.

    A directory that CTranslate2 translates from without torch, tokenizer and settings included. Both engines
    translate a few sentences first and must agree.
    """
    set_up(quiet, verbose)
    if to != "ctranslate2":
        raise InputError(f"no engine '{to}'", hint="there is ctranslate2")
    translator = load_translator(find_models([model] if model else None), "cpu", threads=0)
    from nmt.export import to_ctranslate2

    to_ctranslate2(translator, output, quantization)
    log.info("written to %s", output)


@app.command(name="config", cls=Command)
def list_config(
    key: Annotated[str, typer.Argument(help="Only keys that begin so: data, model, train.max, ...")] = "",
    of: Annotated[Path | None, typer.Option(metavar="CONFIG", help="The values in this file, paths resolved.")] = None,
) -> None:
    """List every setting of a config file.

    Key, what is allowed, default, meaning. [fitted]: where it is not set, it is chosen by the size of the corpus.
    """
    set_up(quiet=False, verbose=False)
    from nmt.config import left_to_training, load_config, settings, values

    rows = [row for row in settings() if row[0].startswith(key)]
    if not rows:
        raise ConfigError(f"no key begins with '{key}'", hint="`nmt config` lists all of them")
    if of is not None:
        config = load_config(of)
        given = {name: value for name, value in values(config) if name.startswith(key)}
        if open_keys := left_to_training(config, given):
            from nmt.train.session import resolved

            given |= {name: value for name, value in resolved(config, open_keys) if name in given}
        print(given[key] if key in given else "\n".join(f"{name}={value}" for name, value in given.items()))
        return
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, allowed, default, meaning in rows:
        print(f"{name:<{widths[0]}}  {allowed:<{widths[1]}}  {default:<{widths[2]}}  {meaning}")


# --- what the commands share ------------------------------------------------------------------------------


class StderrHandler(logging.Handler):
    """Log lines above the progress bar: warnings and errors named as such, the rest as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        message = "\n".join(map(printable, record.getMessage().split("\n")))
        if record.levelno >= logging.WARNING:
            message = f"nmt: {record.levelname.lower()}: {message}"
        if bar := sys.modules.get("tqdm"):  # imported only by what shows a bar
            bar.tqdm.write(message, file=sys.stderr)
        else:
            print(message, file=sys.stderr)


def printable(line: str) -> str:
    """A line with control characters escaped: names that a stranger chose must not steer the user's terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def set_up(quiet: bool, verbose: bool) -> None:
    """Logging to stderr."""
    log.handlers = [StderrHandler()]
    log.propagate = False
    log.setLevel(logging.WARNING if quiet or launched().rank else logging.DEBUG if verbose else logging.INFO)


def n_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_models(named: Sequence[Path] | None, *, tell: bool = False) -> Sequence[Path]:
    """The models that were named, else $NMT_MODEL's, else the newest under runs/.

    Args:
        named: by -m.
        tell: say which they are even if they were named.
    """
    from nmt.run.directory import newest_model

    given = named or ([Path(os.environ["NMT_MODEL"])] if os.environ.get("NMT_MODEL") else [])
    newest = None if given else newest_model()
    if not given and newest is None:
        raise ModelError("no model under runs/", hint="train one with `nmt train CONFIG`, or name one with -m")
    paths = [newest.parent] if newest is not None else given
    if tell or not given:
        kind = "model" if len(paths) == 1 else "ensemble"
        log.info("%s: %s", kind, " and ".join(map(str, paths)))
    return paths


def check_mbr(mbr: Utility | None, samples: int | None, beam: int | None) -> None:
    """Make sure that what was said of minimum Bayes risk belongs together."""
    if mbr and beam is not None:
        raise InputError("--mbr chooses among samples, not in a beam", hint="--samples says among how many")
    if samples is not None and not mbr:
        raise InputError("--samples are for --mbr", hint="add --mbr chrf; with --sample, --beam says how many")


def check_drawn(how: dict[str, Any], missing: str) -> None:
    """Refuse options of sampling where the option that draws samples is missing."""
    from nmt.decode.options import SearchOptions

    for name, value in how.items():
        if missing and value != SearchOptions.model_fields[name].default:
            raise InputError(f"--{name.replace('_', '-')} is for samples", hint=f"add {missing}")


def load_translator(
    paths: Sequence[Path],
    device: str,
    threads: int,
    precision: Precision | None = None,
    engine: EngineName | None = None,
) -> "Translator":
    """Load a model, with torch set up for it."""
    log.debug("loading %s on %s", " and ".join(map(str, paths)), device)
    prepare_torch(threads)
    from nmt.decode.translator import load

    translator = load(paths, device, precision, engine)
    gc.freeze()  # or Python would look through all that torch brought again and again
    return translator


def test_set(
    translator: "Translator", src: Path | None, ref: list[Path] | None
) -> tuple[list[str], list[list[str]], str]:
    """Source lines, references and target language: as named, else those of the model's run."""
    from nmt.config import language
    from nmt.text.lines import read_lines
    from nmt.train.preparation import corpus_paths

    lang = language(translator.config.data, "target")
    if src is not None and ref:
        return read_lines([src]), [read_lines([path]) for path in ref], lang
    if src is not None or ref:
        raise InputError("--src and --ref go together", hint="give both, or neither for the config's data.test")
    config = translator.run.read_config() if translator.run is not None else None
    if config is None or config.data.test is None:
        raise InputError("the model's run names no data.test", hint="give --src and --ref")
    source, target = corpus_paths(config, config.data.test)
    return read_lines(source), [read_lines(target)], lang


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Where translations go: stdout, or a file that appears when it is whole."""
    if path is None or path == Path("-"):
        if sys.stdout is None:
            raise OutputError("stdout is closed", hint="write to a file with -o")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with atomic_writer(path) as out:
            yield out


@contextlib.contextmanager
def open_input(text: str | None, path: Path | None, on_terminal: bool) -> "Iterator[Iterator[str | Pause]]":
    """Where lines come from: the argument, a file, stdin, or a prompt."""
    from nmt.text.lines import decode_lines, open_lines, raw_lines, with_pauses

    if text is not None:
        yield iter(text.split("\n"))
    elif path is not None and path != Path("-"):
        with open_lines(path) as lines:
            yield lines
    elif on_terminal:
        yield prompted()
    elif sys.stdin is None:
        yield iter(())
    elif stat.S_ISREG(os.fstat(0).st_mode):
        yield decode_lines(raw_lines(sys.stdin.buffer, "stdin"), "stdin")
    else:  # whoever writes it may be slow
        # A descriptor of its own: at exit Python locks sys.stdin, which a thread that reads it would still hold.
        stream = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - the thread may read it to the end of the process
        yield with_pauses(decode_lines(raw_lines(stream, "stdin"), "stdin"), PAUSE_S)


def lines_to_show(path: Path | None) -> int | None:
    """How many lines a progress bar counts to; None where stderr is no terminal, or the input no file."""
    from nmt.text.lines import n_lines_left, open_bytes, reading

    if not sys.stderr.isatty():
        return None
    if path is None or path == Path("-"):
        on_disk = sys.stdin is not None and stat.S_ISREG(os.fstat(0).st_mode)
        return n_lines_left(sys.stdin.buffer) if on_disk else None
    if not path.is_file():
        return None
    with open_bytes(path) as stream, reading(str(path)):
        return n_lines_left(stream)


def with_bar(translations: "Iterable[Translation]", n_lines: int | None, n_done: int = 0) -> "Iterable[Translation]":
    """The translations, with a progress bar on a terminal: lines, lines a second, time left."""
    if n_lines is None:
        return translations
    from tqdm import tqdm

    return tqdm(
        translations,
        total=n_lines,
        initial=n_done,
        unit=" lines",
        smoothing=0,  # lines come in windows: the mean rate tells more than the latest
        disable=None,  # where stderr is no terminal
        file=sys.stderr,
    )


def is_file(text: str) -> bool:
    """Whether a sentence happens to be a file's name."""
    with contextlib.suppress(OSError, ValueError):  # too long for a name, ...
        return Path(text).is_file()
    return False


def prompted() -> Iterator[str]:
    """Lines typed at a prompt until Ctrl-D."""
    print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line.decode(errors="replace").rstrip("\r\n")


def as_line(translation: "Translation", json_lines: bool, scores: bool) -> str:
    """One line of output for one of input."""
    if not json_lines:
        best = translation.hypotheses[0]
        return f"{best.score:.4f}\t{best.text}" if scores else best.text
    hypotheses = [
        {
            "text": found.text,
            "score": found.score,
            "log_prob": found.log_prob,
            "pieces": [
                {"piece": piece, "log_prob": log_prob}
                for piece, log_prob in zip(found.pieces, found.log_probs, strict=True)
            ],
        }
        for found in translation.hypotheses
    ]
    return json.dumps({"source": translation.source, "hypotheses": hypotheses}, ensure_ascii=False)


def main() -> None:
    """The command: run, print what went wrong, exit."""
    for stream in (sys.stdout, sys.stderr):  # UTF-8 and \n on every system
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if "NMT_WORKER_THREADS" in os.environ:  # set by start_workers
        end_with_parent()
    command = typer.main.get_command(app)
    try:  # not app(): it would turn a closed pipe, a usage error or an EOFError into endings of its own
        with command.make_context("nmt", sys.argv[1:]) as context:
            command.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except USAGE_ERROR as error:
        if error.format_message().startswith("Usage: "):  # `nmt` alone: the help
            error.show()
            sys.exit(2)
        path = error.ctx.command_path if error.ctx else "nmt"
        dash = "; -- goes before a TEXT that begins with a dash" if path == "nmt translate" else ""
        fail(InputError(error.format_message(), hint=f"`{path} --help` lists what is allowed{dash}"))
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except NmtError as error:
        fail(error)
    except OSError as error:
        if error.errno is None:
            raise
        if error.filename is not None:  # a name too long, a directory that may not be entered: wherever it is met
            fail(InputError(f"cannot use {error.filename}: {error.strerror}", hint="check the path and its rights"))
        fail(OutputError(f"cannot write the output: {error.strerror}", hint="is the disk full?"))


def fail(error: NmtError) -> None:
    """Say what is wrong and what to do, and exit with the error's code."""
    try:
        rank = launched().rank
    except ConfigError:  # which may be the error
        rank = 0
    if rank and isinstance(error, (DivergedError, LostRankError, StoppedError)):
        sys.exit(error.exit_code)  # all ranks end so, and the first one says it
    prefix = "nmt: error: " if rank == 0 else f"nmt: error: rank {rank}: "
    for line in str(error).split("\n"):
        print(prefix + printable(line), file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)
    with contextlib.suppress(OSError, AttributeError):
        sys.stdout.flush()
    if sys.stdout is None:
        sys.exit(error.exit_code)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what cannot be flushed must not fail again
    sys.exit(error.exit_code)
