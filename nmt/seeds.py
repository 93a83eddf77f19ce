"""Seeds of random generators, computed from known numbers: the run's seed, epoch, step and rank.

A resumed run computes the same seeds again, so that checkpoints need no state of generators.
"""


def seed_of(*parts: int) -> int:
    """Return a seed: the upper 31 bits of the 64-bit FNV-1a hash of `parts`, with 8 bytes per number."""
    mixed = 0xCBF29CE484222325  # do not change the hash: resumed runs would then draw other random numbers
    for part in parts:
        for byte in part.to_bytes(8, "little"):
            mixed = (mixed ^ byte) * 0x100000001B3 % 2**64
    return mixed >> 33
