"""`nmt tokenize`."""

from typing import Annotated

import typer

from nmt.cli import options
from nmt.cli.stderr import log, set_up_logging


def tokenize(
    config: options.ConfigFile,
    overrides: options.Overrides = None,
    show: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Print the pieces of TEXT.")] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Train the tokenizer (SentencePiece).

    On the config's training text; `nmt train` does the same if there is no tokenizer yet. All settings:
    `nmt config tokenizer`.
    """
    set_up_logging(quiet, verbose)
    from nmt.config import load_config
    from nmt.train.preparation import tokenize

    run, tokenizers, figures = tokenize(load_config(config, overrides or []))
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        log.info(
            "%s: %d pieces in the vocabulary; on dev %.2f pieces per word, %.2f %% byte pieces",
            side,
            len(tokenizer),
            figures[side].pieces_per_word,
            100 * figures[side].byte_share,
        )
    log.info("written to %s", run.path)
    for text in show or []:
        print(" ".join(tokenizers.source.pieces(tokenizers.source.encode(text))))
