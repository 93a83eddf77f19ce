"""The model card of an export: training data, scores with signatures, and an example of how to use the export."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from nmt.config import Config, base_language, language
from nmt.evaluate import Score
from nmt.files import hash_file
from nmt.run.directory import RunDirectory
from nmt.text.vocabulary import tag_of
from nmt.translate.translator import Translator

CARD = """\
---
library_name: transformers
pipeline_tag: translation
tags:
- translation
- nmt
{languages}---

# {name}: translation {pairs}

A Transformer trained with nmt, as `{architecture}`: {config.model.n_encoder_layers} + {config.model.n_decoder_layers} \
layers, width {config.model.d_model}, {config.model.n_heads} heads, feed-forward {config.model.d_ff}, \
{config.model.norm}-norm, {config.model.activation}; {n_parameters:,} parameters; {n_source:,} source and \
{n_target:,} target pieces; at most {config.model.max_positions:,} pieces a sentence. \
In nmt, translations have at most {config.decode.max_length_a:g} x the pieces of the source + \
{config.decode.max_length_b} pieces; here, all have one limit.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
inputs = tokenizer(["{tag}…"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```

## Training data

{corpora}

## Scores

{scores}
"""


def model_card(translator: Translator, n_parameters: int, architecture: str, name: str) -> str:
    """Return the model card: Markdown with YAML metadata for the Hugging Face Hub.

    `architecture` is the class of transformers that loads the model. `name` is the name of the exported directory.
    """
    config = translator.config
    tokenizers = translator.tokenizers
    languages = languages_of(config)
    # 1. Name the languages. `safe_dump` quotes the code "no" (Norwegian), which means false in YAML without quotes.
    metadata = yaml.safe_dump({"language": languages}) if languages else ""
    source = language(config.data, "source") or "?"
    target = language(config.data, "target") or "?"
    pairs = ", ".join(config.data.directions) or f"from {source} to {target}"
    tag = "".join(map(tag_of, tokenizers.source.targets[:1]))  # empty if the model has only one direction
    # 2. List the training data and the scores.
    corpora = "\n".join(corpora_lines(translator))
    scores = "\n\n".join(scores_of(translator.run)) if translator.run else ""
    if not scores:
        scores = "None are known: `nmt eval` finds them and keeps them in the run."
    return CARD.format(
        languages=metadata,
        name=name,
        pairs=pairs,
        architecture=architecture,
        config=config,
        n_parameters=n_parameters,
        n_source=len(tokenizers.source),
        n_target=len(tokenizers.target),
        tag=tag,
        corpora=corpora,
        scores=scores,
    )


def languages_of(config: Config) -> list[str]:
    """Return the codes of the model's languages, without regions. Unknown languages are left out."""
    data = config.data
    codes = []
    # Split each direction, "de-en" for example, into its two languages.
    for direction in data.directions:
        codes += direction.split("-")
    if not codes:
        codes = [base_language(language(data, side)) for side in ("source", "target")]
    return [code for code in dict.fromkeys(codes) if code]


def corpora_lines(translator: Translator) -> Iterator[str]:
    """Yield a line for each corpus: names of files, and the number of pairs if the run's manifest has this number."""
    manifest = translator.run.read_manifest() if translator.run else {}
    for corpus in ("train", "dev", "test"):
        # In a run of several directions, each direction has its own files.
        paths = []
        for files in getattr(translator.config.data, corpus):
            paths += [*files.source, *files.target]
        if paths:
            n_pairs = manifest.get("n_pairs", {}).get(corpus)
            size = "" if n_pairs is None else f", {n_pairs:,} pairs"
            yield f"- {corpus}: {file_names(paths)}{size}"


def file_names(paths: list[str]) -> str:
    """Return the names of files without their folders, which are private. Each name appears once."""
    return ", ".join(dict.fromkeys(f"`{Path(path).name}`" for path in paths))


def scores_of(run: RunDirectory) -> Iterator[str]:
    """Yield a text for each evaluation of the run's present model. Skip invalid lines of scores.jsonl."""
    # Leave out evaluations of earlier models of the run: training may have continued after these evaluations.
    model_hash = hash_file(run.model_file)
    for line in run.read_scores():
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            if line["model_sha256"] == model_hash:
                yield describe_evaluation(line)


def describe_evaluation(line: Mapping[str, Any]) -> str:
    names = file_names([line["source"], *line["references"]])
    options = {key: value for key, value in line["search"].items() if value is not None}
    search = ", ".join(f"{key} {value}" for key, value in options.items())
    scores = [Score(**score) for score in line["scores"]]
    table = "\n".join(map(str, scores))
    return f"{line['n_lines']:,} lines of {names}, {search}:\n\n```text\n{table}\n```"
