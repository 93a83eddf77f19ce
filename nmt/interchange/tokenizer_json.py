"""Convert a SentencePiece model to tokenizer.json, the format of Hugging Face's tokenizers and transformers.js.

Differences from SentencePiece: text such as `</s>` is parsed as the special piece. For unigram models, transformers.js
does not support byte fallback: characters outside of the vocabulary become <unk>. Imports no torch.
"""

from collections.abc import Mapping
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
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    is_byte = [processor.is_byte(i) for i in range(len(pieces))]
    scores = {piece: processor.get_score(i) for i, piece in enumerate(pieces) if i > EOS and not is_byte[i]}
    if kind == "unigram":
        scored = [(piece, scores.get(piece, NEVER)) for piece in pieces]
        model: Any = models.Unigram(scored, unk_id=UNK, byte_fallback=any(is_byte))
    else:
        ids = {piece: i for i, piece in enumerate(pieces)}
        model = models.BPE(ids, merges(scores), unk_token=pieces[UNK], fuse_unk=True, byte_fallback=any(is_byte))
    found = Fast(model)
    found.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    found.post_processor = processors.TemplateProcessing(["$A", pieces[EOS]], special_tokens=[(pieces[EOS], EOS)])
    to_text = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    found.decoder = decoders.Sequence(to_text)
    found.add_special_tokens([AddedToken(pieces[i], normalized=False, special=True) for i in (PAD, UNK, BOS, EOS)])
    return str(found.to_str())


def merges(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return all pairs of pieces that form another piece, the highest score first.

    SentencePiece has no list of merges: it merges any two adjacent pieces that form a piece, the highest score first.
    """
    by_score = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    parts = [(piece[:i], piece[i:]) for piece in by_score for i in range(1, len(piece))]
    return [pair for pair in parts if pair[0] in scores and pair[1] in scores]
