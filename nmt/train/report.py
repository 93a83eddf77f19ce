"""Reports of the progress of a training: log lines with the figures of steps and of validations."""

import logging
import math
import time
from datetime import timedelta

from nmt.evaluate import readable
from nmt.train.step import StepFigures
from nmt.train.validation import MAX_NLL, Validation

log = logging.getLogger("nmt")

LINE_EVERY_S = 30.0  # seconds between two lines about steps


class Report:
    """A report on steps and validations. `spent` is the fraction of the budget that is spent at the start, 0-1."""

    def __init__(self, spent: float) -> None:
        self.initial = spent
        self.start = self.since = time.monotonic()
        self.recent: list[StepFigures] = []  # figures of the steps since the last line

    def step(self, step: int, epoch: int, lr: float, figures: StepFigures, spent: float) -> None:
        """Add the figures of a step. Every `LINE_EVERY_S`, log mean figures and the time that is left.

        `spent` is the spent fraction of the budget, 0-1.
        """
        self.recent.append(figures)
        now = time.monotonic()
        if now - self.since < LINE_EVERY_S:
            return
        means = self.means(now - self.since)
        line = f"step {step} epoch {epoch + 1} {means} lr {lr:.2e}, {spent:.0%} done"
        done = spent - self.initial
        if done > 0:
            line += f", {clock((1 - spent) * (now - self.start) / done)} left"
        log.info("%s", line)
        self.since, self.recent = now, []

    def means(self, seconds: float) -> str:
        """Return text with loss, perplexity and speed of the `recent` steps, which took `seconds`."""
        n_tokens = sum(figures.n_tokens for figures in self.recent)
        loss = sum(figures.loss * figures.n_tokens for figures in self.recent) / n_tokens
        nll = sum(figures.nll * figures.n_tokens for figures in self.recent) / n_tokens
        perplexity = math.exp(min(nll, MAX_NLL))
        return f"loss {readable(loss, 3)} ppl {readable(perplexity)} {n_tokens / seconds:,.0f} tok/s"

    def validation(self, step: int, validation: Validation, *, best: bool) -> None:
        """Log the figures and samples of a validation. `best` says whether the model is the best so far."""
        # 1. Log a line of figures.
        losses = f"dev loss {readable(validation.loss, 3)} ppl {readable(validation.perplexity)}"
        figures = f"{losses} BLEU {validation.bleu.value:.2f} chrF {validation.chrf.value:.2f}"
        log.info("step %d: %s%s", step, figures, " (best so far)" if best else "")

        # 2. Log the samples.
        for source, reference, translation in validation.samples:
            log.info("    source       %s", source)
            log.info("    reference    %s", reference)
            log.info("    translation  %s", translation)

        # 3. Start a new interval, so that the next speed excludes this validation.
        self.since, self.recent = time.monotonic(), []


def clock(seconds: float) -> timedelta:
    """Return a duration in whole seconds, which is printed as hours, minutes and seconds, such as 0:03:07."""
    return timedelta(seconds=round(seconds))
