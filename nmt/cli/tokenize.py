"""The command `nmt tokenize`."""

from typing import Annotated

import typer

from nmt.cli import options
from nmt.cli.streams import log


def tokenize(
    config: options.ConfigFile,
    overrides: options.Overrides = None,
    show: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Print the pieces of TEXT.")] = None,
) -> None:
    """Train the tokenizer (SentencePiece).

    Uses the config's training text, as `nmt train` does by itself. All settings: `nmt config tokenizer`.
    """
    from nmt.config import load_config
    from nmt.train.encoding import tokenize

    run, tokenizers, figures = tokenize(load_config(config, overrides or []))
    # Fewer pieces per word mean shorter sequences.
    message = "%s: %d pieces in the vocabulary; on dev %.2f pieces per word"
    for side, per_word in figures.items():
        log.info(message, side, len(getattr(tokenizers, side)), per_word)
    log.info("written to %s", run.path)
    for text in show or []:
        tokens = tokenizers.source.encode_untagged(text)
        print(*tokenizers.source.pieces(tokens))
