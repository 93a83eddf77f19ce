"""Fuzz a parser of parsers.py, guided by coverage, until it fails.

    python tests/reliability/fuzz.py NAME SECONDS FOLDER     NAME: a key of `PARSERS`; needs `pip install atheris`

FOLDER/NAME keeps the corpus. The input that fails is written to FOLDER/crash-HASH.
"""

import random
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped,unused-ignore]

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path += [str(tests.parent), str(tests)]

with atheris.instrument_imports(include=["nmt"]):
    from reliability.parsers import PARSERS, mutated, outcome, seeds_of


def fuzz(name: str, seconds: str, folder: Path) -> None:
    """Fuzz one parser; libFuzzer prints how far it is, and ends the process."""
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds_of(name)):
        (corpus / f"seed{i}").write_bytes(seed)

    def run(content: bytes) -> None:
        outcome(PARSERS[name], content)

    def mutate(content: bytes, max_size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < 0.5:
            return mutated(name, content, draw)[:max_size]
        by_atheris: bytes = atheris.Mutate(content, max_size)
        return by_atheris

    options = [f"-artifact_prefix={folder}/", f"-max_total_time={seconds}", "-max_len=3000", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    name, seconds, folder = sys.argv[1:]
    fuzz(name, seconds, Path(folder))
