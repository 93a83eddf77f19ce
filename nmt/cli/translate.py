"""`nmt translate`."""

import json
import os
import sys
from collections import deque
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.cli.rewriting import checked_files, rewrite, share_cores
from nmt.distributed import launched, rank, ranks_joined, start_workers
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.decode.segments import Translation


def translate(
    text: Annotated[str | None, typer.Argument(help="One sentence. [default: lines from -i or stdin]")] = None,
    model: options.Models = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", help="Lines to translate; - is stdin.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Atomic output file; - is stdout.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Write to FILE.part; continue it if it exists.")] = False,
    shard: options.ShardOf = None,
    beam: options.Beam = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses per line, with --json.")] = 1,
    length_penalty: Annotated[str | None, typer.Option(help="average: S/L^alpha; gnmt: S/((5+L)/6)^alpha.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Length penalty strength. [default: the config's, 1]")] = None,
    min_length: Annotated[int | None, typer.Option(help="Minimum pieces. [default: the config's, 1]")] = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum pieces. [default: 1.5 x source + 10]")] = None,
    prefix: Annotated[str, typer.Option(help="Text that every translation begins with.")] = "",
    sample: Annotated[bool, typer.Option(help="Sample translations instead of searching for the best.")] = False,
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
    workers: options.Workers = 1,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Translate lines, a sentence, or at a prompt.

    As many lines out as in, in order, blank ones blank: nmt translate < in > out; nmt translate "one
    sentence"; or at a prompt on a terminal.
    """
    streams.set_up_logging(quiet, verbose)
    text = checked_text(text, input_file)
    if n_best > 1 and not json_lines:
        raise InputError("several hypotheses do not fit on one line", hint="add --json")
    files = None
    if resume or shard is not None:
        command = "translate --resume" if shard is None else f"translate --shard {shard}"
        files = checked_files(command, input_file, output, shard)
    n_processes = max(workers, launched().n_ranks)
    if stream and n_processes > 1:
        raise InputError("--stream translates line by line, which processes cannot share", hint="leave it out")
    search: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    search |= {"mbr": mbr, "n_samples": samples, "beam": beam, "sample": sample, "n_best": n_best}
    search |= {"length_penalty": length_penalty, "alpha": alpha, "min_length": min_length}
    search |= {"max_length_a": None if max_length is None else 0.0, "max_length_b": max_length}
    options.check_search(search, "--sample or --mbr chrf")
    if sample and beam is None:
        search["beam"] = n_best
    workers, threads = share_cores(workers, threads, device)

    paths, translator = options.load_translator(model, device, threads, precision, engine)
    chosen = translator.with_options(**{name: value for name, value in search.items() if value is not None})
    translator.encode_prefix(prefix)  # raises before there are processes or output
    arguments: dict[str, Any] = {"options": chosen, "batch_size": batch_size, "prefix": prefix}
    render = partial(formatted, as_json=json_lines, with_score=scores)
    with start_workers(workers, sys.argv[1:], threads) as check, ranks_joined(check):
        if files:
            settings = chosen.model_dump() | {"prefix": prefix, "json": json_lines, "scores": scores}
            settings |= {"precision": precision, "engine": engine}
            rewrite(files, paths, translator, arguments, settings, render, quiet=quiet)
            return
        if rank() > 0:
            deque(translator.translate_lines([], **arguments), maxlen=0)  # its share of the first rank's lines
            return
        with streams.open_output(output) as (out, _), streams.open_input(text, input_file) as (lines, is_prompt):
            if stream or (stream is None and n_processes == 1 and is_prompt):
                arguments["window"] = 1
            n_lines = None if quiet or text is not None else streams.count_lines(input_file, output)
            for translation in streams.with_bar(translator.translate_lines(lines, **arguments), n_lines):
                out.write(render(translation).encode() + b"\n")
                out.flush()  # for the reader of a pipe


def checked_text(text: str | None, input_file: Path | None) -> str | None:
    """The TEXT argument with bad UTF-8 replaced; refused if there is an input file too, or if it names a file."""
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
    """The best hypothesis, after its score and a tab; as JSON, all hypotheses with scores and pieces."""
    if not as_json:
        best = translation.hypotheses[0]
        return f"{best.score:.4f}\t{best.text}" if with_score else best.text
    hypotheses = []
    for found in translation.hypotheses:
        pieces = [{"piece": p, "log_prob": log_prob} for p, log_prob in zip(found.pieces, found.log_probs, strict=True)]
        hypotheses.append({"text": found.text, "score": found.score, "log_prob": found.log_prob, "pieces": pieces})
    return json.dumps({"source": translation.source, "hypotheses": hypotheses}, ensure_ascii=False)
