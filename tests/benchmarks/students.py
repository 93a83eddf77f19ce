"""Students: a small, fast model learns from a larger one. Speed and BLEU of both, as tables.

See configs/student.md. Finished runs and data files are not made again, interrupted ones are resumed. Writes the models
to models.md and models.json, their speed to speed.md and speed.json beside the runs.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from decoding import Contest, ctranslate2_command, prepare, translated
from experiments import Results, run_nmt, trained
from measure import NMT, ROOT, Options, Table, interleaved, parsed

from nmt.config import Config, language, load_config, values
from nmt.files import atomic_write
from nmt.text.lines import iter_lines
from nmt.train.preparation import corpus_paths

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")
SAMPLING = ["--sample", "--top-p", 0.95, "--tag", ""]
STUDENT = ROOT / "configs/student.yaml"
BASE = "teacher, a loop over CTranslate2, greedy"


class Data:
    """Files of sentence pairs below one directory, by name. A file that is there is not written again."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder.absolute(), config
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, name: str, side: Side) -> Path:
        return self.folder / f"{name}.{language(self.config.data, side)}"

    def write_corpus(self, name: str) -> None:
        """Write the config's training corpus as plain text."""
        for side, paths in zip(SIDES, corpus_paths(self.config, self.config.data.train), strict=True):
            atomic_write(self.file(name, side), "".join(f"{line}\n" for line in iter_lines(paths)))

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
        """Train a model of the other direction on the files `name`."""
        data = self.config.data
        source, target = (self.file(name, side) for side in SIDES)
        settings = [f"data.train.source={target}", f"data.train.target={source}"]
        for part, files in (("dev", data.dev), ("test", data.test)):
            if files:
                settings += [f"data.{part}.source=[{','.join(files.target)}]"]
                settings += [f"data.{part}.target=[{','.join(files.source)}]"]
        trained(config, run, *settings, *overrides)


def train_all(config: Path, runs: Path, n_teachers: int, n_samples: int, overrides: Sequence[str]) -> Results:
    """Train teachers, reverse model and student, and write the student's data.

    The student learns the translations of the teachers, as an ensemble, of the corpus and of `n_samples` sampled
    sources for each of its targets. It has the weights of the first teacher.
    """
    data, results = Data(runs / "data", load_config(config)), Results(runs / "models")
    teachers = [runs / "teacher", *(runs / f"teacher-{seed}" for seed in range(2, n_teachers + 1))]
    for seed, run in enumerate(teachers, 1):
        results.add("Models", run.name, partial(trained, config, run, f"seed={seed}", *overrides))
    data.write_corpus("corpus")
    data.train_reverse(config, runs / "reverse", "corpus", overrides)
    names = ["corpus", *(f"sampled-{seed}" for seed in range(1, n_samples + 1))]
    for seed, name in enumerate(names):
        if seed:
            data.backtranslate(name, "corpus", runs / "reverse", *SAMPLING, "--seed", seed)
        data.distill(f"distilled-{name}", name, *(word for run in teachers for word in ("-m", run)))
    of_any_corpus = [  # settings of model and training in configs/student.yaml
        f"{key}={value}"
        for key, value in values(load_config(STUDENT), only_set=True)
        if key.startswith(("model.", "train."))
    ]
    files = data.settings([f"distilled-{name}" for name in names])
    settings = [*of_any_corpus, f"train.init_from={teachers[0]}", *files, *overrides]
    results.add("Models", "student", partial(trained, config, runs / "student", *settings))
    return results


def compare(runs: Path, contest: Contest, options: Options) -> Table:
    """Measure both models in int8, with and without a shortlist, from file to file."""
    commands = {BASE: [*ctranslate2_command(contest, "int8"), "--beam", 1]}
    for name in ("teacher", "student"):
        for title, flags in ((name, []), (f"{name}, shortlist", ["--shortlist"])):
            path = runs / "exports" / title.replace(", ", "-")
            path.parent.mkdir(exist_ok=True)
            export = ["--to", "ctranslate2", "--quantization", "int8", "-o", path, *flags]
            run_nmt("export", "-q", "-m", runs / name, *export)
            for beam, search in ((5, "beam 5"), (1, "greedy")):
                commands[f"{title}, {search}"] = [*NMT, "translate", "-q", "-m", path, "--beam", beam]
    measures = {name: partial(translated, command, contest, options) for name, command in commands.items()}
    note = "int8 on two cores, the test set three times over, from file to file, less the time for eight lines."
    bases = [BASE, "teacher, beam 5"]
    return Table("Teacher and student", note, commands, interleaved(measures, options.rounds), "sentences_s", bases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    config = Path("configs/multi30k-de-en.yaml")
    parser.add_argument("--config", type=Path, default=config, help="of the teacher")
    parser.add_argument("--runs", type=Path, default=Path(".bench/students"), help="directory of all that is written")
    parser.add_argument("--teachers", type=int, default=3, help="that translate for the student as an ensemble")
    parser.add_argument("--samples", type=int, default=4, help="synthetic sources for each target of the corpus")
    args = parsed(parser)
    runs = args["runs"]
    models = train_all(args["config"], runs, args["teachers"], args["samples"], [])
    options = Options(args["config"], runs / "teacher", None, runs, rounds=5)
    speed = compare(runs, prepare(options), options)
    atomic_write(runs / "speed.md", f"{speed.markdown()}\n")
    atomic_write(runs / "speed.json", json.dumps(speed.as_json(), indent=1, ensure_ascii=False) + "\n")
    print(f"{models.markdown()}\n{speed.markdown()}")


if __name__ == "__main__":
    main()
