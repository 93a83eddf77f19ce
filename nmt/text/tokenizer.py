"""SentencePiece tokenizers: text to token ids and back.

Our own tokenizers keep all white space, and normalize text only if `nfkc` is set. The tokenizer of an imported model
has its own normalization and a separate vocabulary (`nmt.text.vocabulary`). `nmt.text.batches` adds the special ids.
"""

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import regex
import sentencepiece
from numpy.typing import NDArray

from nmt.errors import InputError, ModelError
from nmt.sandbox import check_loadable
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.characters import KnownCharacters, learned_in_bytes
from nmt.text.spans import Span
from nmt.text.vocabulary import TAG, split_tag, tag_of, vocabulary_of
from nmt.text.words import WORD_CHARACTER

SPACE = "\u2581"  # SentencePiece's sign for a space
# Maximum size of a SentencePiece model. A model with a million pieces has about a fifth of this size.
MAX_MODEL_BYTES = 100_000_000


@dataclass
class Tokenizer:
    """A tokenizer of source or target texts.

    If a model has several target languages, a source text begins with the tag of the target language. The tag becomes
    the first token. If `target_tag` is set, the tokenizer adds this tag to each text.

    Raises ModelError if the model is damaged, or if its special ids differ from ours.
    """

    model: bytes = field(repr=False)  # serialized SentencePiece model; ours have PAD 0, UNK 1, BOS 2, EOS 3
    _: KW_ONLY
    nfkc: bool = False  # whether texts are normalized to NFKC before encoding; only for the source side
    # The target language of all texts, such as fra; empty if each text has its own tag; None if the model has no tags.
    target_tag: str | None = None
    learned: str | None = field(default=None, compare=False)  # see `learned_in_bytes`; None for imported models

    def __post_init__(self) -> None:
        check_loadable("sentencepiece", "the tokenizer", self.model)
        processor = self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self._vocabulary = vocabulary_of(self.model)
        if self._vocabulary is None:
            check_special_ids(processor)
        self._pieces: list[str] = self._vocabulary or [processor.id_to_piece(i) for i in range(len(processor))]
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.characters = KnownCharacters(self._pieces, self.learned or "", self._normalized, self.segmented)
        self.targets = [] if self.target_tag is None else self._target_languages()  # such as fra, deu
        if self.target_tag and self.target_tag not in self.targets:
            reason = f"the tokenizer has no tag {tag_of(self.target_tag)}"
            raise ModelError(reason, hint="leave out data.target_tag, or give one of a multilingual model")

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of the best segmentation of a text, without special ids.

        If the text has a tag, the tag is the first token.
        """
        tag, text = self.split_tag(text)
        tokens = self.encode_untagged(text)
        return self.tag(tag) + tokens if tag or tokens else []

    def encode_untagged(self, text: str) -> list[int]:
        """Return the token ids of a text without a tag, or of a part of a text."""
        text = self._normalized(text)
        if self._vocabulary is None:  # SentencePiece's ids are the token ids
            return list(self._processor.encode(text))
        return [self._token(piece) for piece in self._processor.encode(text, out_type=str)]

    def segmented(self, text: str) -> list[str]:
        """Return the pieces of a text without a tag."""
        return self.pieces(self.encode_untagged(text))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, as `encode` does."""
        if self._vocabulary is not None or self.targets:
            return [self.encode(text) for text in texts]
        # Without num_threads, SentencePiece starts several threads.
        return list(self._processor.encode([self._normalized(text) for text in texts], num_threads=1))

    def encode_words(self, text: str, words: Sequence[Span]) -> tuple[list[int], list[list[int]]]:
        """Return the token ids of a text, and the indices of the words that each token overlaps.

        `words` are the spans of the words in the text.
        """
        tag, rest = self.split_tag(text)
        tokens = self.tag(tag)
        words_of_tokens: list[list[int]] = [[] for _ in tokens]
        encoded = self._processor.encode(self._normalized(rest), return_type="offset_mapping")
        if self._vocabulary is None:
            tokens += encoded["ids"]
        else:
            tokens += [self._token(piece) for piece in encoded["pieces"]]

        # SentencePiece's offsets are positions in the normalized text without its tag, so convert the words' spans.
        def converted(position: int) -> int:
            return len(self._normalized(text[:position])) - len(self._normalized(tag))

        spans = [(converted(start), converted(end)) for start, end in words]
        for begin, stop in piece_spans(encoded["offsets"]):
            words_of_tokens.append([i for i, (start, end) in enumerate(spans) if start < stop and begin < end])
        return tokens, words_of_tokens

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids. Special ids are skipped."""
        tokens = [i for i in ids if i > EOS]
        if self._vocabulary is None:
            text = str(self._processor.decode(tokens))
            # A model may write U+2581 in byte pieces. SentencePiece keeps it, so replace it by a space here.
            return text.removeprefix(SPACE).replace(SPACE, " ")
        text = str(self._processor.decode(self.pieces(tokens)))
        return text.replace(SPACE, " ").strip(" ")  # imported models may produce spaces at both ends

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """Return the text of token ids, and the span of each token in this text. The span of a special id is empty.

        The text may differ from the result of `decode` in its spaces.
        """
        decoded = self._processor.decode(self.pieces(ids), return_type="offset_mapping")
        of_pieces = zip(ids, piece_spans(decoded["offsets"]), strict=True)
        return decoded["text"].replace(SPACE, " "), [span if token > EOS else (0, 0) for token, span in of_pieces]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each token id."""
        return [self._pieces[i] for i in ids]

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the token id of each piece, which is UNK if the piece is not in the vocabulary."""
        return [self._ids.get(piece, UNK) for piece in pieces]

    def has_word(self, word: str) -> bool:
        """Return whether a word is one piece of the vocabulary, with or without a space before it."""
        return word in self._ids or SPACE + word in self._ids

    @functools.cached_property
    def inside_words(self) -> list[int]:
        """The token ids of the pieces that can continue a word. They begin with a letter or digit, not with a space."""
        return [i for i, piece in enumerate(self._pieces) if i > EOS and regex.match(WORD_CHARACTER, piece)]

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a text into its tag and the rest. The tag is an empty string if the text has none.

        In our own models with several target languages, a missing or unknown tag raises InputError.
        """
        if self.target_tag or (self._vocabulary is None and not self.targets):
            return "", text
        tag, rest = split_tag(text)
        if self._vocabulary is None and tag[2:-2] not in self.targets:
            message = f"the model translates into {', '.join(self.targets):.99}, and none of them was chosen"
            raise InputError(message, hint="translator.to('de') chooses one, -l de on the command line")
        return tag, rest

    def tag(self, tag: str) -> list[int]:
        """Return the token id of a tag in a list. The list is empty if there is no tag.

        If `target_tag` is set, it replaces `tag`.
        """
        if self.target_tag:
            tag = tag_of(self.target_tag)
        return [self._token(tag)] if tag else []

    def learned_in_bytes(self, ids: NDArray[Any]) -> str:
        """Return the characters that a model learns from the byte pieces among these token ids, sorted."""
        return learned_in_bytes(self._pieces, ids)

    def _target_languages(self) -> list[str]:
        """Return the target languages for which the vocabulary has tags."""
        tags = [piece for piece in self._pieces[EOS + 1 :] if TAG.fullmatch(piece)]
        # In our own models, an ordinary piece may look like a tag. Only control symbols are tags.
        return [tag[2:-2] for tag in tags if self._vocabulary or self._processor.is_control(self._ids[tag])]

    def _token(self, piece: str) -> int:
        """Return the token id of a piece of a text. A special piece gives UNK: "</s>" in a text does not mean EOS."""
        token = self._ids.get(piece, UNK)
        return token if token > EOS else UNK

    def _normalized(self, text: str) -> str:
        """Return a text in the form that SentencePiece reads: without lone surrogates, and in NFKC if `nfkc` is set."""
        text = text.encode(errors="replace").decode()  # a lone surrogate cannot be encoded in UTF-8
        return unicodedata.normalize("NFKC", text) if self.nfkc else text


