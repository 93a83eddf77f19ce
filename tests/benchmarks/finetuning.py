"""Fine-tuning a general model on parts of a small corpus, compared with training from scratch, on both domains.

See configs/finetune.md. The table goes to stdout and, after each row, to finetuning.md and finetuning.json beside the
runs.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments import SIDES, Results, Row, scores, trained, write_config
from measure import parsed

from nmt.config import Config, language, load_config
from nmt.files import atomic_write
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train.preparation import corpus_paths

TITLE = "Fine-tuning"
FROZEN = "train.freeze=[embeddings,encoder]"
WAYS = {  # of fine-tuning: settings that override the recipe's
    "fine-tuned": ["data.mix={}"],
    "fine-tuned, mixed": [],
    "fine-tuned, frozen": ["data.mix={}", FROZEN],
    "fine-tuned, mixed, frozen": [FROZEN],
}


def compare(
    general: Path,
    recipe: Sequence[str],
    scratch: Sequence[str],
    sizes: Sequence[int],
    runs: Path,
    overrides: Sequence[str],
) -> Results:
    """Train and score every row.

    Args:
        general: the run that fine-tuning starts from.
        recipe: config and settings of fine-tuning; its test set is of the new domain.
        scratch: config and settings of training from nothing on all pairs; for fewer, `nmt train` chooses the sizes.
        sizes: numbers of pairs, taken from the start of the recipe's training corpus.
        runs: directory of all that is written.
        overrides: settings for all trainings.
    """
    new = load_config(Path(recipe[0]), recipe[1:])
    domains = {"new": new, "general": RunDirectory(general).read_config()}
    results = Results(runs / "finetuning")

    def add(name: str, config: str | Path, *settings: str) -> None:
        run = runs / name.replace(",", "").replace(" ", "-")
        results.add(TITLE, name, lambda: trained(Path(config), run, *settings, *overrides) | on_both(run, domains))

    results.add(TITLE, "general model", partial(on_both, general, domains))
    sides = [list(iter_lines(paths)) for paths in corpus_paths(new, new.data.train)]
    for size in sizes:
        files = []
        for side, lines in zip(SIDES, sides, strict=True):
            file = runs.absolute() / "data" / f"first-{size}.{language(new.data, side)}"
            file.parent.mkdir(exist_ok=True)
            atomic_write(file, "".join(f"{line}\n" for line in lines[:size]))
            files.append(f"data.train.{side}={file}")
        if size < len(sides[0]):
            add(f"{size} from nothing", write_config(runs / "data" / "minimal.yaml", new), *files)
        else:
            add(f"{size} from nothing", *scratch, *files)
        for way, settings in WAYS.items():
            add(f"{size} {way}", *recipe, *files, f"train.init_from={general}", *settings)
    return results


def on_both(run: Path, domains: dict[str, Config]) -> Row:
    """BLEU of a run on the test set of each domain."""
    found = {}
    for name, config in domains.items():
        assert config.data.test is not None
        (source,), (target,) = corpus_paths(config, config.data.test)
        found[f"{name}_BLEU"] = scores("-m", run, "--src", source, "--ref", target, "--beam", 5)["BLEU"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("general", type=Path, help="run of the general model, as configs/tatoeba-de-en.yaml trains it")
    for option, default, what in (
        ("--recipe", "configs/finetune.yaml", "fine-tuning"),
        ("--scratch", "configs/multi30k-de-en.yaml", "training from nothing on all pairs"),
    ):
        config = ("CONFIG", "KEY=VALUE")
        parser.add_argument(option, nargs="+", default=[default], metavar=config, help=f"config and settings of {what}")
    parser.add_argument("--pairs", dest="sizes", type=int, nargs="+", default=[1000, 5000, 29_000])
    parser.add_argument("--runs", type=Path, default=Path(".bench/finetuning"), help="directory of all that is written")
    parser.add_argument(
        "--set", dest="overrides", nargs="*", default=[], metavar="KEY=VALUE", help="settings for all trainings"
    )
    print(compare(**parsed(parser)).markdown(), end="")


if __name__ == "__main__":
    main()
