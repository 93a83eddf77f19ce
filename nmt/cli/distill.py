"""`nmt distill`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.cli.rewriting import check_direction, checked_files, rewrite
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.decode.segments import Translation


def distill(
    model: options.Generators,
    input_file: options.InputFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Target lines; FILE.part until complete.")],
    ref: Annotated[Path | None, typer.Option(help="The corpus's own target lines, for --best-of.")] = None,
    best_of: Annotated[
        int | None, typer.Option(metavar="N", min=2, max=1000, help="Of N hypotheses, that of the best sentence BLEU.")
    ] = None,
    shard: options.ShardOf = None,
    beam: options.Beam = None,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Rewrite the targets of a corpus with a teacher, to train a smaller model.

    The teacher, a model or an ensemble, translates each line by beam search. With --best-of and --ref, the new target
    is the hypothesis that is most similar to the reference (Kim and Rush 2016). Line N of the output is the target of
    line N of the input; a blank line stays blank. Repeat the command to continue after an interruption.
    """
    if (ref is None) != (best_of is None):
        raise InputError("--best-of and --ref go together", hint="give both, or neither for the best by the teacher")
    files = checked_files("distill", input_file, output, shard, ref)
    paths, translator = options.load_translator(model, device, threads, precision, engine)
    check_direction(translator, input_file)
    from nmt.evaluate import bleu_tokenizer

    n_best = best_of or 1
    beam = max(translator.options.beam, n_best) if beam is None else beam
    chosen = translator.with_options(beam=beam, n_best=n_best, scores=False)
    arguments: dict[str, Any] = {"options": chosen, "batch_size": batch_size}
    settings = {"precision": precision, "engine": engine}
    render = partial(most_similar, tokenize=bleu_tokenizer(translator.target_language))
    rewrite(files, paths, translator, arguments, settings, render)
    if shard is None:
        message = "to train a student on it: data.train.source=%s data.train.target=%s"
        streams.log.info(message, input_file, output)


def most_similar(translation: "Translation", reference: str, *, tokenize: str) -> str:
    """Return the hypothesis that is most similar to the reference, by sentence BLEU."""
    from nmt.evaluate import closest

    texts = [found.text for found in translation.hypotheses]
    return texts[closest(texts, reference, tokenize=tokenize)] if len(texts) > 1 else texts[0]
