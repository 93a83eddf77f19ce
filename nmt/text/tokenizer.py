"""Text to pieces and ids and back, by SentencePiece; training it, and what it says of a corpus.

Identity normalisation and white space kept: decode(encode(text)) = text but for U+2581, SentencePiece's own sign
for a space. Special ids are not added here: batches do that. Imports no torch.
"""

import functools
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import sentencepiece

from nmt.config import TokenizerSettings
from nmt.errors import ConfigError, DataError, ModelError
from nmt.sandbox import check_loadable, mark_loadable
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.sampling import SPACE, Sampler

MAX_TRAINER_BYTES = 16_384  # SentencePiece's trainer takes no longer line; its own default is 4,192
N_BYTE_PIECES = 256
MAX_MODEL_BYTES = 100_000_000  # a million pieces, the most that we train, take a fifth of it


class Tokenizer:
    """One side's text to ids and back. A model that this machine has never seen is tried out in a child process.

    Args:
        model: a serialised SentencePiece model with PAD 0, UNK 1, BOS 2, EOS 3.
        nfkc: normalise text with NFKC before it is encoded (for a source side; never for a target).
    Raises:
        ModelError: the bytes are no such model.
    """

    def __init__(self, model: bytes, *, nfkc: bool = False) -> None:
        self.model = model
        self.nfkc = nfkc
        if len(model) > MAX_MODEL_BYTES:
            raise ModelError(f"the tokenizer has {len(model):,} bytes, more than any", hint="train it again")
        check_loadable("sentencepiece", "the tokenizer", model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = tuple(getattr(self._processor, f"{name}_id")() for name in ("pad", "unk", "bos", "eos"))
        if ids != (PAD, UNK, BOS, EOS):
            raise ModelError(
                f"the tokenizer has PAD, UNK, BOS, EOS at {ids}, not at {(PAD, UNK, BOS, EOS)}",
                hint="train it with `nmt tokenize`",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and (self.model, self.nfkc) == (other.model, other.nfkc)

    def __hash__(self) -> int:
        return hash(self.model)

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        """Ids of the best segmentation, special ids not among them."""
        ids: list[int] = self._processor.encode(self._prepared(text))
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the best segmentation of each text."""
        return [self.encode(text) for text in texts]  # SentencePiece would start a thread for a list

    def sample_all(self, texts: Sequence[str], *, alpha: float, seed: int) -> list[list[int]]:
        """Ids of a segmentation of each text drawn at random (Kudo 2018; BPE-dropout for a BPE model).

        The same texts with the same seed give the same ids, in every process.
        """
        random = Random(seed)
        return [self._sampler.draw(text, alpha, random) for text in self._normalized(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text that ids spell; special ids spell nothing."""
        text = str(self._processor.decode([i for i in ids if i > EOS]))
        return text.removeprefix(SPACE).replace(SPACE, " ") if SPACE in text else text  # a space spelt in bytes

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces that ids stand for."""
        return [str(self._processor.id_to_piece(i)) for i in ids]

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """The ids of pieces of this vocabulary."""
        return [int(self._processor.piece_to_id(piece)) for piece in pieces]

    def n_bytes(self, ids: Iterable[int]) -> int:
        """How many of the ids are byte pieces."""
        return sum(map(self._processor.is_byte, ids))

    @functools.cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self._processor)

    def _normalized(self, texts: Sequence[str]) -> list[str]:
        """With U+2581 for spaces and before the first word."""
        return [str(self._processor.normalize(self._prepared(text))) for text in texts]

    def _prepared(self, text: str) -> str:
        text = text.encode(errors="replace").decode()  # a lone surrogate has no UTF-8
        return unicodedata.normalize("NFKC", text) if self.nfkc else text


@dataclass(frozen=True)
class Tokenizers:
    """The source's and the target's tokenizer: the same model, or one a side."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source.model == self.target.model

    @classmethod
    def from_models(cls, source: bytes, target: bytes, *, nfkc_source: bool) -> "Tokenizers":
        return cls(Tokenizer(source, nfkc=nfkc_source), Tokenizer(target))


@dataclass(frozen=True)
class Trained:
    """A new tokenizer.

    Attributes:
        model: serialised.
        vocab_size: what it came to; less than was asked for where the text gives no more.
        too_long: which of the lines (from 0) were left out, being over `MAX_TRAINER_BYTES`.
    """

    model: bytes
    vocab_size: int
    too_long: list[int]


def train_tokenizer(lines: Iterable[str], settings: TokenizerSettings) -> Trained:
    """Train SentencePiece on lines of text.

    A vocabulary that the text cannot fill is cut to the largest possible.

    Raises:
        ConfigError: the vocabulary is smaller than the alphabet; the message names the least possible.
        DataError: there is no text to train on.
    """
    # the trainer refuses pieces with NUL, and a lone surrogate has no UTF-8
    texts = [line.replace("\0", " ").encode(errors="replace").decode() for line in lines]
    too_long = [n for n, text in enumerate(texts) if len(text.encode()) > MAX_TRAINER_BYTES]
    usable = [text for text in texts if text.strip() and len(text.encode()) <= MAX_TRAINER_BYTES]
    if not usable:
        raise DataError("no text to train a tokenizer on", hint="check that data.train is not blank")
    size = settings.vocab_size
    while True:
        try:
            model = _run_trainer(usable, settings, size)
            break
        except RuntimeError as error:
            largest, least = _largest(str(error)), _least(str(error), settings)
            if least is not None and settings.vocab_size == size:
                raise ConfigError(
                    f"tokenizer.vocab_size={size} is smaller than the text's alphabet needs: at least {least}",
                    hint=f"set tokenizer.vocab_size={least} or more, or tokenizer.character_coverage below 1",
                ) from error
            if largest is None or largest >= size:
                raise DataError(
                    f"SentencePiece cannot train on this text: {_reason(error)}", hint="give more text"
                ) from error
            size = largest
    mark_loadable("sentencepiece", model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return Trained(model, int(processor.get_piece_size()), too_long)


def _run_trainer(texts: list[str], settings: TokenizerSettings, size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=settings.type,
        vocab_size=size,
        byte_fallback=settings.byte_fallback,
        character_coverage=settings.character_coverage,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        max_sentence_length=MAX_TRAINER_BYTES,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def _largest(message: str) -> int | None:
    """The bound in SentencePiece's "Vocabulary size too high", whichever way its trainers word it."""
    found = re.search(r"value <= (\d+)", message)
    return int(found[1]) if found else None


def _least(message: str, settings: TokenizerSettings) -> int | None:
    """The bound in SentencePiece's "Vocabulary size is smaller than required_chars", or of its special pieces."""
    found = re.search(r"smaller than required_chars.*?\d+ vs (\d+)", message, re.DOTALL)
    if found:
        return int(found[1])
    too_few = "(vocab_size) >= (0)" in message  # what the char and word trainers say
    return EOS + 1 + N_BYTE_PIECES * settings.byte_fallback if too_few else None


def _reason(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[-1]


@dataclass(frozen=True)
class Statistics:
    """How a tokenizer treats a text: pieces a word (white-space separated), share of byte pieces (0-1)."""

    pieces_per_word: float
    byte_share: float


def statistics(tokenizer: Tokenizer, lines: Sequence[str]) -> Statistics:
    """Measure a tokenizer on lines of text."""
    ids = tokenizer.encode_all(lines)
    n_pieces = sum(map(len, ids))
    n_words = sum(len(line.split()) for line in lines)
    return Statistics(n_pieces / max(n_words, 1), sum(map(tokenizer.n_bytes, ids)) / max(n_pieces, 1))
