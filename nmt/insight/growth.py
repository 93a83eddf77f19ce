"""One sentence along training: what each snapshot of a run (train.snapshots) does with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt.errors import InputError
from nmt.insight import pages
from nmt.insight.curves import read_figures
from nmt.insight.explain import Sentence, described
from nmt.insight.heads import HeadSummary, attention_summary
from nmt.run.directory import RunDirectory
from nmt.translate.loading import load


@dataclass(frozen=True)
class Snapshot:
    """What the model of one snapshot does with the sentence."""

    step: int
    translation: str  # greedy
    is_cut: bool  # whether its end was forced at the length limit
    probabilities: list[float]  # of each reference token, given those before it, 0-1


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
    loss: list[tuple[int, float]]  # (step, training loss)
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
    final = load(run, device, engine="torch").to(languages)
    given = reference is not None
    reference = reference if reference is not None else final.translate([text])[0]
    curves, validations = read_figures(directory)
    samples = [(source, target) for source, target, *_ in (validations or [{}])[-1].get("samples", []) if not languages]
    pairs = [(text, reference), *samples]

    snapshots, cross, embeddings, summaries = [], [], [], []
    for step in steps:
        model = load(directory.snapshot_file(step), device, engine="torch").to(languages)
        sentence = Sentence(model, text, "", lambda: None, {"beam": 1, "n_best": 1})
        source, target = sentence.src[0].tolist(), sentence.tokens_of(reference)
        ids = list(dict.fromkeys(source)), list(dict.fromkeys(target))  # without repetitions, in order
        with torch.inference_mode():
            snapshots.append(look(sentence, step, target))
            cross.append(sentence.model.attention(sentence.src, sentence.tgt_in(target)).cross[:, 0])
            sides = sentence.model.source_embedding, sentence.model.target_embedding
            embeddings.append(torch.cat([e.weight[own].float() for e, own in zip(sides, ids, strict=True)]))
        summaries.append(attention_summary(model, pairs))
    positions, explained = principal_components(torch.stack(embeddings).cpu())
    return Growth(
        run=str(run),
        model=described(sentence.model),
        source=text,
        reference=reference,
        is_given=given,
        source_pieces=final.tokenizers.source.pieces(source),
        reference_pieces=final.tokenizers.target.pieces(target),
        snapshots=snapshots,
        cross=torch.stack(cross),
        words=[
            (side, piece)
            for side, own, tokenizer in zip(("source", "target"), ids, final.tokenizers, strict=True)
            for piece in tokenizer.pieces(own)
        ],
        positions=positions,
        explained=explained,
        heads=[
            HeadGrowth(role, along[0].part, along[0].layer, along[0].head, [roles_of(one)[role] for one in along])
            for along in zip(*summaries, strict=True)
            for role in roles_of(along[0])
        ],
        n_pairs=len(pairs),
        loss=[(int(step), x) for step, x in zip(curves["step"], curves["loss"], strict=True) if math.isfinite(x)],
        validations=[(line["step"], line["dev_loss"], line["dev_bleu"]) for line in validations],
    )


def look(sentence: Sentence, step: int, target: list[int]) -> Snapshot:
    """Translate greedily, and compute the probabilities of the reference's tokens by teacher forcing."""
    (greedy, *_), _ = sentence.search(sentence.options)
    translated = sentence.translated(greedy)
    of_target = sentence.tokens(target, sentence.log_probs(sentence.tgt_in(target)))
    return Snapshot(step, translated.text, translated.is_cut, [math.exp(token.log_prob) for token in of_target])


def roles_of(head: HeadSummary) -> dict[str, float]:
    """What a head may specialize in, and how far it does, 0-1.

    `previous` and `end` are mean weights: on the previous piece, and on the end of the source or the start of the
    target. `alignment` is 1 / 2^entropy, that is 1 / (the number of pieces that the head effectively attends to), times
    the weight that is not on the end: it is above one half only if the head attends to fewer than two pieces.
    """
    if head.part == "cross":
        return {"alignment": 2**-head.entropy * (1 - head.boundary), "end": head.boundary}
    return {"previous": head.previous, "end": head.boundary}


def principal_components(x: Tensor) -> tuple[Tensor, float]:
    """Project x (N, P, D) on the first two principal components of its N·P vectors.

    Returns the projection (N, P, 2), and its share of the variance, 0-1.
    """
    centered = x.flatten(0, 1) - x.mean((0, 1))  # (N·P, D)
    u, s, _ = torch.linalg.svd(centered, full_matrices=False)
    variance = s.square()
    return (u * s)[:, :2].unflatten(0, x.shape[:2]), float(variance[:2].sum() / variance.sum().clamp(min=1e-12))


def as_page(found: Sequence[Growth]) -> str:
    """A self-contained HTML page of one sentence in one run, or in several beside each other."""
    runs = [vars(one) | {"positions": one.positions.tolist()} for one in found]
    data = pages.plain(runs, lambda x: pages.packed(x, compress=True))
    return pages.page("growth", f"{found[0].source} – nmt explain --growth", data)
