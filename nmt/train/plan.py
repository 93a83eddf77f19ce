"""Rules that choose unset settings to suit the corpus and, in `nmt init`, the machine.

Functions that take a config return a new config. The rules interpolate between the settings that were best for corpora
of 3,000 to 158,000 pairs.
"""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nmt.config import Config, check_config, data_root
from nmt.config.yaml_file import CoreDumper
from nmt.corpus.split import Facts
from nmt.languages import script_of
from nmt.train.corpora import pairs_of, root_of

log = logging.getLogger("nmt")

PIECES_PER_WORD = 1.35  # mean number of pieces per word on either side; EOS counts
VALIDATION_S = 180  # minimum number of seconds from one validation to the next
MIN_PIECES = 600  # minimum number of pieces for bytes (256) and parts of words
# `Plan.share` is the share of the usual epochs that fits in the time limit.
MIN_SHARE = 0.25  # with a lower share, a smaller model is better
MAX_SHARE = 2.0  # a higher share brings no gain: training ends after twice the usual number of epochs
MEMORIZED = 500  # with fewer pairs, dropout is 0: they are memorized in any case
N_HEADS = 4
ADAMW_LR = 2e-3  # maximum learning rate with train.optimizer=adamw
# The following settings of a fine-tuning were chosen with 500 corrections of one catalog of messages.
FINETUNING_LR = 2.5e-4
WIDE, WIDE_LR = 512, 1e-4  # models of this width or more get a lower rate
GENERAL_SHARE = 0.75  # share of the old training text in an epoch
# An old corpus is mixed in only if it adds enough text: the number of its pairs whose source is not in the new text,
# divided by the number of sources in the new text, must be at least this.
MIN_OTHERS = 0.3
FINETUNING_EPOCHS = 40
LARGE_VOCABULARY = 4_000  # with this many pieces or more, a sampled softmax saves much of the time of a step
CODE_SHARE = 0.01  # `data.placeholders` is true if at least this share of the pairs has %s, {name}, <b> or the like


class CorpusSize(NamedTuple):
    """Counts of the training pairs, from which sizes are chosen."""

    n_pairs: int  # number of pairs in an epoch
    n_words: int  # number of words on the target side, see `nmt.corpus.split.count_words`
    n_characters: int  # number of distinct characters on both sides
    joint: bool = True  # whether both languages share a vocabulary


@dataclass(frozen=True)
class ModelSize:
    """The sizes of a Transformer, its learning rate, and the numbers of pairs that suit it."""

    d_model: int
    d_ff: int
    n_layers: int  # layers of the encoder, and of the decoder
    min_pairs: int  # with fewer training pairs, a smaller model is better
    lr: float
    max_pairs: float = math.inf  # with this many training pairs or more, a larger model is better


# Sorted from large to small. At the same width, the shallower model needs less time and fewer steps. The learning rates
# up to width 256 were chosen with Muon.
SIZES = [
    ModelSize(512, 1024, 6, 500_000, 7e-4),
    ModelSize(512, 1024, 3, 500_000, 7e-4),
    ModelSize(256, 512, 4, 60_000, 4e-3),
    ModelSize(256, 512, 2, 60_000, 4e-3),
    ModelSize(128, 256, 4, 1_500, 12e-3),
    ModelSize(128, 256, 2, 1_500, 12e-3),
    ModelSize(64, 256, 2, 0, 4e-3, max_pairs=1_500),
]


def clamp(x: float, low: float, high: float) -> float:
    return max(low, min(x, high))


def fitted_interval(n_steps: float) -> int:
    """Return the number of steps between validations: `n_steps`, clamped to 100-4000."""
    return int(clamp(n_steps, 100, 4000))


