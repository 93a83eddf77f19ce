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
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

PAD, BOS, EOS = 0, 2, 3
DEV_BATCH = 128  # sentences of a greedy search
Pairs = list[tuple[list[int], list[int]]]


class PlainTransformer(nn.Module):
    """torch.nn.Transformer from ids to logits."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        d_model = sizes["d_model"]
        self.embedding = nn.Embedding(sizes["vocab_size"], d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        layer = {"nhead": sizes["n_heads"], "dim_feedforward": sizes["d_ff"], "dropout": sizes["dropout"]}
        n_layers = {f"num_{side}_layers": sizes[f"n_{side}_layers"] for side in ("encoder", "decoder")}
        self.transformer = nn.Transformer(d_model, **layer, **n_layers, batch_first=True, norm_first=True)
        self.dropout = nn.Dropout(sizes["dropout"])
        angles = torch.arange(1024)[:, None] * 10_000 ** (-torch.arange(0, d_model, 2) / d_model)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) to (B, T, D)."""
        x: Tensor = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.get_buffer("positions")[: ids.size(1)])  # type: ignore[no-any-return]

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, S) and (B, T) ids to (B, T, V)."""
        padding = src == PAD
        length, device = tgt_in.size(1), tgt_in.device
        causal = nn.Transformer.generate_square_subsequent_mask(length, device, torch.bool)
        masks = {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        hidden = self.transformer(self.embed(src), self.embed(tgt_in), **masks, tgt_is_causal=True)
        return F.linear(hidden, self.embedding.weight)

    def greedy(self, src: Tensor, n_steps: int) -> Tensor:
        """(B, S) ids to the (B, n_steps) ids of a greedy search; it computes every prefix anew."""
        padding = src == PAD
        memory = self.transformer.encoder(self.embed(src), src_key_padding_mask=padding)
        out, ended = torch.full((len(src), 1), BOS), torch.zeros(len(src), dtype=torch.bool)
        for length in range(1, n_steps + 1):
            causal = nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.bool)
            hidden = self.transformer.decoder(self.embed(out), memory, causal, memory_key_padding_mask=padding)
            best = F.linear(hidden[:, -1], self.embedding.weight).argmax(-1).masked_fill(ended, PAD)
            out, ended = torch.cat([out, best[:, None]], 1), ended | (best == EOS)
            if ended.all():
                break
        return out[:, 1:]


class Marian(nn.Module):
    """Hugging Face's MarianMTModel (post-norm) of the same size."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        settings = {"activation_function": "relu", "scale_embedding": True, "pad_token_id": PAD, "eos_token_id": EOS}
        settings |= {"decoder_start_token_id": BOS, "forced_eos_token_id": EOS}
        settings |= {key: sizes[key] for key in ("vocab_size", "d_model", "dropout")}
        for side in ("encoder", "decoder"):
            settings[f"{side}_layers"] = sizes[f"n_{side}_layers"]
            settings[f"{side}_attention_heads"] = sizes["n_heads"]
            settings[f"{side}_ffn_dim"] = sizes["d_ff"]
        self.model = MarianMTModel(MarianConfig(**settings))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, S) and (B, T) ids to (B, T, V)."""
        out: Tensor = self.model(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt_in).logits
        return out

    def greedy(self, src: Tensor, n_steps: int) -> Tensor:
        """(B, S) ids to the (B, n_steps) ids of its greedy search, which has a cache."""
        limits = {"num_beams": 1, "do_sample": False, "max_new_tokens": n_steps}
        out: Tensor = self.model.generate(input_ids=src, attention_mask=src != PAD, **limits)
        return out[:, 1:]


def batches(pairs: Pairs, batch_tokens: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield an epoch of padded (src, tgt_in, tgt_out), with (longest side + 1) x pairs <= `batch_tokens`."""
    order = sorted(random.sample(pairs, len(pairs)), key=lambda pair: len(pair[1]))
    cut: list[Pairs] = [[]]
    longest = 0
    for pair in order:
        longest = max(longest, *map(len, pair))
        if cut[-1] and (longest + 1) * (len(cut[-1]) + 1) > batch_tokens:
            cut.append([])
            longest = max(map(len, pair))
        cut[-1].append(pair)
    for batch in random.sample(cut, len(cut)):
        src = [[*source, EOS] for source, _ in batch]
        sides = src, [[BOS, *target] for _, target in batch], [[*target, EOS] for _, target in batch]
        yield tuple(nn.utils.rnn.pad_sequence([*map(torch.tensor, side)], True, PAD) for side in sides)  # type: ignore[misc]


