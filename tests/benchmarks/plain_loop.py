"""A plain training loop as a baseline: torch.nn.Transformer with tied embeddings, or Hugging Face's Marian of its size.

Batches: pairs shuffled, sorted by target length, cut by budget, and the batches shuffled. Adam, label smoothing
and dropout as in nmt. Reads a task that training.py has written, and appends a JSON line per step to a file.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer

PAD = 0
BOS = 2
EOS = 3
DEV_BATCH = 128  # sentences of a greedy search
Pairs = list[tuple[list[int], list[int]]]  # source and target ids


class PlainTransformer(nn.Module):
    """torch.nn.Transformer from ids to logits."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        d_model = sizes["d_model"]
        dropout = sizes["dropout"]
        self.embedding = nn.Embedding(sizes["vocab_size"], d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        n_layers = sizes["n_encoder_layers"], sizes["n_decoder_layers"]
        blocks = {"dim_feedforward": sizes["d_ff"], "dropout": dropout, "batch_first": True, "norm_first": True}
        self.transformer = nn.Transformer(d_model, sizes["n_heads"], *n_layers, **blocks)
        self.dropout = nn.Dropout(dropout)
        rates = 10_000 ** (-torch.arange(0, d_model, 2) / d_model)
        angles = torch.arange(1024)[:, None] * rates
        positions = torch.stack([angles.sin(), angles.cos()], -1)
        self.register_buffer("positions", positions.flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, D)."""
        positions = self.get_buffer("positions")[: ids.size(1)]
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        embedded: Tensor = self.dropout(x + positions)
        return embedded

    def decode(self, tgt_in: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """(B, T) ids and (B, S, D) to (B, T, V)."""
        causal = nn.Transformer.generate_square_subsequent_mask(tgt_in.size(1), tgt_in.device, torch.bool)
        masks = {"tgt_mask": causal, "memory_key_padding_mask": padding}
        hidden = self.transformer.decoder(self.embed(tgt_in), memory, **masks, tgt_is_causal=True)
        return F.linear(hidden, self.embedding.weight)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, S) and (B, T) ids to (B, T, V)."""
        padding = src == PAD
        memory = self.transformer.encoder(self.embed(src), src_key_padding_mask=padding)
        return self.decode(tgt_in, memory, padding)

    def greedy(self, src: Tensor, n_steps: int) -> Tensor:
        """(B, S) ids to the (B, n_steps) ids of a greedy search; every prefix is computed anew."""
        padding = src == PAD
        memory = self.transformer.encoder(self.embed(src), src_key_padding_mask=padding)
        out = torch.full((len(src), 1), BOS)
        for _ in range(n_steps):
            best = self.decode(out, memory, padding)[:, -1].argmax(-1)
            out = torch.cat([out, best[:, None]], 1)
            if (out == EOS).any(1).all():
                break
        return out[:, 1:]


class Marian(nn.Module):
    """Hugging Face's MarianMTModel (post-norm) of the same size."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        settings = {key: sizes[key] for key in ("vocab_size", "d_model", "dropout")}
        for side in ("encoder", "decoder"):
            settings[f"{side}_layers"] = sizes[f"n_{side}_layers"]
            settings[f"{side}_attention_heads"] = sizes["n_heads"]
            settings[f"{side}_ffn_dim"] = sizes["d_ff"]
        settings |= {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": BOS}
        config = MarianConfig(**settings, forced_eos_token_id=EOS, activation_function="relu", scale_embedding=True)
        self.model = MarianMTModel(config)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, S) and (B, T) ids to (B, T, V)."""
        logits: Tensor = self.model(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt_in).logits
        return logits

    def greedy(self, src: Tensor, n_steps: int) -> Tensor:
        """(B, S) ids to the (B, n_steps) ids of its greedy search, which has a cache."""
        limits = {"num_beams": 1, "do_sample": False, "max_new_tokens": n_steps}
        out: Tensor = self.model.generate(input_ids=src, attention_mask=src != PAD, **limits)
        return out[:, 1:]


def padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    return pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True, padding_value=PAD)


