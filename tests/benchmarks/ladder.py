"""The ladder: the models that led to the Transformer, on the same pairs, and ways to decode the best of them.

See configs/ladder/README.md. `nmt train` trains every rung, `nmt translate` translates. Finished runs are not
trained again, interrupted ones are resumed, and translations are cached. Tables go to stdout and, after each row, to
ladder.md and ladder.json beside the runs.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from measure import NMT, ROOT, say

from nmt.config import Config, language, load_config
from nmt.evaluate import Score, bleu_tokenizer, score
from nmt.files import atomic_write, hash_file
from nmt.run.checkpoint import read_newest
from nmt.run.directory import RunDirectory
from nmt.text.lines import one_line, read_lines
from nmt.train.preparation import corpus_paths

Part = Literal["dev", "test"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Ladder:
    """Models (rungs) on one corpus.

    Attributes:
        title: of its tables.
        rungs: names of configs, in the order of the table.
        ways_on: part on which the best rung is decoded in every way. All rungs are scored on test.
    """

    title: str
    rungs: Sequence[str]
    ways_on: Part


LADDERS = [
    Ladder(
        "Multi30k de→en",
        [
            "rnn-no-attention",
            "rnn-dot",
            "rnn-additive",
            "transformer-1-head",
            "transformer",
            "transformer-muon",
            "transformer-additive",
            "transformer-no-positions",
            "transformer-no-scaling",
            "transformer-no-padding-mask",
            "transformer-scheduled-sampling",
        ],
        "test",
    ),
    Ladder("Tatoeba zh→en", ["tatoeba-rnn-no-attention", "tatoeba-rnn-additive", "tatoeba-transformer"], "dev"),
]
GREEDY, BEAM = ["--beam", "1"], ["--beam", "5"]
ONE_PASS = ["--one-pass"]  # not an option of `nmt translate`: see `decoded`
MBR = ["--mbr", "chrf", "--samples", "32", "--temperature", "0.5"]


# --- one run ----------------------------------------------------------------------------------------------


def run_nmt(*arguments: object, lines: Sequence[str] = ()) -> list[str]:
    """Run `nmt ARGUMENTS` with lines as stdin; return its output lines. An exception sends it SIGTERM, so it saves.

    Raises:
        CalledProcessError: the command failed; its stderr has the reason.
    """
    command = [*NMT, *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        try:
            out, _ = process.communicate("".join(f"{line}\n" for line in lines).encode())
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return out.decode().split("\n")[:-1]


def trained(config: Path, run: Path, *overrides: str) -> Row:
    """Train until the run is finished; return its size, its cost and its dev BLEU.

    core_minutes is CPU time, summed over all calls that have trained this run; None if it was trained elsewhere.
    """
    directory, file = RunDirectory(run), run / "ladder" / "core-minutes.json"
    begun, before = directory.newest_step(), core_minutes()
    try:
        run_nmt("train", config, f"run={run}", *overrides)
    finally:
        spent = json.loads(file.read_text()) if file.exists() else None
        if directory.newest_step() != begun:
            spent = (spent or 0.0) + core_minutes() - before
            file.parent.mkdir(exist_ok=True)
            atomic_write(file, json.dumps(spent))
    newest = read_newest(directory, prefixes=("model",))
    assert newest is not None
    progress = newest.checkpoint.progress
    return {
        "parameters": sum(p.numel() for p in newest.checkpoint.model().parameters()),
        "target_tokens": progress["n_tokens"],
        "core_minutes": spent,
        "dev_BLEU": progress["best"],
    }


def core_minutes() -> float:
    """CPU minutes of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def corpus(config: Config, part: Part) -> tuple[list[str], list[str]]:
    """Source lines and references."""
    files = config.data.dev if part == "dev" else config.data.test
    assert files is not None
    source, target = corpus_paths(config, files)
    return read_lines(source), read_lines(target)


def kept(file: Path, runs: Sequence[Path], translate: Callable[[], list[str]]) -> Row:
    """Translations and the seconds that they took, cached in a file until a model changes."""
    models = [hash_file(RunDirectory(run).model_file) for run in runs]
    if file.exists():
        found: Row = json.loads(file.read_text())
        if found["models"] == models:
            return found
    say(f"{file}: translating")
    start = time.monotonic()
    lines = translate()
    found = {"models": models, "seconds": time.monotonic() - start, "lines": lines}
    file.parent.mkdir(exist_ok=True)
    atomic_write(file, json.dumps(found, ensure_ascii=False))
    return found


