"""SentencePiece tokenizers: text to token ids and back, and training.

With identity normalization and all white space kept, decode(encode(text)) == text, except for U+2581, SentencePiece's
own sign for a space. The tokenizer of an imported model has that model's normalization and a separate vocabulary
(`nmt.text.vocabulary`). Special ids are added where batches are collated, not here. Imports no torch.
"""

import codecs
import functools
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from nmt.config import TokenizerSettings
from nmt.errors import ConfigError, DataError, InputError, ModelError
from nmt.sandbox import check_loadable, mark_loadable
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.lines import UNSPACED_SCRIPTS, Span
from nmt.text.vocabulary import TAG, split_tag, tag_of, vocabulary_of

NO_PIECE = re.compile("<unk>|<0x..>")
BYTE = re.compile("<0x[0-9A-F]{2}>")
SYMBOL = re.compile("<.+>|>>.+<<|⟦.+⟧")  # special pieces, whose characters need not be pieces
SPACE = "\u2581"  # SentencePiece's sign for a space
MAX_TRAINER_BYTES = 16_384  # per line; SentencePiece's default is 4,192
SPECIAL_IDS = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
UNCHANGED_TEXT = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MAX_MODEL_BYTES = 100_000_000  # five times the size of a model with a million pieces, our maximum
MIN_OCCURRENCES = 2  # in the training text, of a character that is learned in bytes; see `learned_in_bytes`
COUNTED_IDS = 10_000_000  # token ids that are searched for bytes at once: limits memory
# Decompositions that keep what a character says. Others do not: a trade mark sign is no "TM", a footnote 2 no 2.
SAME_MEANING = ("compat", "wide", "narrow", "font", "square", "vertical", "initial", "medial", "final", "isolated")


