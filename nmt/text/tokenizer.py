"""SentencePiece tokenizers: text to token ids and back.

Our own tokenizers keep all white space, and normalize text only if `nfkc` is set. So decode(encode(text)) == text,
except for U+2581, which SentencePiece uses for a space. The tokenizer of an imported model normalizes text as that
model does, and has a separate vocabulary (`nmt.text.vocabulary`). `nmt.text.batches` adds the special ids.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

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
# Maximum size of a SentencePiece model. A model with a million pieces, the maximum, has about a fifth of this size.
MAX_MODEL_BYTES = 100_000_000


@dataclass
class Tokenizer:
    """A tokenizer of source or target texts.

    Raises ModelError if the model is damaged, or if its special ids differ from PAD, UNK, BOS and EOS in `nmt.text`.

    If the model has a separate vocabulary (`nmt.text.vocabulary`), pieces that are not in the vocabulary become UNK.

    In a model with several target languages, a source text begins with the tag of its target language. The tag becomes
    the first piece. If `target_tag` is set, the tokenizer adds the piece of this tag to each text, and a tag in a text
    is read as ordinary text. The tags of our own models are control symbols, which SentencePiece never finds in a text.
    Imported models also accept texts without a tag.
    """

    model: bytes = field(repr=False)  # serialized SentencePiece model; ours have PAD 0, UNK 1, BOS 2, EOS 3
    _: KW_ONLY
    nfkc: bool = False  # whether texts are normalized to NFKC before encoding; only for the source side
    # The target language of all texts, such as fra; empty if each text has its own tag; None if the model has no tags.
    target_tag: str | None = None
    learned: str | None = field(default=None, compare=False)  # see `learned_in_bytes`; None for imported models

    def __post_init__(self) -> None:
        check_loadable("sentencepiece", "the tokenizer", self.model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self._processor = processor
        self._vocabulary = vocabulary_of(self.model)
        if self._vocabulary is None:
            check_special_ids(processor)
            self._pieces: list[str] = [processor.id_to_piece(i) for i in range(len(processor))]
        else:
            self._pieces = self._vocabulary
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._characters = KnownCharacters(self._pieces, self.learned or "", self._normalized, self._segmented)
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
        if self._vocabulary is None:  # SentencePiece's ids are the token ids
            return list(self._processor.encode(self._normalized(text)))
        pieces = self._processor.encode(self._normalized(text), out_type=str)
        return [self._token(piece) for piece in pieces]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, as `encode` does."""
        if self._vocabulary is not None or self.targets:
            return [self.encode(text) for text in texts]
        # Without num_threads, SentencePiece starts several threads.
        return list(self._processor.encode([self._normalized(text) for text in texts], num_threads=1))

    def encode_words(self, text: str, words: Sequence[Span]) -> tuple[list[int], list[list[int]]]:
        """Return the token ids of a text, and for each token the indices of the words that the token overlaps.

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

        # SentencePiece's offsets count characters of the normalized text without its tag, so convert the words' spans.
        n_tag = self._normalized_length(tag)
        normalized_words = []
        for span in words:
            normalized_words.append([self._normalized_length(text[:at]) - n_tag for at in span])
        for begin, stop in piece_spans(encoded["offsets"]):
            overlapped = [i for i, (start, end) in enumerate(normalized_words) if start < stop and begin < end]
            words_of_tokens.append(overlapped)
        return tokens, words_of_tokens

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids. Special ids are skipped."""
        tokens = [i for i in ids if i > EOS]
        if self._vocabulary is None:
            text = str(self._processor.decode(tokens))
            # Byte pieces can spell U+2581. SentencePiece does not replace this character by a space, so do it here.
            return text.removeprefix(SPACE).replace(SPACE, " ")
        text = str(self._processor.decode(self.pieces(tokens)))
        return text.replace(SPACE, " ").strip(" ")  # imported models may produce spaces at both ends

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """Return the text of token ids, and the span of each token in this text. The span of a special id is empty.

        The text may differ from the result of `decode` in its spaces.
        """
        decoded = self._processor.decode(self.pieces(ids), return_type="offset_mapping")
        spans = []
        for token, span in zip(ids, piece_spans(decoded["offsets"]), strict=True):
            spans.append(span if token > EOS else (0, 0))
        return decoded["text"].replace(SPACE, " "), spans

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
        """The token ids of the pieces that can continue a word: they begin with a letter or digit, not with a space."""
        begins_in_word = re.compile(WORD_CHARACTER).match
        return [i for i, piece in enumerate(self._pieces) if i > EOS and begins_in_word(piece)]

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a text into its tag and the rest. The tag is an empty string if the text has none.

        Raises InputError if the model is our own and has several target languages, but the text does not begin with the
        tag of one of these languages.
        """
        if self.target_tag or (self._vocabulary is None and not self.targets):
            return "", text
        tag, rest = split_tag(text)
        if self._vocabulary is None and tag[2:-2] not in self.targets:
            message = f"the model translates into {', '.join(self.targets):.99}, and none of them was chosen"
            raise InputError(message, hint="translator.to('de') chooses one, -l de on the command line")
        return tag, rest

    def tag(self, tag: str) -> list[int]:
        """Return a list with the token id of `tag`.

        If `tag` is empty, return a list with the token id of `target_tag`. If both are empty, the list is empty.
        """
        if not tag and self.target_tag:
            tag = tag_of(self.target_tag)
        return [self._token(tag)] if tag else []

    def unknown(self, text: str) -> set[str]:
        """Return the characters of a text that the model cannot read.

        These characters are encoded to UNK, or to byte pieces that the model has not learned to read as characters. A
        character does not count as unknown if the model can read it in lower case, without accents, or as a space.
        """
        return self._characters.unknown(text)

    def with_compatible(self, text: str) -> str:
        """Replace unknown characters by known characters with the same meaning (NFKC), such as U+FB01 by "fi"."""
        return self._characters.with_compatible(text)

    def with_known_characters(self, text: str) -> str:
        """Replace unknown white space by spaces, and unknown letters by known forms: lower case, or without accents."""
        return self._characters.with_forms(text)

    def learned_in_bytes(self, ids: NDArray[Any]) -> str:
        """Return the characters that a model learns from byte pieces in a text with these token ids, sorted."""
        return learned_in_bytes(self._pieces, ids)

    def _target_languages(self) -> list[str]:
        """Return the target languages for which the vocabulary has tags."""
        languages = []
        for i, piece in enumerate(self._pieces):
            # In our own models, an ordinary piece may look like a tag. Only control symbols are tags.
            is_special = self._vocabulary is not None or self._processor.is_control(i)
            if i > EOS and is_special and TAG.fullmatch(piece):
                languages.append(piece[2:-2])
        return languages

    def _token(self, piece: str) -> int:
        """Return the token id of a piece of a text. A special piece gives UNK: "</s>" in a text does not mean EOS."""
        token = self._ids.get(piece, UNK)
        return token if token > EOS else UNK

    def _segmented(self, text: str) -> list[str]:
        """Return the pieces of a text without a tag."""
        return self.pieces(self.encode_untagged(text))

    def _normalized(self, text: str) -> str:
        """Return a text in the form that SentencePiece reads: without lone surrogates, and in NFKC if `nfkc` is set."""
        text = text.encode(errors="replace").decode()  # a lone surrogate cannot be encoded in UTF-8
        return unicodedata.normalize("NFKC", text) if self.nfkc else text

    def _normalized_length(self, text: str) -> int:
        """Return the length of the normalized text. Only NFKC changes the length."""
        return len(self._normalized(text)) if self.nfkc else len(text)


def check_special_ids(processor: Any) -> None:
    """Raise ModelError if the special ids of a SentencePiece model differ from ours."""
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD, UNK, BOS, EOS):
        reason = f"the tokenizer has PAD, UNK, BOS, EOS at {ids}, not at {(PAD, UNK, BOS, EOS)}"
        raise ModelError(reason, hint="train it with `nmt tokenize`")


def piece_spans(offsets: Sequence[Span]) -> list[Span]:
    """Return the spans of pieces, given SentencePiece's offsets.

    SentencePiece gives an empty span to most byte pieces and to the space before the text. Such a piece gets the span
    of the next piece whose span is not empty.
    """
    spans = []
    span = (0, 0)
    for start, end in reversed(offsets):
        if start < end:
            span = (start, end)
        spans.append(span)
    spans.reverse()
    return spans


class Tokenizers(NamedTuple):
    """The tokenizers of source and target. If the tokenizers are joint, they have the same SentencePiece model."""

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
        """Return the same tokenizers for a model that has learned these source characters from byte pieces."""
        return Tokenizers(replace(self.source, learned=characters), self.target)
