"""`nmt score`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.translate import as_json
from nmt.errors import DataError, InputError
from nmt.files import parse_json
from nmt.text.lines import Pause, is_blank, iter_pairs

if TYPE_CHECKING:
    from nmt.decode.scoring import Candidates
    from nmt.decode.segments import Translation


def score(
    model: options.Models = None,
    src: Annotated[Path | None, typer.Option(help="Source lines.")] = None,
    ref: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input", "-i", help="Lines of source TAB translation, or of nmt translate --json.")
    ] = None,
    output: options.OutputFile = None,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines, as of nmt translate.")] = False,
    alpha: options.Alpha = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
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
    _, translator = options.load_translator(model, device, threads)
    from nmt.decode.scoring import Candidates, score_lines

    chosen = translator.with_options(**options.search_options("", alpha=alpha))
    n_lines = streams.bar_length(src or input_file, output)
    pairs: Iterator[Candidates]
    if src is not None and ref is not None:
        pairs = (Candidates(pair.line, pair.source, [pair.target]) for pair in iter_pairs([src], [ref]))
    else:
        pairs = candidates(streams.open_input(input_file))
    with streams.open_output(output) as out:
        for found in streams.with_bar(score_lines(translator, pairs, chosen), n_lines):
            out.write((as_json(found) if json_lines else formatted(found)).encode() + b"\n")


def candidates(lines: Iterable[str | Pause]) -> "Iterator[Candidates]":
    """Parse each line: source TAB translation, or JSON of `nmt translate`, which contains no tabs."""
    from nmt.decode.scoring import Candidates

    texts = (line for line in lines if isinstance(line, str))
    for number, line in enumerate(texts, 1):
        fields = line.split("\t")
        if is_blank(line):
            yield Candidates(number, "", [""])
        elif len(fields) == 2:
            yield Candidates(number, fields[0], [fields[1]])
        else:
            try:
                tree = parse_json(line)
                source, targets = tree["source"], [str(found["text"]) for found in tree["hypotheses"]]
                if not isinstance(source, str):
                    raise TypeError
            except (ValueError, TypeError, KeyError) as error:
                message = f"line {number} is neither source TAB translation nor JSON of `nmt translate`"
                raise DataError(f"{message}: {line:.60}", hint="or name two files: --src FILE --ref FILE") from error
            yield Candidates(number, source, targets)


def formatted(found: "Translation") -> str:
    """Format the log-probabilities of a translation and its pieces."""
    if len(found.hypotheses) != 1:
        raise InputError(f"{len(found.hypotheses)} hypotheses do not fit on one line", hint="add --json")
    (best,) = found.hypotheses
    return f"{best.log_prob:.4f}\t{' '.join(f'{x:.4f}' for x in best.log_probs)}"