@dataclass
class Tokenizer:
    """Tokenizer of one side. Raises ModelError if the model is damaged or of another kind.

    If the model has a separate vocabulary (`nmt.text.vocabulary`), pieces that are not in it become UNK.

    In a model of several languages, a source text begins with the tag of its target language, which becomes one piece
    before those of the rest. With `target_tag`, all texts get this piece, and what looks like a tag in a text is text.
    Tags of our own models are control symbols, which no text contains. Imported models take texts without a tag, too.
    """

    model: bytes = field(repr=False)  # serialized SentencePiece model with PAD 0, UNK 1, BOS 2, EOS 3
    _: KW_ONLY
    nfkc: bool = False  # apply NFKC before encoding; for the source side only
    target_tag: str | None = None  # tag of all texts: fra for >>fra<<; empty: each brings its own; None: no tags
    learned: str | None = field(default=None, compare=False)  # see `learned_in_bytes`; None: an imported model

    def __post_init__(self) -> None:
        check_loadable("sentencepiece", "the tokenizer", self.model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self._vocabulary = vocabulary_of(self.model)
        n_pieces = int(self._processor.get_piece_size())
        self._pieces: list[str] = self._vocabulary or list(map(self._processor.id_to_piece, range(n_pieces)))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._known = {" ", *"".join(piece for piece in self._pieces if not SYMBOL.fullmatch(piece))}  # characters
        self._known |= {*(self.learned or "")}
        self._forms: dict[str, str] = {}  # cache of `_form`
        ids = tuple(getattr(self._processor, name)() for name in SPECIAL_IDS)
        if self._vocabulary is None and ids != (PAD, UNK, BOS, EOS):
            reason = f"the tokenizer has PAD, UNK, BOS, EOS at {ids}, not at {(PAD, UNK, BOS, EOS)}"
            raise ModelError(reason, hint="train it with `nmt tokenize`")
        is_tag = self._processor.is_control if self._vocabulary is None else bool
        tags = [piece for i, piece in enumerate(self._pieces) if i > EOS and TAG.fullmatch(piece) and is_tag(i)]
        self.targets = [] if self.target_tag is None else [tag[2:-2] for tag in tags]  # target languages: fra
        if self.target_tag and self.target_tag not in self.targets:
            reason = f"the tokenizer has no tag {tag_of(self.target_tag)}"
            raise ModelError(reason, hint="leave out data.target_tag, or give one of a multilingual model")

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Token ids of the best segmentation, without special ids."""
        tag, text = self.split_tag(text)
        tokens = self.encode_untagged(text)
        return self.tag(tag) + tokens if tag or tokens else []

    def has_word(self, word: str) -> bool:
        """Whether a word is one piece of the vocabulary, with or without a space before it."""
        return word in self._ids or SPACE + word in self._ids

    def unknown(self, text: str) -> set[str]:
        """Characters that the model cannot read: they encode to UNK, or to bytes that training has not taught.

        Those that it can read in lower case, without accents, or as a space are left out.
        """
        return {character for character in {*text} - self._known if not self._form(character)}

    def with_compatible(self, text: str) -> str:
        """Replace unknown characters by known ones that mean the same (NFKC), such as U+FB01 by "fi"."""
        forms = {ord(character): self._compatible(character) for character in self.unknown(text)}
        return text.translate(forms)

    def _compatible(self, character: str) -> str:
        """Return the known characters that a character stands for, or the character itself."""
        kind = unicodedata.decomposition(character).partition(">")[0].removeprefix("<")
        if kind not in SAME_MEANING:
            return character
        normalized = unicodedata.normalize("NFKC", character)
        return character if self.unknown(normalized) else normalized

    def learned_in_bytes(self, ids: NDArray[Any]) -> str:
        """The characters that training on these token ids teaches, although no piece has them, sorted.

        They are spelled in byte pieces at least `MIN_OCCURRENCES` times. One that occurs once is often a typo, and is
        copied from the source instead: in a fine-tuning of 26 epochs, words with a letter that its text had 1, 2, 3
        and 5 times were right in 69, 97, 94 and 100 % of new sentences. Empty without byte pieces.
        """
        byte_of = np.full(len(self), -1, np.int16)  # token id -> byte, -1 for other pieces
        for i, piece in enumerate(self._pieces):
            if BYTE.fullmatch(piece):
                byte_of[i] = int(piece[1:-1], 16)
        counts: Counter[str] = Counter()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # keeps a character that the end of a part cuts
        for start in range(0, len(ids), COUNTED_IDS):
            part = byte_of[ids[start : start + COUNTED_IDS]]
            spelled = part[part >= 0].astype(np.uint8).tobytes()
            counts.update(decoder.decode(spelled))
        frequent = [character for character, n in counts.items() if n >= MIN_OCCURRENCES]
        return "".join(sorted(frequent))

    def with_known_characters(self, text: str) -> str:
        """Replace unknown white space by spaces, and unknown letters by those in lower case or without accents."""
        unknown = {*text} - self._known
        forms = {ord(character): self._form(character) or character for character in unknown}
        return text.translate(forms)

    def _form(self, character: str) -> str:
        """Return what a character that is in no piece is read as, or "". The result is kept."""
        if character not in self._forms:
            self._forms[character] = self._find_form(character)
        return self._forms[character]

    def _find_form(self, character: str) -> str:
        # The character itself, if its NFKC form has been learned, or an imported model normalizes it to pieces.
        if {*self._prepared(character)} <= self._known:
            return character
        pieces = self.pieces(self.encode_untagged(character))
        if not any(map(NO_PIECE.fullmatch, pieces)):
            return character
        # Else a known letter in lower case or without accents, or a space.
        forms = []
        if character.isalpha():
            letter = without_accents(character)
            forms = [character.lower(), letter, letter.lower()]
        elif character.isspace():
            forms = [" "]
        return next((form for form in forms if form in self._known), "")

    def encode_untagged(self, text: str) -> list[int]:
        """Token ids of a text, or a part of a text, without its tag."""
        text = self._prepared(text)
        if self._vocabulary is None:
            return list(self._processor.encode(text))
        return [self._token(piece) for piece in self._processor.encode(text, out_type=str)]

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a text into its tag, empty if it has none, and the rest. Raises InputError if it must have one."""
        if self.target_tag or (self._vocabulary is None and not self.targets):
            return "", text
        tag, rest = split_tag(text)
        if self._vocabulary is None and tag[2:-2] not in self.targets:
            message = f"the model translates into {', '.join(self.targets):.99}, and none of them was chosen"
            raise InputError(message, hint="translator.to('de') chooses one, -l de on the command line")
        return tag, rest

    def tag(self, tag: str) -> list[int]:
        """Return the token id of `tag`, or if it is empty, of `target_tag`, as a list; empty if there is neither."""
        tag = tag or (tag_of(self.target_tag) if self.target_tag else "")
        return [self._token(tag)] if tag else []

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        if self._vocabulary is not None or self.targets:
            return [self.encode(text) for text in texts]
        # Without num_threads, SentencePiece starts several threads.
        return list(self._processor.encode(list(map(self._prepared, texts)), num_threads=1))

    def encode_words(self, text: str, words: Sequence[Span]) -> tuple[list[int], list[list[int]]]:
        """Token ids, and for each token the indices of the words that it overlaps.

        `words` are the start and end of each word in the text, in characters.
        """
        tag, rest = self.split_tag(text)
        first = len(self._prepared(tag))  # first character of the text after the tag
        tokens = self.tag(tag)
        edges = [[len(self._prepared(text[:edge])) - first for edge in word] for word in words]
        encoded = self._processor.encode(self._prepared(rest), return_type="offset_mapping")
        spans = piece_spans(encoded["offsets"])
        found = [[i for i, (first, last) in enumerate(edges) if first < end and begin < last] for begin, end in spans]
        ids = encoded["ids"] if self._vocabulary is None else [*map(self._token, encoded["pieces"])]
        return tokens + ids, [[] for _ in tokens] + found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; special ids are skipped."""
        tokens = [i for i in ids if i > EOS]
        if self._vocabulary is not None:  # imported models may produce spaces at both ends
            return str(self._processor.decode(self.pieces(tokens))).replace(SPACE, " ").strip(" ") if tokens else ""
        text = str(self._processor.decode(tokens))
        # Replace U+2581, which byte pieces can spell, as SentencePiece replaces it elsewhere.
        return text.removeprefix(SPACE).replace(SPACE, " ") if SPACE in text else text

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """The text of token ids as `decode` returns it, but for spaces, and the span of each; empty for special ids."""
        decoded = self._processor.decode(self.pieces(ids), return_type="offset_mapping")
        spans = zip(ids, piece_spans(decoded["offsets"]), strict=True)
        return decoded["text"].replace(SPACE, " "), [span if token > EOS else (0, 0) for token, span in spans]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._pieces[i] for i in ids]

    def ids(self, pieces: Iterable[str]) -> list[int]:
        return [self._ids.get(piece, UNK) for piece in pieces]

    @functools.cached_property
    def inside_words(self) -> list[int]:
        """The tokens of pieces that go on with a word."""
        return [i for i, piece in enumerate(self._pieces) if i > EOS and re.match(rf"[^\W{UNSPACED_SCRIPTS}]", piece)]

    def _token(self, piece: str) -> int:
        """Return a piece's token id in the vocabulary; UNK for special pieces: in a text, "</s>" is not EOS."""
        token = self._ids.get(piece, UNK)
        return token if token > EOS else UNK

    def _prepared(self, text: str) -> str:
        text = text.encode(errors="replace").decode()  # a lone surrogate cannot be encoded in UTF-8
        return unicodedata.normalize("NFKC", text) if self.nfkc else text


def without_accents(character: str) -> str:
    """A letter without the marks that Unicode decomposes it into: e for é."""
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(part for part in decomposed if not unicodedata.combining(part))


def piece_spans(offsets: Sequence[Span]) -> list[Span]:
    """The spans of pieces, by SentencePiece's offsets: of the bytes of a character, only the last has its span."""
    found, span = [], (0, 0)
    for start, end in reversed(offsets):
        if start < end:  # else a byte piece of the span after it, or the space before the text
            span = start, end
        found.append(span)
    return found[::-1]


class Tokenizers(NamedTuple):
    """The tokenizers of source and target; the same model if joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source.model == self.target.model

    @property
    def one_vocabulary(self) -> bool:
        """Whether each token id is the same piece on both sides, which shared embeddings require."""
        return self.source._pieces == self.target._pieces

    @classmethod
    def from_models(
        cls, source: bytes, target: bytes, *, nfkc_source: bool, target_tag: str = "", learned: str | None = None
    ) -> "Tokenizers":
        return cls(Tokenizer(source, nfkc=nfkc_source, target_tag=target_tag, learned=learned), Tokenizer(target))

    def with_learned(self, characters: str) -> "Tokenizers":
        """The tokenizers of a model that has learned these characters of the source in bytes."""
        return Tokenizers(replace(self.source, learned=characters), self.target)


class Trained(NamedTuple):
    model: bytes  # serialized
    vocab_size: int  # less than requested if the text has fewer pieces
    too_long: list[int]  # indices of lines that were left out because they exceed `MAX_TRAINER_BYTES`


def train_tokenizer(lines: Iterable[str], settings: TokenizerSettings, tags: Sequence[str] = ()) -> Trained:
    """Train SentencePiece; a vocabulary larger than the text supports is reduced to the largest possible.

    `tags` become pieces that no text contains.
    """
    # The trainer rejects pieces with NUL; a lone surrogate cannot be encoded in UTF-8.
    texts = [line.replace("\0", " ").encode(errors="replace").decode() for line in lines]
    too_long = [n for n, text in enumerate(texts) if len(text.encode()) > MAX_TRAINER_BYTES]
    usable = [text for text in texts if text.strip() and len(text.encode()) <= MAX_TRAINER_BYTES]
    if not usable:
        raise DataError("no text to train a tokenizer on", hint="check that data.train is not blank")
    options = settings.model_dump(include={"byte_fallback", "character_coverage"}) | SPECIAL_IDS | UNCHANGED_TEXT
    options |= {
        "model_type": settings.type,
        "vocab_size": settings.vocab_size,
        "hard_vocab_limit": False,  # a text with fewer pieces gives a smaller vocabulary
        "user_defined_symbols": settings.symbols.split(),
        "control_symbols": list(tags),
        "max_sentence_length": MAX_TRAINER_BYTES,
        "num_threads": 1,
        "minloglevel": 2,
    }
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(usable), model_writer=model, **options)
    except RuntimeError as error:
        required = re.search(r"smaller than required_chars.*?\d+ vs (\d+)", str(error), re.DOTALL)
        if required or "(vocab_size) >= (0)" in str(error):  # the latter from the char and word trainers
            least = int(required[1]) if required else EOS + 1 + 256 * settings.byte_fallback
            setting = f"tokenizer.vocab_size={settings.vocab_size}"
            reason = f"{setting} is smaller than the text's alphabet needs: at least {least}"
            hint = f"set tokenizer.vocab_size={least} or more, or tokenizer.character_coverage below 1"
            raise ConfigError(reason, hint=hint) from error
        reason = str(error).strip().splitlines()[-1]
        raise DataError(f"SentencePiece cannot train on this text: {reason}", hint="give more text") from error
    mark_loadable("sentencepiece", model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return Trained(model.getvalue(), int(processor.get_piece_size()), too_long)


def pieces_per_word(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The mean number of pieces per white-space separated word."""
    return sum(map(len, tokenizer.encode_all(lines))) / max(sum(len(line.split()) for line in lines), 1)
