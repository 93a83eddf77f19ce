"""Seeds are well mixed, and the same as in older versions."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.seeds import seed_of


def test_seeds_do_not_change() -> None:
    """Checkpoints of older versions resume with the same dropout and data order."""
    assert [seed_of(0), seed_of(1), seed_of(1, 2, 3), seed_of(2**64 - 1, 7)] == [
        1415838745,
        1155963028,
        1830157713,
        227443085,
    ]


@hypothesis_settings(max_examples=200)
@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
)
def test_seeds_have_31_bits_and_differ_if_their_parts_differ(left: list[int], right: list[int]) -> None:
    assert 0 <= seed_of(*left) < 2**31
    assert seed_of(*left) == seed_of(*left)
    if left != right:  # equal by chance with probability 2^-31
        assert seed_of(*left) != seed_of(*right)


def test_seeds_of_adjacent_numbers_are_well_mixed() -> None:
    seeds = [seed_of(seed, epoch) for seed in range(100) for epoch in range(100)]
    assert len(set(seeds)) == len(seeds)
    for bit in range(31):
        share = sum(seed >> bit & 1 for seed in seeds) / len(seeds)
        assert 0.45 < share < 0.55
    assert seed_of(1, 2) != seed_of(2, 1)
    assert seed_of(1) != seed_of(1, 0)
