"""Attention heads in figures: whether they look near or far, at one piece or at many, and whether they differ.

From the weights of one teacher-forced pass over a corpus; padding neither looks nor is looked at. Knows no
architecture: a model tells its weights, and a part that it does not have is left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translator, load
from nmt.errors import DataError, InputError
from nmt.model.base import AttentionWeights
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import Batch, collate, cut_batches

MAX_POSITIONS = 1024  # of a side of a batch, each of which has a weight for every other one in every head


@dataclass(frozen=True)
class HeadSummary:
    """One head's figures, each the mean over all real positions that look.

    Positions are those of pieces. In `cross` they are counted on both sides from the beginning: the position that
    writes piece t of the target looks at piece t of the source where `same` is 1.

    Attributes:
        part: encoder, decoder or cross, which is what the decoder sees of the source.
        layer, head: from 1.
        entropy: bits; 2^entropy pieces, as it were, are looked at: 0 is one, log2 n is n alike.
        distance: pieces from where it looks to what it sees.
        previous, same, next: share of weight on the piece before, at and after its own position, 0-1.
        boundary: share of weight on the source's EOS; in the decoder on BOS, which begins what it reads. 0-1.
        divergence: how unlike the layer's other heads it is: the mean Jensen-Shannon divergence from them, bits,
            0 (they look alike) to 1 (never at the same; Clark et al. 2019, section 6). None of a single head.
    """

    part: str
    layer: int
    head: int
    entropy: float
    distance: float
    previous: float
    same: float
    next: float
    boundary: float
    divergence: float | None


FIGURES = ("entropy", "distance", "previous", "same", "next", "boundary", "divergence")


def attention_summary(run: Path | str | Translator, corpus: Sequence[tuple[str, str]]) -> list[HeadSummary]:
    """What every attention head of a model looks at, over a corpus.

    Args:
        run: a run's directory or model file, or what `load` made of it.
        corpus: pairs of source and target text; what is longer than the model can hold is cut.
    Returns:
        a summary a head: of the encoder, the decoder and the cross-attention, by layer.
    Raises:
        InputError: this is an export or an ensemble.
        DataError: there are no pairs.
    """
    translator = run if isinstance(run, Translator) else load(run)
    engine = translator.engine
    if not isinstance(engine, TorchEngine) or len(engine.models) > 1:
        what = "several models" if isinstance(engine, TorchEngine) else "an export"
        raise InputError(f"{what} cannot tell attention weights", hint="name one run")
    if not corpus:
        raise DataError("no pairs to look at", hint="give at least one")
    model, limit = engine.models[0], engine.max_length - 1
    sources, targets = zip(*corpus, strict=True)
    src = [ids[:limit] for ids in translator.tokenizers.source.encode_all(sources)]
    tgt = [ids[:limit] for ids in translator.tokenizers.target.encode_all(targets)]
    sums: dict[str, Tensor] = {}  # of each part (L, H, figures)
    n_rows: dict[str, int] = {}
    for rows in cut_batches([(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], MAX_POSITIONS):
        batch = collate([src[i] for i in rows], [tgt[i] for i in rows], rows).to(engine.device)
        with torch.inference_mode():
            for part, weights, queries, keys, boundary in parts_of(model.attention(batch.src, batch.tgt_in), batch):
                figures = head_figures(weights, queries, keys, boundary).cpu().double()
                sums[part] = sums[part] + figures if part in sums else figures
                n_rows[part] = n_rows.get(part, 0) + int(queries.sum())
    return [
        HeadSummary(part, layer, head, **dict(zip(FIGURES, map(_or_none, means), strict=True)))
        for part, total in sums.items()
        for layer, of_layer in enumerate((total / n_rows[part]).tolist(), 1)
        for head, means in enumerate(of_layer, 1)
    ]


def parts_of(weights: AttentionWeights, batch: Batch) -> Iterator[tuple[str, Tensor, Tensor, Tensor, Tensor]]:
    """Each part that there is.

    Yields:
        its name, its weights (L, B, H, T, S) and, all bool, which queries (B, T) and keys (B, S) are real, and
        which keys are the boundary (B, S).
    """
    src, tgt = batch.src != PAD, batch.tgt_in != PAD
    for part, w, queries, keys, boundary in (
        ("encoder", weights.encoder, src, src, batch.src == EOS),
        ("decoder", weights.decoder, tgt, tgt, batch.tgt_in == BOS),
        ("cross", weights.cross, tgt, src, batch.src == EOS),
    ):
        if len(w):
            yield part, w, queries, keys, boundary


def head_figures(weights: Tensor, queries: Tensor, keys: Tensor, boundary: Tensor) -> Tensor:
    """The figures of `HeadSummary`, summed over real queries.

    Args:
        weights: (L, B, H, T, S), rows of which sum to 1.
        queries: (B, T) bool: which positions look.
        keys: (B, S) bool: which are looked at; weight on others is taken away, and the rest made 1 again.
        boundary: (B, S) bool.
    Returns:
        (L, H, 7) in the order of `FIGURES`; the last is NaN where there is one head.
    """
    w = weights.to(torch.promote_types(weights.dtype, torch.float32)) * keys[:, None, None]
    w = w / w.sum(-1, keepdim=True)
    n_heads, n_queries, n_keys = w.shape[2:]
    offset = torch.arange(n_keys, device=w.device) - torch.arange(n_queries, device=w.device)[:, None]  # (T, S)
    rows = [entropy(w), (w * offset.abs()).sum(-1)]
    rows += [(w * (offset == near)).sum(-1) for near in (-1, 0, 1)]
    rows += [(w * boundary[:, None, None]).sum(-1)]
    mixed = [entropy((w + w[:, :, i : i + 1]) / 2) for i in range(n_heads)]  # each (L, B, H, T): with head i
    apart = sum(mixed) - n_heads * rows[0] / 2 - rows[0].sum(2, keepdim=True) / 2
    rows += [apart / (n_heads - 1) if n_heads > 1 else torch.full_like(apart, torch.nan)]
    figures = torch.stack(rows, -1)  # (L, B, H, T, 7)
    return torch.where(queries[:, None, :, None], figures, 0.0).sum((1, 3))


def entropy(weights: Tensor) -> Tensor:
    """-sum w log2 w over the last dimension; what has no weight adds nothing."""
    nats: Tensor = torch.special.entr(weights).sum(-1)
    return nats / math.log(2)


def _or_none(value: float) -> Any:
    return None if math.isnan(value) else value


def table(summaries: Sequence[HeadSummary]) -> list[str]:
    """The summaries as lines, a head each."""
    if not summaries:
        return ["the model has no attention heads"]
    lines = [f"{'part':<8} layer head  " + "".join(f"{name:>11}" for name in FIGURES)]
    for one in summaries:
        values = [getattr(one, name) for name in FIGURES]
        cells = "".join(f"{'-' if value is None else f'{value:.3f}':>11}" for value in values)
        lines.append(f"{one.part:<8} {one.layer:>5} {one.head:>4}  {cells}")
    return lines
