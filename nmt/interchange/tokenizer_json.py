"""Convert a SentencePiece model to tokenizer.json, the format of Hugging Face's tokenizers and transformers.js.

Differences from SentencePiece: text such as `</s>` is parsed as the special piece. For unigram models, transformers.js
does not support byte fallback: characters outside of the vocabulary become <unk>. Imports no torch.
"""

from collections.abc import Sequence
from typing import Any

import sentencepiece

from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.subword_sampling import SPACE
from nmt.text.tokenizer import Tokenizer

KINDS = ("unigram", "bpe", "char")  # values of tokenizer.type that the format supports
NEVER = -1e4  # score of special and byte pieces, which keeps them out of segmentations; others are above -100


def tokenizer_json(tokenizer: Tokenizer, kind: str) -> dict[str, Any]:
    """Return the content of tokenizer.json; `kind` is one of `KINDS`."""
    pieces = tokenizer.pieces(range(len(tokenizer)))
    end = {"id": pieces[EOS], "ids": [EOS], "tokens": [pieces[EOS]]}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    to_space = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    from_space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": pieces[i], **flags, "special": True} for i in (PAD, UNK, BOS, EOS)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, from_space]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": pieces[EOS], "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {pieces[EOS]: end},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                to_space,
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": _unigram(tokenizer, pieces) if kind == "unigram" else _bpe(tokenizer, pieces),
    }


def _unigram(tokenizer: Tokenizer, pieces: Sequence[str]) -> dict[str, Any]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    scores = [
        NEVER if i <= EOS or processor.is_byte(i) else float(processor.get_score(i)) for i in range(len(tokenizer))
    ]
    vocab = [list(pair) for pair in zip(pieces, scores, strict=True)]
    return {
        "type": "Unigram",
        "unk_id": UNK,
        "vocab": vocab,
        "byte_fallback": tokenizer.n_bytes(range(len(pieces))) > 0,
    }


def _bpe(tokenizer: Tokenizer, pieces: Sequence[str]) -> dict[str, Any]:
    """Return a BPE model whose merges are all pairs of pieces that form another piece, the highest score first.

    SentencePiece has no list of merges: it merges any two adjacent pieces that form a piece, the highest score first.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    normal = {
        piece: float(processor.get_score(i))
        for i, piece in enumerate(pieces)
        if i > EOS and not processor.is_byte(i) and not processor.is_unused(i)
    }
    by_score = sorted((piece for piece in normal if len(piece) > 1), key=lambda piece: -normal[piece])
    parts = [(piece[:i], piece[i:]) for piece in by_score for i in range(1, len(piece))]
    return {
        "type": "BPE",
        "unk_token": pieces[UNK],
        "fuse_unk": True,
        "byte_fallback": tokenizer.n_bytes(range(len(pieces))) > 0,
        "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": [list(pair) for pair in parts if pair[0] in normal and pair[1] in normal],
    }
