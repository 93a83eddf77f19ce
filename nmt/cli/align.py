"""The command `nmt align`."""

import json
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError
from nmt.text.lines import iter_pairs

if TYPE_CHECKING:
    from nmt.translate.align import WordPair
    from nmt.translate.translator import Translator


def align(
    src: Annotated[Path | None, typer.Option(help="Source lines. [default: stdin]")] = None,
    ref: Annotated[Path | None, typer.Option(help="Their translations. [default: the model's own]")] = None,
    model: options.Model = None,
    languages: options.Languages = "",
    output: options.OutputFile = None,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines: words and links.")] = False,
    beam: options.Beam = None,
    device: options.Device = "auto",
) -> None:
    """Align words by the model's attention.

    Prints one line per input line, such as 0-0 1-2. The link 0-2 joins the first source word and the third target word.
    White space separates words; in a text without any, each character of an unspaced script is a word. With --ref, the
    given pairs are aligned. Without it, each line is the model's translation, TAB, and the links.
    """
    # 1. Check the arguments.
    if ref is not None and src is None:
        raise InputError("--ref needs --src", hint="nmt align --src test.de --ref test.en")
    if ref is not None and beam is not None:
        raise InputError("--beam has no effect with --ref", hint="leave out one of them")
    # 2. Align.
    translator = options.load_translator(model, device, languages=languages)
    from nmt.translate.align import align

    # `align` and the loop below both need each pair, and `align` reads a window of pairs ahead of the loop.
    to_align, to_print = tee(word_pairs(translator, src, ref, beam))
    aligned = zip(to_print, align(translator.engine, translator.tokenizers, to_align), strict=True)
    # 3. Print.
    with streams.open_output(output) as out:
        for (source, target), links in streams.with_bar(aligned, streams.bar_length(src, output)):
            if json_lines:
                words = {"source_words": source.words, "target_words": target.words, "links": links}
                line = json.dumps({"source": source.text, "target": target.text, **words}, ensure_ascii=False)
            else:
                line = " ".join(f"{s}-{t}" for s, t in links)  # the format of Moses
                if ref is None:
                    line = f"{target.text}\t{line}"
            out.write(line.encode() + b"\n")


def word_pairs(translator: "Translator", src: Path | None, ref: Path | None, beam: int | None) -> "Iterator[WordPair]":
    """Yield pairs that are split into words. If `ref` is None, the targets are translations by the model."""
    from nmt.text.words import WordText

    # The translations are given.
    if src is not None and ref is not None:
        for pair in iter_pairs([src], [ref]):
            yield WordText.split(pair.source), WordText.split(pair.target)
        return
    # The model translates.
    chosen = translator.with_options(**options.search_options(beam=beam))
    for translation in translator.translate_lines(streams.open_input(src), chosen):
        yield WordText.split(translation.source), WordText.split(translation.text)
