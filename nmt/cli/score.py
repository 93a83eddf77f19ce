"""`nmt score`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.translate import as_json
from nmt.errors import DataError, InputError
from nmt.text.lines import Pair, Pause, is_blank, iter_pairs

if TYPE_CHECKING:
    from nmt.decode.segments import Translation


def score(
    model: options.Models = None,
    languages: options.Languages = "",
    src: Annotated[Path | None, typer.Option(help="Source lines.")] = None,
    ref: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", help="Lines of source TAB translation.")] = None,
    output: options.OutputFile = None,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines, as of nmt translate.")] = False,
    alpha: options.Alpha = None,
    device: options.Device = "auto",
) -> None:
    """Print the log-probabilities of given translations.

    Prints one line per pair: the log-probability of the translation, TAB, and the log-probabilities of its pieces, the
    last of which is EOS. Pairs come from --src and --ref, from -i or from stdin. --json adds scores with the length
    penalty.
    """
    if (src is None) != (ref is None):
        raise InputError("--src and --ref go together", hint="give both, or pairs with -i or on stdin")
    if src is not None and input_file is not None:
        raise InputError("both --src and -i were given", hint="give one of them")
    _, translator = options.load_translator(model, device, languages=languages)
    from nmt.decode.scoring import score_pairs

    chosen = translator.with_options(**options.search_options("", alpha=alpha))
    n_lines = streams.bar_length(src or input_file, output)
    pairs = iter_pairs([src], [ref]) if src and ref else tabbed_pairs(streams.open_input(input_file))
    with streams.open_output(output) as out:
        for found in streams.with_bar(score_pairs(translator, pairs, chosen), n_lines):
            out.write((as_json(found) if json_lines else formatted(found)).encode() + b"\n")


def tabbed_pairs(lines: Iterable[str | Pause]) -> Iterator[Pair]:
    """Parse lines of source TAB translation; a blank line is a blank pair."""
    texts = (line for line in lines if isinstance(line, str))
    for number, line in enumerate(texts, 1):
        fields = ["", ""] if is_blank(line) else line.split("\t")
        if len(fields) != 2:
            message = f"line {number} is not source TAB translation: {line:.60}"
            raise DataError(message, hint="or name two files: --src FILE --ref FILE")
        yield Pair(number, *fields)


def formatted(found: "Translation") -> str:
    """Format the log-probabilities of a translation and its pieces."""
    (hypothesis,) = found.hypotheses
    return f"{hypothesis.log_prob:.4f}\t{' '.join(f'{x:.4f}' for x in hypothesis.log_probs)}"
