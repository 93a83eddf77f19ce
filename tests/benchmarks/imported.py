"""Fine-tuning a model of OPUS-MT's size: nmt's step beside that of transformers' Trainer, on the same batches.

The model has random weights: transformers writes it, and `nmt import` reads it.
"""

import io
import json
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece
import training
from measure import PROGRAMS, Options, Table, told

from nmt.config import load_config
from nmt.errors import DataError
from nmt.interchange.marian import Languages, import_marian, read_marian
from nmt.text.batches import cut_batches
from nmt.train.preparation import read_corpus

VOCABULARY = 58_101
N_PAIRS = 20_000  # of the recipe's corpus, at most
BATCH_TOKENS = 2048
SIZES = {"d_model": 512, "max_position_embeddings": 512, "encoder_layers": 6, "decoder_layers": 6}
SIZES |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
BASELINE = "transformers' Trainer, fp32"


def write_model(path: Path, sides: list[list[str]], n_pieces: int = VOCABULARY) -> None:
    """A directory of a Marian model with random weights and tokenizers for this text."""
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
    """Write the model, import it, and write the same batches for both, each with its numbers of the pieces.

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
    imported = read_marian(home / "model", Languages())
    tokenizers, config = imported.checkpoint.tokenizers, imported.checkpoint.config
    ids = [
        tokenizers.source.encode_all([pair.source for pair in pairs]),
        tokenizers.target.encode_all([pair.target for pair in pairs]),
    ]
    lengths = [(len(src), len(tgt)) for src, tgt in zip(*ids, strict=True)]
    batches = cut_batches([pair for pair in lengths if max(pair) < config.data.max_length], BATCH_TOKENS)
    middle = batches[len(batches) // 4 : -1]  # neither the shortest sentences nor a batch that is not full
    task = {"batches": [[[side[i] for i in batch] for side in ids] for batch in middle], "rows": imported.target.rows}
    (home / "batches.json").write_text(json.dumps(task))
    sizes = {**config.model.model_dump(), "vocab_size": len(tokenizers.target)}
    real = [(lengths[i][0] + 1, lengths[i][1] + 1) for batch in middle for i in batch]
    flops = sum(training.training_flops(sizes, *pair) for pair in real) / sum(tgt for _, tgt in real)
    return training.Task(config, home, flops)


def trainers(task: training.Task) -> dict[str, training.Trainer]:
    """Both, in both precisions."""
    found = {}
    for name, (who, precision) in {
        BASELINE: ("transformers", "fp32"),
        "transformers' Trainer, bf16": ("transformers", "bf16"),
        "nmt, fp32": ("nmt", "fp32"),
        "nmt, bf16": ("nmt", "bf16"),
    }.items():
        metrics = task.home / f"{who}-{precision}.jsonl"
        command = [sys.executable, PROGRAMS / "imported_step.py", task.home, who, precision, "--metrics", metrics]
        found[name] = training.Trainer(command, metrics, training.counted)
    return found


def throughput(options: Options) -> list[Table]:
    """Target tokens a second."""
    task = prepare(options)
    contestants = trainers(task)
    samples, peaks = training.windows(contestants, options, task)
    note = (
        f"Real target tokens a second, end sign counted, in windows of {options.seconds:g} s, with the same batches of "
        f"{BATCH_TOKENS} positions, dropout and label smoothing; peak of a large matrix product: {peaks}; memory is "
        "anonymous, of all processes."
    )
    commands = {name: told(one.command) for name, one in contestants.items()}
    return [Table("Fine-tuning a model of 74M parameters", note, commands, samples, "tokens_s", [BASELINE])]
