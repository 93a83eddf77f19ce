"""Tables of positions: the formulas of the paper and of Marian."""

import math

import pytest
from torch import Tensor
from torch.testing import assert_close

from nmt.model.positions import marian_positions, sinusoidal_positions


@pytest.mark.parametrize(("table", "last"), [(sinusoidal_positions(9, 6), 3), (marian_positions(9, 6), 2)])
def test_sines_and_cosines_alternate(table: Tensor, last: int) -> None:
    """`last` is the exponent's divisor: D/2 in the paper, D/2 - 1 in Marian."""
    expected = []
    for i in range(3):
        angle = 5 / 10_000 ** (i / last)
        expected += [math.sin(angle), math.cos(angle)]
    assert_close(table[5], Tensor(expected))
