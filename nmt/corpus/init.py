"""`nmt init`: a commented config with sizes, budget and schedule that fit a text and a machine. Imports no torch.

The rules interpolate between our recipes: the settings that worked best for 3,000 to 158,000 pairs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import yaml

from nmt.config.yaml_file import CoreDumper
from nmt.corpus.split import Facts

PIECES_PER_WORD = 1.35  # on either side, EOS included
BATCH = 0.6  # batch_tokens / sqrt(target tokens in all epochs): the best of those tried for 0.8M to 2M tokens
MIN_PIECES = 600  # pieces besides single characters: 256 bytes, and room for words
MIN_SHARE = 0.25  # of the usual epochs; if fewer fit in the time, a smaller, faster model is better
MEMORIZED = 500  # dropout is 0 for fewer pairs, because a model can only memorize them
N_HEADS = 4


@dataclass(frozen=True)
class Size:
    """The sizes of a Transformer with as many encoder as decoder layers."""

    d_model: int
    d_ff: int
    n_layers: int
    min_pairs: int  # with fewer pairs, a smaller model is better
    lr: float
    max_pairs: float = math.inf


# Largest first. Of models of the same width, a shallow one takes less time per step and needs fewer steps. The learning
# rates up to width 256 were chosen with Muon: 8 epochs on the demo give dev BLEU 83 at 6e-3, and 19 at 2e-3.
SIZES = [
    Size(512, 1024, 6, 500_000, 7e-4),
    Size(512, 1024, 3, 500_000, 7e-4),
    Size(256, 512, 4, 60_000, 4e-3),
    Size(256, 512, 2, 60_000, 4e-3),
    Size(128, 256, 4, 1_500, 6e-3),
    Size(128, 256, 2, 1_500, 6e-3),
    Size(64, 256, 2, 0, 4e-3, max_pairs=1_500),
]


@dataclass(frozen=True)
class Plan:
    """A model size for a corpus, the cost of training it on this machine, and the settings that follow from them."""

    facts: Facts
    size: Size
    minutes: float | None  # time limit that the user gave
    epoch_s: float = math.nan  # measured
    memory: int = 0  # peak in bytes, measured

    @property
    def usual_epochs(self) -> int:
        """How many epochs a model should train: 45 for 18,000 pairs, more for fewer pairs."""
        return min(max(round(45 * math.pow(18_000 / self.facts.n_train, 0.4)), 3), 300)

    @property
    def share(self) -> float:
        """The number of epochs that fit in the time limit, as a share of the usual number; 1 without a limit."""
        if self.minutes is None or math.isnan(self.epoch_s):
            return 1.0
        return self.minutes * 60 / self.epoch_s / self.usual_epochs

    @property
    def n_epochs(self) -> int:
        return max(1, round(min(self.share, 2.0) * self.usual_epochs))

    @property
    def n_tokens(self) -> float:
        """Target tokens in all epochs."""
        return self.facts.n_words * PIECES_PER_WORD * self.n_epochs

    @property
    def expected_minutes(self) -> float:
        all_epochs = self.n_epochs * self.epoch_s / 60
        return min(all_epochs, self.minutes) if self.minutes else all_epochs

    @property
    def joint(self) -> bool:
        """Whether both languages share a vocabulary; with different scripts they would share few pieces."""
        return self.facts.letter_overlap > 0.5

    @property
    def vocab_size(self) -> int:
        """The size of the joint vocabulary, or of each of the two."""
        n_words, n_characters = self.facts.n_words, self.facts.n_characters
        size = int(round(max(min(n_words / 12, max(8_000, 8 * math.sqrt(n_words)), 32_000), 600), -2))
        return max(size, n_characters + size // 2) if self.joint else max(size // 2, n_characters + MIN_PIECES)

    @property
    def batch_tokens(self) -> int:
        """A power of two; it grows with the square root of the tokens, as does the number of updates."""
        return int(min(max(2 ** round(math.log2(max(BATCH * math.sqrt(self.n_tokens), 1))), 512), 8192))

    @property
    def n_steps(self) -> float:
        return self.n_tokens / self.batch_tokens

    @property
    def dropout(self) -> float:
        """Dropout; lower for a short training, which sees no pair often enough to memorize it."""
        if self.facts.n_train < MEMORIZED:
            return 0.0
        usual = 0.3 if self.facts.n_train < 100_000 else 0.2 if self.facts.n_train < 1_000_000 else 0.1
        return round(max(usual * min(self.share, 1.0), 0.1), 2)

    @property
    def warmup(self) -> int:
        return int(min(max(self.n_steps / 4, 50), 4_000))


def sizes_for(n_pairs: int) -> list[Size]:
    """The model sizes to choose from for `n_pairs` training pairs, largest first."""
    return [size for size in SIZES if size.min_pairs <= n_pairs < size.max_pairs]


def plan(facts: Facts, minutes: float | None, measure: Callable[[Plan], tuple[float, int]]) -> Plan:
    """Choose the largest model for which both the corpus and the time are sufficient.

    `measure` returns the seconds of an epoch with a plan's settings on this machine, and the peak memory in bytes.
    """
    for size in sizes_for(facts.n_train):
        found = Plan(facts, size, minutes)
        epoch_s, memory = measure(found)
        found = replace(found, epoch_s=epoch_s, memory=memory)
        if found.share >= MIN_SHARE:
            break
    return found


def config_text(plan: Plan, run: str, root: str, languages: tuple[str, str]) -> str:
    """The config as YAML, each setting with the reason for it as a comment."""
    source, target = languages
    size, facts = plan.size, plan.facts
    in_time = f" that trains in {plan.minutes:g} minutes here" if plan.minutes else ""
    tied = "all" if plan.joint else "decoder"
    text = f"""\