def dev_bleu(model: nn.Module, pairs: Pairs, references: list[str], tokenizer: Path) -> float:
    """BLEU of a greedy search on dev, in batches of sources of similar length."""
    import sacrebleu
    import sentencepiece

    model.eval()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
    found = [""] * len(pairs)
    for start in range(0, len(order), DEV_BATCH):
        indices = order[start : start + DEV_BATCH]
        src = nn.utils.rnn.pad_sequence([torch.tensor([*pairs[i][0], EOS]) for i in indices], True, PAD)
        with torch.inference_mode():
            out: Tensor = model.greedy(src, 2 * src.size(1) + 10)  # type: ignore[operator]
        for i, ids in zip(indices, out.tolist(), strict=True):
            found[i] = processor.decode([token for token in ids if token > EOS])
    return float(sacrebleu.corpus_bleu(found, [references]).score)


def train_step(
    model: nn.Module, optimizer: Optimizer, batch: Sequence[Tensor], *, bf16: bool, smoothing: float, clip_norm: float
) -> Tensor:
    """One step on (src, tgt_in, tgt_out); returns the loss."""
    src, tgt_in, tgt_out = batch
    with torch.autocast(src.device.type, torch.bfloat16) if bf16 else nullcontext():
        logits = model(src, tgt_in).flatten(0, 1)
        loss = F.cross_entropy(logits, tgt_out.flatten(), ignore_index=PAD, label_smoothing=smoothing)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=Path)
    parser.add_argument("metrics", type=Path)
    parser.add_argument("model", choices=["torch", "marian"])
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("--epochs", type=int, default=1_000_000)
    parser.add_argument("--validate-s", type=float, default=math.inf, help="seconds between two values of dev BLEU")
    args = parser.parse_args()
    task = json.loads(args.task.read_text())
    settings = task["settings"]
    smoothing, clip_norm = settings["label_smoothing"], settings["clip_norm"]
    torch.manual_seed(1)
    random.seed(1)
    model = (PlainTransformer if args.model == "torch" else Marian)(task["model"])
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    step, validated = 0, time.monotonic()
    home = args.task.parent
    with args.metrics.open("w", buffering=1) as metrics:
        for _ in range(args.epochs):
            model.train()
            for batch in batches(task["train"], settings["batch_tokens"]):
                step += 1
                for group in optimizer.param_groups:
                    warmup = settings["warmup"]
                    group["lr"] = settings["lr"] * min(step / warmup, math.sqrt(warmup / step))
                bf16 = args.precision == "bf16"
                loss = train_step(model, optimizer, batch, bf16=bf16, smoothing=smoothing, clip_norm=clip_norm)
                n_tokens = int((batch[2] != PAD).sum())
                print(json.dumps({"loss": loss.item(), "n_tokens": n_tokens}), file=metrics)
                if time.monotonic() - validated > args.validate_s:
                    references = (home / "dev.tgt").read_text().splitlines()
                    bleu = dev_bleu(model, task["dev"], references, home / "nmt" / "tokenizer.model")
                    print(json.dumps({"dev_bleu": bleu}), file=metrics)
                    validated = time.monotonic()
                    model.train()


if __name__ == "__main__":
    main()
