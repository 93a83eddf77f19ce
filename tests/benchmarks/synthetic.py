"""How much synthetic data helps: back-translation and distillation on Tatoeba, with half of the pairs held back.

See configs/synthetic/README.md. `nmt backtranslate` and `nmt distill` write the data, `nmt train` trains every system.
Finished runs and data files are not made again, interrupted ones are resumed. The table goes to stdout and, after each
system, to synthetic.md and synthetic.json beside the runs.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ladder
from measure import ROOT, say

from nmt.config import Config, language, load_config
from nmt.files import atomic_write
from nmt.text.lines import read_lines
from nmt.train.preparation import corpus_paths

TITLE = "Trained on data from models, test"
TAG = "<BT>"
TEACHER = [
    "model.d_model=256",
    "model.d_ff=512",
    "model.n_encoder_layers=4",
    "model.n_decoder_layers=4",
    "train.lr=2e-3",
]
STUDENT = ["model.d_model=64", "model.d_ff=128"]
SAMPLE = ["--sample"]


@dataclass(frozen=True)
class System:
    """A run: the names of its training files, and the settings that differ from the config."""

    name: str
    what: str
    files: Sequence[str]  # names without the language suffix
    overrides: Sequence[str] = ()


PAIRS = ["half"]
SYSTEMS = [
    System("half", "half of the pairs", PAIRS),
    System("beam", "+ the other half, back-translated by beam search", ["half", "beam"]),
    System("beam-tagged", "the same, tagged", ["half", "beam-tagged"]),
    System("sampled", "+ the other half, back-translated by sampling", ["half", "sampled"]),
    System("sampled-tagged", "the same, tagged", ["half", "sampled-tagged"]),
    System("all", "all pairs", ["half", "other"]),
    System("teacher", "larger, half of the pairs", PAIRS, TEACHER),
    System("student", "smaller, half of the pairs", PAIRS, STUDENT),
    System("student-distilled", "smaller, half of the pairs distilled", ["half-distilled"], STUDENT),
    System("student-more", "smaller, sources of all pairs distilled", ["half-distilled", "other-distilled"], STUDENT),
]
REVERSE = System("reverse", "English to German, half of the pairs", PAIRS)


# --- data -------------------------------------------------------------------------------------------------


def languages(config: Config) -> tuple[str, str]:
    """The languages of both sides, which are the suffixes of all files."""
    return language(config.data, "source"), language(config.data, "target")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    if not path.exists():
        atomic_write(path, "".join(f"{line}\n" for line in lines))


def write_halves(config: Config, folder: Path, n_pairs: int) -> None:
    """Write the first `n_pairs` of train as two halves."""
    for side, paths in zip(languages(config), corpus_paths(config, config.data.train), strict=True):
        lines = read_lines(paths)[:n_pairs]
        write_lines(folder / f"half.{side}", lines[: n_pairs // 2])
        write_lines(folder / f"other.{side}", lines[n_pairs // 2 :])


def write_back_translations(config: Config, folder: Path, reverse: Path) -> None:
    """Write synthetic sources for the targets of the other half, with and without the tag."""
    source, target = languages(config)
    mono = folder / f"other.{target}"
    for name, search in (("beam", []), ("sampled", SAMPLE)):
        tagged = folder / f"{name}-tagged.{source}"
        if not tagged.exists():
            say(f"{tagged}: translating")
            ladder.run_nmt("backtranslate", "-m", reverse, "-i", mono, "-o", tagged, "--tag", TAG, *search)
        write_lines(folder / f"{name}.{source}", [line.removeprefix(f"{TAG} ") for line in read_lines([tagged])])
        for each in (name, f"{name}-tagged"):
            write_lines(folder / f"{each}.{target}", read_lines([mono]))


def write_distilled(config: Config, folder: Path, teacher: Path) -> None:
    """Write the sources of both halves with the teacher's translations as targets."""
    source, target = languages(config)
    for name, half in (("half-distilled", "half"), ("other-distilled", "other")):
        output = folder / f"{name}.{target}"
        if not output.exists():
            say(f"{output}: translating")
            ladder.run_nmt("distill", "-m", teacher, "-i", folder / f"{half}.{source}", "-o", output)
        write_lines(folder / f"{name}.{source}", read_lines([folder / f"{half}.{source}"]))


# --- systems ----------------------------------------------------------------------------------------------


def files_of(system: System, folder: Path, source: str, target: str) -> list[str]:
    """The settings of a system's training files."""
    return [
        f"data.train.{side}=[{','.join(str(folder / f'{name}.{suffix}') for name in system.files)}]"
        for side, suffix in (("source", source), ("target", target))
    ]


def reversed_sides(config: Config) -> list[str]:
    """The settings of dev and test with their sides exchanged."""
    found = {"dev": config.data.dev, "test": config.data.test}
    pairs = [(name, files) for name, files in found.items() if files]
    return [
        f"data.{name}.{side}=[{','.join(paths)}]"
        for name, files in pairs
        for side, paths in (("source", files.target), ("target", files.source))
    ]


def compare(path: Path, runs: Path, n_pairs: int, overrides: Sequence[str]) -> None:
    """Write the data, train and score every system."""
    config, folder = load_config(path), runs / "data"
    folder.mkdir(parents=True, exist_ok=True)
    write_halves(config, folder, n_pairs)
    source, target = languages(config)
    reverse = [*files_of(REVERSE, folder, target, source), *reversed_sides(config), *overrides]
    say("--- reverse")
    ladder.trained(path, runs / "reverse", *reverse)
    write_back_translations(config, folder, runs / "reverse")
    rows: list[ladder.Row] = []
    for system in SYSTEMS:
        say(f"--- {system.name}")
        run = runs / system.name
        row = ladder.trained(path, run, *files_of(system, folder, source, target), *system.overrides, *overrides)
        greedy, beam = (ladder.decoded([run], config, "test", way) for way in (ladder.GREEDY, ladder.BEAM))
        scores = {"greedy_BLEU": greedy["BLEU"], "BLEU": beam["BLEU"], "chrF2": beam["chrF2"]}
        if system.name == "teacher":
            write_distilled(config, folder, run)
        rows.append({"system": system.name, "what": system.what, **row, **scores})
        atomic_write(runs / "synthetic.md", ladder.markdown(TITLE, rows))
        atomic_write(runs / "synthetic.json", json.dumps(rows, indent=1, ensure_ascii=False, default=vars) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    config = Path("configs/synthetic/tatoeba-de-en.yaml")
    parser.add_argument("--config", type=Path, default=config, help="of the systems")
    parser.add_argument("--runs", type=Path, default=Path(".bench/synthetic"), help="directory of all that is written")
    parser.add_argument("--pairs", type=int, default=30_000, help="of which half are held back")
    parser.add_argument("--steps", type=int, default=2_000, help="of each training")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes end, too
    os.chdir(ROOT)
    overrides = [f"train.max_steps={args.steps}", f"train.validate_every={max(args.steps // 4, 1)}"]
    compare(args.config, args.runs.absolute(), args.pairs, overrides)
    print((args.runs / "synthetic.md").read_text(), end="")


if __name__ == "__main__":
    main()
