"""Search options: wrong values are refused with a message that names the option."""

import math
from typing import Any

import pytest

from nmt.decode.options import SearchOptions
from nmt.errors import ConfigError

WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"beam": 0}, "beam: input should be greater than or equal to 1, got 0"),
    ({"beam": 2.0}, "beam: input should be a valid integer, got 2.0"),
    ({"beam": True}, "beam: input should be a number, got True"),
    ({"beam": 4000}, "beam: input should be less than or equal to 1000, got 4000"),
    ({"beam": 2, "n_best": 3}, "n_best is 3, but there are 2 hypotheses"),
    ({"mbr": "bleu", "n_samples": 4, "n_best": 5}, "n_best is 5, but there are 4 hypotheses"),
    ({"n_best": 1.0}, "n_best: input should be a valid integer, got 1.0"),
    ({"length_penalty": "wu"}, "length_penalty: input should be 'average' or 'gnmt', got 'wu'"),
    ({"alpha": -1}, "alpha: input should be greater than or equal to 0, got -1"),
    ({"alpha": 400}, "alpha: input should be less than or equal to 10, got 400"),
    ({"alpha": math.nan}, "alpha: input should be a finite number, got nan"),
    ({"max_length_a": -1}, "max_length_a: input should be greater than or equal to 0"),
    ({"max_length_a": 1e308}, "max_length_a: input should be less than or equal to 100"),
    ({"max_length_b": 0}, "max_length_b: input should be greater than or equal to 1"),
    ({"max_length_b": 2.5}, "max_length_b: input should be a valid integer, got 2.5"),
    ({"min_length": -1}, "min_length: input should be greater than or equal to 0"),
    ({"temperature": 0.0}, "temperature: input should be greater than or equal to 0.001"),
    ({"temperature": 1e-40}, "temperature: input should be greater than or equal to 0.001"),
    ({"top_k": -1}, "top_k: input should be greater than or equal to 0"),
    ({"top_k": 2.0}, "top_k: input should be a valid integer, got 2.0"),
    ({"top_p": 1.5}, "top_p: input should be less than or equal to 1"),
    ({"seed": -1}, "seed: input should be greater than or equal to 0, got -1"),
    ({"seed": 2**64}, "seed: input should be less than 2147483648"),
    ({"seed": 1.5}, "seed: input should be a valid integer, got 1.5"),
    ({"mbr": "ter"}, "mbr: input should be 'chrf' or 'bleu', got 'ter'"),
    ({"n_samples": 2.0}, "n_samples: input should be a valid integer, got 2.0"),
    ({"n_samples": 1}, "n_samples: input should be greater than or equal to 2, got 1"),
    ({"bean": 3}, "no search option 'bean'"),
    ({"beam": 0, "seed": -1}, "; seed: input"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG_OPTIONS, ids=[str(wrong) for wrong, _ in WRONG_OPTIONS])
def test_wrong_option_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SearchOptions(**wrong)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    with pytest.raises(ConfigError):
        SearchOptions().changed(**wrong)


def test_hint_says_how_to_get_more_hypotheses() -> None:
    for options, hint in (({"n_best": 10}, "add --beam 10"), ({"n_best": 40, "mbr": "chrf"}, "add --samples 40")):
        with pytest.raises(ConfigError) as caught:
            SearchOptions(**options)
        assert caught.value.hint == hint


@pytest.mark.parametrize("penalty", ["average", "gnmt"])
def test_strongest_penalty_of_longest_translation_is_finite(penalty: Any) -> None:
    options = SearchOptions(alpha=10, length_penalty=penalty)  # the largest valid alpha
    length = options.max_length(100_000) * 10
    assert math.isfinite(options.length_divisor(length))
    assert -1 / options.length_divisor(length) < 0
