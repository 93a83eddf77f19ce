"""Export of a model to a static page, which translates offline in the browser with Bergamot's engine, in int8.

model.bin is in Marian's binary format: the names, types and shapes of all arrays, then their values. Weight matrices
have 8 bits a value. The inputs of a matrix product are quantized by a multiplier ("alpha") that is measured on training
pairs. If the engine measured it on each batch, a translation would depend on the other texts of its batch.

The engine is not part of the export: npm installs it, and checks its hash.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.errors import InputError
from nmt.files import atomic_directory
from nmt.interchange import export, marian
from nmt.interchange.huggingface import layer_names
from nmt.model.transformer import Transformer
from nmt.text import PAD
from nmt.text.batches import collate
from nmt.text.lines import iter_pairs
from nmt.train.corpora import corpus_paths, training_corpora
from nmt.translate.translator import Translator

PAGES = Path(__file__).with_name("pages")  # files of every export
FILES = {"config.json", "model.bin", "node_modules", "vocab.spm", "source.spm", "target.spm"}  # other files
N_PAIRS = 500  # number of training pairs on which the inputs of matrix products are measured
PROJECTIONS = {"all": "Wemb", "decoder": "decoder_Wemb", "none": "decoder_ff_logit_out_W"}
VERSION = 1  # of the format
INT8, FLOAT32, INTGEMM8 = 0x101, 0x404, 0x4101  # types of the engine's arrays; in Marian, INTGEMM8 is another number
ALIGNMENT = 256  # bytes; the first value of a file is at a multiple of it

Arrays = dict[str, NDArray[Any]]


def to_browser(translator: Translator, path: Path) -> None:
    """Export a model, which must be on the CPU, to a directory with a page. An earlier export is replaced.

    Raises InputError if the engine does not support the model, if there are no training pairs, or if `path` exists and
    is not an export.
    """
    files = FILES | {file.name for file in PAGES.iterdir()}
    export.check_replaceable(path, files, ["package.json", "model.bin"], "bergamot-translator")
    model = marian.exportable(translator, "Bergamot's engine")
    for key in ("d_model", "d_ff"):
        if (size := getattr(model.settings, key)) % 64:
            reason = f"Bergamot's engine does not support model.{key}={size}"
            raise InputError(reason, hint="train with a multiple of 64")
    multipliers = activation_multipliers(model, calibration_pairs(translator))
    data, decode = translator.config.data, translator.config.decode
    with atomic_directory(path) as directory:
        # 1. Write the tokenizers. The engine needs a multiple of 8 pieces. The added ones are banned, as PAD is.
        names, tokens = marian.write_tokenizers(translator.tokenizers, directory)
        padded = [ids + [PAD] * (-len(ids) % 8) for ids in tokens]
        # 2. Write the model and the settings.
        arrays = marian.arrays(model, *padded) | multipliers
        (directory / "model.bin").write_bytes(binary(arrays))
        settings = {
            "source": data.source_lang,
            "target": data.target_lang,
            "vocabularies": [f"{name}.spm" for name in dict.fromkeys(names)],
            "engine": {"beam-size": decode.beam, "normalize": decode.alpha},
        }
        (directory / "config.json").write_text(json.dumps(settings, indent=2))
        # 3. Copy the page.
        shutil.copytree(PAGES, directory, dirs_exist_ok=True)


def calibration_pairs(translator: Translator) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the token ids of training pairs. Raises InputError if the translator has no run, or if its text is lost."""
    if translator.run is None:
        raise InputError("activations are measured on the training text of a run", hint="give the run with -m")
    config = translator.run.read_config()
    corpora = (iter_pairs(*corpus_paths(config, files)) for files in training_corpora(config).values())
    pairs = list(islice(chain.from_iterable(corpora), N_PAIRS))
    source, target = translator.encode_pairs([pair.source for pair in pairs], [pair.target for pair in pairs])
    yield from zip(source, target, strict=True)


@torch.inference_mode()
def activation_multipliers(model: Transformer, pairs: Iterator[tuple[list[int], list[int]]]) -> Arrays:
    """Return the multipliers of the inputs of matrix products. Their names are those of the matrices with a suffix.

    A multiplier maps the largest absolute value on all pairs to 127.
    """
    settings = model.settings
    largest = defaultdict[str, float](float)

    def note(name: str, _: nn.Module, inputs: tuple[Tensor]) -> None:
        largest[name] = max(largest[name], inputs[0].abs().max().item())

    # 1. Run the model on the pairs.
    names = {"projection": [PROJECTIONS[settings.tied_embeddings]]}
    for ours, theirs in layer_names(settings.n_encoder_layers, settings.n_decoder_layers, settings.norm).items():
        names[ours] = [marian.array_name(f"{name}.weight") for name in theirs]
    hooks = [model.get_submodule(name).register_forward_pre_hook(partial(note, name)) for name in names]
    for source, target in pairs:
        batch = collate([source], [target], [0])
        model(batch.src, batch.tgt_in)
    for hook in hooks:
        hook.remove()
    # 2. Matrices of one linear layer have the same input.
    return {
        f"{matrix}_QuantMultA": np.array([[127 / value]], np.float32)
        for name, value in largest.items()
        for matrix in names[name]
    }


def binary(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of model.bin. Matrices are quantized; other arrays are written as they are."""
    headers, names, shapes, values = [], b"", b"", b""
    for name, array in arrays.items():
        # 1. The engine expects a projection that is not tied as (D, V).
        if name == "decoder_ff_logit_out_Wt":
            name, array = PROJECTIONS["none"], array.T
        kind = INT8 if array.dtype == np.int8 else FLOAT32
        content = array.tobytes()
        if array.ndim == 2 and len(array) > 1:
            kind = INTGEMM8
            content = quantized(array if name.endswith("Wemb") else array.T)
        # 2. Add the array.
        encoded = name.encode() + b"\0"
        headers += [len(encoded), kind, array.ndim, len(content)]
        names += encoded
        shapes += np.array(array.shape, np.int32).tobytes()
        values += content
    start = np.array([VERSION, len(arrays), *headers], np.uint64).tobytes() + names + shapes
    padding = -(len(start) + 8) % ALIGNMENT
    return start + np.uint64(padding).tobytes() + bytes(padding) + values


def quantized(matrix: NDArray[np.float32]) -> bytes:
    """Return the values as int8, then the multiplier that maps the largest absolute value to 127."""
    multiplier = np.float32(127) / np.abs(matrix).max()
    return np.rint(matrix * multiplier).astype(np.int8).tobytes() + multiplier.tobytes()
