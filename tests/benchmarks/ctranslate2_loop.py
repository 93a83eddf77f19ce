"""A bare loop over CTranslate2's Python API and an export, by options like those of `nmt translate`, without nmt."""

import argparse
import sys
from pathlib import Path

import ctranslate2
from sentencepiece import SentencePieceProcessor

BATCH_SIZE = 64


class Loop:
    """An export on several translators of one thread, each with a batch."""

    def __init__(self, export: Path, n_translators: int, beam: int) -> None:
        self.engine = ctranslate2.Translator(str(export), inter_threads=n_translators, intra_threads=1)
        self.beam = beam
        source = export / "tokenizer.src.model"
        target = export / "tokenizer.tgt.model"
        if not source.exists():
            source = target = export / "tokenizer.model"
        self.source = SentencePieceProcessor(model_file=str(source))
        self.target = SentencePieceProcessor(model_file=str(target))

    def translate(self, lines: list[str]) -> list[str]:
        pieces = self.source.encode(lines, out_type=str)
        # As in nmt: the patience, and that the end sign counts in a hypothesis' length.
        patience = 1.0
        if self.beam > 1:
            patience += 3 / self.beam
        options = {"beam_size": self.beam, "patience": patience, "return_end_token": True}
        results = self.engine.translate_batch(pieces, max_batch_size=BATCH_SIZE, **options)
        best = [result.hypotheses[0] for result in results]
        return [self.target.decode(pieces) for pieces in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", type=Path, required=True, help="an export")
    parser.add_argument("-i", "--input", type=Path, help="lines; without it, each line of stdin is answered")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--translators", type=int, default=2, help="each with a thread and a batch")
    args = parser.parse_args()
    loop = Loop(args.model, args.translators, args.beam)
    if args.input:
        texts = loop.translate(args.input.read_text().splitlines())
        args.output.write_text("".join(f"{text}\n" for text in texts))
    else:
        for line in sys.stdin:
            print(*loop.translate([line.rstrip("\n")]), flush=True)


if __name__ == "__main__":
    main()
