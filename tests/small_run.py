"""A training that takes a second in the test's own process: its corpus, its config and its results."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt.config import Config
from nmt.evaluate import Score
from nmt.run.checkpoint import hash_tensors, read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train import session
from nmt.train.loop import Trainer
from nmt.train.progress import Progress, ranking
from nmt.train.validation import Validation
from nmt.translate.confidence import Calibration

# The words of the corpus.
SUBJECTS = {"狗": "The dog", "猫": "The cat", "男孩": "The boy", "女孩": "The girl", "老师": "The teacher"}
VERBS = {"跑": "runs", "睡觉": "sleeps", "唱歌": "sings", "笑": "laughs"}
TIMES = {"今天": "today", "每天": "every day", "早上": "in the morning"}
# The sections `model` and `train` of the config.
SIZES = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.2}
TRAIN = {"batch_tokens": 300, "max_steps": 12, "validate_every": 5, "lr": 3e-3, "warmup": 4, "precision": "fp32"}


def write_small_corpus(home: Path) -> Path:
    """Write 60 pairs (source: subject, time, verb; target: subject, verb, time) and 25 for `MIX`; return `home`."""
    sources, targets = [], []
    for subject, time, verb in itertools.product(SUBJECTS, TIMES, VERBS):
        sources.append(f"{subject}{time}{verb}。")
        words = SUBJECTS[subject], VERBS[verb], TIMES[time]
        targets.append(" ".join(words) + ".")
    write_lines(home / "train.zh", sources)
    write_lines(home / "train.en", targets)
    write_lines(home / "dev.zh", sources[::7])
    write_lines(home / "dev.en", targets[::7])
    # Lines for `MIX`, which no line above equals.
    yesterday = [f"昨天{line}" for line in sources]
    write_lines(home / "more.zh", yesterday[:25])
    translated = [f"Yesterday {line}" for line in targets]
    write_lines(home / "more.en", translated[:25])
    return home


def write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("\n".join(lines), encoding="utf-8")


def corpus_of(name: str, source: str, target: str) -> dict[str, str]:
    """Return a corpus in one direction."""
    return {"source": f"{name}.{source}", "target": f"{name}.{target}", "languages": f"{source}-{target}"}


# A model of both directions, as arguments of `config_of`.
SEVERAL: dict[str, Any] = {"data__temperature": 3.0}
TO_ENGLISH, TO_CHINESE = ("zh", "en"), ("en", "zh")
SEVERAL["data__train"] = [corpus_of("train", *TO_ENGLISH), corpus_of("train", *TO_CHINESE)]
SEVERAL["data__train"] += [corpus_of("more", *TO_CHINESE)]
SEVERAL["data__dev"] = [corpus_of("dev", *TO_ENGLISH), corpus_of("dev", *TO_CHINESE)]
MIX = {"more": {"source": "more.zh", "target": "more.en", "weight": 0.3}}  # value of data__mix


def config_of(corpus: Path, run: str = "run", **changes: Any) -> Config:
    """A small model with dropout and several batches an epoch; `changes` are such as `train__lr=1e-3` or `seed=2`."""
    train = {"source": "train.zh", "target": "train.en"}
    dev = {"source": "dev.zh", "target": "dev.en"}
    tree: dict[str, Any] = {"model": SIZES, "train": TRAIN, "tokenizer": {"vocab_size": 340}}
    tree["run"] = str(corpus / run)
    tree["data"] = {"root": str(corpus), "train": train, "dev": dev, "max_length": 60}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            tree[section] = {**tree.get(section, {}), name: value}
        else:
            tree[section] = value
    return Config.model_validate(tree)


def run_training(config: Config, n_replicas: int = 1, **options: Any) -> Progress:
    plan = session.prepare(config, device="cpu", **options)
    return session.train(plan, n_replicas=n_replicas)


def final_hash(config: Config) -> str:
    run = RunDirectory(config.run)
    last = run.newest_step()
    assert last is not None
    return hash_tensors(read_checkpoint(run.checkpoint_file(last)).tensors)


def trainer_of(config: Config) -> Trainer:
    return Trainer(session.prepare(config))


def check_equal(one: Config, other: Config) -> None:
    """Check that two runs have the same last checkpoint and the same model file."""
    assert final_hash(one) == final_hash(other)
    model = read_checkpoint(RunDirectory(one.run).model_file)
    other_model = read_checkpoint(RunDirectory(other.run).model_file)
    result = hash_tensors(model.tensors)
    assert result == hash_tensors(other_model.tensors)


def steps_of(config: Config, figure: str) -> list[int]:
    """The steps of the lines of metrics.jsonl that have a figure."""
    metrics = RunDirectory(config.run).read_metrics()
    return [line["step"] for line in metrics if figure in line]


def best_of(config: Config) -> tuple[int, float]:
    """The step and the metric of the best model, read from the model file."""
    model_file = RunDirectory(config.run).model_file
    figures = read_checkpoint(model_file, prefixes=()).progress["best_figures"]
    return figures["step"], ranking(figures, config.train.metric)[0]


def script(monkeypatch: pytest.MonkeyPatch, *figures: tuple[float, float], signature: str = "signature") -> None:
    """Replace the results of the next validations by these figures: (BLEU, loss); `signature` is that of BLEU."""
    left = list(figures)

    def scripted(*args: Any, **kwargs: Any) -> Validation:
        bleu, loss = left.pop(0)
        score = Score("BLEU", bleu, None, None, signature)
        return Validation(loss, loss, score, score, [], ("a", 0.01), Calibration())

    monkeypatch.setattr("nmt.train.loop.validate", scripted)
