"""How much synthetic data helps: back-translation and distillation on Tatoeba, with half of the pairs held back.

See configs/synthetic/README.md. `nmt backtranslate` and `nmt distill` write the data. The table goes to stdout and,
after each system, to synthetic.md and synthetic.json beside the runs.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments import SIDES, Results, Side, run_nmt, trained, trained_and_scored
from measure import parsed

from nmt.config import Config, language, load_config
from nmt.files import atomic_write
from nmt.text.lines import iter_lines
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
# Name -> what it learns, its training files (see `data_of`), and the settings that differ from the config.
SYSTEMS: dict[str, tuple[str, list[str], list[str]]] = {
    "half": ("half of the pairs", ["half"], []),
    "beam": ("+ the other half, back-translated by beam search", ["half", "beam"], []),
    "beam-tagged": ("the same, tagged", ["half", "beam-tagged"], []),
    "sampled": ("+ the other half, back-translated by sampling", ["half", "sampled"], []),
    "sampled-tagged": ("the same, tagged", ["half", "sampled-tagged"], []),
    "all": ("all pairs", ["half", "other"], []),
    "teacher": ("larger, half of the pairs", ["half"], TEACHER),
    "student": ("smaller, half of the pairs", ["half"], STUDENT),
    "student-distilled": ("smaller, half of the pairs distilled", ["half-distilled"], STUDENT),
    "student-more": ("smaller, sources of all pairs distilled", ["half-distilled", "other-distilled"], STUDENT),
}


class Data:
    """Files of sentence pairs below one directory, by name. A file that is there is not written again."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder.absolute(), config
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, name: str, side: Side) -> Path:
        return self.folder / f"{name}.{language(self.config.data, side)}"

    def write_corpus(self, name: str, pairs: slice) -> None:
        """Write some pairs of the config's training corpus as plain text."""
        for side, paths in zip(SIDES, corpus_paths(self.config, self.config.data.train), strict=True):
            atomic_write(self.file(name, side), "".join(f"{line}\n" for line in list(iter_lines(paths))[pairs]))

    def backtranslate(self, name: str, of: str, reverse: Path, *options: object) -> None:
        """Write sources `name` that a reverse model says to the targets `of`, beside a copy of the targets."""
        self._write("backtranslate", self.file(name, "source"), self.file(of, "target"), "-m", reverse, *options)
        atomic_write(self.file(name, "target"), self.file(of, "target").read_bytes())

    def distill(self, name: str, of: str, *options: object) -> None:
        """Write targets `name` that a teacher says to the sources `of`, beside a copy of the sources."""
        self._write("distill", self.file(name, "target"), self.file(of, "source"), *options)
        atomic_write(self.file(name, "source"), self.file(of, "source").read_bytes())

    def _write(self, command: str, output: Path, text: Path, *options: object) -> None:
        if not output.exists():
            run_nmt(command, "-i", text, "-o", output, *options)

    def settings(self, names: Sequence[str]) -> list[str]:
        """The settings that train on the files of these names."""
        files = {side: ",".join(str(self.file(name, side)) for name in names) for side in SIDES}
        return [f"data.train.{side}=[{paths}]" for side, paths in files.items()]

    def train_reverse(self, config: Path, run: Path, name: str, overrides: Sequence[str]) -> None:
        """Train a model of the other direction on the files of a name."""
        data = self.config.data
        source, target = (self.file(name, side) for side in SIDES)
        settings = [f"data.train.source={target}", f"data.train.target={source}"]
        for part, files in (("dev", data.dev), ("test", data.test)):
            if files:
                settings += [f"data.{part}.source=[{','.join(files.target)}]"]
                settings += [f"data.{part}.target=[{','.join(files.source)}]"]
        trained(config, run, *settings, *overrides)


def untagged(data: Data, name: str) -> None:
    """Write the pairs `name` without the tags of `name-tagged`."""
    lines = list(iter_lines([data.file(f"{name}-tagged", "source")]))
    atomic_write(data.file(name, "source"), "".join(f"{line.removeprefix(f'{TAG} ')}\n" for line in lines))
    atomic_write(data.file(name, "target"), data.file(f"{name}-tagged", "target").read_bytes())


def compare(config: Path, runs: Path, n_pairs: int, overrides: Sequence[str]) -> Results:
    """Write the data; train and score every system."""
    data, results = Data(runs / "data", load_config(config)), Results(runs / "synthetic")
    data.write_corpus("half", slice(0, n_pairs // 2))
    data.write_corpus("other", slice(n_pairs // 2, n_pairs))
    data.train_reverse(config, runs / "reverse", "half", overrides)
    for name, search in (("beam", []), ("sampled", ["--sample"])):
        data.backtranslate(f"{name}-tagged", "other", runs / "reverse", "--tag", TAG, *search)
        untagged(data, name)
    for name, (what, files, settings) in SYSTEMS.items():
        all_settings = [*data.settings(files), *settings, *overrides]
        results.add(TITLE, name, partial(trained_and_scored, what, config, runs / name, *all_settings))
        if name == "teacher":
            for half in ("half", "other"):
                data.distill(f"{half}-distilled", half, "-m", runs / name)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    config = Path("configs/synthetic/tatoeba-de-en.yaml")
    parser.add_argument("--config", type=Path, default=config, help="of the systems")
    parser.add_argument("--runs", type=Path, default=Path(".bench/synthetic"), help="directory of all that is written")
    parser.add_argument("--pairs", type=int, default=30_000, help="of which half are held back")
    parser.add_argument("--steps", type=int, default=2_000, help="of each training")
    args = parsed(parser)
    overrides = [f"train.max_steps={args['steps']}", f"train.validate_every={max(args['steps'] // 4, 1)}"]
    print(compare(args["config"], args["runs"], args["pairs"], overrides).markdown(), end="")


if __name__ == "__main__":
    main()
