"""The command `nmt score`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.rendering import as_json
from nmt.text.lines import iter_pairs


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
    translator = options.load_translator(model, device, languages=languages)
    from nmt.translate.scoring import score_pairs

    scored = score_pairs(translator, iter_pairs([src], [ref]), translator.options)
    with streams.open_output(output) as out:
        for translation in streams.with_bar(scored, streams.bar_length(src, output)):
            if json_lines:
                line = as_json(translation)
            else:
                # The given translation is the only hypothesis.
                (hypothesis,) = translation.hypotheses
                of_pieces = " ".join(f"{log_prob:.4f}" for log_prob in hypothesis.log_probs)
                line = f"{hypothesis.log_prob:.4f}\t{of_pieces}"
            out.write(line.encode() + b"\n")
