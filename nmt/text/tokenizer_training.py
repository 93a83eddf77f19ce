"""Training of SentencePiece tokenizers."""

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece

from nmt.config import TokenizerSettings
from nmt.errors import ConfigError, DataError, NmtError
from nmt.sandbox import mark_loadable
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.tokenizer import Tokenizer

OPTIONS: dict[str, Any] = {
    "pad_id": PAD,
    "unk_id": UNK,
    "bos_id": BOS,
    "eos_id": EOS,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "hard_vocab_limit": False,  # if the text has too few pieces, train a smaller vocabulary
    "max_sentence_length": 16_384,  # in bytes; longer lines are left out; the default is 4,192
    "num_threads": 1,
    "minloglevel": 2,
}


def train_tokenizer(lines: Iterable[str], settings: TokenizerSettings, tags: Sequence[str] = ()) -> bytes:
    """Train a SentencePiece tokenizer, and return the serialized model.

    If the text has too few pieces, the vocabulary is smaller than requested.

    `tags` become control symbols, which SentencePiece never produces from a text.
    """
    # 1. Replace what the trainer rejects: NUL and lone surrogates.
    texts = (line.replace("\0", " ").encode(errors="replace").decode() for line in lines)
    usable = [text for text in texts if text.strip()]
    if not usable:
        raise DataError("no text to train a tokenizer on", hint="check that data.train is not blank")

    # 2. Train.
    file = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(usable),
            model_writer=file,
            model_type=settings.type,
            vocab_size=settings.vocab_size,
            byte_fallback=settings.byte_fallback,
            character_coverage=settings.character_coverage,
            user_defined_symbols=settings.symbols.split(),
            control_symbols=list(tags),
            **OPTIONS,
        )
    except RuntimeError as error:
        raise as_our_error(error, settings) from error

    # 3. `check_loadable` need not test a model that has been trained here.
    model = file.getvalue()
    mark_loadable("sentencepiece", model)
    return model


def as_our_error(error: RuntimeError, settings: TokenizerSettings) -> NmtError:
    """Convert an error of SentencePiece's trainer to an `NmtError`."""
    required = re.search(r"smaller than required_chars.*?\d+ vs (\d+)", str(error), re.DOTALL)
    if not required:
        reason = str(error).strip().splitlines()[-1]
        hint = "give more text, or set a larger tokenizer.vocab_size"
        return DataError(f"SentencePiece cannot train on this text: {reason}", hint=hint)
    setting = f"tokenizer.vocab_size={settings.vocab_size}"
    reason = f"{setting} is smaller than the text's alphabet needs: at least {required[1]}"
    hint = f"set tokenizer.vocab_size={required[1]} or more, or tokenizer.character_coverage below 1"
    return ConfigError(reason, hint=hint)


def pieces_per_word(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """Return the mean number of pieces per word, where words are separated by white space."""
    n_pieces = sum(map(len, tokenizer.encode_all(lines)))
    n_words = sum(len(line.split()) for line in lines)
    return n_pieces / max(n_words, 1)
