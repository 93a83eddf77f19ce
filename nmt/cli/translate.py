"""`nmt translate`."""

import json
import os
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic_core import to_jsonable_python

from nmt.cli import options, streams
from nmt.cli.rewriting import checked_files, rewrite
from nmt.errors import InputError
from nmt.text.placeholders import patterns_of

if TYPE_CHECKING:
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.documents.markup import MarkupTranslator

Markup = Literal["text", "html"]


def translate(
    text: Annotated[str | None, typer.Argument(help="One sentence. [default: lines from -i or stdin]")] = None,
    model: options.Models = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", help="Lines to translate; - is stdin.")] = None,
    output: options.OutputFile = None,
    resume: Annotated[bool, typer.Option("--resume", help="Write to FILE.part; continue it if it exists.")] = False,
    shard: options.ShardOf = None,
    markup: Annotated[
        Markup, typer.Option("--format", help="html: tags stay around the words that the tagged ones become.")
    ] = "text",
    protect_placeholders: Annotated[
        bool, typer.Option("--protect-placeholders", help="Keep {name}, %s, URLs, numbers and emoji as they are.")
    ] = False,
    protect: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Keep what matches, too; repeat it for several.")
    ] = None,
    beam: options.Beam = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses per line, with --json.")] = 1,
    alpha: options.Alpha = None,
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
    stream: Annotated[bool, typer.Option("--stream", help="Answer each line at once, as on a terminal.")] = False,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Translate lines of text, or one sentence.

    nmt translate < in > out writes one line per input line, in order; a blank line stays blank. nmt translate "one
    sentence" translates the argument. On a terminal, nmt translate shows a prompt.
    """
    text = checked_text(text, input_file)
    if n_best > 1 and not json_lines:
        raise InputError("several hypotheses do not fit on one line", hint="add --json")
    if markup != "text" and (json_lines or scores or prefix):
        raise InputError(f"--format {markup} goes with none of --json, --scores and --prefix", hint="leave them out")
    protected = patterns_of(protect or []) if protect or protect_placeholders else []
    command = "translate --resume" if shard is None else f"translate --shard {shard}"
    files = checked_files(command, input_file, output, shard) if resume or shard is not None else None
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
        alpha=alpha,
        max_length_a=None if max_length is None else 0.0,
        max_length_b=max_length,
    )
    paths, translator = options.load_translator(model, device, threads, precision, engine)
    translator.encode_prefix(prefix)  # an invalid prefix raises before output is written
    translator.protected = protected or translator.protected
    arguments: dict[str, Any] = {
        "options": translator.with_options(**search),
        "batch_size": batch_size,
        "prefix": prefix,
    }
    if stream:
        arguments["window"] = 1
    writer = translator if markup == "text" else of_html(translator)
    render = as_json if json_lines else partial(formatted, with_score=scores)
    if files:
        settings = {"prefix": prefix, "json": json_lines, "scores": scores, "format": markup}
        settings |= {"precision": precision, "engine": engine, "protect": [one.pattern for one in protected]}
        rewrite(files, paths, writer, arguments, settings, render)
        return
    lines = streams.open_input(input_file) if text is None else text.split("\n")
    n_lines = None if text is not None else streams.bar_length(input_file, output)
    with streams.open_output(output) as out:
        # Flushed after each window, so that a pipe's reader gets the lines as soon as they are translated.
        translations = writer.translate_lines(lines, **arguments, after_window=out.flush)
        for line in map(render, streams.with_bar(translations, n_lines)):
            out.write(line.encode() + b"\n")


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


def formatted(translation: "Translation", *, with_score: bool = False) -> str:
    """Format the best hypothesis, with or without score and TAB."""
    best = translation.hypotheses[0]
    return f"{best.score:.4f}\t{best.text}" if with_score else best.text


def as_json(translation: "Translation") -> str:
    """Format all hypotheses with scores and pieces as JSON."""
    hypotheses = []
    for found in translation.hypotheses:
        pieces = [{"piece": p, "log_prob": log_prob} for p, log_prob in zip(found.pieces, found.log_probs, strict=True)]
        hypotheses.append({"text": found.text, "score": found.score, "log_prob": found.log_prob, "pieces": pieces})
    tree = {"source": translation.source, "hypotheses": hypotheses}
    return json.dumps(to_jsonable_python(tree, inf_nan_mode="null"), ensure_ascii=False)
