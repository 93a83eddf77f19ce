"""Compare methods of word alignment by their error rate on gold alignments.

    python tests/decode/measure_alignments.py RUN tests/decode/alignments/de-en.tsv [--reverse RUN] [--swap]

A line of a gold file has source words, target words and links, separated by TABs; s-t is a sure link, s?t a
possible link. `nmt align` uses the method called "both directions, grow-diagonal".
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmt.config import base_language, language
from nmt.decode.align import Links, Matrix, WordText, align, encoded, grow_diagonal, normalized
from nmt.decode.segments import UNSPACED
from nmt.decode.translator import Translator, load
from nmt.insight.heads import single_model
from nmt.model.base import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS

LinkSet = set[tuple[int, int]]
CLOSING = (".", ",", "?", "!", "'s")  # written without a space before them


@dataclass(frozen=True)
class GoldPair:
    """Words of both sides and their links; `possible` contains the sure ones."""

    source: list[str]
    target: list[str]
    sure: LinkSet
    possible: LinkSet


def read_gold(file: Path, *, swap: bool = False) -> list[GoldPair]:
    """The pairs of a gold file; with `swap`, source and target exchanged."""
    pairs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        *sides, told = line.split("\t")
        kinds: dict[str, LinkSet] = {"-": set(), "?": set()}
        for s, kind, t in re.findall(r"(\d+)([-?])(\d+)", told):
            kinds[kind].add((int(t), int(s)) if swap else (int(s), int(t)))
        source, target = (side.split(" ") for side in (sides[::-1] if swap else sides))
        pairs.append(GoldPair(source, target, kinds["-"], kinds["-"] | kinds["?"]))
    return pairs


def natural_text(words: Iterable[str], *, spaced: bool) -> WordText:
    """Join words to a text with natural spacing."""
    text, spans = "", []
    for word in words:
        text += " " if text and spaced and word not in CLOSING else ""
        spans.append((len(text), len(text) + len(word)))
        text += word
    return WordText(text, spans)


def alignment_error_rate(found: Iterable[tuple[Iterable[tuple[int, int]], LinkSet, LinkSet]]) -> float:
    """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all pairs (Och and Ney 2003), given found, sure and possible links."""
    n_good = n_all = 0
    for links, sure, possible in found:
        own = set(links)
        n_good += len(own & sure) + len(own & possible)
        n_all += len(own) + len(sure)
    return 1 - n_good / n_all


def norms_of_values(model: Seq2Seq, src: Tensor) -> Matrix | float:
    """Norms of each head's value vectors after W^O: (L, H, 1, S) for src (1, S); 1 for a recurrent model.

    An attention weight times this norm is the size of what the head adds to its output (Kobayashi et al. 2020).
    """
    if not isinstance(model, Transformer):
        return 1.0
    memory, _ = model.encode(src)
    norms = []
    for layer in model.decoder:
        attention = layer.cross_attention
        _, values = attention.keys_values(memory)  # (1, H, S, D/H)
        output = attention.output.weight.view(len(attention.output.weight), attention.n_heads, -1)  # (D, H, D/H)
        norms.append(torch.einsum("hsd,ehd->hse", values[0], output).norm(dim=-1))  # (H, S)
    return torch.stack(norms)[:, :, None].numpy()


def methods(translator: Translator, pairs: list[tuple[WordText, WordText]]) -> Iterator[tuple[str, list[Links]]]:
    """Yield the name of each method and its links of all pairs."""
    model = single_model(translator)
    weights, weighted = [], []  # per pair (L, H, T + 1, S + 1), including EOS; `weighted` is multiplied by norms
    sides = []
    for pair in pairs:
        source, target = (
            encoded(side, tokenizer, limit=1000) for side, tokenizer in zip(pair, translator.tokenizers, strict=True)
        )
        assert source is not None
        assert target is not None
        (src, of_source), (tgt, of_target) = source, target
        with torch.inference_mode():
            ids = torch.tensor([[*src, EOS]])
            weights.append(model.attention(ids, torch.tensor([[BOS, *tgt]])).cross[:, 0].numpy())
            weighted.append(weights[-1] * norms_of_values(model, ids))
        sides.append((of_source, of_target))

    def by(choose: Callable[[Matrix], Matrix], *, of: Sequence[Matrix] = weights, shift: int = 0) -> list[Matrix]:
        """Return the weights between words, (S, T), of each pair.

        `choose` selects a head or averages heads. Row t + shift of its result belongs to target token t.
        """
        found: list[Matrix] = []
        for of_pair, (of_source, of_target) in zip(of, sides, strict=True):
            rows = choose(of_pair)[shift : shift + len(of_target), : len(of_source)]
            found.append(of_source.T @ rows.T @ of_target)
        return found

    def best_source(matrices: Sequence[Matrix]) -> list[Links]:
        return [[(s, t) for t, s in enumerate(m.argmax(0).tolist())] for m in matrices]

    def merged(matrices: Sequence[Matrix]) -> list[Links]:
        best = zip(matrices, best_source(matrices), strict=True)
        return [sorted(grow_diagonal(set(own), set(enumerate(m.argmax(1).tolist())))) for m, own in best]

    def mean(w: Matrix) -> Matrix:
        return np.asarray(w.mean((0, 1)))

    n_layers, n_heads = weights[0].shape[:2]
    yield "mean of all heads", best_source(by(mean))
    yield "the same, shifted by one", best_source(by(mean, shift=1))
    yield "the same, times norms of values", best_source(by(mean, of=weighted))
    for layer in range(n_layers):
        yield f"mean of layer {layer + 1}", best_source(by(lambda w, at=layer: w[at].mean(0)))  # type: ignore[misc]
    for layer, head in np.ndindex(n_layers, n_heads):
        chosen = by(lambda w, at=(layer, head): w[at])  # type: ignore[misc]
        yield f"head {layer + 1}.{head + 1}", best_source(chosen)
    yield "mean, grow-diagonal", merged(by(mean))
    both = [normalized(m, 0) * normalized(m, 1) for m in by(mean, of=weighted)]
    last = [normalized(m, 0) * normalized(m, 1) for m in by(lambda w: w[-1].mean(0))]
    yield "last layer, both directions, grow-diagonal", merged(last)
    yield "norms, both directions, grow-diagonal", merged(both)
    yield "both directions, grow-diagonal", list(align(translator, pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare methods of word alignment by their error rate.")
    parser.add_argument("run", type=Path, help="a run or model file")
    parser.add_argument("gold", type=Path, help="a gold file")
    parser.add_argument("--reverse", type=Path, help="a run of the other direction")
    parser.add_argument("--swap", action="store_true", help="the model translates from the file's target to its source")
    given = parser.parse_args()
    translator = load(given.run, "cpu")
    gold = read_gold(given.gold, swap=given.swap)
    codes = [language(translator.config.data, side) for side in ("source", "target")]
    spaced = [base_language(code) not in UNSPACED for code in codes]
    pairs = [(natural_text(one.source, spaced=spaced[0]), natural_text(one.target, spaced=spaced[1])) for one in gold]
    found = list(methods(translator, pairs))
    if given.reverse:
        found.append(("the same, with the reverse model", list(align(translator, pairs, load(given.reverse, "cpu")))))
    for name, links in found:
        rate = alignment_error_rate((own, one.sure, one.possible) for own, one in zip(links, gold, strict=True))
        print(f"{name:<45}{100 * rate:6.1f} %")


if __name__ == "__main__":
    main()
