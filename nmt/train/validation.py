"""Validation on dev: loss, perplexity, BLEU and chrF of greedy decoding, and warnings about these figures."""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

import torch

from nmt.config import Config, language
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.distributed import gather_items, mine, summed
from nmt.errors import ModelError
from nmt.evaluate import DEFAULT_TOKENIZER, Score, bleu_tokenizer, readable, score, tokenized_warning
from nmt.model.base import Seq2Seq
from nmt.text.batches import pair_batches
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizers
from nmt.train.step import batch_loss
from nmt.translate.confidence import Calibration, samples_of
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

log = logging.getLogger("nmt")

N_SAMPLES = 3
MAX_NLL = 100.0  # nats per token: a perplexity of 2.7e+43, above which the numbers say no more
FAR_ABOVE = 2.0  # times the loss of guessing: label smoothing keeps a model that has not diverged below that
SLOW_RISE = 1.5  # from one validation to the next
COLLAPSE = 2.0  # rise from one validation to the next, to above chance, of a model that unlearns what it knew
NEAR_CHANCE = 0.8  # times the loss of guessing


@dataclass(frozen=True)
class Validation:
    loss: float  # with label smoothing, as in training; nats per token
    nll: float  # without label smoothing; its exponential is the perplexity
    bleu: Score  # of greedy decoding, like chrf; in several directions, their mean
    chrf: Score
    samples: list[tuple[str, str, str]]  # (source, reference, translation) of a few lines
    repeated: tuple[str, float]  # the most frequent translation and its share of the lines, 0-1
    confidence: Calibration
    bleu_by_direction: dict[str, float] = field(default_factory=dict)  # empty if there is one
    n_cut: int = 0  # dev lines whose translation was cut off at the length limit

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, MAX_NLL))

    def figures(self) -> dict[str, Any]:
        """Return the figures, by their keys in metrics.jsonl."""
        figures: dict[str, Any] = {"dev_loss": self.loss, "dev_nll": self.nll, "dev_perplexity": self.perplexity}
        figures |= {"dev_bleu": self.bleu.value, "bleu_signature": self.bleu.signature}
        figures |= {"dev_chrf": self.chrf.value, "chrf_signature": self.chrf.signature}
        figures |= {"dev_cut": self.n_cut, "confidence": list(self.confidence)}
        if self.bleu_by_direction:
            figures["dev_bleu_by_direction"] = self.bleu_by_direction
        return figures


def validate(model: Seq2Seq, tokenizers: Tokenizers, dev: Sequence[Pair], config: Config, *, bf16: bool) -> Validation:
    """Measure a model in eval mode on the dev pairs; each rank computes its share.

    Raises ModelError if the loss is NaN or infinite.
    """
    # 1. Losses.
    translator = Translator(TorchEngine(model), tokenizers, config)
    loss, nll = mean_losses(translator, model, dev, config, bf16=bf16)

    # 2. Translate this rank's share, then gather what all ranks have.
    sources = [pair.tagged_source for pair in dev]
    references = [pair.target for pair in dev]
    units = [Unit(number, source) for number, source in enumerate(mine(sources), 1)]
    options = translator.with_options(beam=1, whole_lines=True)
    translations = translator.start(units, options, config.decode.batch_size).result()
    samples = []
    for translation, reference in zip(translations, mine(references), strict=True):
        samples.append(samples_of(translator, translation.hypotheses[0], reference))
    hypotheses = gather_items([translation.text for translation in translations])
    is_cut = gather_items([translation.is_cut for translation in translations])
    calibration = Calibration.fit(chain(*gather_items(samples)))

    # 3. Scores, and what shows at a glance that something is wrong.
    by_direction = scores_by_direction(dev, hypotheses, config)
    bleu = mean_score([bleu for bleu, _ in by_direction.values()])
    chrf = mean_score([chrf for _, chrf in by_direction.values()])
    by_languages = {languages: bleu.value for languages, (bleu, _) in by_direction.items() if languages}
    most_frequent, count = Counter(hypotheses).most_common(1)[0]
    repeated = most_frequent, count / len(hypotheses)
    shown = []
    for k in range(min(N_SAMPLES, len(dev))):
        i = k * len(dev) // N_SAMPLES
        shown.append((sources[i], references[i], hypotheses[i]))
    return Validation(
        loss,
        nll,
        bleu,
        chrf,
        samples=shown,
        repeated=repeated,
        confidence=calibration,
        bleu_by_direction=by_languages,
        n_cut=sum(is_cut),
    )


def mean_losses(
    translator: Translator, model: Seq2Seq, dev: Sequence[Pair], config: Config, *, bf16: bool
) -> tuple[float, float]:
    """Return loss with and without label smoothing over the pairs of all ranks, nats per token."""
    pairs = mine(sorted(dev, key=lambda pair: len(pair.target)))  # so that all ranks get equally long sentences
    sources = [pair.tagged_source for pair in pairs]
    targets = [pair.target for pair in pairs]
    src, tgt = translator.encode_pairs(sources, targets)
    loss = nll = 0.0
    n_tokens = 0
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        for batch in pair_batches(src, tgt, config.train.batch_tokens):
            sums = batch_loss(model, batch.to(model.device), config.train)
            loss += float(sums.loss)
            nll += float(sums.nll)
            n_tokens += sums.n_tokens
    loss, nll, n_all_tokens = summed(loss, nll, n_tokens)
    if not math.isfinite(loss):  # on all ranks alike: a rank that raised alone would leave the others waiting
        raise ModelError(f"the loss is {loss}", hint="check the loss of its training")
    return loss / n_all_tokens, nll / n_all_tokens


