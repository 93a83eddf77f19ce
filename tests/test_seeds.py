"""Seeds are well mixed, and do not change."""

import itertools

from nmt.seeds import seed_of


def test_seeds_do_not_change() -> None:
    """Checkpoints resume with the same dropout and data order."""
    assert seed_of(0) == 1415838745
    assert seed_of(1, 2, 3) == 1830157713
    result = seed_of(2**64 - 1, 7)
    assert result == 227443085


def test_seeds_have_31_well_mixed_bits_and_differ_if_their_parts_differ() -> None:
    pairs = itertools.product(range(100), repeat=2)  # of a seed and an epoch
    seeds = [seed_of(1), seed_of(1, 0, 0), *itertools.starmap(seed_of, pairs)]
    result = len(set(seeds))
    assert result == len(seeds)
    assert max(seeds) < 2**31
    for bit in range(31):
        n_set = sum(seed >> bit & 1 for seed in seeds)
        assert 0.45 < n_set / len(seeds) < 0.55
