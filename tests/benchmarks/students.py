"""Students: a small, fast model learns from a larger one. Speed and BLEU of both, as a table and a picture.

See configs/student.md. Finished runs and data files are not made again, interrupted ones are resumed. Writes
students.md, students.json and students.txt beside the runs.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ladder
from decoding import Contest, ctranslate2_command, prepare, translated
from measure import NMT, ROOT, Options, Table, interleaved, say, told
from synthetic import languages, reversed_sides, write_lines

from nmt.config import Config, Files, load_config, values
from nmt.files import atomic_write
from nmt.insight.curves import Chart, Series, as_text
from nmt.text.lines import read_lines
from nmt.train.preparation import corpus_paths

SAMPLING = ["--sample", "--top-p", "0.95", "--tag", ""]
STUDENT = Path("configs/student.yaml")
BASE = "teacher, a loop over CTranslate2, greedy"


@dataclass(frozen=True)
class Home:
    """The directory of all runs and data files of one config."""

    config: Config
    path: Path
    n_teachers: int = 1

    def run(self, name: str) -> Path:
        return self.path / name

    @property
    def teachers(self) -> list[str]:
        """The runs of the ensemble that the student learns from; `teacher` is the first, and gives it its weights."""
        return ["teacher", *(f"teacher-{seed}" for seed in range(2, self.n_teachers + 1))]

    def data(self, name: str, side: int) -> Path:
        """A data file; side 0 is the source, 1 the target."""
        return self.path / "data" / f"{name}.{languages(self.config)[side]}"


# --- data -------------------------------------------------------------------------------------------------


def write_corpus(home: Home) -> None:
    """Write both sides of train as plain text, `corpus`."""
    for side, paths in enumerate(corpus_paths(home.config, home.config.data.train)):
        write_lines(home.data("corpus", side), read_lines(paths))


def write_mono(home: Home, mono: Path) -> Path:
    """Write the distinct lines of `mono` that are no target of the corpus, regardless of case and punctuation."""
    data = home.config.data
    known = {words(line) for files in (data.train, data.dev, data.test) if files for line in targets_of(home, files)}
    found = {key: line for line in read_lines([mono]) if (key := words(line)) and key not in known}
    output = home.data("mono-targets", 1)
    write_lines(output, [*found.values()])
    return output


def targets_of(home: Home, files: Files) -> list[str]:
    return read_lines(corpus_paths(home.config, files)[1])


def words(line: str) -> str:
    """The letters and digits of a line, in lower case."""
    return re.sub(r"[\W_]", "", line.casefold())


def write_sources(home: Home, name: str, targets: Path, seed: int) -> None:
    """Write sources `name` that the reverse model samples for a text of the target language."""
    output = home.data(name, 0)
    if not output.exists():
        say(f"{output}: sampling")
        ladder.run_nmt(
            *("backtranslate", "-m", home.run("reverse"), "-i", targets, "-o", output, *SAMPLING, "--seed", seed)
        )


def write_targets(home: Home, name: str) -> None:
    """Write the teachers' translations of the sources `name` as `distilled-name`, beside a copy of the sources."""
    output = home.data(f"distilled-{name}", 1)
    if not output.exists():
        say(f"{output}: translating")
        models = [word for teacher in home.teachers for word in ("-m", home.run(teacher))]
        ladder.run_nmt("distill", *models, "-i", home.data(name, 0), "-o", output)
    write_lines(home.data(f"distilled-{name}", 0), read_lines([home.data(name, 0)]))


def student_settings(home: Home) -> list[str]:
    """The settings of model and training in configs/student.yaml, which fit any corpus."""
    found = values(load_config(ROOT / STUDENT), only_set=True)
    chosen = [f"{key}={value}" for key, value in found if key.startswith(("model.", "train."))]
    return [*chosen, f"train.init_from={home.run('teacher')}"]


def student_files(home: Home, names: Sequence[str]) -> list[str]:
    """The settings of the student's training files."""
    return [
        f"data.train.{key}=[{','.join(str(home.data(f'distilled-{name}', side)) for name in names)}]"
        for side, key in enumerate(("source", "target"))
    ]


# --- systems ----------------------------------------------------------------------------------------------


