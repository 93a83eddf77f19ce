"""Marian models with random weights, as transformers itself writes them, with tokenizers like those of OPUS-MT."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from conftest import SOURCE, TARGET

GERMAN = ["Ein Hund läuft durch den Park.", "Zwei Vögel flogen über die Häuser!", "Wo ist 2024 der Bahnhof?"]
ENGLISH = ["A dog runs through the park.", "Two birds flew over the houses!", "Where is the station in 2024?"]
SMALL = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "activation_function": "swish",
    "num_beams": 6,
    "scale_embedding": True,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}


def spm(lines: list[str], **options: Any) -> bytes:
    """A SentencePiece model with the normalization of OPUS-MT, NFKC and single spaces."""
    model = io.BytesIO()
    settings = {"vocab_size": 120, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines * 4), model_writer=model, **settings)
    return model.getvalue()


def numbered(*models: bytes, tags: tuple[str, ...], without: tuple[str, ...]) -> dict[str, int]:
    """A vocabulary in Marian's order: EOS, UNK, the pieces of all models, tags, PAD."""
    pieces: set[str] = set()
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = list(range(processor.get_piece_size()))
        pieces.update(processor.id_to_piece(ids))
    pieces -= {"</s>", "<unk>", "<s>", *without}
    in_order = ["</s>", "<unk>", *sorted(pieces), *tags, "<pad>"]
    return {piece: i for i, piece in enumerate(in_order)}


def write_marian(
    path: Path,
    *,
    tags: tuple[str, ...] = (),  # pieces of the vocabulary such as `>>fra<<`
    without: tuple[str, ...] = (),  # pieces of the SentencePiece models that the vocabulary lacks
    separate: bool = False,  # whether each side has its own vocabulary
    source_spm: bytes | None = None,
    target_spm: bytes | None = None,
    **changes: Any,
) -> Path:
    """Write a model of random weights and its tokenizer; `changes` override settings of MarianConfig."""
    reason = "transformers 4 warns of settings that its own Marian models have"
    transformers = pytest.importorskip("transformers", "5", reason=reason)
    path.mkdir(parents=True)

    # 1. The tokenizer.
    source = source_spm or spm(GERMAN + SOURCE)
    target = target_spm or spm(ENGLISH + TARGET)
    (path / "source.spm").write_bytes(source)
    (path / "target.spm").write_bytes(target)
    if separate:
        vocabulary = numbered(source, tags=tags, without=without)
        target_vocabulary = numbered(target, tags=tags, without=without)
        (path / "target_vocab.json").write_text(json.dumps(target_vocabulary))
    else:
        vocabulary = target_vocabulary = numbered(source, target, tags=tags, without=without)
    (path / "vocab.json").write_text(json.dumps(vocabulary))
    languages = {"source_lang": "de", "target_lang": "en"}
    about = {"tokenizer_class": "MarianTokenizer", **languages, "separate_vocabs": separate}
    (path / "tokenizer_config.json").write_text(json.dumps(about))

    # 2. The model.
    pad = min(len(vocabulary), len(target_vocabulary)) - 1
    sizes = {"vocab_size": len(vocabulary), "decoder_vocab_size": len(target_vocabulary)}
    special = {"pad_token_id": pad, "decoder_start_token_id": pad}
    config = transformers.MarianConfig(**{**SMALL, **sizes, **special, **changes})
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    # All weights are random, also norms, biases and PAD's row, which transformers initializes to 0 or 1.
    scale = config.d_model**-0.5
    with torch.no_grad():
        model.final_logits_bias.add_(scale * torch.randn(1, len(target_vocabulary)))
        for name, x in model.named_parameters():
            if "norm.weight" in name:  # of both signs, so that a piece does not predict itself
                x.add_(torch.randn(x.shape))
            elif "embed_positions" not in name:
                x.add_(scale * torch.randn(x.shape))
    model.save_pretrained(path)
    return path
