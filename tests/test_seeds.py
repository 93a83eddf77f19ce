"""Seeds are well mixed, and do not change."""

from nmt.seeds import seed_of


def test_seeds_do_not_change() -> None:
    """Checkpoints resume with the same dropout and data order."""
    seeds = [seed_of(0), seed_of(1), seed_of(1, 2, 3), seed_of(2**64 - 1, 7)]
    assert seeds == [1415838745, 1155963028, 1830157713, 227443085]


def test_seeds_have_31_well_mixed_bits_and_differ_if_their_parts_differ() -> None:
    seeds = [seed_of(seed, epoch) for seed in range(100) for epoch in range(100)]
    seeds += [seed_of(1), seed_of(1, 0, 0), seed_of(2**64 - 1)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    for bit in range(31):
        share = sum(seed >> bit & 1 for seed in seeds) / len(seeds)
        assert 0.45 < share < 0.55
