"""Fine-tuning a model of OPUS-MT's size: `nmt train` compared with transformers' Trainer on the same pairs.

The model has random weights: transformers writes it, and `nmt import` reads it. Called as a program, this is the script
that trains it with transformers: MODEL CORPUS METRICS, where CORPUS.src and CORPUS.tgt have the pairs.
"""

import io
import json
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece
import training
from experiments import run_nmt, write_config
from measure import NMT, Options, Table

from nmt.config import load_config
from nmt.errors import DataError
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train.preparation import read_corpus

VOCABULARY = 58_101
N_PAIRS = 20_000  # at most, from the recipe's corpus
BATCH_PAIRS = 16  # of Trainer; random pairs. nmt's steps have as many positions on average, of similar lengths
LR = 2e-5
SIZES = {"d_model": 512, "max_position_embeddings": 512, "encoder_layers": 6, "decoder_layers": 6}
SIZES |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}


def write_model(path: Path, sides: Sequence[list[str]]) -> None:
    """Write a Marian model with random weights, and tokenizers that are trained on `sides`."""
    from transformers import MarianConfig, MarianMTModel

    path.mkdir(parents=True)
    pieces: dict[str, None] = {}
    for name, lines in zip(("source", "target"), sides, strict=True):
        model = io.BytesIO()
        options: dict[str, Any] = {"vocab_size": 8000, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
        (path / f"{name}.spm").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces |= dict.fromkeys(processor.id_to_piece(i) for i in range(processor.get_piece_size()))
    words = [piece for piece in pieces if piece not in ("<unk>", "<s>", "</s>")]
    words += [f"filling {i}" for i in range(VOCABULARY - 3 - len(words))]
    vocabulary = {piece: i for i, piece in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    (path / "vocab.json").write_text(json.dumps(vocabulary))
    pad = vocabulary["<pad>"]
    special = {"vocab_size": len(vocabulary), "pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    config = MarianConfig(**SIZES, **special, activation_function="swish", scale_embedding=True, dropout=0.1)
    MarianMTModel(config).save_pretrained(path)


def throughput(options: Options) -> list[Table]:
    """Target tokens per second of both programs in fp32.

    Raises:
        DataError: the corpus is not there, or transformers is not.
    """
    if not find_spec("transformers") or not find_spec("accelerate"):
        raise DataError("transformers and accelerate are not installed", hint="pip install transformers accelerate")
    home = options.scratch / "imported"
    shutil.rmtree(home, ignore_errors=True)
    config = load_config(options.config, [f"run={home / 'none'}"])
    pairs = list(islice(read_corpus(config).train, N_PAIRS))
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    write_model(home / "model", sides)
    run_nmt("import", home / "model", "-o", home / "imported")
    checkpoint = read_checkpoint(home / "imported" / "model.safetensors", prefixes=())
    ids = training.encoded(checkpoint.tokenizers, *sides)
    sizes = {**checkpoint.config.model.model_dump(), "vocab_size": len(checkpoint.tokenizers.target)}
    n_positions = BATCH_PAIRS * sum(max(map(len, pair)) + 1 for pair in ids) // len(ids)
    for suffix, lines in zip(("src", "tgt"), sides, strict=True):
        (home / f"pairs.{suffix}").write_text("".join(f"{line}\n" for line in lines))

    run, metrics = RunDirectory(home / "run"), home / "trainer.jsonl"
    settings = {"init_from": home / "imported", "batch_tokens": n_positions, "lr": LR, "validate_every": 1_000_000}
    settings |= {"precision": "fp32", "optimizer": "adamw", "label_smoothing": 0.1}
    nmt = [*NMT, "train", write_config(home / "pairs.yaml", config), f"run={run.path}"]
    nmt += [f"train.{key}={value}" for key, value in settings.items()]
    trainer = [sys.executable, __file__, home / "model", home / "pairs", metrics]
    contestants = {
        "transformers' Trainer": training.Trainer(trainer, metrics, training.counted),
        "nmt train": training.Trainer(nmt, run.metrics_file, training.counted),
    }
    title = "Fine-tuning a model of 74M parameters, fp32"
    return [training.windows(title, contestants, options, training.flops_per_token(sizes, ids))]


def train_with_transformers(model_path: Path, corpus: str, metrics: Path) -> None:
    """Train with transformers' Trainer and its defaults for a CPU; append a JSON line per step to `metrics`."""
    import transformers

    model = transformers.MarianMTModel.from_pretrained(model_path)
    files = [str(model_path / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = transformers.MarianTokenizer(*files)
    source, target = (Path(f"{corpus}.{side}").read_text().splitlines() for side in ("src", "tgt"))
    pairs = [tokenizer(src, text_target=tgt) for src, tgt in zip(source, target, strict=True)]
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, model)
    n_tokens: list[int] = []

    def collated(examples: list[Any]) -> Any:
        batch = collate(examples)
        n_tokens.append(int((batch["labels"] != -100).sum()))
        return batch

    class Count(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            with metrics.open("a") as file:
                print(json.dumps({"n_tokens": n_tokens.pop(0)}), file=file)

    arguments = transformers.TrainingArguments(
        output_dir=str(model_path.with_name("trainer")),
        per_device_train_batch_size=BATCH_PAIRS,
        num_train_epochs=1000,
        learning_rate=LR,
        label_smoothing_factor=0.1,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    transformers.Trainer(model, arguments, collated, train_dataset=pairs, callbacks=[Count()]).train()


if __name__ == "__main__":
    train_with_transformers(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
