"""The command `nmt translate`."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

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
    from nmt.translate.units import Translation

Markup = Literal["text", "html", "markdown"]


@dataclass(frozen=True)
class LineOptions:
    """The options that apply only to lines and texts. The fields have the names of the command-line options."""

    format: Markup = "text"
    prefix: str = ""
    n_best: int = 1
    json: bool = False
    scores: bool = False
    min_confidence: float | None = None
    stream: bool = False

    @property
    def given(self) -> str:
        """Return the command-line names of the options that differ from their defaults, for an error message."""
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return ", ".join(map(options.option_name, changed))

    @property
    def needs_scores(self) -> bool:
        return self.scores or self.json or self.min_confidence is not None

    @property
    def is_for_plain_text(self) -> bool:
        """Return whether an option is used that cannot be used for lines with markup."""
        return self.needs_scores or self.prefix != ""


@dataclass(frozen=True)
class DocumentOptions:
    """The options that apply only to documents."""

    column: str = ""
    bilingual: bool = False


class Request(NamedTuple):
    """The arguments of a translation: the source, the output and the options."""

    source: Source
    output: Path | None
    resume: bool
    line_options: LineOptions
    document_options: DocumentOptions

    @property
    def has_files(self) -> bool:
        """Return whether input and output are both ordinary files."""
        return is_named_file(self.source.path) and is_named_file(self.output)


class Exclusion(NamedTuple):
    """A combination of arguments that is not allowed."""

    applies: Callable[[Request], object]  # whether a request has this combination
    message: str  # the message and the hint are format strings, which can use `request`
    hint: str


EXCLUSIONS = [
    Exclusion(
        lambda request: request.line_options.n_best > 1 and not request.line_options.json,
        "several hypotheses do not fit on one line",
        "add --json",
    ),
    Exclusion(
        lambda request: request.line_options.format != "text" and request.line_options.is_for_plain_text,
        "--format {request.line_options.format} goes with none of --json, --scores, --min-confidence and --prefix",
        "leave them out",
    ),
    Exclusion(
        lambda request: request.source.is_document and request.output in (None, streams.DASH),
        "the translation of {request.source.path} needs a file or a folder",
        "add -o NEW{request.source.suffix}; to translate the name itself, pipe it in",
    ),
    Exclusion(
        lambda request: not request.source.is_document and request.output and request.output.suffix.lower() in ZIPPED,
        "{request.output} is named as a document, but lines of text would be written to it",
        "nmt translate FILE{request.output.suffix} -o NEW{request.output.suffix}",
    ),
    Exclusion(
        lambda request: request.document_options.bilingual and request.source.kind != "document",
        "--bilingual is for a document",
        "nmt translate FILE.docx -o FILE.tmx --bilingual",
    ),
    Exclusion(
        lambda request: request.document_options.column and not request.source.has_columns,
        "--column is for a .csv file",
        "nmt translate FILE.csv --column NAME -o NEW.csv",
    ),
    Exclusion(
        lambda request: request.source.is_document and request.line_options.given,
        "{request.source.path} is a {request.source.kind}: {request.line_options.given} would have no effect",
        "leave it out; to translate the lines of a file: -i FILE",
    ),
    Exclusion(
        lambda request: request.resume and request.source.kind == "document",
        "--resume is for lines and folders, and {request.source.path} is a document",
        "leave it out: a document is translated as a whole",
    ),
    Exclusion(
        lambda request: request.resume and not request.source.is_document and not request.has_files,
        "--resume needs input and output files",
        "nmt translate --resume -i FILE -o FILE",
    ),
]


def check_request(request: Request) -> None:
    """Raise InputError if the arguments have a combination that is not allowed."""
    for exclusion in EXCLUSIONS:
        if exclusion.applies(request):
            message = exclusion.message.format(request=request)
            raise InputError(message, hint=exclusion.hint.format(request=request))


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
    column: Annotated[str, typer.Option(help="Of a .csv file: name of the column to translate.")] = "",
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
    temperature: Annotated[
        float, typer.Option(help="Sampling: divide logits by this; below 1 is more conservative.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sampling: only the k most probable pieces; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sampling: only the most probable pieces that together reach p.")] = 1.0,
    seed: options.Seed = 1,
    scores: Annotated[bool, typer.Option(help="Print score TAB translation.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines: hypotheses, scores, words, pieces.")] = False,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Warn of lines below it, and of lines that seem made up.")
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
    .md, .html, .txt, subtitles (.srt, .vtt), or a table of strings (.csv, .json, .po, .xliff); of a folder, those in it
    and below. On a terminal, nmt translate shows a prompt.
    """
    # 1. Check the arguments.
    source = source_of(text, input_file, output)
    line_options = LineOptions(
        format=markup,
        prefix=prefix,
        n_best=n_best,
        json=json_lines,
        scores=scores,
        min_confidence=min_confidence,
        stream=stream,
    )
    document_options = DocumentOptions(column=column, bilingual=bilingual)
    check_request(Request(source, output, resume, line_options, document_options))
    check_patterns(protect or [])
    if sample and beam is None:
        beam = n_best
    search = options.search_options(
        beam=beam, alpha=alpha, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    search |= options.search_options(
        whole_lines=whole_lines, protect=protect, protect_placeholders=protect_placeholders or None
    )
    search |= {"n_best": n_best, "scores": line_options.needs_scores}
    if max_length is not None:
        search |= {"max_length_a": 0.0, "max_length_b": max_length}

    # 2. Load the model, and check the arguments that depend on the model.
    paths = options.model_paths(model)
    translator = options.load_translator(paths, device, precision, engine, languages=languages)
    translator.encode_prefix(prefix)  # raises an error for an invalid prefix, before output is written
    search["glossary"] = options.terms_of(glossary, translator, engine)
    arguments: dict[str, Any] = {"batch_size": batch_size, "options": translator.with_options(**search)}

    # 3. Translate a document or a folder, and return.
    if source.path is not None and output is not None and source.is_document:
        from nmt.translate.documents import translate_path

        arguments |= {"watch": streams.with_bar, **asdict(document_options)}
        translate_path(translator, source.path, output, resume=resume, **arguments)
        return

    # 4. Otherwise, translate lines, format the translations and write them.
    if markup == "text":
        arguments["prefix"] = prefix
    if stream:
        arguments["window"] = 1
    writer = translator if markup == "text" else of_markup(translator, markup)
    render = renderer(translator, line_options)
    if resume and source.path is not None and output is not None:
        # Besides files, models and search options, the output depends on these settings.
        settings = {"precision": precision, "engine": engine, "languages": languages, **asdict(line_options)}
        rewrite(source.path, output, paths, writer, arguments, settings, render)
    else:
        write_lines(writer, source, output, arguments, render)


def check_patterns(protect: list[str]) -> None:
    """Raise ConfigError if a pattern of --protect is not a valid regular expression."""
    if protect:
        from nmt.text.placeholders import patterns_of  # imported only here: compiling the module's patterns takes 15 ms

        patterns_of(protect)


def write_lines(
    writer: "Translator | MarkupTranslator",
    source: Source,
    output: Path | None,
    arguments: dict[str, Any],
    render: "Callable[[Translation], str]",
) -> None:
    """Translate the lines of a text, of a file or of stdin, and write the translations.

    `writer` is the translator. For `arguments` and `render`, see `resumable.rewrite`.
    """
    lines: Iterable[str | Pause] = source.text.split("\n")
    n_lines = None
    if source.kind == "lines":
        lines = streams.open_input(source.path)
        n_lines = streams.bar_length(source.path, output)
    with streams.open_output(output) as out:
        # Flush after each window, so that a program that reads the output through a pipe gets lines without delay.
        translations = writer.translate_lines(lines, **arguments, after_window=out.flush)
        for translation in streams.with_bar(translations, n_lines):
            out.write(render(translation).encode() + b"\n")


def of_markup(translator: "Translator", markup: Markup) -> "MarkupTranslator":
    """Return a translator for lines of HTML or Markdown."""
    from nmt.documents.html import HTML
    from nmt.documents.markdown import MARKDOWN
    from nmt.translate.markup import MarkupTranslator

    return MarkupTranslator(translator, HTML if markup == "html" else MARKDOWN)
