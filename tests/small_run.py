"""A training that takes a second in the test's own process: its corpus, its config and its results."""

from pathlib import Path
from typing import Any

import pytest

from nmt.config import Config
from nmt.evaluate import Score
from nmt.run.checkpoint import hash_tensors, read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train import session
from nmt.train.loop import Trainer
from nmt.train.progress import Progress
from nmt.train.validation import Validation
from nmt.translate.confidence import Calibration

SUBJECTS = {"狗": "The dog", "猫": "The cat", "男孩": "The boy", "女孩": "The girl", "老师": "The teacher"}
VERBS = {"跑": "runs", "睡觉": "sleeps", "唱歌": "sings", "笑": "laughs"}
SIZES = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.2}
TRAIN = {"batch_tokens": 300, "max_steps": 12, "validate_every": 5, "lr": 3e-3, "warmup": 4, "precision": "fp32"}
TIMES = {"今天": "today", "每天": "every day", "早上": "in the morning"}


def write_small_corpus(home: Path) -> Path:
    """Write 60 pairs (source: subject, time, verb; target: subject, verb, time) and 25 for `MIX`; return `home`."""
    pairs = [(f"{s}{t}{v}。", f"{SUBJECTS[s]} {VERBS[v]} {TIMES[t]}.") for s in SUBJECTS for t in TIMES for v in VERBS]
    more = [(f"昨天{source}", f"Yesterday {target}") for source, target in pairs[:25]]
    for name, chosen in (("train", pairs), ("dev", pairs[::7]), ("more", more)):
        for side, ending in enumerate(("zh", "en")):
            text = "".join(f"{pair[side]}\n" for pair in chosen)
            (home / f"{name}.{ending}").write_text(text, encoding="utf-8")
    return home


SEVERAL: dict[str, Any] = {  # a model of both directions, as arguments of `config_of`
    "data__train": [
        {"source": "train.zh", "target": "train.en", "languages": "zh-en"},
        {"source": "train.en", "target": "train.zh", "languages": "en-zh"},
        {"source": "more.en", "target": "more.zh", "languages": "en-zh"},
    ],
    "data__dev": [
        {"source": "dev.zh", "target": "dev.en", "languages": "zh-en"},
        {"source": "dev.en", "target": "dev.zh", "languages": "en-zh"},
    ],
    "data__temperature": 3.0,
}
MIX = {"more": {"source": "more.zh", "target": "more.en", "weight": 0.3}}  # value of data__mix


def config_of(corpus: Path, run: str = "run", **changes: Any) -> Config:
    """A small model with dropout and several batches an epoch; `changes` are such as `train__lr=1e-3` or `seed=2`."""
    tree: dict[str, Any] = {
        "run": str(corpus / run),
        "data": {
            "root": str(corpus),
            "train": {"source": "train.zh", "target": "train.en"},
            "dev": {"source": "dev.zh", "target": "dev.en"},
            "max_length": 60,
        },
        "tokenizer": {"vocab_size": 340},
        "model": SIZES,
        "train": TRAIN,
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        tree[section] = {**tree.get(section, {}), name: value} if name else value
    return Config.model_validate(tree)


def run_training(config: Config, n_replicas: int = 1, **options: Any) -> Progress:
    return session.train(session.prepare(config, device="cpu", **options), quiet=True, n_replicas=n_replicas)


def final_hash(config: Config) -> str:
    run = RunDirectory(config.run)
    last = run.newest_step()
    assert last is not None
    return hash_tensors(read_checkpoint(run.checkpoint_file(last)).tensors)


def trainer_of(config: Config) -> Trainer:
    return Trainer(session.prepare(config), quiet=True)


def check_equal(one: Config, other: Config) -> None:
    """Check that two runs have the same last checkpoint and the same model file."""
    assert final_hash(one) == final_hash(other)
    models = [read_checkpoint(RunDirectory(config.run).model_file).tensors for config in (one, other)]
    assert hash_tensors(models[0]) == hash_tensors(models[1])


def steps_of(config: Config, figure: str) -> list[int]:
    """The steps of the lines of metrics.jsonl that have a figure."""
    return [line["step"] for line in RunDirectory(config.run).read_metrics() if figure in line]


def best_of(config: Config) -> tuple[int, float | None]:
    """The step and the metric of the best model, read from the model file."""
    found = read_checkpoint(RunDirectory(config.run).model_file, prefixes=()).progress
    return found["best_step"], found["best"]


def script(monkeypatch: pytest.MonkeyPatch, *figures: tuple[float, float], signature: str = "signature") -> None:
    """Replace the results of the next validations by these figures: (BLEU, loss); `signature` is that of BLEU."""
    left = list(figures)

    def scripted(*args: Any, **kwargs: Any) -> Validation:
        bleu, loss = left.pop(0)
        score = Score("BLEU", bleu, None, None, signature)
        return Validation(loss, loss, score, score, [], ("a", 0.01), Calibration())

    monkeypatch.setattr("nmt.train.loop.validate", scripted)
