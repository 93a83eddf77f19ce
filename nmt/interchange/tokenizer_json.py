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


def tokenizer_json(tokenizer: Tokenizer, kind: str) -> str:
    """Return the content of tokenizer.json, written by Hugging Face's tokenizers; `kind` is one of `KINDS`."""
    from tokenizers import AddedToken, decoders, models, normalizers, processors
    from tokenizers import Tokenizer as Fast

    pieces = tokenizer.pieces(range(len(tokenizer)))
    is_bytes = tokenizer.n_bytes(range(len(pieces))) > 0
    if kind == "unigram":
        model: Any = models.Unigram(_scored(tokenizer, pieces), unk_id=UNK, byte_fallback=is_bytes)
    else:
        ids = {piece: i for i, piece in enumerate(pieces)}
        model = models.BPE(
            ids, _merges(tokenizer, pieces), unk_token=pieces[UNK], fuse_unk=True, byte_fallback=is_bytes
        )
    found = Fast(model)
    found.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    found.post_processor = processors.TemplateProcessing(["$A", pieces[EOS]], special_tokens=[(pieces[EOS], EOS)])
    to_text = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    found.decoder = decoders.Sequence(to_text)
    found.add_special_tokens([AddedToken(pieces[i], normalized=False, special=True) for i in (PAD, UNK, BOS, EOS)])
    return str(found.to_str())


def _scored(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[tuple[str, float]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    scores = [NEVER if i <= EOS or processor.is_byte(i) else processor.get_score(i) for i in range(len(pieces))]
    return list(zip(pieces, scores, strict=True))


def _merges(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[tuple[str, str]]:
    """Return all pairs of pieces that form another piece, the highest score first.

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
    return [pair for pair in parts if pair[0] in normal and pair[1] in normal]
