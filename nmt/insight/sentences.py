"""The words in the lines of a test set, and groups of lines. Imports no torch."""

import re
from collections.abc import Sequence

LENGTHS = (5, 10, 20, 40)  # upper bounds of the groups by source length, in units of `words`


def words(text: str) -> Sequence[str]:
    """The words of a text, or its characters if it has no spaces."""
    return text.split() if " " in text.strip() else text.strip()


def n_words(text: str) -> int:
    return len(words(text))


def bare_words(text: str, *, spaced: bool) -> list[str]:
    """The words of a text in lower case without surrounding punctuation; its characters if it is not `spaced`."""
    units = text.casefold().split() if spaced else text.casefold()
    return [bare for unit in units if (bare := re.sub(r"^\W+|\W+$", "", unit))]


def group_names(bounds: Sequence[int], least: int) -> list[str]:
    """The names of groups with these inclusive upper bounds, from `least` on: "1 to 5", "6 to 10", ..., "41 or more".

    `bisect_left(bounds, value)` is the index of a value's group.
    """
    lows = [least, *(bound + 1 for bound in bounds)]
    ranges = zip(lows, bounds, strict=False)
    return [str(low) if low == high else f"{low} to {high}" for low, high in ranges] + [f"{lows[-1]} or more"]
