"""The command `nmt score`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.rendering import as_json
from nmt.cli.source import check_lines
from nmt.text.lines import iter_pairs

if TYPE_CHECKING:
    from nmt.translate.units import Translation


def score(
    src: Annotated[Path, typer.Option(help="Source lines.")],
    ref: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    model: options.Models = None,
    languages: options.Languages = "",
    output: options.OutputFile = None,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines, as of nmt translate.")] = False,
    device: options.Device = "auto",
) -> None:
    """Print the log-probabilities of given translations.

    Prints one line per pair: the log-probability of the translation, TAB, and the log-probabilities of its pieces, the
    last of which is EOS. --json adds scores with the length penalty of the config.
    """
    for path in (src, ref):
        check_lines(path, output)
    translator = options.load_translator(model, device, languages=languages)
    from nmt.translate.scoring import score_pairs

    scored = score_pairs(translator, iter_pairs([src], [ref]), translator.options)
    streams.write_lines(map(as_json if json_lines else log_probs_of, scored), src, output)


def log_probs_of(translation: "Translation") -> str:
    """Format the log-probability of a given translation, which is the only hypothesis, and of its pieces."""
    (hypothesis,) = translation.hypotheses
    of_pieces = " ".join(f"{log_prob:.4f}" for log_prob in hypothesis.log_probs)
    return f"{hypothesis.log_prob:.4f}\t{of_pieces}"