@dataclass(frozen=True)
class Plan:
    """A model size for a corpus, and the measured cost of training. Settings are properties."""

    corpus: CorpusSize
    model: ModelSize
    minutes: float | None = None  # time limit of the user
    epoch_s: float = math.nan  # measured seconds per epoch
    memory: int = 0  # measured peak memory in bytes

    @property
    def usual_epochs(self) -> int:
        """The number of epochs without a time limit: 45 for 18,000 pairs, and more for fewer pairs."""
        n_epochs = 45 * (18_000 / self.corpus.n_pairs) ** 0.4
        return int(clamp(round(n_epochs), 3, 300))

    @property
    def share(self) -> float:
        """The share of `usual_epochs` that fits in the time limit; 1 without a time limit."""
        if self.minutes is None or math.isnan(self.epoch_s):
            return 1.0
        return self.minutes * 60 / self.epoch_s / self.usual_epochs

    @property
    def n_epochs(self) -> float:
        """The number of epochs to train, at most as many as fit in the time limit. The last one may be incomplete."""
        return min(self.share, MAX_SHARE) * self.usual_epochs

    @property
    def n_tokens(self) -> float:
        """The number of target tokens in all epochs."""
        return self.corpus.n_words * PIECES_PER_WORD * self.n_epochs

    @property
    def expected_minutes(self) -> float:
        return self.n_epochs * self.epoch_s / 60

    @property
    def joint(self) -> bool:
        """Whether both languages share a vocabulary.

        In a short training, they do not, because the logits of the pieces of both languages would cost too much time.
        """
        return self.corpus.joint and self.share >= MIN_SHARE

    @property
    def vocab_size(self) -> int:
        """The size of the joint vocabulary or, without a joint vocabulary, of each vocabulary."""
        n_words, n_characters = self.corpus.n_words, self.corpus.n_characters
        # Each piece should occur a dozen times. Large corpora get fewer pieces than this rule allows.
        largest = clamp(8 * math.sqrt(n_words), 8_000, 32_000)
        n_pieces = clamp(n_words / 12, 600, largest)
        n_pieces = int(round(n_pieces, -2))
        if self.joint:
            return max(n_pieces, n_characters + n_pieces // 2)
        return max(n_pieces // 2, n_characters + MIN_PIECES)

    @property
    def batch_tokens(self) -> int:
        """The batch size, a power of two. Batch size and number of updates grow with the square root of `n_tokens`.

        Batches of half this size gave a lower BLEU in trainings of 3 minutes on each of two corpora, and batches of
        twice this size on one of them.
        """
        best = clamp(math.sqrt(self.n_tokens), 512, 8192)
        return int(2 ** round(math.log2(best)))

    @property
    def n_steps(self) -> float:
        return self.n_tokens / self.batch_tokens

    @property
    def validate_every(self) -> int:
        """The number of steps between validations: those of one epoch, or of more epochs if an epoch is short."""
        n_epochs = max(1.0, VALIDATION_S / self.epoch_s)  # 1 if `epoch_s` is still NaN: max() keeps 1.0
        return fitted_interval(n_epochs * self.n_steps / self.n_epochs)

    @property
    def dropout(self) -> float:
        """The dropout rate. It is lower with a short time limit, because a short training cannot memorize pairs."""
        n_pairs = self.corpus.n_pairs
        if n_pairs < MEMORIZED:
            return 0.0
        usual = 0.1
        if n_pairs < 1_000_000:
            usual = 0.2
        if n_pairs < 100_000:
            usual = 0.3
        dropout = usual * min(self.share, 1.0)
        return round(max(dropout, 0.1), 2)

    @property
    def softmax_share(self) -> float:
        """The share of the vocabulary in the sampled softmax of training; 1 for the whole vocabulary."""
        return 0.25 if self.vocab_size >= LARGE_VOCABULARY else 1.0

    @property
    def warmup(self) -> int:
        return int(clamp(self.n_steps / 4, 50, 4_000))


def sizes_for(n_pairs: int) -> list[ModelSize]:
    """Return the model sizes that are suitable for `n_pairs` training pairs, largest first."""
    return [size for size in SIZES if size.min_pairs <= n_pairs < size.max_pairs]


def fit_machine(corpus: CorpusSize, minutes: float | None, measure: Callable[[Plan], tuple[float, int]]) -> Plan:
    """Return a plan with the largest model that suits both the corpus and the time limit.

    If every model is too slow, the plan has the smallest model of `sizes_for`. `measure` trains on this machine with a
    plan. It returns the seconds per epoch and the peak memory in bytes.
    """
    for size in sizes_for(corpus.n_pairs):
        plan = Plan(corpus, size, minutes)
        plan = Plan(corpus, size, minutes, *measure(plan))
        if plan.share >= MIN_SHARE:
            break
    return plan


def size_of(facts: Facts, languages: tuple[str, str]) -> CorpusSize:
    """Return the size of a training corpus that `nmt init` has split. `languages` are the codes of the two sides."""
    # Languages with different scripts share few pieces. A joint vocabulary is of no use then.
    source_script, target_script = map(script_of, languages)
    return CorpusSize(facts.n_train, facts.n_words, facts.n_characters, joint=source_script == target_script)


def fit_sizes(config: Config, corpus: CorpusSize) -> Config:
    """Return the config. Unset sizes and rates are chosen for this corpus."""
    largest = sizes_for(corpus.n_pairs)[0]
    plan = Plan(corpus._replace(joint=config.tokenizer.joint), largest)
    lr = min(largest.lr, ADAMW_LR) if config.train.optimizer == "adamw" else largest.lr
    model = {"d_model": largest.d_model, "d_ff": largest.d_ff, "n_heads": N_HEADS, "dropout": plan.dropout}
    model |= {"n_encoder_layers": largest.n_layers, "n_decoder_layers": largest.n_layers}
    batch_tokens = max(plan.batch_tokens, config.data.longest + 1)  # each pair must fit into a batch
    train = {"batch_tokens": batch_tokens, "lr": lr, "warmup": plan.warmup}
    if config.train.max_steps is None and config.train.max_minutes is None:
        train["max_epochs"] = plan.usual_epochs
    return with_unset(config, {"tokenizer": {"vocab_size": plan.vocab_size}, "model": model, "train": train})


def fit_validation(config: Config, steps_per_epoch: int) -> Config:
    """Return the config. An unset `train.validate_every` becomes one epoch, clamped to 100-4000 steps."""
    return with_unset(config, {"train": {"validate_every": fitted_interval(steps_per_epoch)}})


def with_unset(config: Config, values: dict[str, Any], *, what: str = "the sizes chosen for this corpus") -> Config:
    """Return the config, with `values` for settings that the user did not set.

    Raises ConfigError if the new config is invalid. The message begins with `what`.
    """
    tree = config.model_dump(exclude_unset=True)
    for section, settings in values.items():
        tree[section] = {**settings, **tree.get(section, {})}
    return check_config(tree, {}, what)


DATA = """\
run: {run}  # directory of checkpoints, figures and the model
data:
  root: {root}  # written by `nmt init`; the original files are not needed any more
  train: {{source: train.{source}, target: train.{target}}}  # {facts.n_train:,} pairs without a sentence of dev or test
  dev: {{source: dev.{source}, target: dev.{target}}}  # {facts.n_dev:,} pairs, to choose the best model
  test: {{source: test.{source}, target: test.{target}}}  # {facts.n_test:,} pairs, for `nmt eval` at the end
"""
SETTINGS = """\
  placeholders: {placeholders}  # {facts.n_with_code:,} pairs have %s, {{name}}, <b> or the like
tokenizer:
  vocab_size: {plan.vocab_size}  # so that each piece is frequent enough in {facts.n_words:,} words
  joint: {joint}  # one vocabulary for both languages, if they have the same script and training is long
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
  weight_decay: 0.3  # each step makes the weights smaller, so that few pairs are learned faster and less by heart
  softmax_share: {plan.softmax_share}  # share of the vocabulary in the softmax of a step; less than 1 saves time
  cooldown: 0.4  # the rate falls to 0 over the last 40 %, in which BLEU rises most
  validate_every: {plan.validate_every}  # every epoch or, if an epoch is shorter, every 3 minutes
"""
FINETUNING = """\
train:
  init_from: {start}
  optimizer: adamw
  lr: {lr}  # low, so that the model forgets little
  warmup: 50  # short: only the moments of the optimizer are new
  cooldown: 0.5  # the rate falls to 0 over the last half
  batch_tokens: 1024  # small, so that few pairs make many updates
  validate_every: 100000  # only at the end, because few dev pairs do not tell which model is best
"""


def data_text(facts: Facts, run: str, root: str, languages: tuple[str, str]) -> str:
    """Return the run and the files of the split as YAML."""
    source, target = languages
    return DATA.format(run=scalar(run), root=scalar(root), source=source, target=target, facts=facts)


def plan_text(plan: Plan, facts: Facts) -> str:
    """Return the settings of a plan as YAML, with comments that give reasons for most values."""
    # 1. Write all settings except the limits of training.
    joint, tied = ("true", "all") if plan.joint else ("false", "decoder")
    n_updates = max(round(plan.n_steps, -2), 100)
    chosen = {"joint": joint, "tied": tied, "n_updates": n_updates, "n_heads": N_HEADS}
    chosen["placeholders"] = scalar(facts.n_with_code >= CODE_SHARE * facts.n_train)
    text = SETTINGS.format(plan=plan, size=plan.model, facts=facts, **chosen)

    # 2. Write the limits.
    if plan.minutes:
        text += f"  max_minutes: {scalar(plan.minutes)}  # as given; about {plan.n_epochs:.1f} epochs\n"
    if not plan.minutes or plan.share > MAX_SHARE:  # otherwise, the time limit ends the training
        text += f"  max_epochs: {plan.n_epochs:.0f}  # enough for {facts.n_train:,} pairs\n"
    return text


def finetuning_text(
    start: str, config: Config, target: str, minutes: float | None, new_sources: Collection[str]
) -> str:
    """Return the settings of a fine-tuning into `target` as YAML.

    The training text of the run is mixed in, because a model forgets what it does not read any more. It is left out if
    its files are not here, as after an import. A model of several directions goes on in one direction, without it.

    Args:
        start: the run to start from.
        config: its config.
        target: the target language.
        minutes: time limit in minutes, or None.
        new_sources: the sources of the new training pairs.
    """
    text = f"  target_tag: {scalar(target)}\n" if config.data.directions else ""
    if len(config.data.train) == 1:
        mixed = general_corpora(config, new_sources)
        text += f"  mix: {scalar(mixed)}  # the old training text, against forgetting\n"
        if not mixed:
            log.warning("the training text of %s is not mixed in: it is missing, or the new text contains it", start)
    lr = WIDE_LR if config.model.d_model >= WIDE else FINETUNING_LR
    text += FINETUNING.format(start=scalar(start), lr=lr)
    limit = f"max_minutes: {scalar(minutes)}" if minutes else f"max_epochs: {FINETUNING_EPOCHS}"
    return f"{text}  {limit}\n"


def general_corpora(config: Config, new_sources: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the training corpora of a run of one direction, for `data.mix` of a fine-tuning.

    A corpus is left out if its files are not here, or if the new text has nearly all of its sources: each epoch would
    read the few others again and again.
    """
    (train,) = config.data.train
    mix = config.data.mix.values()
    shares = [(train, 1 - sum(files.weight for files in mix))]
    shares += [(files, files.weight) for files in mix]
    mixed = {}
    for number, (files, share) in enumerate(shares, start=1):
        root = data_root(root_of(config, files))
        paths = [root / name for name in files.source + files.target]
        if all(map(Path.exists, paths)):
            n_others = sum(pair.source not in new_sources for pair in pairs_of(config, files))
            if n_others >= MIN_OTHERS * len(new_sources):
                corpus = files.model_dump(mode="json", include={"source", "target"})
                mixed[f"general{number}"] = {**corpus, "root": str(root), "weight": round(GENERAL_SHARE * share, 3)}
    return mixed


def scalar(value: Any) -> str:
    """Return a value as YAML on one line, in quotes if YAML requires them."""
    return yaml.dump([value], Dumper=CoreDumper, default_flow_style=True, width=math.inf)[1:-2]
