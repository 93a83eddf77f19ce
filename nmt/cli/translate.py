"""`nmt translate`."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic_core import to_jsonable_python

from nmt.cli import options, streams
from nmt.cli.resumable import checked_files, rewrite
from nmt.cli.source import Source, source_of
from nmt.documents import ZIPPED
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.text.lines import Pause
    from nmt.translate.markup import MarkupTranslator
    from nmt.translate.translator import Translator
    from nmt.translate.units import TextHypothesis, Translation

Markup = Literal["text", "html", "markdown"]


@dataclass(frozen=True)
class LineOptions:
    """The options that lines and texts have, but documents have not; the fields are as in `translate`."""

    markup: Markup
    prefix: str
    n_best: int
    json_lines: bool
    scores: bool
    min_confidence: float | None
    stream: bool

    @property
    def given(self) -> list[str]:
        """The names of the options that are not as by default."""
        is_given = {
            "--format": self.markup != "text",
            "--prefix": self.prefix != "",
            "--n-best": self.n_best > 1,
            "--json": self.json_lines,
            "--scores": self.scores,
            "--min-confidence": self.min_confidence is not None,
            "--stream": self.stream,
        }
        return [name for name, given in is_given.items() if given]

    @property
    def needs_scores(self) -> bool:
        return self.scores or self.json_lines or self.min_confidence is not None

    def check(self) -> None:
        """Raise InputError if they do not go together."""
        if self.n_best > 1 and not self.json_lines:
            raise InputError("several hypotheses do not fit on one line", hint="add --json")
        plain_only = {"--json", "--scores", "--min-confidence", "--prefix"}
        if self.markup != "text" and plain_only.intersection(self.given):
            names = "--json, --scores, --min-confidence and --prefix"
            raise InputError(f"--format {self.markup} goes with none of {names}", hint="leave them out")


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
    # What the arguments mean, and whether they go together.
    source = source_of(text, input_file, output)
    of_lines = LineOptions(
        markup=markup,
        prefix=prefix,
        n_best=n_best,
        json_lines=json_lines,
        scores=scores,
        min_confidence=min_confidence,
        stream=stream,
    )
    of_lines.check()
    check_output(source, output)
    check_documents(source, of_lines.given, column=column, bilingual=bilingual, resume=resume)
    # Only a folder or a file of lines can be resumed.
    resumed_files = checked_files(input_file, output) if resume and not source.is_document else None
    check_patterns(protect or [])
    search = options.search_options(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beam=n_best if sample and beam is None else beam,
        sample=sample,
        n_best=n_best,
        scores=of_lines.needs_scores,
        alpha=alpha,
        max_length_a=None if max_length is None else 0.0,
        max_length_b=max_length,
        whole_lines=whole_lines,
        protect=protect,
        protect_placeholders=protect_placeholders or None,
    )

    # The model, and the options that only a loaded model can check.
    paths, translator = options.load_translator(model, device, precision, engine, languages=languages)
    translator.encode_prefix(prefix)  # an invalid prefix raises before output is written
    terms = options.terms_of(glossary, translator, engine)
    arguments: dict[str, Any] = {"batch_size": batch_size, "options": translator.with_options(**search, glossary=terms)}

    # A document or a folder: its reader and writer take over.
    if source.path is not None and output is not None and source.is_document:
        from nmt.translate.documents import translate_path

        arguments |= {"watch": streams.with_bar, "column": column, "bilingual": bilingual}
        translate_path(translator, source.path, output, resume=resume, **arguments)
        return

    # Lines: each is translated, rendered and written.
    if markup == "text":
        arguments["prefix"] = prefix
    if stream:
        arguments["window"] = 1
    writer = translator if markup == "text" else of_markup(translator, markup)
    render = renderer(translator, of_lines)
    if resumed_files:
        # What the output depends on besides files, models and search options.
        settings = {"prefix": prefix, "json": json_lines, "scores": scores, "format": markup}
        settings |= {"precision": precision, "engine": engine, "min_confidence": min_confidence}
        settings |= {"languages": languages}
        rewrite(*resumed_files, paths, writer, arguments, settings, render)
    else:
        write_lines(writer, source, output, arguments, render)


def check_output(source: Source, output: Path | None) -> None:
    """Raise InputError if a document has no output file, or if lines would be written to a document."""
    if source.is_document and output in (None, streams.DASH):
        name = f"FILE{source.path.suffix}" if source.path and source.kind == "document" else "FOLDER"
        message = f"the translation of {source.path} needs a file or a folder"
        raise InputError(message, hint=f"add -o {name}; to translate the name itself, pipe it in")
    if not source.is_document and output is not None and output.suffix.lower() in ZIPPED:
        message = f"{output} is named as a document, but lines of text would be written to it"
        raise InputError(message, hint=f"nmt translate FILE{output.suffix} -o NEW{output.suffix}")


def check_documents(source: Source, of_lines: list[str], *, column: str, bilingual: bool, resume: bool) -> None:
    """Raise InputError for an option of documents without one, or for one `of_lines`, or --resume, with a document."""
    is_csv = source.kind == "document" and source.path is not None and source.path.suffix.lower() == ".csv"
    if bilingual and source.kind != "document":
        raise InputError("--bilingual is for a document", hint="nmt translate FILE.docx -o FILE.tmx --bilingual")
    if column and not is_csv and source.kind != "folder":
        raise InputError("--column is for a .csv file", hint="nmt translate FILE.csv --column NAME -o NEW.csv")
    if source.is_document and of_lines:
        message = f"{source.path} is a {source.kind}: {', '.join(of_lines)} would have no effect"
        raise InputError(message, hint="leave it out; to translate the lines of a file: -i FILE")
    if source.kind == "document" and resume:
        message = f"--resume is for lines and folders, and {source.path} is a document"
        raise InputError(message, hint="leave it out: a document is translated as a whole")


def check_patterns(protect: list[str]) -> None:
    """Raise ConfigError if a pattern of --protect is no regular expression."""
    if protect:
        from nmt.text.placeholders import patterns_of  # imported late: its expressions take 15 ms to compile

        patterns_of(protect)


def write_lines(
    writer: "Translator | MarkupTranslator",
    source: Source,
    output: Path | None,
    arguments: dict[str, Any],
    render: "Callable[[Translation], str]",
) -> None:
    """Translate the lines of a text, of a file or of stdin; see `resumable.rewrite` for the arguments."""
    lines: Iterable[str | Pause]
    if source.kind == "text":
        lines, n_lines = source.text.split("\n"), None
    else:
        lines, n_lines = streams.open_input(source.path), streams.bar_length(source.path, output)
    with streams.open_output(output) as out:
        # Flushed after each window, so that a pipe's reader gets the lines as soon as they are translated.
        translations = writer.translate_lines(lines, **arguments, after_window=out.flush)
        for translation in streams.with_bar(translations, n_lines):
            out.write(render(translation).encode() + b"\n")


def renderer(translator: "Translator", of_lines: LineOptions) -> "Callable[[Translation], str]":
    """Return a function that formats a translation as a line; with --min-confidence, it logs doubtful lines."""

    def render(translation: "Translation") -> str:
        reasons = None
        if of_lines.min_confidence is not None:
            from nmt.translate.confidence import doubts

            reasons = doubts(translator, translation, of_lines.min_confidence)
        if of_lines.json_lines:
            return as_json(translation, translator, reasons)
        best = translation.hypotheses[0]
        return f"{best.score:.4f}\t{best.text}" if of_lines.scores else best.text

    return render


def of_markup(translator: "Translator", markup: Markup) -> "MarkupTranslator":
    """Return a translator of lines of HTML or Markdown."""
    from nmt.documents.html import HTML
    from nmt.documents.markdown import MARKDOWN
    from nmt.translate.markup import MarkupTranslator

    return MarkupTranslator(translator, HTML if markup == "html" else MARKDOWN)


def as_json(
    translation: "Translation", translator: "Translator | None" = None, reasons: list[str] | None = None
) -> str:
    """Format all hypotheses with scores and pieces as JSON; with a translator, also with words and confidences."""
    hypotheses = [hypothesis_tree(hypothesis, translator) for hypothesis in translation.hypotheses]
    tree: dict[str, Any] = {"source": translation.source, "hypotheses": hypotheses}
    if reasons is not None:
        tree |= {"doubtful": bool(reasons), "reasons": reasons}
    # JSON has no infinity, which a log-probability may be.
    return json.dumps(to_jsonable_python(tree, inf_nan_mode="null"), ensure_ascii=False)


def hypothesis_tree(hypothesis: "TextHypothesis", translator: "Translator | None") -> dict[str, Any]:
    """A hypothesis as a JSON object, see `as_json`."""
    pieces = []
    for piece, log_prob in zip(hypothesis.pieces, hypothesis.log_probs, strict=True):
        pieces.append({"piece": piece, "log_prob": log_prob})
    tree: dict[str, Any] = {"text": hypothesis.text, "score": hypothesis.score, "log_prob": hypothesis.log_prob}
    tree["pieces"] = pieces
    if hypothesis.is_cut:
        tree["cut"] = True  # at the length limit
    if translator:
        from nmt.translate.confidence import confidence_of, words_of

        words = words_of(translator, hypothesis)
        tree["confidence"] = confidence_of(words)
        tree["words"] = [word._asdict() for word in words]
    return tree
