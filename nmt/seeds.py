"""Randomness is a function, not a state: every seed follows from numbers that are known anyway."""


def seed_of(*parts: int) -> int:
    """One 31-bit seed from several numbers, well mixed (FNV-1a over them): randomness as a function."""
    mixed = 0xCBF29CE484222325
    for part in parts:
        for byte in part.to_bytes(8, "little"):
            mixed = (mixed ^ byte) * 0x100000001B3 % 2**64
    return mixed >> 33
