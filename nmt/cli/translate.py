"""`nmt translate`."""

import json
import os
import sys
from collections import deque
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmt.cli import options, streams
from nmt.cli.rewriting import checked_files, rewrite, share_cores
from nmt.distributed import launched, rank, ranks_joined, start_workers
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.cli.cluster import Job
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.documents.markup import MarkupTranslator

Markup = Literal["text", "html"]


def translate(
    text: Annotated[str | None, typer.Argument(help="One sentence. [default: lines from -i or stdin]")] = None,
    model: options.Models = None,
    input_path: Annotated[
        str | None, typer.Option("--input", "-i", metavar="PATH", help="Lines to translate; - is stdin.")
    ] = None,
    output_path: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PATH", help="Atomic output file; - is stdout.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Write to FILE.part; continue it if it exists.")] = False,
    shard: options.ShardOf = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Use a Ray cluster: auto, local or its address; -i and -o may be directories or URLs.",
        ),
    ] = None,
    markup: Annotated[
        Markup, typer.Option("--format", help="html: tags stay around the words that the tagged ones become.")
    ] = "text",
    beam: options.Beam = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses per line, with --json.")] = 1,
    length_penalty: options.LengthPenalty = None,
    alpha: options.Alpha = None,
    min_length: Annotated[int | None, typer.Option(help="Minimum pieces. [default: the config's, 1]")] = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum pieces. [default: 1.5 x source + 10]")] = None,
    prefix: Annotated[str, typer.Option(help="Text that every translation begins with.")] = "",
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = 1,
    mbr: options.Mbr = None,
    samples: options.Samples = None,
    scores: Annotated[bool, typer.Option(help="Print score TAB translation; with --mbr the utility.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines: hypotheses, scores, pieces.")] = False,
    stream: Annotated[bool | None, typer.Option(help="Answer line by line. [default: on a terminal]")] = None,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Processes that share the lines. [default: 1; with --ray all that fit]"),
    ] = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Translate lines of text, or one sentence.

    nmt translate < in > out writes one line per input line, in order; a blank line stays blank. nmt translate "one
    sentence" translates the argument. On a terminal, nmt translate shows a prompt.
    """
    input_file, output = (None if path is None else Path(path) for path in (input_path, output_path))
    text = checked_text(text, input_file)
    if n_best > 1 and not json_lines:
        raise InputError("several hypotheses do not fit on one line", hint="add --json")
    if ray is not None:
        alone = {"TEXT": text, "--resume": resume, "--shard": shard, "--stream": stream}
        check_cluster([name for name, value in alone.items() if value], input_path, output_path)
    n_processes = max(processes or 1, launched().n_ranks)
    if markup != "text" and (json_lines or scores or prefix or n_processes > 1):
        unsuitable = "--json, --scores, --prefix and --processes"
        raise InputError(f"--format {markup} does not go with {unsuitable}", hint="leave them out")
    command = "translate --resume" if shard is None else f"translate --shard {shard}"
    files = checked_files(command, input_file, output, shard) if resume or shard is not None else None
    if stream and n_processes > 1:
        raise InputError("--stream translates line by line, which processes cannot share", hint="leave it out")
    search = options.search_options(
        "--sample or --mbr chrf",
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        mbr=mbr,
        n_samples=samples,
        beam=n_best if sample and beam is None and not mbr else beam,
        sample=sample,
        n_best=n_best,
        scores=scores or json_lines,
        length_penalty=length_penalty,
        alpha=alpha,
        min_length=min_length,
        max_length_a=None if max_length is None else 0.0,
        max_length_b=max_length,
    )
    n_started, threads = (1, threads) if ray else share_cores(processes or 1, threads, device)

    paths, translator = options.load_translator(model, "cpu" if ray else device, threads, precision, engine)
    chosen = translator.with_options(**search)
    translator.encode_prefix(prefix)  # an invalid prefix raises before processes start and output is written
    arguments: dict[str, Any] = {"options": chosen, "batch_size": batch_size, "prefix": prefix}
    writer = translator if markup == "text" else of_html(translator)
    render = partial(formatted, as_json=json_lines, with_score=scores)
    if ray is not None:
        from nmt.cli.cluster import Job

        job = Job(paths, device, precision, engine, threads, chosen, batch_size, prefix, render)
        on_cluster(ray, job, str(input_path), str(output_path), processes)
        return
    with start_workers(n_started, sys.argv[1:], threads) as check, ranks_joined(check):
        if files:
            settings = chosen.model_dump() | {"prefix": prefix, "json": json_lines, "scores": scores}
            settings |= {"precision": precision, "engine": engine, "format": markup}
            rewrite(files, paths, writer, arguments, settings, render)
            return
        if rank() > 0:
            deque(translator.translate_lines([], **arguments), maxlen=0)  # translates this rank's share of the lines
            return
        with streams.open_output(output) as (out, _), streams.open_input(text, input_file) as (lines, is_prompt):
            if stream or (stream is None and n_processes == 1 and is_prompt):
                arguments["window"] = 1
            n_lines = None if text is not None else streams.bar_length(input_file, output)
            # Flushed after each window, so that a pipe's reader gets the lines as soon as they are translated.
            translations = writer.translate_lines(lines, **arguments, after_window=out.flush)
            for line in map(render, streams.with_bar(translations, n_lines)):
                out.write(line.encode() + b"\n")


def check_cluster(unsuitable: list[str], source: str | None, output: str | None) -> None:
    """Raise InputError for arguments that --ray does not support, and if Ray is not installed."""
    if unsuitable:
        raise InputError(f"{unsuitable[0]} does not go with --ray", hint="leave out one of them")
    if source in (None, "-") or output in (None, "-"):
        raise InputError("--ray needs -i and -o", hint="give files, directories or URLs, such as s3://bucket/texts")
    if any(find_spec(name) is None for name in ("ray", "fsspec", "pyarrow")):
        raise InputError("Ray is not installed", hint="pip install 'nmt-trainer[ray]'")


def on_cluster(address: str, job: "Job", source: str, output: str, processes: int | None) -> None:
    """Translate files on a Ray cluster, with a progress bar if stderr is a terminal."""
    from tqdm import tqdm

    from nmt.cli.cluster import translate_files

    with tqdm(unit=" lines", disable=streams.is_quiet() or None) as bar:  # None: no bar if stderr is not a terminal
        for n_lines in translate_files(address, job, source, output, processes):
            bar.update(n_lines)


def of_html(translator: "Translator") -> "MarkupTranslator":
    """Return a translator of lines of HTML."""
    from nmt.documents.html import HTML
    from nmt.documents.markup import MarkupTranslator

    return MarkupTranslator(translator, HTML)


def checked_text(text: str | None, input_file: Path | None) -> str | None:
    """Return TEXT with bad UTF-8 replaced. Raises InputError if there is an input file too, or if TEXT names a file."""
    if text is None:
        return None
    if input_file is not None:
        raise InputError("both a TEXT and -i were given", hint="give one of them")
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    if os.path.isfile(text):  # noqa: PTH113 - unlike Path.is_file, False if the text is too long for a file name
        hint = f"nmt translate -i {quote(text)}; to translate the name itself, pipe it in"
        raise InputError(f"'{text}' is a file, not a text", hint=hint)
    return text


def formatted(translation: "Translation", _: str = "", *, as_json: bool, with_score: bool) -> str:
    """Format the best hypothesis, with or without score and TAB; as JSON, all hypotheses with scores and pieces."""
    if not as_json:
        best = translation.hypotheses[0]
        return f"{best.score:.4f}\t{best.text}" if with_score else best.text
    hypotheses = []
    for found in translation.hypotheses:
        pieces = [{"piece": p, "log_prob": log_prob} for p, log_prob in zip(found.pieces, found.log_probs, strict=True)]
        hypotheses.append({"text": found.text, "score": found.score, "log_prob": found.log_prob, "pieces": pieces})
    return json.dumps({"source": translation.source, "hypotheses": hypotheses}, ensure_ascii=False)
