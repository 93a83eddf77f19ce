"""Statistics of attention heads over a corpus: entropy, distance, and the weights on neighbors and boundary tokens."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt.decode.engines.torch_engine import ATTENTION_POSITIONS, only_model
from nmt.errors import DataError
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import Batch, pair_batches
from nmt.translate.loading import load
from nmt.translate.translator import Translator


@dataclass(frozen=True)
class HeadSummary:
    """Statistics of one head: means over all query positions that are not padding.

    - `entropy`: the entropy of a query's weights, in bits.
    - `distance`: the mean distance from a query to its keys, in pieces, weighted by attention.
    - `previous`, `same`, `next`: the weight on the piece before, at and after the query's position.
    - `boundary`: the weight on EOS of the source or, in the decoder's self-attention, on BOS.

    In cross-attention, the index of a source piece is compared with the index of the target piece.
    """

    part: str  # encoder, decoder or cross
    layer: int  # layer number, from 1
    head: int  # head number, from 1
    entropy: float
    distance: float
    previous: float
    same: float
    next: float
    boundary: float


def attention_summary(run: Path | str | Translator, corpus: Sequence[tuple[str, str]]) -> list[HeadSummary]:
    """Return statistics of every attention head of a model over a corpus, in the order of parts, layers and heads.

    Args:
        run: a run directory, a model file, or a translator from `load`.
        corpus: pairs of source and target text; texts that are too long for the model are truncated.
    Raises:
        InputError: the model is an ensemble or an export.
        DataError: the corpus is empty.
    """
    translator = run if isinstance(run, Translator) else load(run)
    model = single_model(translator)
    if not corpus:
        raise DataError("no pairs to compute attention for", hint="give at least one")
    sources, targets = zip(*corpus, strict=True)
    src, tgt = translator.encode_pairs(sources, targets)

    # 1. Sum the statistics over all queries that are not padding.
    sums: dict[str, Tensor] = {}  # part -> (L, H, 6)
    n_queries: Counter[str] = Counter()
    for pairs in pair_batches(src, tgt, ATTENTION_POSITIONS):
        batch = pairs.to(model.device)
        with torch.inference_mode():
            attention = model.attention(batch.src, batch.tgt_in)
            for name, tensors in parts_of(attention, batch).items():
                figures = head_figures(*tensors).cpu().double()
                sums[name] = sums.get(name, torch.zeros(())) + figures
                n_queries[name] += int(tensors[1].sum())

    # 2. Divide the sums by the number of queries.
    summaries = []
    for name, total in sums.items():
        means = (total / n_queries[name]).tolist()
        for layer, heads in enumerate(means, 1):
            for head, figures_of_head in enumerate(heads, 1):
                summaries.append(HeadSummary(name, layer, head, *figures_of_head))
    return summaries


def single_model(translator: Translator) -> Seq2Seq:
    """Return the single model of a translator. Raises InputError if the translator has an export or an ensemble."""
    problem = "an ensemble gives no attention weights"
    return only_model(translator.engine, "attention weights", problem=problem, hint="name one run")


def parts_of(weights: AttentionWeights, batch: Batch) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return the arguments of `head_figures` for each part of a model that has attention weights."""
    src = batch.src != PAD
    tgt = batch.tgt_in != PAD
    end_of_src = batch.src == EOS
    parts = {
        "encoder": (weights.encoder, src, src, end_of_src),
        "decoder": (weights.decoder, tgt, tgt, batch.tgt_in == BOS),
        "cross": (weights.cross, tgt, src, end_of_src),
    }
    return {name: tensors for name, tensors in parts.items() if len(tensors[0])}


def head_figures(weights: Tensor, queries: Tensor, keys: Tensor, boundary: Tensor) -> Tensor:
    """Sum the six statistics of `HeadSummary` over all queries that are not padding. Returns a tensor (L, H, 6).

    Args:
        weights: (L, B, H, T, S). Without a padding mask, weights may include padding: these weights are set to 0, and
            the rows are normalized again.
        queries: (B, T), True where the query is not padding.
        keys: (B, S), True where the key is not padding.
        boundary: (B, S), True where the key is EOS of the source, or BOS in the decoder's self-attention.
    """
    n_queries, n_keys = weights.shape[3:]
    w = weights.to(torch.promote_types(weights.dtype, torch.float32))
    w = w * keys[:, None, None]
    w = w / w.sum(-1, keepdim=True)
    positions = torch.arange(max(n_queries, n_keys), device=w.device)
    offset = positions[:n_keys] - positions[:n_queries, None]  # (T, S): position of the key minus position of the query
    nats = torch.special.entr(w).sum(-1)  # entr(w) is -w log w, and 0 for w = 0
    entropy = nats / math.log(2)
    distance = (w * offset.abs()).sum(-1)
    near = [(w * (offset == n)).sum(-1) for n in (-1, 0, 1)]  # weights on the previous, same and next piece
    on_boundary = (w * boundary[:, None, None]).sum(-1)
    figures = torch.stack([entropy, distance, *near, on_boundary], -1)  # (L, B, H, T, 6)
    is_real = queries[:, None, :, None]  # (B, 1, T, 1)
    return torch.where(is_real, figures, 0.0).sum((1, 3))
