"""`nmt score`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.translate import as_json
from nmt.text.lines import iter_pairs


def score(
    src: Annotated[Path, typer.Option(help="Source lines.")],
    ref: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    model: options.Models = None,
    languages: options.Languages = "",
    output: options.OutputFile = None,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines, as of nmt translate.")] = False,
    alpha: options.Alpha = None,
    device: options.Device = "auto",
) -> None:
    """Print the log-probabilities of given translations.

    Prints one line per pair: the log-probability of the translation, TAB, and the log-probabilities of its pieces, the
    last of which is EOS. --json adds scores with the length penalty.
    """
    _, translator = options.load_translator(model, device, languages=languages)
    from nmt.translate.scoring import score_pairs

    chosen = translator.with_options(**options.search_options(alpha=alpha))
    scored = score_pairs(translator, iter_pairs([src], [ref]), chosen)
    with streams.open_output(output) as out:
        for found in streams.with_bar(scored, streams.bar_length(src, output)):
            (hypothesis,) = found.hypotheses
            plain = f"{hypothesis.log_prob:.4f}\t{' '.join(f'{x:.4f}' for x in hypothesis.log_probs)}"
            out.write((as_json(found) if json_lines else plain).encode() + b"\n")
