"""Reports of the progress of a training on stderr: a progress bar on a terminal, log lines elsewhere."""

import logging
import math
import sys
import time
from collections.abc import Sequence
from typing import Never

from tqdm import tqdm

from nmt.evaluate import readable
from nmt.train.step import StepFigures
from nmt.train.validation import MAX_NLL, Validation

log = logging.getLogger("nmt")

LINE_EVERY_S = 30.0  # seconds between two log lines


class Report:
    """A report on steps and validations. `progress` is the spent fraction of the budget when the report starts, 0-1."""

    def __init__(self, progress: float, *, quiet: bool) -> None:
        self.bar: tqdm[Never] = tqdm(
            total=1.0,
            initial=progress,
            disable=True if quiet else None,  # with None, tqdm shows the bar only on a terminal
            bar_format="{percentage:3.0f}%|{bar:20}| {elapsed}<{remaining}{postfix}",
            file=sys.stderr,
        )
        self.lines = self.bar.disable and not quiet
        self.initial = progress
        self.start = self.since = time.monotonic()
        self.recent: list[StepFigures] = []  # figures of the steps since the last line or update of the bar

    def step(self, step: int, epoch: int, lr: float, figures: StepFigures, progress: float) -> None:
        """Add the figures of a step. Show mean figures in the bar once a second, or in a line every `LINE_EVERY_S`.

        `progress` is the spent fraction of the budget, 0-1.
        """
        self.recent.append(figures)
        now = time.monotonic()
        interval_s = LINE_EVERY_S if self.lines else 1.0
        if now - self.since < interval_s:
            return
        means = means_of(self.recent, now - self.since)
        text = f"step {step} epoch {epoch + 1} {means} lr {lr:.2e}"
        # Log a line with an estimate of the time that is left. On a terminal, tqdm shows the estimate.
        if self.lines:
            done = progress - self.initial
            left = ""
            if done > 0:
                left_s = (1 - progress) * (now - self.start) / done
                left = f", {clock(left_s)} left"
            log.info("%s, %.0f %% done%s", text, 100 * progress, left)
        self.bar.set_postfix_str(text, refresh=False)
        moved = progress - self.bar.n
        self.bar.update(max(0.0, moved))  # after a rollback, `moved` is negative and the bar stays where it is
        self.since = now
        self.recent = []

    def validation(self, step: int, scores: Validation, *, best: bool) -> None:
        """Log the figures and samples of a validation. `best` says whether the model is the best so far."""
        # 1. Log a line of figures.
        bleu = f"BLEU {scores.bleu.value:.2f}"
        if scores.bleu_by_direction:
            directions = [f"{languages} {value:.2f}" for languages, value in scores.bleu_by_direction.items()]
            bleu = f"{bleu} ({', '.join(directions)})"
        loss, perplexity = readable(scores.loss, 3), readable(scores.perplexity)
        figures = f"dev loss {loss} ppl {perplexity} {bleu} chrF {scores.chrf.value:.2f}"
        if best:
            figures += " (best so far)"
        if scores.n_cut:
            lines = "1 line" if scores.n_cut == 1 else f"{scores.n_cut} lines"
            figures += f", {lines} cut off at the length limit"
        log.info("step %d: %s", step, figures)

        # 2. Log the samples.
        for source, reference, translation in scores.samples:
            log.info("    source       %s", source)
            log.info("    reference    %s", reference)
            log.info("    translation  %s", translation)

        # 3. Start a new interval of steps, so that the next speed does not include the time of this validation.
        self.since = time.monotonic()
        self.recent = []

    def close(self) -> None:
        self.bar.close()


def means_of(steps: Sequence[StepFigures], seconds: float) -> str:
    """Return a text with figures of several steps, which took `seconds` seconds.

    The figures are the loss and the perplexity, from means over tokens, the speed, and the share of positions that are
    not padding.
    """
    # 1. Sum over steps.
    loss = nll = 0.0
    n_tokens = n_real = n_positions = 0
    for figures in steps:
        loss += figures.loss * figures.n_tokens
        nll += figures.nll * figures.n_tokens
        n_tokens += figures.n_tokens
        n_real += figures.n_real
        n_positions += figures.n_positions

    # 2. Divide the sums.
    perplexity = math.exp(min(nll / n_tokens, MAX_NLL))
    speed = f"{n_tokens / seconds:,.0f} tok/s {n_real / n_positions:.0%} non-padding"
    return f"loss {readable(loss / n_tokens, 3)} ppl {readable(perplexity)} {speed}"


def clock(seconds: float) -> str:
    """Return a duration as text for the user, such as "2 h 05 min", "3 min 07 s" or "12 s"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    if minutes:
        return f"{minutes} min {seconds:02} s"
    return f"{seconds} s"
