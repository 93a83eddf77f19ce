"""The model card: what a model was trained on, its scores with signatures, and how to use it. Imports no torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from nmt.config import base_languages, language
from nmt.decode.translator import Translator
from nmt.evaluate import Score
from nmt.files import hash_file
from nmt.run.directory import RunDirectory


def model_card(translator: Translator, n_parameters: int, architecture: str, name: str, use: str) -> str:
    """Return the card: Markdown with YAML metadata for the Hugging Face Hub.

    `architecture` is the transformers class, `use` explains in Markdown how to use it, with `{name}` for the name.
    """
    config = translator.config
    known = [code for code in base_languages(config.data) if code]
    metadata = ["library_name: transformers", "pipeline_tag: translation", "tags:", "- translation", "- nmt"]
    if known:
        metadata += yaml.safe_dump({"language": [*dict.fromkeys(known)]}).splitlines()  # quotes 'no', false in YAML 1.1
    source, target = (language(config.data, side) or "?" for side in ("source", "target"))
    model, (n_source, n_target) = config.model, map(len, translator.tokenizers)
    sizes = f"{n_parameters:,} parameters; {n_source:,} source and {n_target:,} target pieces; "
    sizes += f"at most {model.max_positions:,} pieces a sentence"
    layers = f"{model.n_encoder_layers} + {model.n_decoder_layers} layers, width {model.d_model}, {model.n_heads} heads"
    parts = [
        "\n".join(["---", *metadata, "---"]),
        f"# {name}: translation from {source} to {target}",
        f"A Transformer trained with nmt, as `{architecture}`: {layers}, feed-forward {model.d_ff}, {model.norm}-norm, "
        f"{model.activation}; {sizes}.",
        use.format(name=name),
        "## Training data",
        data_table(translator),
        "## Scores",
        scores(translator.run),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def data_table(translator: Translator) -> str:
    """Return a table of the corpora: file names, and the pair counts and hashes that the run's manifest has."""
    data = translator.config.data
    manifest = translator.run.read_manifest() if translator.run else {}
    rows = ["| corpus | pairs | source | target |", "|---|---|---|---|"]
    for corpus in ("train", "dev", "test"):
        files = getattr(data, corpus)
        if files is None:
            continue
        hashes = manifest.get("data", {})
        sides = [
            ", ".join(f"`{Path(path).name}`" for path in getattr(files, side))
            + (f" (SHA-256 {digest[:12]}…)" if (digest := str(hashes.get(f"{corpus}.{side}", ""))) else "")
            for side in ("source", "target")
        ]
        n_pairs = manifest.get("n_pairs", {}).get(corpus)
        rows.append(f"| {corpus} | {'' if n_pairs is None else f'{n_pairs:,}'} | {sides[0]} | {sides[1]} |")
    return "\n".join(rows)


def scores(run: RunDirectory | None) -> str:
    """Return the scores of `nmt eval` for this model."""
    found = [] if run is None else evaluations(run)
    blocks = ["\n".join([title, "", "```text", *map(str, values), "```"]) for title, values in found]
    return "\n\n".join(blocks) or "None are known: `nmt eval` finds them and keeps them in the run."


def evaluations(run: RunDirectory) -> Iterator[tuple[str, list[Score]]]:
    """Yield title and scores of each line in scores.jsonl that is valid and belongs to the run's present model."""
    of_model = hash_file(run.model_file)
    for line in run.read_scores():
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            if line["model_sha256"] == of_model:
                names = ", ".join(f"`{Path(name).name}`" for name in (line["source"], *line["references"]))
                search = ", ".join(f"{key} {value}" for key, value in line["search"].items() if value is not None)
                title = f"{line['n_lines']:,} lines of {names}, {search}:"
                yield title, [Score(**score) for score in line["scores"]]
