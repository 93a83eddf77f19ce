"""One sentence in the course of training: its translation and attention weights at each snapshot of a run.

The setting train.snapshots makes training keep snapshots of the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.errors import InputError
from nmt.insight import pages
from nmt.insight.curves import read_figures
from nmt.insight.explain import Sentence
from nmt.insight.heads import HeadSummary, attention_summary
from nmt.run.directory import RunDirectory
from nmt.translate.loading import load
from nmt.translate.translator import Translator

GREEDY = {"beam": 1, "n_best": 1}


@dataclass(frozen=True)
class Snapshot:
    """A snapshot's translation of the sentence, and its probabilities of the reference."""

    step: int
    translation: str  # result of greedy search
    is_cut: bool  # whether the length limit ended the translation too early
    probabilities: list[float]  # probability of each reference token after the previous ones, 0-1


@dataclass(frozen=True)
class HeadGrowth:
    """One role of an attention head, and the strength of this role at each snapshot; see `roles_of`."""

    role: str
    part: str  # encoder, decoder or cross
    layer: int  # layer number, from 1
    head: int  # head number, from 1
    shares: list[float]  # strength of the role at each snapshot, 0-1


@dataclass(frozen=True)
class Growth:
    """The result of `growth` for one sentence and a run of N snapshots."""

    run: str
    model: str  # kind and sizes of the model in one line
    source: str
    reference: str
    is_given: bool  # if False, `reference` is the translation by the run's model
    source_pieces: list[str]  # the last piece is EOS
    reference_pieces: list[str]  # the last piece is EOS
    snapshots: tuple[Snapshot, ...]  # in the order of their steps
    cross: Tensor  # (N, L, H, T, S): cross-attention weights for the reference; L is 0 if the model has no attention
    heads: list[HeadGrowth]
    n_pairs: int  # number of sentence pairs from which `heads` are computed
    loss: list[tuple[float, float]]  # (step, training loss)
    validations: list[tuple[int, float, float]]  # (step, dev loss, dev BLEU)


def growth(
    run: Path | str, text: str, *, reference: str | None = None, languages: str = "", device: str = "auto"
) -> Growth:
    """Translate one sentence with every snapshot of a run. By default, the reference is the run's own translation.

    Raises:
        InputError: the run has no snapshots, or the text is blank or too long.
        ModelError: `run` is not a run, or a snapshot is damaged.
    """
    directory = RunDirectory(run)
    steps = directory.snapshot_steps() if directory.read_config() else []
    if not steps:
        raise InputError(f"{run} has no snapshots", hint="train with train.snapshots=12, which keeps 12 of them")

    # 1. Collect the input for all snapshots: the sentence, its reference, and some pairs of the dev set.
    final = load(run, device, engine="torch").to(languages)
    sentence = Sentence(final, text, GREEDY)
    is_given = reference is not None
    if reference is None:
        (reference,) = final.translate([text])
    target_tokens = sentence.tokens_of(reference)
    curves, validations = read_figures(directory)
    pairs = [(text, reference)]
    if not languages:  # the dev samples of a multilingual run mix all directions
        pairs += dev_samples(validations)

    # 2. Translate and score with each snapshot.
    looks = []
    for step in steps:
        file = directory.snapshot_file(step)
        translator = load(file, device, engine="torch").to(languages)
        looks.append(look(translator, step, reference, pairs))

    # 3. Collect the results of all snapshots, and the curves of the training.
    loss = list(zip(curves["step"], curves["loss"], strict=True))
    figures = [(line["step"], line["dev_loss"], line["dev_bleu"]) for line in validations]
    snapshots, cross, summaries = zip(*looks, strict=True)
    heads = heads_along(summaries)
    reference_pieces = final.tokenizers.target.pieces(target_tokens)
    return Growth(
        run=str(run),
        model=sentence.description,
        source=text,
        reference=reference,
        is_given=is_given,
        source_pieces=sentence.source_pieces,
        reference_pieces=reference_pieces,
        snapshots=snapshots,
        cross=torch.stack(cross),
        heads=heads,
        n_pairs=len(pairs),
        loss=loss,
        validations=figures,
    )


def dev_samples(validations: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the pairs of source and reference that the last validation logged."""
    if not validations:
        return []
    samples = validations[-1].get("samples", [])
    return [(source, reference) for source, reference, _ in samples]


def look(
    translator: Translator, step: int, reference: str, pairs: Sequence[tuple[str, str]]
) -> tuple[Snapshot, Tensor, list[HeadSummary]]:
    """Translate the source of the first pair by greedy search, and score `reference` by teacher forcing.

    Returns the snapshot, its cross-attention weights (L, H, T, S), and the statistics of its heads over all pairs.
    """
    sentence = Sentence(translator, pairs[0][0], GREEDY)
    model = sentence.model
    target = sentence.tokens_of(reference)
    with torch.inference_mode():
        (greedy,), _ = sentence.search(sentence.options)
        probabilities = [math.exp(token.log_prob) for token in sentence.scored(target)]
        cross = model.attention(sentence.src, sentence.tgt_in(target)).cross[:, 0]
    snapshot = Snapshot(step, sentence.text_of(greedy.tokens), greedy.is_cut, probabilities)
    return snapshot, cross, attention_summary(translator, pairs)


def heads_along(summaries: Sequence[Sequence[HeadSummary]]) -> list[HeadGrowth]:
    """Return a `HeadGrowth` for each role of each head, given the statistics of all heads at each snapshot."""
    heads = []
    for head_along in zip(*summaries, strict=True):
        first = head_along[0]
        for role in roles_of(first):
            shares = [roles_of(head)[role] for head in head_along]
            heads.append(HeadGrowth(role, first.part, first.layer, first.head, shares))
    return heads


def roles_of(head: HeadSummary) -> dict[str, float]:
    """Return how strongly a head has each role in which heads may specialize, 0-1.

    - `previous`: the mean weight on the previous piece.
    - `end`: the mean weight on EOS of the source or, in the decoder's self-attention, on BOS.
    - `alignment`, in cross-attention: the mean weight on pieces except EOS, divided by 2^entropy. A head effectively
      attends to 2^entropy pieces.
    """
    if head.part == "cross":
        n_keys = 2**head.entropy
        return {"alignment": (1 - head.boundary) / n_keys, "end": head.boundary}
    return {"previous": head.previous, "end": head.boundary}


def as_page(growths: Sequence[Growth]) -> str:
    """Return a self-contained HTML page about one sentence in one or several runs. `growths` has one item per run."""
    runs = [vars(one) for one in growths]
    data = pages.plain(runs, partial(pages.packed, compress=True))
    return pages.page("growth", f"{growths[0].source} – nmt explain --growth", data)