def decoded(runs: Sequence[Path], config: Config, part: Part, way: Sequence[str]) -> Row:
    """Scores and seconds of one run or an ensemble; `way` is a list of options of `nmt translate`, or `ONE_PASS`."""
    sources, references = corpus(config, part)
    name = "-".join([part, *way, *(run.name for run in runs[1:])]).replace("--", "")
    models = [word for run in runs for word in ("-m", run)]

    def translate() -> list[str]:
        if way == ONE_PASS:
            return in_one_pass(runs[0], sources)
        return run_nmt("translate", *models, *way, lines=sources)

    found = kept(runs[0] / "ladder" / f"{name}.json", runs, translate)
    tokenize = bleu_tokenizer(language(config.data, "target"))
    bleu, chrf = score(found["lines"], [references], tokenize=tokenize)
    return {"BLEU": bleu, "chrF2": chrf, "seconds": found["seconds"]}


def in_one_pass(run: Path, sources: Sequence[str]) -> list[str]:
    """Decode as a well-known tutorial does: one decoder pass over BOS and padding, the likeliest piece everywhere."""
    import torch

    from nmt.decode.engines.torch_engine import load_models
    from nmt.decode.options import SearchOptions
    from nmt.text import BOS, EOS, PAD
    from nmt.text.batches import pad_source

    engine, tokenizers, *_ = load_models([run], "cpu", "fp32")
    found = []
    for ids in tokenizers.source.encode_all(list(sources)):
        length = SearchOptions().limit(len(ids) + 1)
        tgt_in = torch.tensor([[BOS] + [PAD] * (length - 1)])
        with torch.inference_mode():
            best: list[int] = engine.models[0](pad_source([ids]), tgt_in)[0].argmax(-1).tolist()
        found.append(one_line(tokenizers.target.decode(best[: best.index(EOS)] if EOS in best else best)))
    return found


# --- the ladder -------------------------------------------------------------------------------------------


def climb(ladder: Ladder, configs: Path, runs: Path) -> Iterator[tuple[str, Row]]:
    """Train and score every rung; then decode the one with the best dev BLEU in every way.

    Args:
        ladder: the rungs.
        configs, runs: directories of configs and of runs.
    Yields:
        the title of a table and its next row.
    """
    dev_bleu: dict[str, float] = {}
    for name in ladder.rungs:
        say(f"--- {name}")
        path, run = configs / f"{name}.yaml", runs / name
        what = path.read_text().partition("\n")[0].removeprefix("# ")
        row = trained(path, run)
        dev_bleu[name] = row["dev_BLEU"]
        greedy, beam = (decoded([run], load_config(path), "test", way) for way in (GREEDY, BEAM))
        del beam["seconds"]
        yield (
            f"{ladder.title}, test: the rungs",
            {"rung": name, "what": what, **row, "greedy_BLEU": greedy["BLEU"], **beam},
        )
    best = max(dev_bleu, key=lambda name: dev_bleu[name])
    path, one, two = configs / f"{best}.yaml", runs / best, runs / f"{best}-seed-2"
    trained(path, two, "seed=2")
    for title, of, way in (
        ("in one pass", [one], ONE_PASS),
        ("greedily", [one], GREEDY),
        ("beam 5", [one], BEAM),
        ("beam 5, another seed", [two], BEAM),
        ("beam 5, both seeds together", [one, two], BEAM),
        ("minimum Bayes risk", [one], MBR),
    ):
        row = {"decoding": title, "options": "" if way == ONE_PASS else f"`{' '.join(way)}`"}
        yield (
            f"{ladder.title}, {ladder.ways_on}: ways to decode {best}",
            {**row, **decoded(of, load_config(path), ladder.ways_on, way)},
        )


def markdown(title: str, rows: Sequence[Row]) -> str:
    """A Markdown table, followed by the signatures of its scores."""
    columns = [*rows[0]]
    lines = [
        [column.replace("_", " ") for column in columns],
        ["---" if isinstance(rows[0][column], str) else "---:" for column in columns],
        *([shown(row[column]) for column in columns] for row in rows),
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    signatures = {f"{one.name} `{one.signature}`" for row in rows for one in row.values() if isinstance(one, Score)}
    return f"**{title}**\n\n{table}\n\n{', '.join(sorted(signatures))}\n"


def shown(value: object) -> str:
    """Format a figure for a table."""
    value = value.value if isinstance(value, Score) else value
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def climb_all(ladders: Sequence[Ladder], configs: Path, runs: Path) -> None:
    """Climb one ladder after the other; write all tables after each row."""
    runs.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[Row]] = {}
    for ladder in ladders:
        for title, row in climb(ladder, configs, runs):
            tables.setdefault(title, []).append(row)
            atomic_write(runs / "ladder.md", "\n".join(markdown(title, rows) for title, rows in tables.items()))
            atomic_write(runs / "ladder.json", json.dumps(tables, indent=1, ensure_ascii=False, default=vars) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=Path, default=Path("configs/ladder"), help="directory of the rungs")
    parser.add_argument("--runs", type=Path, default=Path(".bench/ladder"), help="directory of all that is written")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes end, too
    os.chdir(ROOT)
    climb_all(LADDERS, args.configs, args.runs)
    print((args.runs / "ladder.md").read_text(), end="")


if __name__ == "__main__":
    main()
