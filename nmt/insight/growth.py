"""One sentence along training: what each snapshot of a run (train.snapshots) does with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.errors import InputError
from nmt.insight import pages
from nmt.insight.curves import read_figures
from nmt.insight.explain import Sentence, describe_model
from nmt.insight.heads import HeadSummary, attention_summary
from nmt.run.directory import RunDirectory
from nmt.translate.loading import load
from nmt.translate.translator import Translator

GREEDY = {"beam": 1, "n_best": 1}


@dataclass(frozen=True)
class Snapshot:
    """What the model of one snapshot does with the sentence."""

    step: int
    translation: str  # greedy
    is_cut: bool  # whether its end was forced at the length limit
    probabilities: list[float]  # of the reference tokens, given those before them, 0-1


@dataclass(frozen=True)
class HeadGrowth:
    """How strongly a head has one role, 0-1, at each snapshot; see `roles_of`."""

    role: str
    part: str  # encoder, decoder or cross
    layer: int  # from 1
    head: int  # from 1
    shares: list[float]


@dataclass(frozen=True)
class Growth:
    """A sentence along training; see `growth`. N snapshots, P distinct source and target pieces."""

    run: str
    model: str  # one line: kind, sizes
    source: str
    reference: str
    is_given: bool  # whether the reference was given; else it is the translation of the run's model
    source_pieces: list[str]  # EOS last
    reference_pieces: list[str]  # EOS last
    snapshots: list[Snapshot]  # oldest first
    cross: Tensor  # cross-attention when reading the reference: (N, L, H, T, S); L is 0 without attention
    words: list[tuple[str, str]]  # "source" or "target", and piece: (P,)
    positions: Tensor  # of the words' embeddings on two principal components of all snapshots: (N, P, 2)
    explained: float  # share of the variance of the embeddings that the two components hold, 0-1
    heads: list[HeadGrowth]
    n_pairs: int  # the sentence and the samples of dev, from which `heads` are computed
    loss: list[tuple[float, float]]  # (step, training loss)
    validations: list[tuple[int, float, float]]  # (step, dev loss, dev BLEU)


def growth(
    run: Path | str, text: str, *, reference: str | None = None, languages: str = "", device: str = "auto"
) -> Growth:
    """Follow one sentence through the snapshots of a run; its reference is by default the final model's translation.

    Raises InputError if the run has no snapshots, or the text is blank or too long, and ModelError if this is no run,
    or a snapshot is damaged.
    """
    directory = RunDirectory(run)
    steps = directory.snapshot_steps() if directory.read_config() else []
    if not steps:
        raise InputError(f"{run} has no snapshots", hint="train with train.snapshots=12, which keeps 12 of them")

    # 1. What all snapshots read: the sentence, its reference, and some pairs of the dev set.
    final = load(run, device, engine="torch").to(languages)
    sentence = Sentence(final, text, GREEDY)
    is_given = reference is not None
    if reference is None:
        (reference,) = final.translate([text])
    target_tokens = sentence.tokens_of(reference)
    curves, validations = read_figures(directory)
    pairs = [(text, reference)]
    if validations and not languages:  # with several languages, samples are of all of them
        samples = validations[-1].get("samples", [])
        pairs += [(source, target) for source, target, _ in samples]

    # 2. What each snapshot does with it.
    looks = []
    for step in steps:
        file = directory.snapshot_file(step)
        translator = load(file, device, engine="torch").to(languages)
        looks.append(look(translator, step, reference, pairs))

    # 3. The embeddings on two components of all snapshots, and the heads along the snapshots.
    embeddings = torch.stack([snapshot_look.embeddings for snapshot_look in looks])  # (N, P, D)
    positions, explained = principal_components(embeddings)
    source_words = final.tokenizers.source.pieces(distinct(sentence.source_tokens))
    target_words = final.tokenizers.target.pieces(distinct(target_tokens))
    words = [("source", piece) for piece in source_words]
    words += [("target", piece) for piece in target_words]
    loss = list(zip(curves["step"], curves["loss"], strict=True))
    figures = [(line["step"], line["dev_loss"], line["dev_bleu"]) for line in validations]
    snapshots = [snapshot_look.snapshot for snapshot_look in looks]
    cross = torch.stack([snapshot_look.cross for snapshot_look in looks])
    heads = heads_along([snapshot_look.heads for snapshot_look in looks])
    reference_pieces = final.tokenizers.target.pieces(target_tokens)
    description = describe_model(sentence.model)
    return Growth(
        run=str(run),
        model=description,
        source=text,
        reference=reference,
        is_given=is_given,
        source_pieces=sentence.source_pieces,
        reference_pieces=reference_pieces,
        snapshots=snapshots,
        cross=cross,
        words=words,
        positions=positions,
        explained=explained,
        heads=heads,
        n_pairs=len(pairs),
        loss=loss,
        validations=figures,
    )


def distinct(tokens: Sequence[int]) -> list[int]:
    """Return tokens without repetitions, in order."""
    return list(dict.fromkeys(tokens))


class Look(NamedTuple):
    """What one snapshot does with the sentence and its reference, and how its heads attend."""

    snapshot: Snapshot
    cross: Tensor  # (L, H, T, S)
    embeddings: Tensor  # of the distinct source and target pieces: (P, D)
    heads: list[HeadSummary]


def look(translator: Translator, step: int, reference: str, pairs: Sequence[tuple[str, str]]) -> Look:
    """Translate the source of the first pair greedily, and read its reference by teacher forcing."""
    sentence = Sentence(translator, pairs[0][0], GREEDY)
    model = sentence.model
    target = sentence.tokens_of(reference)
    with torch.inference_mode():
        (greedy,), _ = sentence.search(sentence.options)
        translated = sentence.translated(greedy)
        reference_tokens = sentence.scored(target)
        probabilities = [math.exp(token.log_prob) for token in reference_tokens]
        attention = model.attention(sentence.src, sentence.tgt_in(target))
        cross = attention.cross[:, 0]
        source_vectors = model.source_embedding.weight[distinct(sentence.source_tokens)]
        target_vectors = model.target_embedding.weight[distinct(target)]
    snapshot = Snapshot(step, translated.text, translated.is_cut, probabilities)
    embeddings = torch.cat([source_vectors, target_vectors]).float().cpu()
    return Look(snapshot, cross, embeddings, attention_summary(translator, pairs))


def heads_along(summaries: Sequence[Sequence[HeadSummary]]) -> list[HeadGrowth]:
    """Return how far the heads have their roles, given the statistics of all heads at each snapshot."""
    heads = []
    for head_along in zip(*summaries, strict=True):
        first = head_along[0]
        for role in roles_of(first):
            shares = [roles_of(head)[role] for head in head_along]
            heads.append(HeadGrowth(role, first.part, first.layer, first.head, shares))
    return heads


def roles_of(head: HeadSummary) -> dict[str, float]:
    """Return what a head may specialize in, and how far it does, 0-1.

    `previous` and `end` are mean weights: on the previous piece, and on the end of the source or the start of the
    target. `alignment` is 1 / 2^entropy, that is 1 / (the number of pieces that the head effectively attends to), times
    the weight that is not on the end: it is above one half only if the head attends to fewer than two pieces.
    """
    if head.part == "cross":
        n_keys = 2**head.entropy
        return {"alignment": (1 - head.boundary) / n_keys, "end": head.boundary}
    return {"previous": head.previous, "end": head.boundary}


def principal_components(x: Tensor) -> tuple[Tensor, float]:
    """Project x (N, P, D) on the first two principal components of its N·P vectors.

    Returns the projection (N, P, 2), and its share of the variance, 0-1.
    """
    centered = x.flatten(0, 1) - x.mean((0, 1))  # (N·P, D)
    u, s, _ = torch.linalg.svd(centered, full_matrices=False)
    projected = (u * s)[:, :2]
    variance = s.square()
    total = variance.sum().clamp(min=1e-12)
    explained = variance[:2].sum() / total
    return projected.unflatten(0, x.shape[:2]), float(explained)


def as_page(growths: Sequence[Growth]) -> str:
    """Return a self-contained HTML page of one sentence in one run, or in several beside each other."""
    runs = [{**vars(one), "positions": one.positions.tolist()} for one in growths]
    data = pages.plain(runs, partial(pages.packed, compress=True))
    return pages.page("growth", f"{growths[0].source} – nmt explain --growth", data)
