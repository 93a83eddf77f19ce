#!/usr/bin/env bash
# CTranslate2 4.8.5: with beam search on a CPU, the first row of a hypothesis' attention is that of another source.
#
# Expected: `translate_batch(..., return_attention=True)` returns the same attention for a source, alone or in a batch.
# Seen: with a beam of 2 or more, the source at index i of a batch (which CTranslate2 sorts by length) gets the first
#   row of the source at index i // beam. The tokens and the other rows are right. If that source is longer, its row is
#   cut off, and does not sum to 1. A beam of 1 is not affected, nor one that is more than half the vocabulary: then the
#   first step, too, has `beam` rows for each source. Otherwise `BeamSearch::search` in src/decoding.cc repeats the
#   attention of the first step for each beam, but gathers from it with indices of sources. Scores with a
#   `coverage_penalty`, which uses the attention, depend on the batch, too.
# Workaround: translate again with a beam of 1 and the hypotheses as `target_prefix`, or do not use the first row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check ctranslate2==4.8.5 numpy==2.4.6
"$folder/venv/bin/python" - "$folder/model" <<'PYTHON'
import os
import sys

import numpy as np
from ctranslate2 import Translator
from ctranslate2.specs import TransformerSpec

SIZE = 16
N_SOURCES = 5
WORDS = [f"word{i}" for i in range(20)]
VOCABULARY = ["<unk>", "<s>", "</s>", *WORDS]
rng = np.random.default_rng(1)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32)


def set_norm(layer):
    layer.layer_norm.gamma, layer.layer_norm.beta = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)


# A model with random weights
spec = TransformerSpec.from_config(num_layers=1, num_heads=2)
spec.encoder.embeddings[0].weight = random(len(VOCABULARY), SIZE)
spec.decoder.embeddings.weight = random(len(VOCABULARY), SIZE)
spec.decoder.projection.weight = random(len(VOCABULARY), SIZE)
for stack in (spec.encoder, spec.decoder):
    layer = stack.layer[0]
    linears = [*layer.self_attention.linear, layer.ffn.linear_0, layer.ffn.linear_1]
    shapes = [(3 * SIZE, SIZE), (SIZE, SIZE), (2 * SIZE, SIZE), (SIZE, 2 * SIZE)]
    norms = [stack, layer.self_attention, layer.ffn]
    if stack is spec.decoder:
        linears += layer.attention.linear
        shapes += [(SIZE, SIZE), (2 * SIZE, SIZE), (SIZE, SIZE)]
        norms.append(layer.attention)
    for linear, shape in zip(linears, shapes, strict=True):
        linear.weight = random(*shape) / 2
    for layer_with_norm in norms:
        set_norm(layer_with_norm)
spec.register_source_vocabulary(VOCABULARY)
spec.register_target_vocabulary(VOCABULARY)
spec.validate()
os.mkdir(sys.argv[1])
spec.save(sys.argv[1])
translator = Translator(sys.argv[1], device="cpu", compute_type="float32")


def translate(sources, beam, **options):
    options = {"return_attention": True, "max_decoding_length": 5, "min_decoding_length": 3} | options
    return translator.translate_batch(sources, beam_size=beam, **options)


def is_equal(rows, other_rows):
    return np.allclose(rows, other_rows, atol=1e-4)


sources = [rng.choice(WORDS, 4, replace=False).tolist() for _ in range(N_SOURCES)]
for beam in (1, 2, 3, 12):
    alone = [translate([source], beam)[0] for source in sources]
    batch = translate(sources, beam)
    assert [result.hypotheses for result in batch] == [result.hypotheses for result in alone]
    assert all(is_equal(a.attention[0][1:], b.attention[0][1:]) for a, b in zip(alone, batch, strict=True))
    owners = []  # the sources that have the first row of a result
    for result in batch:
        owners.append([i for i in range(N_SOURCES) if is_equal(alone[i].attention[0][0], result.attention[0][0])])
    print(f"beam {beam}: sources 0 to {N_SOURCES - 1} get the first row of {[i for (i,) in owners]}")
    is_affected = beam > 1 and 2 * beam <= len(VOCABULARY)
    assert owners == [[i // beam if is_affected else i] for i in range(N_SOURCES)], "the behavior has changed"

lengths = range(6, 6 - N_SOURCES, -1)
ragged = [rng.choice(WORDS, length, replace=False).tolist() for length in lengths]
results = translate(ragged, 2)
sums = [[sum(row) for row in result.attention[0]] for result in results]
print(f"sources of {[*lengths]} words: first rows sum to {[round(float(row_sums[0]), 2) for row_sums in sums]}")
assert min(row_sums[0] for row_sums in sums) < 0.9, "the behavior has changed"
assert all(is_equal(row_sums[1:], 1) for row_sums in sums)

penalty = {"coverage_penalty": 0.5, "return_scores": True}
in_batch = [result.scores[0] for result in translate(sources, 2, **penalty)]
alone = [translate([source], 2, **penalty)[0].scores[0] for source in sources]
print("scores with a coverage penalty, alone:     ", np.round(alone, 2))
print("scores with a coverage penalty, in a batch:", np.round(in_batch, 2))
assert not is_equal(alone, in_batch), "the behavior has changed"

prefixes = [result.hypotheses[0] for result in results]
forced = translate(ragged, 1, target_prefix=prefixes, max_decoding_length=6)
for source, prefix, result in zip(ragged, prefixes, forced, strict=True):
    [single] = translate([source], 2)
    assert is_equal(result.attention[0][: len(prefix)], single.attention[0]), "the workaround fails"
PYTHON
