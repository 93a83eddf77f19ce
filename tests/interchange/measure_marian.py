"""Train small models with Marian, and compare Marian with nmt: scores, greedy translations, BLEU, and exports.

    python -m venv /tmp/marian && /tmp/marian/bin/pip install pymarian
    nmt download multi30k
    PYTHONPATH=. python tests/interchange/measure_marian.py /tmp/marian/bin/pymarian DIRECTORY --updates 1000

DIRECTORY has train.de, train.en, test.de and test.en. The models are written beside these files, and are kept: a model
that is there is not trained again.
"""

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU

import nmt
from nmt.interchange.importing import import_model
from nmt.interchange.marian import to_marian
from nmt.interchange.marian_import import read_marian
from nmt.text.lines import iter_pairs
from nmt.translate.scoring import score_pairs

N_LINES = 300
ONE_VOCABULARY = "--vocabs {0}/v.spm {0}/v.spm --dim-vocabs 4000 4000 --tied-embeddings-all"
TWO_VOCABULARIES = "--vocabs {0}/v.de.spm {0}/v.en.spm --dim-vocabs 3000 2500 --tied-embeddings"
MODELS = {  # name: options of the training
    "joint": f"{ONE_VOCABULARY} --dim-emb 128 --transformer-ffn-activation relu",
    "separate": f"{TWO_VOCABULARIES} --dim-emb 128 --transformer-ffn-activation swish",
    "gelu": f"{ONE_VOCABULARY} --dim-emb 128 --transformer-ffn-activation gelu",
    "wide": f"{ONE_VOCABULARY} --dim-emb 512 --transformer-ffn-activation relu",
}
TRAINING = (
    "--type transformer --transformer-dim-ffn 512 --transformer-heads 4 --enc-depth 2 --dec-depth 2 --learn-rate 0.001"
    " --lr-warmup 200 --label-smoothing 0.1 --clip-norm 1 --mini-batch 64 --max-length 60 --cpu-threads 1 --seed 1"
    " --workspace 1500 --sentencepiece-options=--character_coverage=1.0 --overwrite --quiet"
)


class Comparison(NamedTuple):
    """What a row of the table says of a model."""

    difference: float  # largest difference of the log-probabilities of a sentence, in nats
    n_equal: int  # greedy translations of nmt that are those of Marian
    n_equal_again: int  # those of Marian with nmt's export
    bleu: float  # of Marian
    our_bleu: float


def marian(program: str, directory: Path, command: str) -> list[str]:
    """Run a command of Marian, and return the lines that it prints, without spaces at their ends, as nmt has none."""
    arguments = ["nice", "-n", "10", program, *command.split()]
    done = subprocess.run(arguments, cwd=directory, capture_output=True, text=True, check=True)
    return [line.strip(" ") for line in done.stdout.splitlines()]


def compare(program: str, directory: Path, name: str, updates: int) -> Comparison:
    """Train a model, import it, export it, and compare."""
    # 1. Train it, and import it.
    folder = directory / name
    if not (folder / "model.npz").exists():
        folder.mkdir(exist_ok=True)
        options = MODELS[name].format(name)
        files = f"-m {name}/model.npz -t train.de train.en --after {updates}u"
        marian(program, directory, f"train {TRAINING} {options} {files}")
    shutil.rmtree(directory / f"{name}.run", ignore_errors=True)
    import_model(read_marian(folder), directory / f"{name}.run")
    translator = nmt.load(directory / f"{name}.run", engine="torch")
    spms = MODELS[name].format(name).split()[1:3]

    # 2. Score the references.
    lines = ("lines.de", "lines.en")
    scored = score_pairs(translator, iter_pairs([directory / lines[0]], [directory / lines[1]]), translator.options)
    ours = [translation.hypotheses[0].log_prob for translation in scored]
    command = f"score -m {name}/model.npz --vocabs {' '.join(spms)} -t {' '.join(lines)} --cpu-threads 1 --quiet"
    theirs = [float(line.split()[-1]) for line in marian(program, directory, command)]
    difference = max(abs(x - y) for x, y in zip(ours, theirs, strict=True))

    # 3. Translate with Marian, with nmt, and with Marian and nmt's export.
    to_marian(translator, directory / f"{name}.export")
    exported = "vocab.spm vocab.spm" if spms[0] == spms[1] else "source.spm target.spm"
    greedy = f"decode -b 1 -n 0 --max-length-factor 3 --cpu-threads 1 --quiet -i {directory.absolute()}/{lines[0]}"
    expected = marian(program, directory, f"{greedy} -m {name}/model.npz -v {' '.join(spms)}")
    again = marian(program, directory / f"{name}.export", f"{greedy} -m model.npz -v {exported}")
    source = (directory / lines[0]).read_text().splitlines()
    references = [(directory / lines[1]).read_text().splitlines()]
    limits = {"max_length_a": 3.0, "max_length_b": 1}
    result = translator.translate(source, beam=1, whole_lines=True, **limits)
    bleu, our_bleu = (BLEU().corpus_score(texts, references).score for texts in (expected, result))
    n_equal = sum(map(str.__eq__, result, expected))
    n_equal_again = sum(map(str.__eq__, again, expected))
    return Comparison(difference, n_equal, n_equal_again, bleu, our_bleu)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=[*MODELS])
    arguments = parser.parse_args()
    for side in ("de", "en"):
        lines = (arguments.directory / f"test.{side}").read_text().splitlines()[:N_LINES]
        (arguments.directory / f"lines.{side}").write_text("".join(f"{line}\n" for line in lines))
    print("| model | difference, nats | equal texts | equal with our export | BLEU of Marian | BLEU of nmt |")
    print("|---|---|---|---|---|---|")
    for name in arguments.models:
        row = compare(arguments.program, arguments.directory, name, arguments.updates)
        equal = f"{row.n_equal} of {N_LINES} | {row.n_equal_again} of {N_LINES}"
        print(f"| {name} | {row.difference:.1g} | {equal} | {row.bleu:.2f} | {row.our_bleu:.2f} |", flush=True)


if __name__ == "__main__":
    main()
