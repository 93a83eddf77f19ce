"""Validation on the dev pairs: loss, perplexity, BLEU and chrF of greedy decoding, and warnings about the figures."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import mean
from typing import Any

import torch

from nmt.config import Config, language
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.distributed import gather_items, mine, summed
from nmt.errors import ModelError
from nmt.evaluate import Score, choose_settings, readable, score
from nmt.languages import target_of
from nmt.model.base import Seq2Seq
from nmt.text.batches import pair_batches
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizers
from nmt.train.step import batch_loss
from nmt.translate.confidence import Calibration, samples_of
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

N_SAMPLES = 3
MAX_NLL = 100.0  # in nats per token; a larger loss is reported as the perplexity exp(100)
# The loss of guessing is log(V): all V tokens of the vocabulary have the same probability.
# A loss of more than 2.0 times this loss is a sign that training has diverged. Even a bad model should stay below it:
# label smoothing teaches the model to give each token some probability.
FAR_ABOVE = 2.0
# A model has lost what it learned if its loss more than doubles and exceeds the loss of guessing.
COLLAPSE = 2.0
NEAR_GUESSING = 0.8  # above 0.8 times the loss of guessing, a model has learned nothing


@dataclass(frozen=True)
class Validation:
    """The figures of a validation. If there are several directions, scores are means over directions."""

    loss: float  # loss with label smoothing, as in training, in nats per token
    nll: float  # loss without label smoothing, in nats per token; exp(nll) is the perplexity
    bleu: Score  # BLEU of greedy decoding
    chrf: Score  # chrF of greedy decoding
    samples: list[tuple[str, str, str]]  # (source, reference, translation) of `N_SAMPLES` lines
    repeated: tuple[str, float]  # the most frequent translation, and the share of dev lines that have it, 0-1
    confidence: Calibration  # calibration of confidences on the dev pairs
    bleu_by_direction: dict[str, float] = field(default_factory=dict)  # empty if there is only one direction

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, MAX_NLL))

    def figures(self) -> dict[str, Any]:
        """Return the figures of this validation with the keys of metrics.jsonl."""
        figures: dict[str, Any] = {"dev_loss": self.loss, "dev_nll": self.nll, "dev_perplexity": self.perplexity}
        figures |= {"dev_bleu": self.bleu.value, "bleu_signature": self.bleu.signature}
        figures |= {"dev_chrf": self.chrf.value, "chrf_signature": self.chrf.signature}
        figures["confidence"] = list(self.confidence)
        if self.bleu_by_direction:
            figures["dev_bleu_by_direction"] = self.bleu_by_direction
        return figures


def validate(model: Seq2Seq, tokenizers: Tokenizers, dev: Sequence[Pair], config: Config, *, bf16: bool) -> Validation:
    """Measure a model on the dev pairs. The model must be in eval mode. Each rank computes a share of the pairs.

    Raises ModelError if the loss is not finite.
    """
    # 1. Compute the losses.
    translator = Translator(TorchEngine(model), tokenizers, config)
    loss, nll = mean_losses(translator, model, dev, config, bf16=bf16)

    # 2. Translate the share of this rank, then gather the translations of all ranks.
    sources = [pair.tagged_source for pair in dev]
    references = [pair.target for pair in dev]
    units = [Unit(number, source) for number, source in enumerate(mine(sources), 1)]
    options = translator.with_options(beam=1, whole_lines=True)
    translations = translator.start(units, options, config.decode.batch_size).result()
    samples = []
    for translation, reference in zip(translations, mine(references), strict=True):
        samples.append(samples_of(translator, translation.hypotheses[0], reference))
    hypotheses = gather_items([translation.text for translation in translations])
    calibration = Calibration.fit(chain(*gather_items(samples)))

    # 3. Compute scores. Collect samples and the most frequent translation, for the user.
    by_direction = scores_by_direction(dev, hypotheses, config)
    bleu, chrf = map(mean_score, zip(*by_direction.values(), strict=True))
    by_languages = {languages: bleu.value for languages, (bleu, _) in by_direction.items() if languages}
    ((most_frequent, count),) = Counter(hypotheses).most_common(1)
    repeated = most_frequent, count / len(hypotheses)
    examples = list(zip(sources, references, hypotheses, strict=True))
    distance = max(len(examples) // N_SAMPLES, 1)
    shown = examples[::distance][:N_SAMPLES]
    return Validation(loss, nll, bleu, chrf, shown, repeated, calibration, by_languages)


def mean_losses(
    translator: Translator, model: Seq2Seq, dev: Sequence[Pair], config: Config, *, bf16: bool
) -> tuple[float, float]:
    """Return the mean losses over all dev pairs, with and without label smoothing, in nats per token."""
    # Sort the pairs, so that the shares of all ranks have similar lengths.
    pairs = mine(sorted(dev, key=lambda pair: len(pair.target)))
    sources = [pair.tagged_source for pair in pairs]
    src, tgt = translator.encode_pairs(sources, [pair.target for pair in pairs])
    loss = nll = 0.0
    n_tokens = 0
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        for batch in pair_batches(src, tgt, config.train.batch_tokens):
            sums = batch_loss(model, batch.to(model.device), config.train)
            loss += float(sums.loss)
            nll += float(sums.nll)
            n_tokens += sums.n_tokens
    loss, nll, n_all_tokens = summed(loss, nll, n_tokens)
    # All ranks check the same sum, so that all or none of them raise the error.
    if not math.isfinite(loss):
        raise ModelError(f"the loss is {loss}", hint="check the loss of its training")
    return loss / n_all_tokens, nll / n_all_tokens


def scores_by_direction(dev: Sequence[Pair], hypotheses: Sequence[str], config: Config) -> dict[str, list[Score]]:
    """Return BLEU and chrF for each direction, such as de-en. If there is only one direction, its key is ""."""
    # 1. Group hypotheses and references by direction.
    translations = defaultdict[str, list[str]](list)
    references = defaultdict[str, list[str]](list)
    for pair, hypothesis in zip(dev, hypotheses, strict=True):
        translations[pair.languages].append(hypothesis)
        references[pair.languages].append(pair.target)

    # 2. Score each direction.
    scores = {}
    for languages, lines in references.items():
        target = target_of(languages) or language(config.data, "target")
        settings = choose_settings(target, [lines])
        scores[languages] = score(translations[languages], [lines], settings=settings)
    return scores


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean of a score over directions. The signature lists their different signatures."""
    signatures = dict.fromkeys(score.signature for score in scores)
    return replace(scores[0], value=mean(score.value for score in scores), signature=", ".join(signatures))


