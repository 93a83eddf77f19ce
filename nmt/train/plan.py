"""Rules that choose the settings that a config leaves out, to suit the corpus and, in `nmt init`, the machine.

Functions that take a config return a new config; the old config is not changed. The rules interpolate between our
recipes: the settings that gave the best models on corpora of 3,000 to 158,000 pairs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import ValidationError

from nmt.config import Config
from nmt.config.yaml_file import CoreDumper
from nmt.corpus.split import Facts
from nmt.errors import ConfigError
from nmt.text.sentences import learn_abbreviations, sentence_spans

PIECES_PER_WORD = 1.35  # mean number of pieces per word on either side; EOS counts
# batch_tokens / sqrt(target tokens in all epochs). Of the values that were tried for 0.8M to 2M tokens, 0.6 was best.
BATCH = 0.6
MIN_PIECES = 600  # least number of pieces that are not single characters: 256 bytes, and pieces of words
# If fewer than this share of the usual number of epochs fit in the time limit, a smaller, faster model is better.
MIN_SHARE = 0.25
MEMORIZED = 500  # dropout is 0 for fewer pairs than this, because a model memorizes so few pairs in any case
N_HEADS = 4
ADAMW_LR = 2e-3  # maximum learning rate with train.optimizer=adamw
SLACK = 1.5  # the slope of the length limit is this number times the mean ratio of target length to source length
MIN_ROOM = 10  # minimum intercept of the length limit, in tokens
MARGIN = 5  # number of tokens that are added to the intercept, because new text may need more than training pairs
OUTLIERS = 100_000  # one reference per this many training pairs may be longer than the limit
MAX_SLOPE, MAX_INTERCEPT = 100.0, 100_000  # largest valid `decode.max_length_a` and `decode.max_length_b`
OFTEN = 0.1  # if more than this share of the training lines has several sentences, `decode.whole_lines` is set


class CorpusSize(NamedTuple):
    """Counts of the training pairs. The sizes of the model and of batches are chosen from these counts."""

    n_pairs: int  # number of pairs in an epoch
    n_words: int  # number of words on the target side, see `nmt.corpus.split.count_words`
    n_characters: int  # number of distinct characters on both sides
    joint: bool = True  # whether both languages share a vocabulary


@dataclass(frozen=True)
class ModelSize:
    """The sizes of a Transformer, the learning rate to train it, and the numbers of pairs for which it is suitable."""

    d_model: int
    d_ff: int
    n_layers: int  # layers of the encoder, and of the decoder
    min_pairs: int  # with fewer training pairs, a smaller model is better
    lr: float
    max_pairs: float = math.inf  # with this many training pairs or more, a larger model is better


# The sizes are sorted from large to small. Of two models of the same width, the shallower model takes less time per
# step and needs fewer steps. The learning rates of widths up to 256 were chosen with Muon. The choice matters: 8 epochs
# on the demo corpus give a dev BLEU of 83 at 6e-3, and of 19 at 2e-3.
SIZES = [
    ModelSize(512, 1024, 6, 500_000, 7e-4),
    ModelSize(512, 1024, 3, 500_000, 7e-4),
    ModelSize(256, 512, 4, 60_000, 4e-3),
    ModelSize(256, 512, 2, 60_000, 4e-3),
    ModelSize(128, 256, 4, 1_500, 6e-3),
    ModelSize(128, 256, 2, 1_500, 6e-3),
    ModelSize(64, 256, 2, 0, 4e-3, max_pairs=1_500),
]


def clamp(x: float, low: float, high: float) -> float:
    return max(low, min(x, high))


@dataclass(frozen=True)
class Plan:
    """A model size for a corpus, and the cost of training it on this machine. Settings are properties of the plan."""

    corpus: CorpusSize
    model: ModelSize
    minutes: float | None = None  # time limit of the user
    epoch_s: float = math.nan  # measured seconds per epoch
    memory: int = 0  # measured peak memory in bytes

    @property
    def usual_epochs(self) -> int:
        """The number of epochs without a time limit: 45 for 18,000 pairs, and more for fewer pairs."""
        return int(clamp(round(45 * (18_000 / self.corpus.n_pairs) ** 0.4), 3, 300))

    @property
    def share(self) -> float:
        """The number of epochs that fit in the time limit, divided by `usual_epochs`; 1 without a time limit."""
        if self.minutes is None or math.isnan(self.epoch_s):
            return 1.0
        return self.minutes * 60 / self.epoch_s / self.usual_epochs

    @property
    def n_epochs(self) -> int:
        # More epochs than twice the usual number do not help.
        return max(1, round(min(self.share, 2.0) * self.usual_epochs))

    @property
    def n_tokens(self) -> float:
        """The number of target tokens in all epochs."""
        return self.corpus.n_words * PIECES_PER_WORD * self.n_epochs

    @property
    def expected_minutes(self) -> float:
        return min(self.n_epochs * self.epoch_s / 60, self.minutes or math.inf)

    @property
    def vocab_size(self) -> int:
        """The size of the joint vocabulary. Without a joint vocabulary, the size of the vocabulary of each language."""
        n_words, n_characters = self.corpus.n_words, self.corpus.n_characters
        # Each piece should occur a dozen times. This gives large vocabularies for large corpora. So the number of
        # pieces is limited to 8 times the square root of the number of words, and to 32,000.
        largest = clamp(8 * math.sqrt(n_words), 8_000, 32_000)
        n_pieces = int(round(clamp(n_words / 12, 600, largest), -2))
        if self.corpus.joint:
            return max(n_pieces, n_characters + n_pieces // 2)
        return max(n_pieces // 2, n_characters + MIN_PIECES)

    @property
    def batch_tokens(self) -> int:
        """The batch size, a power of two. Batch size and number of updates grow with the square root of `n_tokens`."""
        best = clamp(BATCH * math.sqrt(self.n_tokens), 512, 8192)
        return int(2 ** round(math.log2(best)))

    @property
    def n_steps(self) -> float:
        return self.n_tokens / self.batch_tokens

    @property
    def dropout(self) -> float:
        """The dropout rate. A short time limit lowers the rate, because a short training cannot memorize pairs."""
        n_pairs = self.corpus.n_pairs
        if n_pairs < MEMORIZED:
            return 0.0
        usual = 0.1
        if n_pairs < 1_000_000:
            usual = 0.2
        if n_pairs < 100_000:
            usual = 0.3
        return round(max(usual * min(self.share, 1.0), 0.1), 2)

    @property
    def warmup(self) -> int:
        return int(clamp(self.n_steps / 4, 50, 4_000))


def sizes_for(n_pairs: int) -> list[ModelSize]:
    """Return the model sizes that are suitable for `n_pairs` training pairs, largest first."""
    return [size for size in SIZES if size.min_pairs <= n_pairs < size.max_pairs]


def fit_machine(corpus: CorpusSize, minutes: float | None, measure: Callable[[Plan], tuple[float, int]]) -> Plan:
    """Return a plan with the largest model for which both the corpus and the time limit are sufficient.

    If the time suffices for no model, the plan has the smallest model of `sizes_for`. `measure` trains on this machine
    with the settings of a plan, and returns the seconds per epoch and the peak memory in bytes.
    """
    for size in sizes_for(corpus.n_pairs):
        plan = Plan(corpus, size, minutes)
        plan = Plan(corpus, size, minutes, *measure(plan))
        if plan.share >= MIN_SHARE:
            break
    return plan


def size_of(facts: Facts) -> CorpusSize:
    """Return the size of the training corpus from the facts about a text that `nmt init` has split."""
    # Two languages with different scripts share few pieces, so a joint vocabulary is of no use.
    return CorpusSize(facts.n_train, facts.n_words, facts.n_characters, joint=facts.letter_overlap > 0.5)


def fit_sizes(config: Config, corpus: CorpusSize) -> Config:
    """Return the config. Sizes and rates that the user did not set are chosen for this corpus."""
    largest = sizes_for(corpus.n_pairs)[0]
    plan = Plan(corpus._replace(joint=config.tokenizer.joint), largest)
    lr = min(largest.lr, ADAMW_LR) if config.train.optimizer == "adamw" else largest.lr
    model = {"d_model": largest.d_model, "d_ff": largest.d_ff, "n_heads": N_HEADS, "dropout": plan.dropout}
    model |= {"n_encoder_layers": largest.n_layers, "n_decoder_layers": largest.n_layers}
    train = {"batch_tokens": plan.batch_tokens, "lr": lr, "warmup": plan.warmup}
    if config.train.max_steps is None and config.train.max_minutes is None:
        train["max_epochs"] = plan.n_epochs
    return with_unset(config, {"tokenizer": {"vocab_size": plan.vocab_size}, "model": model, "train": train})


def fit_validation(config: Config, steps_per_epoch: int) -> Config:
    """Return the config. If `train.validate_every` is unset, it is set to one epoch, within 100 to 4000 steps."""
    return with_unset(config, {"train": {"validate_every": int(clamp(steps_per_epoch, 100, 4000))}})


class PieceCounts(NamedTuple):
    """The number of pieces of each side of each pair of a training corpus, without EOS. One element per pair."""

    source: NDArray[Any]
    target: NDArray[Any]


def fit_limit(config: Config, corpora: Sequence[PieceCounts], base: Config | None) -> Config:
    """Return the config. If the maximum output length is unset, it is fitted to the training pairs.

    The maximum output length for S source tokens is ⌈a·S⌉ + b. The slope a is `SLACK` times the ratio of target tokens
    to source tokens in the whole corpus. If there are several corpora, perhaps in different languages, the largest
    ratio is used. The ratio is at least 1. The intercept b is the smallest intercept with which all references are
    within the limit, plus `MARGIN`, because new text can be longer than the references. b is at least `MIN_ROOM`.

    A high limit costs time: if the model does not end a translation by itself, the search goes on until the limit. With
    a slope of 1.5, one misaligned pair of 20 and 180 pieces would raise the intercept to 150, so that such a search
    takes 150 more steps. Most of the extreme pairs are misaligned, so one reference per `OUTLIERS` pairs may exceed the
    limit. The pair of this reference stays in the training data.

    `base` is the config of the model from which training starts, if there is one. The new slope and intercept are at
    least the slope and intercept of `base`; then `MIN_ROOM` does not apply.
    """
    # 1. Compute the slope. EOS counts on both sides.
    ratio = 1.0
    for corpus in corpora:
        if len(corpus.source):
            mean_ratio = (corpus.target + 1).sum() / (corpus.source + 1).sum()
            ratio = max(ratio, float(mean_ratio))
    slope = min(math.ceil(100 * SLACK * ratio) / 100, MAX_SLOPE)
    least = MIN_ROOM
    if base:
        slope = max(slope, base.decode.max_length_a)
        least = base.decode.max_length_b
    if "max_length_a" in config.decode.model_fields_set:
        slope = config.decode.max_length_a

    # 2. Compute the intercept. Each pair needs the intercept: target length - ⌈slope * source length⌉. The `n_outliers`
    # pairs that need the largest intercepts are ignored.
    source = np.concatenate([corpus.source for corpus in corpora]) + 1
    target = np.concatenate([corpus.target for corpus in corpora]) + 1
    sorted_needed = np.sort(target - np.ceil(slope * source))
    n_outliers = len(sorted_needed) // OUTLIERS
    most = int(sorted_needed[-1 - n_outliers])
    intercept = min(max(most + MARGIN, least), MAX_INTERCEPT)
    return with_unset(config, {"decode": {"max_length_a": slope, "max_length_b": intercept}})


def fit_sentences(config: Config, sources: Sequence[str]) -> Config:
    """Return the config with the values of `decode.abbreviations` and `decode.whole_lines` that the user did not set.

    A model that was trained on lines of several sentences has learned to translate these sentences together, so it
    translates whole lines. `sources` is a sample of the source lines of the training text.
    """
    config = with_unset(config, {"decode": {"abbreviations": learn_abbreviations(sources)}})
    n_several = sum(len(sentence_spans(line, config.decode.abbreviations)) > 1 for line in sources)
    return with_unset(config, {"decode": {"whole_lines": n_several > OFTEN * len(sources)}})


def with_unset(config: Config, values: dict[str, Any], *, what: str = "sizes chosen for this corpus") -> Config:
    """Return the config, with `values` for those settings that the user did not set.

    Raises ConfigError if the new config is invalid. The error message calls the values `what`.
    """
    tree = config.model_dump(exclude_unset=True)
    for section, settings in values.items():
        tree[section] = {**settings, **tree.get(section, {})}
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{what} do not fit: {message}", hint="set them all") from error


CONFIG = """\
run: {run}  # directory of checkpoints, figures and the model
data:
  root: {root}  # written by `nmt init`; the original files are not needed any more
  train: {{source: train.{source}, target: train.{target}}}  # {facts.n_train:,} pairs without a sentence of dev or test
  dev: {{source: dev.{source}, target: dev.{target}}}  # {facts.n_dev:,} pairs, to choose the best model
  test: {{source: test.{source}, target: test.{target}}}  # {facts.n_test:,} pairs, for `nmt eval` at the end
