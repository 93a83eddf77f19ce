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
SMALL = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
SMALL |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}
SMALL |= {"num_beams": 6, "scale_embedding": True}


def spm(lines: list[str], **options: Any) -> bytes:
    """A SentencePiece model with the normalization of OPUS-MT, NFKC and single spaces."""
    model = io.BytesIO()
    settings = {"vocab_size": 120, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines * 4), model_writer=model, **settings)
    return model.getvalue()


def numbered(*models: bytes, tags: tuple[str, ...], without: tuple[str, ...]) -> dict[str, int]:
    """A vocabulary in Marian's order: EOS, UNK, the pieces of all models, tags, PAD."""
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    pieces = {one.id_to_piece(i) for one in processors for i in range(one.get_piece_size())}
    words = sorted(pieces - {"</s>", "<unk>", "<s>", *without})
    return {piece: i for i, piece in enumerate(["</s>", "<unk>", *words, *tags, "<pad>"])}


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

    models = source_spm or spm(GERMAN + SOURCE), target_spm or spm(ENGLISH + TARGET)
    sides = [(model,) for model in models] if separate else [models]
    vocabularies = [numbered(*side, tags=tags, without=without) for side in sides]
    path.mkdir(parents=True)
    for name, model in zip(("source", "target"), models, strict=True):
        (path / f"{name}.spm").write_bytes(model)
    for name, vocabulary in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (path / name).write_text(json.dumps(vocabulary))
    languages = {"source_lang": "de", "target_lang": "en"}
    about = {"tokenizer_class": "MarianTokenizer", **languages, "separate_vocabs": separate}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    n_source, n_target = len(vocabularies[0]), len(vocabularies[-1])
    special = {"pad_token_id": min(n_source, n_target) - 1, "eos_token_id": 0, "forced_eos_token_id": 0}
    sizes = {"vocab_size": n_source, "decoder_vocab_size": n_target, "decoder_start_token_id": special["pad_token_id"]}
    config = transformers.MarianConfig(**{"activation_function": "swish", **SMALL, **special, **sizes, **changes})
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():  # random, also norms, biases and PAD's row, which transformers initializes to 0 or 1
        for name, x in [*model.named_parameters(), ("bias", model.final_logits_bias)]:
            if "embed_positions" not in name:  # norms of both signs, so that a piece does not predict itself
                x.add_((1 if "norm.weight" in name else config.d_model**-0.5) * torch.randn(x.shape))
    model.save_pretrained(path)
    return path
