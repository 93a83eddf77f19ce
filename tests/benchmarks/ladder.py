"""The ladder: the models that led to the Transformer, on the same pairs, and ways to decode the best of them.

Tables go to stdout and, after each row, to ladder.md and ladder.json beside the runs; see configs/ladder/README.md.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from experiments import Results, Row, run_nmt, scores, trained
from measure import parsed

from nmt.config import load_config
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.options import SearchOptions
from nmt.evaluate import choose_settings, score
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import pad_source
from nmt.text.lines import iter_lines
from nmt.train.corpora import corpus_paths
from nmt.translate.loading import load

CONFIGS = Path("configs/ladder")


class Ladder(NamedTuple):
    """Models of the same pairs, and the part of the corpus on which the best of them is decoded in every way."""

    title: str
    rungs: list[str]  # names of configs
    part: str  # dev or test


MULTI30K = [
    "rnn-no-attention",
    "rnn-dot",
    "rnn-additive",
    "transformer-1-head",
    "transformer",
    "transformer-muon",
    "transformer-window",
    "transformer-additive",
    "transformer-no-positions",
    "transformer-marian-positions",
    "transformer-zero-start",
    "transformer-small-epsilon",
    "transformer-no-scaling",
    "transformer-no-padding-mask",
]
TATOEBA = ["tatoeba-rnn-no-attention", "tatoeba-rnn-additive", "tatoeba-transformer"]
LADDERS = [Ladder("Multi30k de→en", MULTI30K, "test"), Ladder("Tatoeba zh→en", TATOEBA, "dev")]


def climb(ladder: Ladder, results: Results, configs: Path, runs: Path) -> None:
    """Train every rung and score it on test; then decode the one with the best dev BLEU in every way."""
    dev_bleu = {}
    for name in ladder.rungs:
        make = partial(rung, configs / f"{name}.yaml", runs / name)
        row = results.add(f"{ladder.title}, test: the rungs", name, make)
        dev_bleu[name] = row["dev_BLEU"]
    best = max(dev_bleu, key=lambda name: dev_bleu[name])
    decode_in_every_way(ladder, best, results, configs, runs)


def rung(config: Path, run: Path) -> Row:
    """Train a rung, and score it on test with greedy search and beam 5."""
    first_line = config.read_text().partition("\n")[0]
    row = trained(config, run)
    greedy = scores("-m", run, "--beam", 1)
    beam = scores("-m", run, "--beam", 5)
    quality = {"greedy_BLEU": greedy["BLEU"], "BLEU": beam["BLEU"], "chrF2": beam["chrF2"]}
    return {"what": first_line.removeprefix("# "), **row, **quality}


def decode_in_every_way(ladder: Ladder, best: str, results: Results, configs: Path, runs: Path) -> None:
    """Score one pass, greedy search, a beam, another seed, and both seeds together."""
    config_file = configs / f"{best}.yaml"
    run = runs / best
    other_run = runs / f"{best}-seed-2"
    trained(config_file, other_run, "seed=2")
    config = load_config(config_file)
    (files,) = config.data.dev if ladder.part == "dev" else config.data.test
    (source,), (target,) = corpus_paths(config, files)
    title = f"{ladder.title}, {ladder.part}: ways to decode {best}"

    def add(way: str, *options: object) -> None:
        results.add(title, way, partial(decoded, source, target, *options))

    results.add(title, "in one pass", partial(in_one_pass, run, source, target))
    add("greedily", "-m", run, "--beam", 1)
    add("beam 5", "-m", run, "--beam", 5)
    add("beam 5, another seed", "-m", other_run, "--beam", 5)
    add("beam 5, both seeds together", "-m", run, "-m", other_run, "--beam", 5)


def decoded(source: Path, target: Path, *options: object) -> Row:
    """Scores of a way to decode, and the seconds of `nmt translate`."""
    with TemporaryDirectory() as home:
        start = time.monotonic()
        run_nmt("translate", "-i", source, "-o", f"{home}/hyp", *options)
        seconds = time.monotonic() - start
        by_metric = scores("--hyp", f"{home}/hyp", "--ref", target)
    return {"BLEU": by_metric["BLEU"], "chrF2": by_metric["chrF2"], "seconds": seconds}


def in_one_pass(run: Path, source: Path, target: Path) -> Row:
    """Decode as a well-known tutorial does: one decoder pass over BOS and padding, the likeliest piece everywhere."""
    translator = load(run, "cpu", engine="torch")
    assert isinstance(translator.engine, TorchEngine)
    (model,) = translator.engine.models
    hypotheses = []
    for ids in translator.tokenizers.source.encode_all(list(iter_lines([source]))):
        n_steps = SearchOptions().limit(len(ids) + 1)
        tgt_in = torch.tensor([[BOS] + [PAD] * (n_steps - 1)])
        with torch.inference_mode():
            logits = model(pad_source([ids]), tgt_in)[0]  # (T, V)
        best = logits.argmax(-1).tolist()
        tokens = best[: best.index(EOS)] if EOS in best else best
        hypotheses.append(translator.tokenizers.target.decode(tokens))
    references = list(iter_lines([target]))
    settings = choose_settings(translator.target_language, [references])
    by_metric = score(hypotheses, [references], settings=settings)
    return {metric.name: vars(metric) for metric in by_metric}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path(".bench/ladder"), help="directory of all that is written")
    runs = parsed(parser)["runs"]
    results = Results(runs / "ladder")
    for ladder in LADDERS:
        climb(ladder, results, CONFIGS, runs)
    print(results.markdown(), end="")


if __name__ == "__main__":
    main()
