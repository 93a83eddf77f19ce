"""The model card: what a model was trained on, its scores with signatures, and how to use it. Imports no torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from nmt.config import base_language, language
from nmt.evaluate import Score
from nmt.files import hash_file
from nmt.run.directory import RunDirectory
from nmt.text.vocabulary import tag_of
from nmt.translate.translator import Translator

USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
inputs = tokenizer(["{tag}…"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```
"""


def model_card(translator: Translator, n_parameters: int, architecture: str, name: str) -> str:
    """Return the card: Markdown with YAML metadata for the Hugging Face Hub.

    `architecture` is the class of transformers.
    """
    data, model = translator.config.data, translator.config.model
    metadata = ["library_name: transformers", "pipeline_tag: translation", "tags:", "- translation", "- nmt"]
    spoken = [language(data, side) for side in ("source", "target")]
    codes = [code for one in data.directions for code in one.split("-")] or map(base_language, spoken)
    if known := [code for code in codes if code]:
        metadata += yaml.safe_dump({"language": [*dict.fromkeys(known)]}).splitlines()  # quotes 'no', false in YAML 1.1
    source, target = (code or "?" for code in spoken)
    pairs = ", ".join(data.directions) or f"from {source} to {target}"
    n_source, n_target = map(len, translator.tokenizers)
    layers = f"{model.n_encoder_layers} + {model.n_decoder_layers} layers, width {model.d_model}, {model.n_heads} heads"
    sizes = f"{n_parameters:,} parameters; {n_source:,} source and {n_target:,} target pieces; "
    sizes += f"at most {model.max_positions:,} pieces a sentence"
    decode = translator.config.decode
    limit = f"{decode.max_length_a:g} x the pieces of the source + {decode.max_length_b}"
    parts = [
        "\n".join(["---", *metadata, "---"]),
        f"# {name}: translation {pairs}",
        f"A Transformer trained with nmt, as `{architecture}`: {layers}, feed-forward {model.d_ff}, {model.norm}-norm, "
        f"{model.activation}; {sizes}. In nmt, translations have at most {limit} pieces; here, all have one limit.",
        USE.format(name=name, tag="".join(map(tag_of, translator.tokenizers.source.targets[:1]))),
        "## Training data",
        "\n".join(corpora(translator)),
        "## Scores",
        "\n\n".join(scores(translator.run)) or "None are known: `nmt eval` finds them and keeps them in the run.",
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def corpora(translator: Translator) -> Iterator[str]:
    """Yield a line for each corpus: its files, and its number of pairs if the run's manifest has it."""
    manifest = translator.run.read_manifest() if translator.run else {}
    for corpus in ("train", "dev", "test"):
        if found := getattr(translator.config.data, corpus):
            paths = [path for files in found for path in (*files.source, *files.target)]
            names = ", ".join(dict.fromkeys(f"`{Path(path).name}`" for path in paths))
            n_pairs = manifest.get("n_pairs", {}).get(corpus)
            yield f"- {corpus}: {names}" + ("" if n_pairs is None else f", {n_pairs:,} pairs")


def scores(run: RunDirectory | None) -> Iterator[str]:
    """Yield a line for each `nmt eval` of the run's present model; invalid lines of scores.jsonl are skipped."""
    of_model = hash_file(run.model_file) if run else ""
    for line in run.read_scores() if run else ():
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            if line["model_sha256"] == of_model:
                names = ", ".join(f"`{Path(name).name}`" for name in (line["source"], *line["references"]))
                search = ", ".join(f"{key} {value}" for key, value in line["search"].items() if value is not None)
                values = [str(Score(**score)) for score in line["scores"]]
                yield "\n".join([f"{line['n_lines']:,} lines of {names}, {search}:", "", "```text", *values, "```"])
