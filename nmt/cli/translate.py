"""`nmt translate`."""

import json
import os
import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic_core import to_jsonable_python

from nmt.cli import options, streams
from nmt.cli.resumable import checked_files, rewrite
from nmt.documents import SUFFIXES
from nmt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.documents.markup import MarkupTranslator

Markup = Literal["text", "html", "markdown"]


def translate(
    text: Annotated[
        str | None, typer.Argument(help="A sentence, a document or a folder. [default: lines from -i or stdin]")
    ] = None,
    model: options.Models = None,
    languages: options.Languages = "",
    input_file: Annotated[Path | None, typer.Option("--input", "-i", help="Lines to translate; - is stdin.")] = None,
    output: options.OutputFile = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with FILE.part, or with the rest of a folder.")
    ] = False,
    markup: Annotated[
        Markup, typer.Option("--format", help="Of lines: tags stay around the words that the tagged ones become.")
    ] = "text",
    bilingual: Annotated[bool, typer.Option("--bilingual", help="Write sources, too: -o FILE.tmx or .tsv.")] = False,
    column: Annotated[str, typer.Option(help="Of a .csv file: the column to translate, its name or number.")] = "",
    protect_placeholders: Annotated[
        bool, typer.Option("--protect-placeholders", help="Keep {name}, %s, URLs, numbers and emoji as they are.")
    ] = False,
    protect: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Keep what matches, too; repeat it for several.")
    ] = None,
    glossary: options.GlossaryFile = None,
    beam: options.Beam = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses per line, with --json.")] = 1,
    alpha: options.Alpha = None,
    max_length: Annotated[
        int | None, typer.Option(help="Maximum pieces. [default: by the source's, as fitted in training]")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Text that every translation begins with.")] = "",
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = 1,
    scores: Annotated[bool, typer.Option(help="Print score TAB translation.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines: hypotheses, scores, words, pieces.")] = False,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Warn of lines below it, and of lines that seem made up.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Answer each line at once, as on a terminal.")] = False,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Translate lines of text, one sentence, or a document.

    nmt translate < in > out writes one line per input line, in order; a blank line stays blank. nmt translate "one
    sentence" translates the argument. nmt translate report.docx -o report.en.docx translates a document: .docx, .pptx,
    .md, .html, .txt, subtitles (.srt, .vtt), or a table of strings (.csv, .json, .po, .xliff); of a folder, those in it
    and below. On a terminal, nmt translate shows a prompt.
    """
    document = document_of(text)
    text = checked_text(None if document else text, input_file)
    others = [input_file, json_lines, scores, min_confidence is not None, prefix, markup != "text"]
    others += [resume and not (document and document.is_dir())]
    check_document(document, output, column, bilingual=bilingual, others=any(others))
    if n_best > 1 and not json_lines:
        raise InputError("several hypotheses do not fit on one line", hint="add --json")
    if markup != "text" and (json_lines or scores or prefix or min_confidence is not None):
        names = "--json, --scores, --min-confidence and --prefix"
        raise InputError(f"--format {markup} goes with none of {names}", hint="leave them out")
    protected: Sequence[re.Pattern[str]] = []
    if protect or protect_placeholders:
        from nmt.text.placeholders import patterns_of  # imported late: its expressions take 15 ms to compile

        protected = patterns_of(protect or [])
    files = checked_files(input_file, output) if resume and not document else None
    search = options.search_options(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beam=n_best if sample and beam is None else beam,
        sample=sample,
        n_best=n_best,
        scores=scores or json_lines or min_confidence is not None,
        alpha=alpha,
        max_length_a=None if max_length is None else 0.0,
        max_length_b=max_length,
    )
    paths, translator = options.load_translator(model, device, precision, engine, languages=languages)
    translator.encode_prefix(prefix)  # an invalid prefix raises before output is written
    translator.protected = protected or translator.protected
    arguments: dict[str, Any] = {"batch_size": batch_size, "prefix": prefix} | ({"window": 1} if stream else {})
    arguments["options"] = translator.with_options(**search, glossary=options.terms_of(glossary, translator, engine))
    if document and output:
        from nmt.documents.files import translate_path

        arguments |= {"watch": streams.with_bar, "column": column, "bilingual": bilingual}
        translate_path(translator, document, output, resume=resume, **arguments)
        return
    writer = translator if markup == "text" else of_markup(translator, markup)
    render = renderer(translator, min_confidence, json_lines=json_lines, scores=scores)
    if files:
        settings = {"prefix": prefix, "json": json_lines, "scores": scores, "format": markup}
        settings |= {"precision": precision, "engine": engine, "min_confidence": min_confidence}
        settings |= {"protect": [one.pattern for one in protected], "languages": languages}
        rewrite(*files, paths, writer, translator.config.data.context, arguments, settings, render)
        return
    lines = streams.open_input(input_file) if text is None else text.split("\n")
    n_lines = None if text is not None else streams.bar_length(input_file, output)
    with streams.open_output(output) as out:
        # Flushed after each window, so that a pipe's reader gets the lines as soon as they are translated.
        translations = writer.translate_lines(lines, **arguments, after_window=out.flush)
        for line in map(render, streams.with_bar(translations, n_lines)):
            out.write(line.encode() + b"\n")


def renderer(
    translator: "Translator", min_confidence: float | None, *, json_lines: bool, scores: bool
) -> "Callable[[Translation], str]":
    """Return a function that formats a translation as a line; with `min_confidence`, it logs doubtful lines."""

    def render(found: "Translation") -> str:
        reasons = None
        if min_confidence is not None:
            from nmt.decode.confidence import doubts

            reasons = doubts(translator, found, min_confidence)
        if json_lines:
            return as_json(found, translator, reasons)
        best = found.hypotheses[0]
        return f"{best.score:.4f}\t{best.text}" if scores else best.text

    return render


def of_markup(translator: "Translator", markup: Markup) -> "MarkupTranslator":
    """Return a translator of lines of HTML or Markdown."""
    from nmt.documents.html import HTML
    from nmt.documents.markdown import MARKDOWN
    from nmt.documents.markup import MarkupTranslator

    return MarkupTranslator(translator, HTML if markup == "html" else MARKDOWN)


def document_of(text: str | None) -> Path | None:
    """Return the document or the folder that TEXT names, if it is one."""
    is_document = text is not None and text.lower().endswith(SUFFIXES) and os.path.isfile(text)  # noqa: PTH113
    return Path(text) if text and (is_document or os.path.isdir(text)) else None  # noqa: PTH112


def check_document(document: Path | None, output: Path | None, column: str, *, bilingual: bool, others: bool) -> None:
    """Raise InputError if options do not go with a document or a folder, or if there is none for them."""
    is_folder = document is not None and document.is_dir()
    if bilingual and (document is None or is_folder):
        raise InputError("--bilingual is for a document", hint="nmt translate FILE.docx -o FILE.tmx --bilingual")
    if column and not is_folder and (document is None or document.suffix.lower() != ".csv"):
        raise InputError("--column is for a .csv file", hint="nmt translate FILE.csv --column NAME -o NEW.csv")
    if document and (output in (None, streams.DASH) or others):
        hint = "-o says where; leave out --input, --json, --scores, --min-confidence and such; --resume is for folders"
        raise InputError(f"the translation of {document} needs a file or a folder", hint=hint)


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


def as_json(
    translation: "Translation", translator: "Translator | None" = None, reasons: list[str] | None = None
) -> str:
    """Format all hypotheses with scores and pieces as JSON; with a translator, also with words and confidences."""
    hypotheses = []
    for found in translation.hypotheses:
        pieces = [{"piece": p, "log_prob": log_prob} for p, log_prob in zip(found.pieces, found.log_probs, strict=True)]
        tree: dict[str, Any] = {"text": found.text, "score": found.score, "log_prob": found.log_prob, "pieces": pieces}
        if found.is_cut:
            tree["cut"] = True  # at the length limit
        if translator:
            from nmt.decode.confidence import confidence_of, words_of

            words = words_of(translator, found)
            tree |= {"confidence": confidence_of(words), "words": [word._asdict() for word in words]}
        hypotheses.append(tree)
    tree = {"source": translation.source, "hypotheses": hypotheses}
    tree |= {} if reasons is None else {"doubtful": bool(reasons), "reasons": reasons}
    return json.dumps(to_jsonable_python(tree, inf_nan_mode="null"), ensure_ascii=False)
