"""Seeds computed from known numbers (the run's seed, epoch, step, rank), so that no generator state is saved."""


def seed_of(*parts: int) -> int:
    """A 31-bit seed from several numbers, by the FNV-1a hash of their bytes."""
    mixed = 0xCBF29CE484222325  # not numpy's SeedSequence: resumed runs must draw the same as before
    for part in parts:
        for byte in part.to_bytes(8, "little"):
            mixed = (mixed ^ byte) * 0x100000001B3 % 2**64
    return mixed >> 33
