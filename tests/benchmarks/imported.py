"""Fine-tuning a model of OPUS-MT's size: nmt's training step compared with that of transformers' Trainer.

Both get the same batches of random pairs, as Trainer samples them. nmt is also measured with its own batches, which
have as many positions on average, but pairs of similar lengths. The model has random weights: transformers writes it,
and `nmt import` reads it.
"""

import io
import json
import random
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import training
from measure import PROGRAMS, Options, Table, told

from nmt.config import load_config
from nmt.errors import DataError
from nmt.interchange.marian import import_marian, read_sides
from nmt.interchange.marian_files import read_settings
from nmt.model.kernels import bf16_is_faster
from nmt.run.checkpoint import read_checkpoint
from nmt.text.batches import cut_batches
from nmt.train.preparation import read_corpus

VOCABULARY = 58_101
N_PAIRS = 20_000  # at most, from the recipe's corpus
BATCH_PAIRS = 16
SIZES = {"d_model": 512, "max_position_embeddings": 512, "encoder_layers": 6, "decoder_layers": 6}
SIZES |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
BASELINE = "transformers' Trainer, fp32"


def write_model(path: Path, sides: list[list[str]], n_pieces: int = VOCABULARY) -> None:
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
    words += [f"filling {i}" for i in range(n_pieces - 3 - len(words))]
    vocabulary = {piece: i for i, piece in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    (path / "vocab.json").write_text(json.dumps(vocabulary))
    pad = vocabulary["<pad>"]
    special = {"vocab_size": len(vocabulary), "pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    config = MarianConfig(**SIZES, **special, activation_function="swish", scale_embedding=True, dropout=0.1)
    MarianMTModel(config).save_pretrained(path)


@cache
def prepare(options: Options) -> training.Task:
    """Write the model, import it, and write batches of nmt's token ids with the table that maps them to Marian's ids.

    Raises:
        DataError: the corpus is not there, or transformers is not.
    """
    if not find_spec("transformers") or not find_spec("accelerate"):
        raise DataError("transformers and accelerate are not installed", hint="pip install transformers accelerate")
    home = options.scratch / "imported"
    shutil.rmtree(home, ignore_errors=True)
    corpus = read_corpus(load_config(options.config, [f"run={home / 'none'}"]))
    pairs = list(islice(corpus.train, N_PAIRS))
    write_model(home / "model", [[pair.source for pair in pairs], [pair.target for pair in pairs]])
    import_marian(home / "model", home / "run")
    checkpoint = read_checkpoint(home / "run" / "model.safetensors")
    tokenizers, config = checkpoint.tokenizers, checkpoint.config
    _, of_target = read_sides(home / "model", read_settings(home / "model"), {}, None)
    source = tokenizers.source.encode_all([pair.source for pair in pairs])
    target = tokenizers.target.encode_all([pair.target for pair in pairs])
    short = [(s, t) for s, t in zip(source, target, strict=True) if max(len(s), len(t)) < config.data.max_length]
    lengths = [(len(s), len(t)) for s, t in short]

    order = random.Random(1).sample(range(len(short)), len(short))
    drawn = [order[i : i + BATCH_PAIRS] for i in range(0, len(order) - BATCH_PAIRS + 1, BATCH_PAIRS)]
    n_positions = BATCH_PAIRS * sum(max(pair) + 1 for pair in lengths) // len(lengths)
    cut = random.Random(1).sample(batches := cut_batches(lengths, n_positions), len(batches))
    for name, chosen in (("drawn", drawn), ("cut", cut)):
        sides = [[[short[i][side] for i in batch] for side in (0, 1)] for batch in chosen]
        (home / f"{name}.json").write_text(json.dumps({"batches": sides, "rows": of_target.rows}))
    sizes = {**config.model.model_dump(), "vocab_size": len(tokenizers.target)}
    flops = sum(training.training_flops(sizes, s + 1, t + 1) for s, t in lengths) / sum(t + 1 for _, t in lengths)
    return training.Task(config, home, flops)


def trainers(task: training.Task) -> dict[str, training.Trainer]:
    """Both programs in fp32, and in bf16 if it is faster on this machine."""
    found = {}
    for precision in ("fp32", "bf16")[: 1 + bf16_is_faster(torch.device("cpu"))]:
        for name, who, batches in (
            ("transformers' Trainer", "transformers", "drawn"),
            ("nmt", "nmt", "drawn"),
            ("nmt, its own batches", "nmt", "cut"),
        ):
            metrics = task.home / f"{who}-{batches}-{precision}.jsonl"
            command = [sys.executable, PROGRAMS / "imported_step.py", task.home, who, batches, precision]
            found[f"{name}, {precision}"] = training.Trainer(
                [*command, "--metrics", metrics], metrics, training.counted
            )
    return found


def throughput(options: Options) -> list[Table]:
    """Target tokens per second."""
    task = prepare(options)
    contestants = trainers(task)
    samples, peaks = training.windows(contestants, options, task)
    note = (
        f"Real target tokens a second, end sign counted, in windows of {options.seconds:g} s. The batches are "
        f"{BATCH_PAIRS} random pairs, the same for both; nmt's own are of similar lengths and as many tokens on "
        f"average. With dropout and label smoothing; peak of a large matrix product: {peaks}; memory is anonymous, of "
        "all processes."
    )
    commands = {name: told(one.command) for name, one in contestants.items()}
    return [Table("Fine-tuning a model of 74M parameters", note, commands, samples, "tokens_s", [BASELINE])]