run: {scalar(run)}  # directory of checkpoints, figures and the model
data:
  root: {scalar(root)}  # written by `nmt init`; the original files are not needed any more
  train: {{source: train.{source}, target: train.{target}}}  # {facts.n_train:,} pairs without a sentence of dev or test
  dev: {{source: dev.{source}, target: dev.{target}}}  # {facts.n_dev:,} pairs, to choose the best model
  test: {{source: test.{source}, target: test.{target}}}  # {facts.n_test:,} pairs, for `nmt eval` at the end
tokenizer:
  vocab_size: {plan.vocab_size}  # so that each piece is frequent enough in {facts.n_words:,} words
  joint: {scalar(plan.joint)}  # one vocabulary for both languages, if they are written in the same letters
model:
  d_model: {size.d_model}  # the size for {facts.n_train:,} pairs{in_time}
  d_ff: {size.d_ff}
  n_heads: {N_HEADS}
  n_encoder_layers: {size.n_layers}
  n_decoder_layers: {size.n_layers}
  dropout: {plan.dropout}  # the more often each pair is seen, the more
  tied_embeddings: {tied}  # which embeddings share one matrix
  positions: rotary  # better on little text; sinusoidal if you want Hugging Face's format
train:
  batch_tokens: {plan.batch_tokens}  # so that there are about {max(round(plan.n_steps, -2), 100):,.0f} updates
  lr: {size.lr}  # the highest rate at which models of this width train stably
  warmup: {plan.warmup}  # a quarter of the updates
  cooldown: 0.4  # the rate falls to 0 over the last 40 %, in which BLEU rises most
"""
    if plan.minutes:
        n_epochs = plan.minutes * 60 / plan.epoch_s
        text += f"  max_minutes: {scalar(plan.minutes)}  # as given; about {n_epochs:.0f} epochs\n"
    if not plan.minutes or plan.n_epochs * plan.epoch_s < plan.minutes * 60:
        text += f"  max_epochs: {plan.n_epochs}  # enough for {facts.n_train:,} pairs\n"
    return text


def scalar(value: str | float | bool) -> str:
    """A value in YAML, quoted if it needs to be."""
    return yaml.dump([value], Dumper=CoreDumper, default_flow_style=True, width=math.inf)[1:-2]