def warnings_about(history: Sequence[dict[str, Any]], latest: Validation, n_vocab: int) -> list[str]:
    """Return a warning for each problem that the figures show.

    `history` has the figures of all validations, oldest first, and `latest` is the last validation. The loss of
    guessing is log(n_vocab).
    """
    messages = []

    # 1. Check whether many dev lines have the same translation.
    text, share = latest.repeated
    if share > 0.5 and len(history) > 1:
        messages.append(
            f"{share:.0%} of the dev lines are translated alike ('{text:.40}'): "
            "the model ignores its source; train longer, or lower train.lr"
        )

    # 2. Check whether the training has diverged.
    losses = [line["dev_nll"] for line in history]
    guessing = math.log(n_vocab)
    place = "above chance" if losses[-1] >= guessing else "hardly below chance"
    step = history[-1]["step"]
    reached = f"dev loss is {readable(losses[-1])} after {step} steps, {place} ({guessing:.2f})"
    if has_diverged(losses, guessing):
        # Stop here. The checks below would draw wrong conclusions from these losses.
        messages.append(f"{reached}: the training diverged; lower train.lr or raise train.warmup")
        return messages

    # 3. Check whether the loss rises, or has always been near the loss of guessing.
    rises = [after > before for before, after in pairwise(losses[-4:])]
    if len(rises) == 3 and all(rises):
        messages.append(
            "dev loss has risen three times running: the model learns train by heart; "
            "raise model.dropout or end earlier (train.patience)"
        )
    if len(losses) >= 3 and min(losses) > NEAR_GUESSING * guessing:
        messages.append(f"{reached}: check that the two sides belong together, or change train.lr")
    return messages


def has_diverged(losses: Sequence[float], guessing: float) -> bool:
    """Return whether the training has diverged: the model is hardly better than guessing, and its loss has jumped.

    The dev loss of a model that memorizes the training corpus rises slowly, without jumps. `losses` are the dev losses
    of all validations, and `guessing` is the loss of guessing.
    """
    if losses[-1] <= NEAR_GUESSING * guessing:
        return False
    # The model has lost what it learned, or its first loss was far too high.
    collapsed = any(after > max(guessing, COLLAPSE * before) for before, after in pairwise(losses))
    return collapsed or losses[0] > FAR_ABOVE * guessing
