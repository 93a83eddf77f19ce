"""Translate a run's test set with nmt and with transformers from its export, greedily and with a beam, and compare.

    python tests/interchange/compare_searches.py RUN [--lines N]

nmt's maximum length depends on the source, so transformers gets it for each group of sources of the same length. Two
different translations are a near tie if their scores differ by at most `TIE`. For greedy search, the log-probabilities
of the first pieces that differ are compared instead of the scores.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from nmt.config import data_root, language
from nmt.decode.options import Segment
from nmt.decode.translator import Translator, load
from nmt.evaluate import bleu_tokenizer, score
from nmt.interchange.huggingface import quiet_transformers, to_huggingface
from nmt.text import EOS
from nmt.text.lines import read_pairs

TIE = 1e-4  # nats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=int, default=None)
    args = parser.parse_args()
    translator = load(args.run)
    assert translator.run
    data = translator.run.read_config().data
    assert data.test
    files = [[data_root(data.root) / path for path in side] for side in (data.test.source, data.test.target)]
    pairs = read_pairs(files[0], files[1])[: args.lines]
    sources = translator.tokenizers.source.encode_all([pair.source for pair in pairs])
    references = [pair.target for pair in pairs]
    with tempfile.TemporaryDirectory() as place, quiet_transformers():
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        to_huggingface(translator, Path(place, "out"))
        model = AutoModelForSeq2SeqLM.from_pretrained(Path(place, "out")).eval()
        tokenizer = AutoTokenizer.from_pretrained(Path(place, "out"))
    for beam in (1, 5):
        segments = [Segment(tokens) for tokens in sources]
        ours = translator.engine.start(segments, translator.with_options(beam=beam), batch_size=64)()
        theirs = translations(model, tokenizer, translator, [pair.source for pair in pairs], beam)
        kinds = Counter(
            kind_of(translator, *of_line, beam)
            for of_line in zip(sources, [best[0].tokens for best in ours], theirs, strict=True)
        )
        print(f"beam {beam}: {dict(kinds)}")
        for name, found in (("nmt", [best[0].tokens for best in ours]), ("transformers", theirs)):
            texts = tokenizer.batch_decode(found, skip_special_tokens=True)
            tokenize = bleu_tokenizer(language(data, "target"))
            print(f"  {name:12}", *score(texts, [references], ("bleu",), tokenize=tokenize), flush=True)


def translations(model: Any, tokenizer: Any, translator: Translator, lines: list[str], beam: int) -> list[list[int]]:
    """transformers' tokens for each line, EOS last."""
    groups: dict[int, list[int]] = {}
    for i, tokens in enumerate(tokenizer(lines).input_ids):
        groups.setdefault(len(tokens), []).append(i)
    found: list[list[int]] = [[] for _ in lines]
    for length, group in groups.items():
        inputs = tokenizer([lines[i] for i in group], return_tensors="pt")
        limit = translator.options.limit(length, model_limit=translator.engine.max_length)
        with torch.inference_mode():
            rows = model.generate(**inputs, num_beams=beam, max_length=limit + 1).tolist()
        for i, row in zip(group, rows, strict=True):
            found[i] = row[1 : row.index(EOS) + 1]
    return found


def kind_of(translator: Translator, source: list[int], ours: list[int], theirs: list[int], beam: int) -> str:
    """Return "equal", "near tie", or which translation is better."""
    if ours == theirs:
        return "equal"
    (first, second) = translator.engine.score([source] * 2, [ours[:-1], theirs[:-1]])
    at_limit = len(theirs) == translator.options.limit(len(source) + 1, model_limit=translator.engine.max_length)
    if beam == 1:
        i = next(i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1])
        gap = first[i] - second[i]
    else:
        scores = [sum(side) / translator.with_options(beam=beam).length_divisor(len(side)) for side in (first, second)]
        gap = scores[0] - scores[1]
    if abs(gap) <= TIE:
        return "near tie"
    better = "nmt better" if gap > 0 else "transformers better"
    return better + ", at the maximum length" * at_limit


if __name__ == "__main__":
    main()
