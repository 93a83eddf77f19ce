"""One sentence in the course of training: its translation and attention weights at each snapshot of a run.

The setting train.snapshots makes training keep snapshots of the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nmt.errors import InputError
from nmt.insight import pages
from nmt.insight.curves import read_figures
from nmt.insight.explain import Sentence
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

    # 2. Translate and score with each snapshot.
    looks = []
    for step in steps:
        file = directory.snapshot_file(step)
        translator = load(file, device, engine="torch").to(languages)
        looks.append(look(translator, step, text, reference))

    # 3. Collect the results of all snapshots, and the curves of the training.
    curves, validations = read_figures(directory)
    loss = list(zip(curves["step"], curves["loss"], strict=True))
    figures = [(line["step"], line["dev_loss"], line["dev_bleu"]) for line in validations]
    snapshots, cross = zip(*looks, strict=True)
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
        loss=loss,
        validations=figures,
    )


def look(translator: Translator, step: int, text: str, reference: str) -> tuple[Snapshot, Tensor]:
    """Translate a sentence by greedy search, and score `reference` by teacher forcing.

    Returns the snapshot, and its cross-attention weights (L, H, T, S).
    """
    sentence = Sentence(translator, text, GREEDY)
    model = sentence.model
    target = sentence.tokens_of(reference)
    with torch.inference_mode():
        (greedy,), _ = sentence.search(sentence.options)
        probabilities = [math.exp(token.log_prob) for token in sentence.scored(target)]
        cross = model.attention(sentence.src, sentence.tgt_in(target)).cross[:, 0]
    return Snapshot(step, sentence.text_of(greedy.tokens), greedy.is_cut, probabilities), cross


def as_page(growths: Sequence[Growth]) -> str:
    """Return a self-contained HTML page about one sentence in one or several runs. `growths` has one item per run."""
    runs = [vars(one) for one in growths]
    data = pages.plain(runs, partial(pages.packed, compress=True))
    return pages.page("growth", f"{growths[0].source} – nmt explain --growth", data)
