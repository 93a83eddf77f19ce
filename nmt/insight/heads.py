"""Statistics of attention heads over a corpus: entropy, distance, weight on nearby pieces."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt.decode.engines.torch_engine import ATTENTION_POSITIONS, TorchEngine
from nmt.errors import DataError, InputError
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import Batch, pair_batches
from nmt.translate.loading import load
from nmt.translate.translator import Translator


@dataclass(frozen=True)
class HeadSummary:
    """Statistics of one head, each a mean over all real query positions.

    Entropy is in bits (n equal weights have log2(n)), distance in pieces between query and key. Previous, same and
    next are the weights, 0-1, on the piece before, at and after the query's position; in cross-attention, source
    and target positions are compared by their index. Boundary is the weight on EOS of the source, or on BOS in the
    decoder's self-attention.
    """

    part: str  # encoder, decoder or cross
    layer: int  # from 1
    head: int  # from 1
    entropy: float
    distance: float
    previous: float
    same: float
    next: float
    boundary: float


def attention_summary(run: Path | str | Translator, corpus: Sequence[tuple[str, str]]) -> list[HeadSummary]:
    """Statistics of every attention head of a model over a corpus, by part and layer.

    Args:
        run: a run directory or model file, or what `load` returns for it.
        corpus: pairs of source and target text; texts longer than the model can hold are cut.
    Raises:
        InputError: the model is an export or an ensemble.
        DataError: the corpus is empty.
    """
    translator = run if isinstance(run, Translator) else load(run)
    model = single_model(translator)
    if not corpus:
        raise DataError("no pairs to compute attention for", hint="give at least one")
    src, tgt = translator.encode_pairs([source for source, _ in corpus], [target for _, target in corpus])
    sums: dict[str, Tensor] = {}  # part -> (L, H, figures)
    n_queries: Counter[str] = Counter()
    for pairs in pair_batches(src, tgt, ATTENTION_POSITIONS):
        batch = pairs.to(model.device)
        with torch.inference_mode():
            attention = model.attention(batch.src, batch.tgt_in)
            for part, weights, queries, keys, boundary in parts_of(attention, batch):
                figures = head_figures(weights, queries, keys, boundary).cpu().double()
                sums[part] = sums[part] + figures if part in sums else figures
                n_queries[part] += int(queries.sum())
    return [
        HeadSummary(part, layer, head, *means)
        for part, total in sums.items()
        for layer, of_layer in enumerate((total / n_queries[part]).tolist(), 1)
        for head, means in enumerate(of_layer, 1)
    ]


def single_model(translator: Translator) -> Seq2Seq:
    """The model of a translator. Raises InputError if the translator is an export or an ensemble."""
    engine = translator.engine.torch_engine("attention weights")
    assert isinstance(engine, TorchEngine)
    if len(engine.models) > 1:
        raise InputError("an ensemble gives no attention weights", hint="name one run")
    return engine.models[0]


def parts_of(weights: AttentionWeights, batch: Batch) -> list[tuple[str, Tensor, Tensor, Tensor, Tensor]]:
    """For each part with attention: name, weights, and bool masks of real queries, real keys and boundary keys."""
    src, tgt, end_of_src = batch.src != PAD, batch.tgt_in != PAD, batch.src == EOS
    parts = [
        ("encoder", weights.encoder, src, src, end_of_src),
        ("decoder", weights.decoder, tgt, tgt, batch.tgt_in == BOS),
        ("cross", weights.cross, tgt, src, end_of_src),
    ]
    return [part for part in parts if len(part[1])]


def head_figures(weights: Tensor, queries: Tensor, keys: Tensor, boundary: Tensor) -> Tensor:
    """Return the statistics of `HeadSummary`, in its order, summed over real queries: (L, H, 6).

    Rows of `weights` (L, B, H, T, S) sum to 1. The masks `queries` (B, T), `keys` and `boundary` (B, S) are bool. A
    model without a padding mask also attends to padding; this weight is removed, and rows are normalized again.
    """
    w = weights.to(torch.promote_types(weights.dtype, torch.float32)) * keys[:, None, None]
    w = w / w.sum(-1, keepdim=True)
    n_queries, n_keys = w.shape[3:]
    offset = torch.arange(n_keys, device=w.device) - torch.arange(n_queries, device=w.device)[:, None]  # (T, S)
    figures = [
        torch.special.entr(w).sum(-1) / math.log(2),  # 0 log 0 = 0
        (w * offset.abs()).sum(-1),
        *((w * (offset == near)).sum(-1) for near in (-1, 0, 1)),
        (w * boundary[:, None, None]).sum(-1),
    ]
    return torch.where(queries[:, None, :, None], torch.stack(figures, -1), 0.0).sum((1, 3))
