"""The ladder: the models that led to the Transformer, on the same pairs, and ways to decode the best of them.

Tables go to stdout and, after each row, to ladder.md and ladder.json beside the runs; see configs/ladder/README.md.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from experiments import Results, Row, run_nmt, scores, trained
from measure import parsed

from nmt.config import load_config
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.options import SearchOptions
from nmt.evaluate import bleu_tokenizer, score
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import pad_source
from nmt.text.lines import iter_lines
from nmt.train.corpora import corpus_paths
from nmt.translate.loading import load

# Title -> the configs of its models (rungs), and the part of the corpus on which the best is decoded in every way.
LADDERS = {
    "Multi30k de→en": (
        [
            "rnn-no-attention",
            "rnn-dot",
            "rnn-additive",
            "transformer-1-head",
            "transformer",
            "transformer-muon",
            "transformer-additive",
            "transformer-window",
            "transformer-no-positions",
            "transformer-no-scaling",
            "transformer-no-padding-mask",
            "transformer-scheduled-sampling",
        ],
        "test",
    ),
    "Tatoeba zh→en": (["tatoeba-rnn-no-attention", "tatoeba-rnn-additive", "tatoeba-transformer"], "dev"),
}
# A sentence and its reference, which the rungs with snapshots (train.snapshots) translate along their training.
SENTENCE = (
    "Ein Mann mit einem roten Helm fährt auf einem Fahrrad einen Hügel hinunter.",
    "A man with a red helmet is riding a bicycle down a hill.",
)
GREEDY, BEAM = ["--beam", 1], ["--beam", 5]


def climb(results: Results, title: str, rungs: Sequence[str], part: str, configs: Path, runs: Path) -> None:
    """Train every rung and score it on test; then decode the one with the best dev BLEU in every way, on `part`."""
    dev_bleu = {}
    for name in rungs:
        row = results.add(f"{title}, test: the rungs", name, partial(rung, configs / f"{name}.yaml", runs / name))
        dev_bleu[name] = row["dev_BLEU"]
    if grown := [word for name in rungs if RunDirectory(runs / name).snapshot_steps() for word in ("-m", runs / name)]:
        sentence, reference = SENTENCE
        run_nmt("explain", sentence, "--reference", reference, "--growth", *grown, "-o", runs / "growth.html")
    best = max(dev_bleu, key=lambda name: dev_bleu[name])
    config, one, two = configs / f"{best}.yaml", runs / best, runs / f"{best}-seed-2"
    trained(config, two, "seed=2")
    data = load_config(config).data
    (files,) = data.dev if part == "dev" else data.test
    (source,), (target,) = corpus_paths(load_config(config), files)
    table = f"{title}, {part}: ways to decode {best}"
    results.add(table, "in one pass", partial(in_one_pass, one, source, target))
    for way, of, options in (
        ("greedily", [one], GREEDY),
        ("beam 5", [one], BEAM),
        ("beam 5, another seed", [two], BEAM),
        ("beam 5, both seeds together", [one, two], BEAM),
    ):
        models = [word for run in of for word in ("-m", run)]
        results.add(table, way, partial(decoded, source, target, *models, *options))


def rung(config: Path, run: Path) -> Row:
    """Train a rung, and score it on test with greedy search and beam 5."""
    what = config.read_text().partition("\n")[0].removeprefix("# ")
    row = trained(config, run)
    greedy, beam = (scores("-m", run, "--beam", size) for size in (1, 5))
    return {"what": what, **row, "greedy_BLEU": greedy["BLEU"], "BLEU": beam["BLEU"], "chrF2": beam["chrF2"]}


def decoded(source: Path, target: Path, *options: object) -> Row:
    """Scores of a way to decode, and the seconds of `nmt translate`."""
    with TemporaryDirectory() as home:
        start = time.monotonic()
        run_nmt("translate", "-i", source, "-o", f"{home}/hyp", *options)
        seconds = time.monotonic() - start
        found = scores("--hyp", f"{home}/hyp", "--ref", target)
    return {"BLEU": found["BLEU"], "chrF2": found["chrF2"], "seconds": seconds}


def in_one_pass(run: Path, source: Path, target: Path) -> Row:
    """Decode as a well-known tutorial does: one decoder pass over BOS and padding, the likeliest piece everywhere."""
    translator = load(run, "cpu", engine="torch")
    assert isinstance(translator.engine, TorchEngine)
    (model,), tokenizers, found = translator.engine.models, translator.tokenizers, []
    for ids in tokenizers.source.encode_all(list(iter_lines([source]))):
        tgt_in = torch.tensor([[BOS] + [PAD] * (SearchOptions().limit(len(ids) + 1) - 1)])
        with torch.inference_mode():
            best: list[int] = model(pad_source([ids]), tgt_in)[0].argmax(-1).tolist()
        found.append(tokenizers.target.decode(best[: best.index(EOS)] if EOS in best else best))
    tokenize = bleu_tokenizer(translator.target_language)
    return {one.name: vars(one) for one in score(found, [list(iter_lines([target]))], tokenize=tokenize)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=Path, default=Path("configs/ladder"), help="directory of the rungs")
    parser.add_argument("--runs", type=Path, default=Path(".bench/ladder"), help="directory of all that is written")
    args = parsed(parser)
    results = Results(args["runs"] / "ladder")
    for title, (rungs, part) in LADDERS.items():
        climb(results, title, rungs, part, args["configs"], args["runs"])
    print(results.markdown(), end="")


if __name__ == "__main__":
    main()
