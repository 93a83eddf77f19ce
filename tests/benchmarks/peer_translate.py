"""Translate lines with another engine, by options like those of `nmt translate`, for a fair comparison.

CTranslate2 reads what `nmt export` wrote; Hugging Face's M2M100, a pre-norm Transformer, takes the weights of an
nmt run (embeddings tied, ReLU, sinusoidal positions). Needs that engine and sentencepiece, but not nmt.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

Translate = Callable[[list[str]], list[str]]
PAD, BOS, EOS = 0, 2, 3


def tokenizers(directory: Path) -> list[Any]:
    """The source and the target tokenizer."""
    names = ["tokenizer.src.model", "tokenizer.tgt.model"]
    if not (directory / names[0]).exists():
        names = ["tokenizer.model"] * 2
    return [SentencePieceProcessor(model_file=str(directory / name)) for name in names]


def by_ctranslate2(args: argparse.Namespace) -> Translate:
    """CTranslate2: several translators with a batch each."""
    import ctranslate2

    source, target = tokenizers(args.model)
    engine = ctranslate2.Translator(str(args.model), inter_threads=args.translators, intra_threads=args.threads)

    def translate(lines: list[str]) -> list[str]:
        found = engine.translate_batch(
            source.encode(lines, out_type=str),
            beam_size=args.beam,
            patience=args.patience or (1 + 3 / args.beam if args.beam > 1 else 1),  # as in nmt
            max_batch_size=args.batch_size,
            return_end_token=True,  # so that the end sign counts in a hypothesis' length, as in nmt
        )
        return [target.decode(one.hypotheses[0]) for one in found]

    return translate


def by_hugging_face(args: argparse.Namespace) -> Translate:
    """transformers' generate with the weights of an nmt run."""
    import torch

    source, target = tokenizers(args.model)
    if args.threads:
        torch.set_num_threads(args.threads)
    model = m2m100(args.model / "model.safetensors")

    def translate(lines: list[str]) -> list[str]:
        ids = [[*row, EOS] for row in source.encode(lines)]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        texts = [""] * len(lines)
        for start in range(0, len(order), args.batch_size):
            rows = order[start : start + args.batch_size]
            src = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids[i]) for i in rows], True, PAD)
            found = model.generate(
                src,
                attention_mask=src != PAD,
                num_beams=args.beam,
                do_sample=False,
                max_new_tokens=math.ceil(1.5 * src.size(1)) + 10,
            )
            for i, row in zip(rows, found.tolist(), strict=True):
                texts[i] = target.decode([piece for piece in row if piece > EOS])
        return texts

    return translate


def m2m100(file: Path) -> Any:
    """Load an nmt model as the Hugging Face class of the same architecture."""
    import safetensors
    import torch
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    with safetensors.safe_open(file, "pt") as opened:
        sizes = json.loads(opened.metadata()["nmt"])["config"]["model"]
        names = opened.keys()
        weights = as_m2m100({name: opened.get_tensor(name) for name in names if name.startswith("model.")})
    config = M2M100Config(
        vocab_size=len(weights["model.shared.weight"]),
        d_model=sizes["d_model"],
        encoder_layers=sizes["n_encoder_layers"],
        decoder_layers=sizes["n_decoder_layers"],
        encoder_attention_heads=sizes["n_heads"],
        decoder_attention_heads=sizes["n_heads"],
        encoder_ffn_dim=sizes["d_ff"],
        decoder_ffn_dim=sizes["d_ff"],
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    model = M2M100ForConditionalGeneration(config).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = ("embed_tokens.weight", "lm_head.weight")
    if unexpected or not all(name.endswith(tied) for name in missing):
        raise SystemExit(f"the model is not of the kind that is compared: {missing} {unexpected}")
    model.tie_weights()
    angles = torch.arange(1024)[:, None] * 10_000 ** (-torch.arange(0, config.d_model, 2) / config.d_model)
    table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    for side in (model.model.encoder, model.model.decoder):  # position 0 is row PAD + 1
        side.embed_positions.weights = torch.cat([torch.zeros(PAD + 1, config.d_model), table])
    return model


def as_m2m100(weights: dict[str, Any]) -> dict[str, Any]:
    """nmt's weights with Hugging Face's names; fused matrices such as key_value are split."""
    found = {}
    for name, tensor in weights.items():
        *above, layer, kind = name.split(".")
        parts = layer.split("_") if layer in ("query_key_value", "key_value") else [layer]
        for part, rows in zip(parts, tensor.chunk(len(parts)), strict=True):
            found[in_m2m100(".".join([*above, part, kind]))] = rows
    return found


def in_m2m100(name: str) -> str:
    """Hugging Face's name for a weight of nmt."""
    for ours, theirs in {
        "source_embedding": "shared",
        "coder.": "coder.layers.",
        "coder_norm": "coder.layer_norm",
        "self_attention_residual.norm": "self_attn_layer_norm",
        "cross_attention_residual.norm": "encoder_attn_layer_norm",
        "feed_forward_residual.norm": "final_layer_norm",
        "feed_forward.inner": "fc1",
        "feed_forward.outer": "fc2",
        "self_attention.": "self_attn.",
        "cross_attention.": "encoder_attn.",
        ".query.": ".q_proj.",
        ".key.": ".k_proj.",
        ".value.": ".v_proj.",
        ".output.": ".out_proj.",
    }.items():
        name = name.replace(ours, theirs)
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["ctranslate2", "hugging-face"])
    parser.add_argument("-m", "--model", type=Path, required=True, help="an export, or a run")
    parser.add_argument("-i", "--input", type=Path, help="lines; without it each is answered as it comes")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--patience", type=float, help="CTranslate2's; its own default is 1")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--translators", type=int, default=1, help="of CTranslate2, each with a batch")
    parser.add_argument("--threads", type=int, default=0, help="of each worker; 0 is the engine's own choice")
    parser.add_argument("--stream", action="store_true")
    args = parser.parse_args()
    translate = (by_ctranslate2 if args.engine == "ctranslate2" else by_hugging_face)(args)
    if args.stream:
        for line in sys.stdin:
            print(*translate([line.rstrip("\n")]), flush=True)
    else:
        texts = translate(args.input.read_text().splitlines())
        args.output.write_text("".join(f"{text}\n" for text in texts))


if __name__ == "__main__":
    main()
