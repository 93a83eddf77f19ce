"""Search options: wrong values are refused with a message that names the option."""

import math
from typing import Any

import pytest

from nmt.decode.options import SearchOptions
from nmt.errors import ConfigError

WRONG_OPTIONS = [
    ({"beam": 0}, "beam: input should be greater than or equal to 1, got 0"),
    ({"beam": True}, "beam: input should be a valid integer, got True"),
    ({"beam": 2, "n_best": 3}, "n_best is 3, but there are 2 hypotheses"),
    ({"alpha": math.nan}, "alpha: input should be a finite number, got nan"),
    ({"temperature": 1e-40}, "temperature: input should be greater than or equal to 0.001"),
    ({"bean": 3}, "bean: extra inputs are not permitted, got 3"),
    ({"beam": 0, "seed": -1}, "; seed: input"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG_OPTIONS, ids=str)
def test_wrong_option_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SearchOptions(**wrong)
    assert words in str(caught.value)
    assert caught.value.hint
    with pytest.raises(ConfigError):
        SearchOptions().changed(**wrong)


def test_strongest_penalty_of_longest_translation_is_finite() -> None:
    options = SearchOptions(alpha=10)  # the largest valid alpha
    length = options.limit(100_000) * 10
    divisor = options.length_divisor(length)
    assert math.isfinite(divisor)
    assert -1 / divisor < 0
