"""Fine-tunes a model, with nmt or with transformers' Trainer, on given batches until it is stopped.

Reads the files that imported.py has written, and appends a JSON line per step to --metrics.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from nmt.processes import prepare_torch

N_STEPS = 1_000_000  # never reached
LR = 2e-5
EOS = 3  # nmt's id
Sides = list[list[list[int]]]  # token ids, indexed by side (source, target), sentence and position


def by_nmt(home: Path, batches: list[Sides], precision: str) -> Iterator[int]:
    """Do steps as `nmt train` does, with the number of threads that it would choose. Yields target tokens per step."""
    from nmt.config import TrainSettings
    from nmt.run.checkpoint import read_checkpoint
    from nmt.text.batches import collate
    from nmt.train.memory import n_fitting_threads
    from nmt.train.optimizer import make_optimizers
    from nmt.train.replicas import Replicas
    from nmt.train.step import StepOptions, train_step

    settings = TrainSettings(label_smoothing=0.1, clip_norm=1.0)
    model = read_checkpoint(home / "run" / "model.safetensors", prefixes=("model",)).model()
    replicas = Replicas(model.train(), n_fitting_threads(model, model.projection.out_features, settings))
    replicas.train()
    optimizers = make_optimizers(model, settings)
    for step, (source, target) in enumerate(cycle(batches)):
        batch = collate(source, target, range(len(source)))
        options = StepOptions(settings, lr=LR, seed=step, bf16=precision == "bf16")
        yield train_step(replicas, optimizers, [batch], options).n_tokens


def by_transformers(home: Path, batches: list[Sides], rows: list[int], precision: str, metrics: Path) -> None:
    """Train with transformers' Trainer and its defaults for a CPU. Each of its examples is a whole batch."""
    import torch
    from torch import Tensor
    from torch.nn.utils.rnn import pad_sequence
    from transformers import MarianMTModel, Trainer, TrainerCallback, TrainingArguments

    row_of = torch.tensor(rows)
    model = MarianMTModel.from_pretrained(home / "model")
    pad = model.config.pad_token_id

    def padded(side: list[list[int]], value: int) -> Tensor:
        return pad_sequence([row_of[torch.tensor([*tokens, EOS])] for tokens in side], True, value)

    def collated(chosen: list[int]) -> dict[str, Tensor]:
        source, target = batches[chosen[0] % len(batches)]
        src, labels = padded(source, pad), padded(target, -100)
        start = torch.full((len(labels), 1), model.config.decoder_start_token_id)
        tgt_in = torch.cat([start, labels[:, :-1].clamp(min=0)], 1)
        return {"input_ids": src, "attention_mask": src != pad, "decoder_input_ids": tgt_in, "labels": labels}

    class Count(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *given: Any, **_: Any) -> None:
            _, state, _ = given
            _, target = batches[(state.global_step - 1) % len(batches)]
            note(metrics, sum(len(tokens) + 1 for tokens in target))

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(
        output_dir=str(home / "trainer"),
        per_device_train_batch_size=1,  # an example is a whole batch
        max_steps=N_STEPS,
        learning_rate=LR,
        label_smoothing_factor=0.1,
        use_cpu=True,
        bf16=precision == "bf16",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    InOrder(model, arguments, collated, train_dataset=range(N_STEPS), callbacks=[Count()]).train()


def note(metrics: Path, n_tokens: int) -> None:
    with metrics.open("a") as file:
        file.write(json.dumps({"n_tokens": n_tokens}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("who", choices=["nmt", "transformers"])
    parser.add_argument("batches", choices=["drawn", "cut"])
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("--metrics", type=Path, required=True)
    args = parser.parse_args()
    task = json.loads((args.home / f"{args.batches}.json").read_text())
    if args.who == "nmt":
        prepare_torch()
        for n_tokens in by_nmt(args.home, task["batches"], args.precision):
            note(args.metrics, n_tokens)
    else:
        by_transformers(args.home, task["batches"], task["rows"], args.precision, args.metrics)


if __name__ == "__main__":
    main()
