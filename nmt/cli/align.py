"""The command `nmt align`."""

import json
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.source import check_lines
from nmt.text.lines import iter_pairs


def align(
    src: Annotated[Path, typer.Option(help="Source lines.")],
    ref: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    model: options.Model = None,
    languages: options.Languages = "",
    output: options.OutputFile = None,
    json_lines: Annotated[bool, typer.Option("--json", help="JSON lines: words and links.")] = False,
    device: options.Device = "auto",
) -> None:
    """Align words by the model's attention.

    Prints one line per pair, such as 0-0 1-2. The link 0-2 joins the first source word and the third target word. White
    space separates words. In Chinese, Thai and other unspaced scripts, each syllable is a word.
    """
    for path in (src, ref):
        check_lines(path, output)
    translator = options.load_translator(model, device, languages=languages)
    from nmt.text.words import WordText
    from nmt.translate.align import align

    pairs = ((WordText.split(pair.source), WordText.split(pair.target)) for pair in iter_pairs([src], [ref]))
    # `align` and `lines` both need each pair, and `align` reads ahead.
    to_align, to_print = tee(pairs)
    aligned = zip(to_print, align(translator.engine, translator.tokenizers, to_align), strict=True)

    def lines() -> Iterator[str]:
        for (source, target), links in aligned:
            if json_lines:
                words = {"source_words": source.words, "target_words": target.words, "links": links}
                yield json.dumps({"source": source.text, "target": target.text, **words}, ensure_ascii=False)
            else:
                yield " ".join(f"{s}-{t}" for s, t in links)  # the format of Moses

    streams.write_lines(lines(), src, output)