def check_special_ids(processor: Any) -> None:
    """Raise ModelError if the special ids of a SentencePiece model differ from ours."""
    ours = (PAD, UNK, BOS, EOS)
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != ours:
        raise ModelError(
            f"the tokenizer has PAD, UNK, BOS, EOS at {ids}, not at {ours}", hint="train it with `nmt tokenize`"
        )


def piece_spans(offsets: Sequence[Span]) -> list[Span]:
    """Return the spans of pieces, given SentencePiece's offsets.

    SentencePiece gives an empty span to most byte pieces and to the space before the text. Such a piece gets the next
    span that is not empty.
    """
    spans: list[Span] = []
    for start, end in reversed(offsets):
        last = spans[-1] if spans else (0, 0)
        spans.append((start, end) if start < end else last)
    return spans[::-1]


class Tokenizers(NamedTuple):
    """The tokenizers of source and target."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both sides have the same SentencePiece model."""
        return self.source.model == self.target.model

    @property
    def one_vocabulary(self) -> bool:
        """Whether each token id stands for the same piece on both sides, as shared embeddings require."""
        return self.source._pieces == self.target._pieces

    @classmethod
    def from_models(
        cls, source: bytes, target: bytes, *, nfkc_source: bool, target_tag: str = "", learned: str | None = None
    ) -> "Tokenizers":
        """Return the tokenizers of two serialized models. The other arguments apply to the source tokenizer."""
        return cls(Tokenizer(source, nfkc=nfkc_source, target_tag=target_tag, learned=learned), Tokenizer(target))

    def with_learned(self, characters: str) -> "Tokenizers":
        """Return the tokenizers of a model that has learned these source characters from byte pieces."""
        return Tokenizers(replace(self.source, learned=characters), self.target)