def batches(pairs: Pairs, batch_tokens: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield an epoch of padded (src, tgt_in, tgt_out), with (longest side + 1) x pairs <= `batch_tokens`."""
    # 1. Pairs of similar length stand beside each other, and are cut.
    shuffled = random.sample(pairs, len(pairs))
    cut: list[Pairs] = [[]]
    longest = 0
    for pair in sorted(shuffled, key=lambda pair: len(pair[1])):
        longest = max(longest, *map(len, pair))
        n_positions = (longest + 1) * (len(cut[-1]) + 1)
        if cut[-1] and n_positions > batch_tokens:
            cut.append([])
            longest = max(map(len, pair))
        cut[-1].append(pair)

    # 2. Their tensors, in any order.
    for batch in random.sample(cut, len(cut)):
        src = padded([[*source, EOS] for source, _ in batch])
        tgt_in = padded([[BOS, *target] for _, target in batch])
        tgt_out = padded([[*target, EOS] for _, target in batch])
        yield src, tgt_in, tgt_out


def train_step(
    model: nn.Module, optimizer: Optimizer, batch: Sequence[Tensor], settings: dict[str, Any], *, bf16: bool
) -> Tensor:
    """One step on (src, tgt_in, tgt_out); returns the loss."""
    src, tgt_in, tgt_out = batch
    with torch.autocast(src.device.type, torch.bfloat16, enabled=bf16):
        logits = model(src, tgt_in).flatten(0, 1)
        smoothing = settings["label_smoothing"]
        loss = F.cross_entropy(logits, tgt_out.flatten(), ignore_index=PAD, label_smoothing=smoothing)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
    optimizer.step()
    return loss


def dev_bleu(model: nn.Module, sources: list[list[int]], home: Path) -> float:
    """BLEU of a greedy search on dev, in batches of sources of similar length."""
    import sacrebleu
    import sentencepiece

    model.eval()
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(home / "nmt" / "tokenizer.model"))
    indices_of_all = range(len(sources))
    order = sorted(indices_of_all, key=lambda i: len(sources[i]))
    hypotheses = {}
    for start in range(0, len(order), DEV_BATCH):
        indices = order[start : start + DEV_BATCH]
        src = padded([[*sources[i], EOS] for i in indices])
        with torch.inference_mode():
            n_steps = 2 * src.size(1) + 10
            out: Tensor = model.greedy(src, n_steps)  # type: ignore[operator]
        for i, ids in zip(indices, out.tolist(), strict=True):
            if EOS in ids:
                ids = ids[: ids.index(EOS)]
            hypotheses[i] = tokenizer.decode([token for token in ids if token > EOS])
    model.train()
    references = (home / "dev.tgt").read_text().splitlines()
    in_order = [hypotheses[i] for i in indices_of_all]
    bleu = sacrebleu.corpus_bleu(in_order, [references])
    return float(bleu.score)


def train(
    task_file: Path, metrics_file: Path, kind: str, precision: str, validate_s: float, n_epochs: int = 1_000_000
) -> None:
    """Train a model of a `kind`, until the process is killed; compute dev BLEU every `validate_s` seconds."""
    torch.manual_seed(1)
    random.seed(1)
    task = json.loads(task_file.read_text())
    settings = task["settings"]
    dev_sources = [source for source, _ in task["dev"]]
    model = (PlainTransformer if kind == "torch" else Marian)(task["model"])
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    step = 0
    validated = time.monotonic()
    model.train()
    with metrics_file.open("w", buffering=1) as metrics:
        for _ in range(n_epochs):
            for batch in batches(task["train"], settings["batch_tokens"]):
                # 1. A step, with a warm-up and the inverse square root of the steps as its rate.
                step += 1
                growth = step / settings["warmup"]
                (group,) = optimizer.param_groups
                share = min(growth, growth**-0.5)
                group["lr"] = settings["lr"] * share
                loss = train_step(model, optimizer, batch, settings, bf16=precision == "bf16")
                n_tokens = int((batch[2] != PAD).sum())
                figures = {"loss": loss.item(), "n_tokens": n_tokens}
                print(json.dumps(figures), file=metrics)

                # 2. BLEU now and then.
                if time.monotonic() - validated > validate_s:
                    bleu = dev_bleu(model, dev_sources, task_file.parent)
                    print(json.dumps({"dev_bleu": bleu}), file=metrics)
                    validated = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=Path)
    parser.add_argument("metrics", type=Path)
    parser.add_argument("model", choices=["torch", "marian"])
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("--validate-s", type=float, default=math.inf, help="seconds between two values of dev BLEU")
    args = parser.parse_args()
    train(args.task, args.metrics, args.model, args.precision, args.validate_s)


if __name__ == "__main__":
    main()