tokenizer:
  vocab_size: {plan.vocab_size}  # so that each piece is frequent enough in {facts.n_words:,} words
  joint: {joint}  # one vocabulary for both languages, if they are written in the same letters
model:
  d_model: {size.d_model}  # the size for {facts.n_train:,} pairs
  d_ff: {size.d_ff}
  n_heads: {n_heads}
  n_encoder_layers: {size.n_layers}
  n_decoder_layers: {size.n_layers}
  dropout: {plan.dropout}  # the more often each pair is seen, the more
  tied_embeddings: {tied}  # which embeddings share one matrix
  positions: rotary  # better on little text; sinusoidal if you want Hugging Face's format
train:
  batch_tokens: {plan.batch_tokens}  # so that there are about {n_updates:,.0f} updates
  lr: {size.lr}  # the highest rate at which models of this width train stably
  warmup: {plan.warmup}  # a quarter of the updates
  cooldown: 0.4  # the rate falls to 0 over the last 40 %, in which BLEU rises most
"""


def config_text(plan: Plan, facts: Facts, run: str, root: str, languages: tuple[str, str]) -> str:
    """Return the config as YAML, with comments that give the reasons for the values of most settings."""
    # 1. Write all settings except the limits of training.
    source, target = languages
    names = {"run": scalar(run), "root": scalar(root), "source": source, "target": target}
    joint, tied = ("true", "all") if plan.corpus.joint else ("false", "decoder")
    chosen = {"joint": joint, "tied": tied, "n_updates": max(round(plan.n_steps, -2), 100), "n_heads": N_HEADS}
    text = CONFIG.format(plan=plan, size=plan.model, facts=facts, **names, **chosen)

    # 2. Write the limits.
    if plan.minutes:
        n_fitting = plan.minutes * 60 / plan.epoch_s
        text += f"  max_minutes: {scalar(plan.minutes)}  # as given; about {n_fitting:.0f} epochs\n"
    if not plan.minutes or plan.n_epochs < n_fitting:  # otherwise, the time limit is reached earlier
        text += f"  max_epochs: {plan.n_epochs}  # enough for {facts.n_train:,} pairs\n"
    return text


def scalar(value: str | float) -> str:
    """Return a value as YAML, in quotes if YAML requires them."""
    return yaml.dump([value], Dumper=CoreDumper, default_flow_style=True, width=math.inf)[1:-2]
