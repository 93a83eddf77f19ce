"""A bare loop over CTranslate2's Python API and an export, by options like those of `nmt translate`, without nmt."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import ctranslate2
from sentencepiece import SentencePieceProcessor


def translator(args: argparse.Namespace) -> Callable[[list[str]], list[str]]:
    """Several translators with a batch each; the options are those of `main`."""
    names = ["tokenizer.src.model", "tokenizer.tgt.model"]
    if not (args.model / names[0]).exists():
        names = ["tokenizer.model"] * 2
    source, target = (SentencePieceProcessor(model_file=str(args.model / name)) for name in names)
    engine = ctranslate2.Translator(str(args.model), inter_threads=args.translators, intra_threads=args.threads)

    def translate(lines: list[str]) -> list[str]:
        found = engine.translate_batch(
            source.encode(lines, out_type=str),
            beam_size=args.beam,
            patience=1 + 3 / args.beam if args.beam > 1 else 1,  # as in nmt
            max_batch_size=args.batch_size,
            return_end_token=True,  # so that the end sign counts in a hypothesis' length, as in nmt
        )
        return [target.decode(one.hypotheses[0]) for one in found]

    return translate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", type=Path, required=True, help="an export")
    parser.add_argument("-i", "--input", type=Path, help="lines; without it, each line of stdin is answered")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--translators", type=int, default=2, help="each with a batch")
    parser.add_argument("--threads", type=int, default=1, help="of each translator")
    args = parser.parse_args()
    translate = translator(args)
    if args.input:
        texts = translate(args.input.read_text().splitlines())
        args.output.write_text("".join(f"{text}\n" for text in texts))
    else:
        for line in sys.stdin:
            print(*translate([line.rstrip("\n")]), flush=True)


if __name__ == "__main__":
    main()
