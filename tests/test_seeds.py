"""Seeds are well mixed, and the same as in older versions."""

from nmt.seeds import seed_of


def test_seeds_do_not_change() -> None:
    """Checkpoints of older versions resume with the same dropout and data order."""
    assert [seed_of(0), seed_of(1), seed_of(1, 2, 3), seed_of(2**64 - 1, 7)] == [
        1415838745,
        1155963028,
        1830157713,
        227443085,
    ]


def test_seeds_of_adjacent_numbers_are_well_mixed() -> None:
    seeds = [seed_of(seed, epoch) for seed in range(100) for epoch in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < 2**31
    for bit in range(31):
        share = sum(seed >> bit & 1 for seed in seeds) / len(seeds)
        assert 0.45 < share < 0.55
    assert seed_of(1, 2) != seed_of(2, 1)
    assert seed_of(1) != seed_of(1, 0)
