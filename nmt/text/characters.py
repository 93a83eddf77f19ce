"""Characters that a tokenizer's model can read, and what it reads in place of others."""

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_PIECE = re.compile("<unk>|<0x..>")
BYTE = re.compile("<0x[0-9A-F]{2}>")
SPECIAL = re.compile("<.+>|>>.+<<|⟦.+⟧")  # special pieces, whose characters need not be pieces
MIN_OCCURRENCES = 2  # in the training text, of a character that is learned in bytes; see `learned_in_bytes`
COUNTED_IDS = 10_000_000  # token ids that are searched for bytes at once: limits memory
# Decompositions that keep what a character says. Others do not: a trade mark sign is no "TM", a footnote 2 no 2.
SAME_MEANING = ("compat", "wide", "narrow", "font", "square", "vertical", "initial", "medial", "final", "isolated")


class KnownCharacters:
    """The characters that a model can read."""

    def __init__(
        self,
        pieces: Iterable[str],
        learned: str,
        normalize: Callable[[str], str],
        segment: Callable[[str], Sequence[str]],
    ) -> None:
        """Collect the characters of a model.

        Args:
            pieces: the vocabulary.
            learned: characters without a piece, see `learned_in_bytes`.
            normalize: what the tokenizer does with a text before it is segmented.
            segment: from a text to its pieces.
        """
        self.normalize = normalize
        self.segment = segment
        self.characters = {" ", *learned}
        for piece in pieces:
            if not SPECIAL.fullmatch(piece):
                self.characters.update(piece)
        self.forms: dict[str, str] = {}  # cache of `form`

    def unknown(self, text: str) -> set[str]:
        """Return the characters that the model cannot read, see `Tokenizer.unknown`."""
        return {character for character in set(text) - self.characters if not self.form(character)}

    def with_compatible(self, text: str) -> str:
        """Replace unknown characters by known ones that mean the same (NFKC), such as U+FB01 by "fi"."""
        forms = {ord(character): self.compatible(character) for character in self.unknown(text)}
        return text.translate(forms)

    def compatible(self, character: str) -> str:
        """Return the known characters that a character stands for, or the character itself."""
        kind = unicodedata.decomposition(character).partition(">")[0].removeprefix("<")
        if kind not in SAME_MEANING:
            return character
        normalized = unicodedata.normalize("NFKC", character)
        return character if self.unknown(normalized) else normalized

    def with_forms(self, text: str) -> str:
        """Replace unknown white space by spaces, and unknown letters by those in lower case or without accents."""
        unknown = set(text) - self.characters
        forms = {ord(character): self.form(character) or character for character in unknown}
        return text.translate(forms)

    def form(self, character: str) -> str:
        """Return what a character that is in no piece is read as, or "". The result is kept."""
        if character not in self.forms:
            self.forms[character] = self.find_form(character)
        return self.forms[character]

    def find_form(self, character: str) -> str:
        """Return the character itself, or a known letter or space in its place, or ""."""
        # 1. The character itself, if its NFKC form is known, or an imported model normalizes it to pieces.
        if self.characters.issuperset(self.normalize(character)):
            return character
        if not any(NO_PIECE.fullmatch(piece) for piece in self.segment(character)):
            return character

        # 2. Else a known letter in lower case or without accents, or a space.
        forms = []
        if character.isalpha():
            letter = without_accents(character)
            forms = [character.lower(), letter, letter.lower()]
        elif character.isspace():
            forms = [" "]
        return next((form for form in forms if form in self.characters), "")


def without_accents(character: str) -> str:
    """Return a letter without the marks that Unicode decomposes it into: e for é."""
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(part for part in decomposed if not unicodedata.combining(part))


def learned_in_bytes(pieces: Sequence[str], ids: NDArray[Any]) -> str:
    """Return the characters that training on these token ids teaches, although no piece has them, sorted.

    They are spelled in byte pieces at least `MIN_OCCURRENCES` times. One that occurs once is often a typo, and is
    copied from the source instead: in a fine-tuning of 26 epochs, words with a letter that its text had 1, 2, 3
    and 5 times were right in 69, 97, 94 and 100 % of new sentences. Empty without byte pieces.
    """
    byte_of = np.full(len(pieces), -1, np.int16)  # token id -> byte, -1 for other pieces
    for i, piece in enumerate(pieces):
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
