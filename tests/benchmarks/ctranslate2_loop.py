"""A bare loop over CTranslate2's Python API, by options like those of `nmt translate`, for a fair comparison.

Reads what `nmt export` wrote. Needs CTranslate2 and SentencePiece, but not nmt.
"""

import argparse
import sys
from pathlib import Path

import ctranslate2
from sentencepiece import SentencePieceProcessor


class Loop:
    """Several translators with a batch each; the options are those of `main`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        names = ["tokenizer.src.model", "tokenizer.tgt.model"]
        if not (args.model / names[0]).exists():
            names = ["tokenizer.model"] * 2
        self.source, self.target = (SentencePieceProcessor(model_file=str(args.model / name)) for name in names)
        threads = {"inter_threads": args.translators, "intra_threads": args.threads}
        self.engine = ctranslate2.Translator(str(args.model), **threads)

    def translate(self, lines: list[str]) -> list[str]:
        beam = self.args.beam
        found = self.engine.translate_batch(
            self.source.encode(lines, out_type=str),
            beam_size=beam,
            patience=1 + 3 / beam if beam > 1 else 1,  # as in nmt
            max_batch_size=self.args.batch_size,
            return_end_token=True,  # so that the end sign counts in a hypothesis' length, as in nmt
        )
        return [self.target.decode(one.hypotheses[0]) for one in found]


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
    loop = Loop(args)
    if args.input:
        texts = loop.translate(args.input.read_text().splitlines())
        args.output.write_text("".join(f"{text}\n" for text in texts))
    else:
        for line in sys.stdin:
            print(*loop.translate([line.rstrip("\n")]), flush=True)


if __name__ == "__main__":
    main()
