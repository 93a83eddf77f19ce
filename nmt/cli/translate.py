"""The command `nmt translate`."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmt.cli import options, streams
from nmt.cli.rendering import renderer
from nmt.cli.resumable import is_named_file, rewrite
from nmt.cli.source import Source, source_of
from nmt.documents import ZIPPED
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.text.lines import Pause
    from nmt.translate.markup import MarkupTranslator
    from nmt.translate.translator import Translator

Markup = Literal["text", "html", "markdown"]


@dataclass(frozen=True)
class LineOptions:
    """The options that apply only to lines and texts."""

    format: Markup = "text"
    prefix: str = ""
    n_best: int = 1
    json: bool = False
    stream: bool = False


def check_arguments(
    source: Source, output: Path | None, line_options: LineOptions, *, resume: bool, has_columns: bool, bilingual: bool
) -> None:
    """Raise InputError if the arguments do not fit together."""
    markup = line_options.format
    is_document = source.kind in ("document", "folder")
    # 1. The options of lines.
    if line_options.n_best > 1 and not line_options.json:
        raise InputError("several hypotheses do not fit on one line", hint="add --json")
    if markup != "text" and (line_options.json or line_options.prefix):
        message = f"--format {markup} goes with neither --json nor --prefix"
        raise InputError(message, hint="leave them out")
    if is_document and line_options != LineOptions():
        message = f"--format, --prefix, --n-best, --json and --stream do not apply to a {source.kind}"
        raise InputError(message, hint="leave them out; to translate the lines of a file: -i FILE")
    # 2. The output.
    if is_document and output in (None, streams.DASH):
        hint = f"add -o NEW{source.suffix}; to translate the name itself, pipe it in"
        raise InputError(f"the translation of {source.path} needs a file or a folder", hint=hint)
    suffix = output.suffix.lower() if output else ""
    if not is_document and suffix in (*ZIPPED, ".gz"):
        message = f"{output} is named as a document or an archive, but lines of text would be written to it"
        raise InputError(message, hint="-o NEW.txt; a document needs no -i: nmt translate FILE.docx -o NEW.docx")
    # 3. The options of documents.
    if bilingual and source.kind != "document":
        raise InputError("--bilingual is for a document", hint="nmt translate FILE.docx -o FILE.tmx --bilingual")
    if has_columns and source.kind != "folder" and source.suffix not in (".csv", ".tsv"):
        message = "--column and --into are for a .csv or .tsv file"
        raise InputError(message, hint="nmt translate FILE.csv --column NAME -o NEW.csv")
    # 4. --resume.
    if resume and source.kind == "document":
        message = f"--resume is for lines and folders, and {source.path} is a document"
        raise InputError(message, hint="leave it out: a document is translated as a whole")
    if resume and not is_document and not (is_named_file(source.path) and is_named_file(output)):
        raise InputError("--resume needs input and output files", hint="nmt translate --resume -i FILE -o FILE")


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
    column: Annotated[str, typer.Option(help="Of a .csv or .tsv file: name of the column to translate.")] = "",
    into: Annotated[str, typer.Option(help="With --column: name of the column to fill where it is empty.")] = "",
    protect_placeholders: Annotated[
        bool, typer.Option("--protect-placeholders", help="Keep {name}, %s, URLs, numbers and emoji as they are.")
    ] = False,
    protect: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Keep what matches, too; repeat it for several.")
    ] = None,
    glossary: options.GlossaryFile = None,
    memory: options.MemoryFiles = None,
    min_match: Annotated[
        float, typer.Option(min=0.7, max=1, help="Also take similar matches of --memory, marked as to be reviewed.")
    ] = 1.0,
    beam: options.Beam = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses per line, with --json.")] = 1,
    alpha: options.Alpha = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Maximum pieces. [default: by the source's, as fitted in training]")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Text that every translation begins with.")] = "",
    sample: options.Sample = False,
    temperature: Annotated[
        float, typer.Option(help="Sampling: divide logits by this; below 1 is more conservative.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sampling: only the k most probable pieces; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sampling: only the most probable pieces that together reach p.")] = 1.0,
    seed: options.Seed = 1,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines: hypotheses, scores, words, pieces.")] = False,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Warn of sentences below it, and mark them in documents.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Answer each line at once, as on a terminal.")] = False,
    whole_lines: options.WholeLines = None,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Translate lines of text, one sentence, or a document.

    nmt translate < in > out writes one line per input line, in order; a blank line stays blank. nmt translate "one
    sentence" translates the argument. nmt translate report.docx -o report.en.docx translates a document: .docx, .pptx,
    .xlsx, .odt, .odp, .ods, .epub, .md, .html, .txt, subtitles (.srt, .vtt), or a table of strings (.csv, .tsv, .json,
    .arb, .xcstrings, .po, .xliff, .tmx, .strings, .stringsdict, .properties, .ftl, .ts, .resx, Android's .xml); of a
    folder, those in it and below.
    On a terminal, nmt translate shows a prompt.
    """
    # 1. Check the arguments.
    source = source_of(text, input_file, output)
    line_options = LineOptions(
        format=markup,
        prefix=prefix,
        n_best=n_best,
        json=json_lines,
        stream=stream,
    )
    has_columns = bool(column or into)
    check_arguments(source, output, line_options, resume=resume, has_columns=has_columns, bilingual=bilingual)
    if min_match < 1 and not memory:
        raise InputError("--min-match is for matches of a memory", hint="add --memory FILE")
    if protect:
        from nmt.text.placeholders import patterns_of  # imported here, because this takes 15 ms

        patterns_of(protect)  # raises an error for an invalid regular expression
    if sample and beam is None:
        beam = n_best
    search = options.search_options(
        beam=beam,
        alpha=alpha,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        n_best=n_best,
        whole_lines=whole_lines,
        min_match=min_match,
        protect=protect,
        protect_placeholders=protect_placeholders,
        scores=json_lines or min_confidence is not None,
    )
    if max_length is not None:
        search |= {"max_length_a": 0.0, "max_length_b": max_length}

    # 2. Load the model, and check the arguments that depend on the model.
    paths = options.model_paths(model)
    translator = options.load_translator(paths, device, precision, engine, languages=languages)
    translator.encode_prefix(prefix)  # raises an error for an invalid prefix, before output is written
    search["memory"] = options.indexes_of(memory, translator)
    search["glossary"] = options.terms_of(glossary, translator, engine)
    arguments: dict[str, Any] = {"batch_size": batch_size, "options": translator.with_options(**search)}

    # 3. Translate a document or a folder, and return.
    if source.path is not None and output is not None and source.kind != "lines":
        from nmt.translate.documents import translate_path

        arguments |= {"watch": streams.with_bar, "column": column, "into": into, "bilingual": bilingual}
        arguments["min_confidence"] = min_confidence
        translate_path(translator, source.path, output, resume=resume, **arguments)
        return

    # 4. Otherwise, translate lines, format the translations and write them.
    if markup == "text":
        arguments["prefix"] = prefix
    if stream:
        arguments["window"] = 1
    writer = translator if markup == "text" else of_markup(translator, markup)
    render = renderer(translator, json_lines, min_confidence)
    if resume and source.path is not None and output is not None:
        # The output also depends on these settings.
        settings = {"precision": precision, "engine": engine, "languages": languages, **asdict(line_options)}
        settings["min_confidence"] = min_confidence
        rewrite(source.path, output, paths, writer, arguments, settings, render)
    else:
        translations = writer.translate_lines(input_lines(source), **arguments)
        streams.write_lines(map(render, translations), source.path, output)


def input_lines(source: Source) -> "Iterable[str | Pause]":
    """Return the lines of a text, of a file or of stdin."""
    return streams.open_input(source.path) if source.kind == "lines" else source.text.split("\n")


def of_markup(translator: "Translator", markup: Markup) -> "MarkupTranslator":
    """Return a translator for lines of HTML or Markdown."""
    from nmt.documents.html import HTML
    from nmt.documents.markdown import MARKDOWN
    from nmt.translate.markup import MarkupTranslator

    return MarkupTranslator(translator, HTML if markup == "html" else MARKDOWN)
