"""Seeds computed from known numbers (the run's seed, epoch, step, rank), so that no generator state has to be saved."""


def seed_of(*parts: int) -> int:
    """Return a 31-bit seed: a hash (FNV-1a) of the bytes of several numbers."""
    mixed = 0xCBF29CE484222325  # changing the hash would change the random numbers of resumed runs
    for part in parts:
        for byte in part.to_bytes(8, "little"):
            mixed = (mixed ^ byte) * 0x100000001B3 % 2**64
    return mixed >> 33