def scores_by_direction(dev: Sequence[Pair], hypotheses: Sequence[str], config: Config) -> dict[str, list[Score]]:
    """Return BLEU and chrF by direction, such as de-en; a model of one direction has the key ""."""
    # 1. Hypotheses and references of each direction.
    translations = defaultdict[str, list[str]](list)
    references = defaultdict[str, list[str]](list)
    for pair, hypothesis in zip(dev, hypotheses, strict=True):
        translations[pair.languages].append(hypothesis)
        references[pair.languages].append(pair.target)

    # 2. Scores.
    scores = {}
    for languages, lines in references.items():
        target = languages.partition("-")[2] or language(config.data, "target")
        tokenize = bleu_tokenizer(target, [lines])
        scores[languages] = score(translations[languages], [lines], tokenize=tokenize)
    return scores


def warn_of_tokenized(dev: Sequence[Pair]) -> None:
    """Log a warning if BLEU on dev is that of tokenized text; call it once, not at every validation."""
    references = [pair.target for pair in dev]
    warning = tokenized_warning(references, "dev references", DEFAULT_TOKENIZER)
    if warning:
        log.warning("%s", warning)


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean of the same score of several directions, with all their different signatures."""
    total = sum(score.value for score in scores)
    signatures = dict.fromkeys(score.signature for score in scores)
    return replace(scores[0], value=total / len(scores), signature=", ".join(signatures))


def warnings_about(history: Sequence[dict[str, Any]], latest: Validation, n_vocab: int) -> list[str]:
    """Return warnings if the figures suggest that something is wrong.

    `history` has the figures of all validations, the latest last. A model that has learned nothing has a loss of
    log `n_vocab`, which is that of guessing.
    """
    messages = []

    # 1. Many sources, one translation.
    text, share = latest.repeated
    if share > 0.5 and len(history) > 1:
        alike = f"{share:.0%} of the dev lines are translated alike ('{text:.40}')"
        messages.append(f"{alike}: the model ignores its source; train longer, or lower train.lr")

    # 2. A loss beside that of guessing.
    losses = [line["dev_nll"] for line in history]
    chance = math.log(n_vocab)
    n_steps = history[-1]["step"]
    reached = f"dev loss is {readable(losses[-1])} after {n_steps} steps"
    place = f"{beside_chance(losses[-1], chance)} ({chance:.2f})"
    if has_diverged(losses, chance):
        # Nothing that the losses say otherwise is true then, such as that the model learns by heart.
        messages.append(f"{reached}, {place}: the training diverged; lower train.lr or raise train.warmup")
        return messages

    # 3. A loss that does not fall.
    if len(losses) >= 4 and is_rising(losses[-4:]):
        cure = "raise model.dropout or end earlier (train.patience)"
        messages.append(f"dev loss has risen three times running: the model learns train by heart; {cure}")
    elif len(losses) >= 6:
        best = min(losses[:-3])
        if min(losses[-3:]) >= best:
            stalled = f"dev loss has not fallen in three validations (best {best:.2f})"
            messages.append(f"{stalled}: more steps will bring little")
    has_learned_nothing = min(losses) > NEAR_CHANCE * chance
    if len(losses) >= 3 and has_learned_nothing:
        cure = "lower train.lr" if losses[-1] >= chance else "change train.lr"
        messages.append(f"{reached}, {place}: check that the two sides belong together, or {cure}")
    return messages


def beside_chance(loss: float, chance: float) -> str:
    """In words, where the loss of a model that has learned nothing, or has diverged, lies beside that of guessing."""
    if loss > FAR_ABOVE * chance:
        return "far above chance"
    return "above chance" if loss >= chance else "hardly below chance"


def has_diverged(losses: Sequence[float], chance: float) -> bool:
    """Return whether the model is no better than guessing because the training diverged.

    A model that learns train by heart may become worse than guessing, too, but its loss creeps there.
    """
    latest = losses[-1]
    if latest <= NEAR_CHANCE * chance:
        return False
    limit = FAR_ABOVE * chance
    crept = losses[0] <= limit
    for before, after in pairwise(losses):
        # It has unlearned what it knew, and has not recovered.
        if after > max(chance, COLLAPSE * before):
            return True
        if after >= SLOW_RISE * before:
            crept = False
    # It was far above chance, and has learned nothing since.
    return latest >= chance and max(losses) > limit and not crept


def is_rising(losses: Sequence[float]) -> bool:
    """Return whether each loss is higher than the one before."""
    return all(after > before for before, after in pairwise(losses))