def train_all(path: Path, home: Home, n_samples: int, mono: Path | None, overrides: Sequence[str]) -> list[ladder.Row]:
    """Train teachers, reverse model and student, and write the student's data. Returns a row for each model.

    The student learns the teachers' translations of the corpus, of `n_samples` sampled sources for each of its targets,
    and of one for each line of `mono`.
    """
    home.data("", 0).parent.mkdir(parents=True, exist_ok=True)
    write_corpus(home)
    rows: list[ladder.Row] = []
    for seed, name in enumerate(home.teachers, 1):
        say(f"--- {name}")
        rows.append({"model": name, **ladder.trained(path, home.run(name), f"seed={seed}", *overrides)})
    sides = [f"data.train.{key}={home.data('corpus', side)}" for side, key in ((1, "source"), (0, "target"))]
    say("--- reverse model")
    ladder.trained(path, home.run("reverse"), *sides, *reversed_sides(home.config), *overrides)
    texts = {f"sampled-{seed}": (home.data("corpus", 1), seed) for seed in range(1, n_samples + 1)}
    if mono:
        texts["mono"] = (write_mono(home, mono), 1)
    for name, (targets, seed) in texts.items():
        write_sources(home, name, targets, seed)
    names = ["corpus", *texts]
    for name in names:
        write_targets(home, name)
    say("--- student")
    settings = [*student_settings(home), *student_files(home, names), *overrides]
    student = ladder.trained(path, home.run("student"), *settings)
    return [*rows, {"model": "student", **student}]


def export(home: Home, name: str, *flags: str) -> Path:
    """Export a run to CTranslate2 in int8."""
    output = home.path / "exports" / "-".join([name, *(flag.strip("-") for flag in flags)])
    output.parent.mkdir(exist_ok=True)
    command = ["export", "-q", "-m", home.run(name), "--to", "ctranslate2", "--quantization", "int8", "-o", output]
    subprocess.run([*map(str, [*NMT, *command, *flags])], cwd=ROOT, check=True)
    return output


def compare(home: Home, contest: Contest, options: Options) -> Table:
    """Measure both models in int8, with and without a shortlist, from file to file."""
    bare = [*ctranslate2_command(contest, "int8"), "--translators", 2, "--threads", 1]
    commands: dict[str, list[object]] = {BASE: [*bare, "--batch-size", 64, "--beam", 1]}
    for name in ("teacher", "student"):
        for title, flags in ((name, []), (f"{name}, shortlist", ["--shortlist"])):
            path = export(home, name, *flags)
            for beam, search in ((5, "beam 5"), (1, "greedy")):
                commands[f"{title}, {search}"] = [*NMT, "translate", "-q", "-m", path, "--beam", beam]
    samples = interleaved(
        {name: partial(translated, command, contest, options) for name, command in commands.items()}, options.rounds
    )
    shown = {name: told(command) for name, command in commands.items()}
    note = "int8 on two cores, the test set three times over, from file to file, less the time for eight lines."
    return Table("Teacher and student", note, shown, samples, "sentences_s", [BASE, "teacher, beam 5"])


def frontier(table: Table) -> str:
    """A chart of BLEU over sentences a second: one line per model, from beam 5 to greedy search."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, row in table.rows().items():
        model, _, search = name.rpartition(", ")
        if search and name != BASE:
            points.setdefault(model, []).append((row["sentences_s"], row["BLEU"]))
    series = [Series(name, sorted(of_model)) for name, of_model in points.items()]
    return "\n".join(as_text(Chart("bleu", "BLEU", "test", "sentences a second", series)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    config = Path("configs/multi30k-de-en.yaml")
    parser.add_argument("--config", type=Path, default=config, help="of the teacher")
    parser.add_argument("--runs", type=Path, default=Path(".bench/students"), help="directory of all that is written")
    parser.add_argument("--teachers", type=int, default=3, help="that translate for the student as an ensemble")
    parser.add_argument("--samples", type=int, default=4, help="synthetic sources for each target of the corpus")
    parser.add_argument("--mono", type=Path, help="more text of the target language")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each system")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes end, too
    os.chdir(ROOT)
    home = Home(load_config(args.config), args.runs.absolute(), args.teachers)
    rows = train_all(args.config, home, args.samples, args.mono and args.mono.absolute(), [])
    options = Options(args.config, home.run("teacher"), None, home.path, args.rounds)
    table = compare(home, prepare(options), options)
    text = f"{ladder.markdown('Models', rows)}\n{table.markdown()}\n"
    atomic_write(home.path / "students.md", text)
    found = {"models": rows, "table": table.as_json()}
    atomic_write(home.path / "students.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    atomic_write(home.path / "students.txt", frontier(table))
    print(text, end="")


if __name__ == "__main__":
    main()
