"""Fine-tuning a general model on parts of a small corpus, compared with training from scratch, on both domains.

See configs/finetune.md. `nmt train` trains each row, `nmt translate` translates both test sets with beam 5. Finished
runs are not trained again, interrupted ones are resumed, and translations are cached. The table goes to stdout and,
after each row, to finetuning.md and finetuning.json beside the runs.
"""

import argparse
import functools
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder import BEAM, Row, kept, markdown, run_nmt, trained
from measure import ROOT, say

from nmt.config import Config, language, load_config
from nmt.evaluate import Score, bleu_tokenizer, score
from nmt.files import atomic_write
from nmt.run.directory import RunDirectory
from nmt.text.lines import read_lines
from nmt.train.preparation import corpus_paths

TITLE = "Fine-tuning"
FROZEN = "train.freeze=[embeddings,encoder]"
WAYS = {  # of fine-tuning: settings that override the recipe's
    "fine-tuned": ["data.mix={}"],
    "fine-tuned, mixed": [],
    "fine-tuned, frozen": ["data.mix={}", FROZEN],
    "fine-tuned, mixed, frozen": [FROZEN],
}


@dataclass(frozen=True)
class Study:
    """The models to compare.

    Attributes:
        general: the run that fine-tuning starts from.
        recipe: config and settings of fine-tuning; its test set is of the new domain.
        scratch: config and settings of training from nothing on all pairs; for fewer, `nmt train` chooses the sizes.
        sizes: numbers of pairs, taken from the start of the recipe's training corpus.
        runs: directory of all that is written.
        overrides: settings for all trainings.
    """

    general: Path
    recipe: Sequence[str]
    scratch: Sequence[str]
    sizes: Sequence[int]
    runs: Path
    overrides: Sequence[str] = ()

    def rows(self) -> Iterator[Row]:
        """Train and score everything, one row after the other."""
        none = {"core_minutes": None, "dev_BLEU": None}
        yield {"pairs": 0, "training": "general model", **none, **self.scores(self.general)}
        for size in self.sizes:
            files, is_all = self.first(size)
            scratch = self.scratch if is_all else [str(self.minimal())]
            yield self.row(size, "from nothing", [*scratch, *files])
            for way, settings in WAYS.items():
                yield self.row(size, way, [*self.recipe, *files, f"train.init_from={self.general}", *settings])

    def row(self, size: int, training: str, config_and_settings: Sequence[str]) -> Row:
        """Train with these settings and score the model."""
        config, *settings = config_and_settings
        say(f"--- {size} pairs, {training}")
        run = self.runs / f"{size}-{training.replace(',', '').replace(' ', '-')}"
        found = trained(Path(config), run, *settings, *self.overrides)
        return {
            "pairs": size,
            "training": training,
            "core_minutes": found["core_minutes"],
            "dev_BLEU": found["dev_BLEU"],
            **self.scores(run),
        }

    def first(self, size: int) -> tuple[list[str], bool]:
        """Write the first pairs of the recipe's training corpus; return settings for them, and whether they are all."""
        config = self.recipe_config
        sides = [read_lines(paths) for paths in corpus_paths(config, config.data.train)]
        languages = language(config.data, "source"), language(config.data, "target")
        files = [self.runs.resolve() / "data" / f"first-{size}.{code}" for code in languages]
        files[0].parent.mkdir(parents=True, exist_ok=True)
        for file, lines in zip(files, sides, strict=True):
            atomic_write(file, "".join(f"{line}\n" for line in lines[:size]))
        return [f"data.train.source={files[0]}", f"data.train.target={files[1]}"], size >= len(sides[0])

    def minimal(self) -> Path:
        """A config with the recipe's data and no other settings, so that `nmt train` chooses them."""
        data = self.recipe_config.data.model_dump(mode="json", include={"root", "train", "dev", "test"})
        file = self.runs / "data" / "minimal.yaml"
        atomic_write(file, json.dumps({"run": "runs/minimal", "data": data}))
        return file

    @functools.cached_property
    def recipe_config(self) -> Config:
        config, *settings = self.recipe
        return load_config(Path(config), settings)

    def scores(self, run: Path) -> dict[str, Score]:
        """BLEU of a run on the test sets of the new and of the general domain."""
        domains = {"new": self.recipe_config, "general": RunDirectory(self.general).read_config()}
        return {f"{name}_BLEU": self.bleu(run, name, config) for name, config in domains.items()}

    def bleu(self, run: Path, name: str, config: Config) -> Score:
        assert config.data.test is not None
        sources, references = (read_lines(paths) for paths in corpus_paths(config, config.data.test))
        file = self.runs / "translations" / f"{run.name}-{name}.json"
        found = kept(file, [run], lambda: run_nmt("translate", "-m", run, *BEAM, lines=sources))
        return score(found["lines"], [references], tokenize=bleu_tokenizer(language(config.data, "target")))[0]


def write_table(study: Study) -> str:
    """Compute all rows and return their table; write the table after each row."""
    study.runs.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for row in study.rows():
        rows.append(row)
        atomic_write(study.runs / "finetuning.md", markdown(TITLE, rows))
        atomic_write(study.runs / "finetuning.json", json.dumps(rows, indent=1, default=vars) + "\n")
    return markdown(TITLE, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("general", type=Path, help="run of the general model, as configs/tatoeba-de-en.yaml trains it")
    for option, default, what in (
        ("--recipe", "configs/finetune.yaml", "fine-tuning"),
        ("--scratch", "configs/multi30k-de-en.yaml", "training from nothing on all pairs"),
    ):
        config = ("CONFIG", "KEY=VALUE")
        parser.add_argument(option, nargs="+", default=[default], metavar=config, help=f"config and settings of {what}")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 5000, 29_000])
    parser.add_argument("--runs", type=Path, default=Path(".bench/finetuning"), help="directory of all that is written")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings for all trainings")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes end, too
    general, runs = args.general.resolve(), args.runs.resolve()
    os.chdir(ROOT)
    print(write_table(Study(general, args.recipe, args.scratch, args.pairs, runs, args.set)), end="")


if __name__ == "__main__":
    main()
