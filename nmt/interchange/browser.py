"""Export of a model to a static page, which translates offline in the browser with Bergamot's engine, in int8.

model.bin is in Marian's binary format: the names, types and shapes of all arrays, then their values. Weight matrices
have 8 bits a value. The inputs of a matrix product are quantized by a multiplier ("alpha") that is measured on training
pairs. If the engine measured it on each batch, a translation would depend on the other texts of its batch.

The engine is not part of the export: npm installs it, and checks its hash.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.files import atomic_directory
from nmt.interchange import export, marian
from nmt.interchange.huggingface import layer_names
from nmt.model.transformer import Transformer
from nmt.text import PAD
from nmt.text.batches import collate
from nmt.translate.translator import Translator

PACKAGE = Path(__file__).parents[1]
STYLES = [PACKAGE / "insight/pages/base.css", PACKAGE / "serve/pages/serve.css"]
PAGE = [*Path(__file__).with_name("pages").iterdir(), *STYLES]  # files that are copied
FILES = {"config.json", "model.bin", "node_modules", "vocab.spm", "source.spm", "target.spm"}  # other files
N_PAIRS = 500  # number of training pairs on which the inputs of matrix products are measured
MULTIPLES = range(64, 1 << 20, 64)
SUPPORTED_BY_BERGAMOT = marian.SUPPORTED_BY_MARIAN | {"d_model": MULTIPLES, "d_ff": MULTIPLES}
PROJECTIONS = {"all": "Wemb", "decoder": "decoder_Wemb", "none": "decoder_ff_logit_out_W"}
VERSION = 1  # of the format
TYPES = {"int8": 0x101, "float32": 0x404}  # of the engine's arrays
INTGEMM8 = 0x4101  # type of a quantized matrix; Marian itself has another number for it
ALIGNMENT = 256  # bytes; the first value of a file is at a multiple of it

Arrays = dict[str, NDArray[Any]]


def to_browser(translator: Translator, path: Path) -> None:
    """Export a model, which must be on the CPU, to a directory with a page. An earlier export is replaced.

    Raises InputError if the engine does not support the model, if there are no training pairs, or if `path` exists and
    is not an export.
    """
    files = FILES | {file.name for file in PAGE}
    export.check_replaceable(path, files, ["package.json", "model.bin"], "bergamot-translator")
    model = export.exportable_model(translator, "Bergamot's engine", SUPPORTED_BY_BERGAMOT, unset=marian.UNSET)
    multipliers = activation_multipliers(translator, model)
    data, decode = translator.config.data, translator.config.decode
    with atomic_directory(path) as directory:
        # 1. Write the tokenizers. The engine needs a multiple of 8 pieces. The added ones are banned, as PAD is.
        names, tokens = marian.write_tokenizers(translator.tokenizers, directory)
        padded = [ids + [PAD] * (-len(ids) % 8) for ids in tokens]
        # 2. Write the model and the settings.
        arrays = marian.arrays(model, *padded) | multipliers
        (directory / "model.bin").write_bytes(binary(arrays))
        settings = {
            "languages": [data.source_lang, data.target_lang],
            "vocabularies": [f"{name}.spm" for name in names],
            "engine": {"beam-size": decode.beam, "normalize": decode.alpha},
        }
        (directory / "config.json").write_text(json.dumps(settings))
        # 3. Copy the page.
        for file in PAGE:
            shutil.copyfile(file, directory / file.name)


@torch.inference_mode()
def activation_multipliers(translator: Translator, model: Transformer) -> Arrays:
    """Return the multipliers of the inputs of matrix products. Their names are those of the matrices with a suffix.

    A multiplier maps the largest absolute value on training pairs to 127. Raises InputError if there are no such pairs.
    """
    settings = model.settings
    multipliers: Arrays = {}

    def note(matrices: Iterable[str], _: nn.Module, inputs: tuple[Tensor]) -> None:
        multiplier = 127 / inputs[0].abs().max().view(1, 1).numpy()
        for name in matrices:
            key = f"{name}_QuantMultA"
            multipliers[key] = np.minimum(multiplier, multipliers.get(key, multiplier))

    # 1. Watch the linear layers. The matrices of one layer have the same input.
    matrices = {"projection": [PROJECTIONS[settings.tied_embeddings]]}
    for ours, theirs in layer_names(settings.n_encoder_layers, settings.n_decoder_layers, settings.norm).items():
        matrices[ours] = [marian.array_name(f"{name}.weight") for name in theirs]
    layers = [(names, model.get_submodule(layer)) for layer, names in matrices.items()]
    hooks = [layer.register_forward_pre_hook(partial(note, names)) for names, layer in layers]
    # 2. Run the model on one pair after another. In batches, padding would be measured, too.
    for pair in export.training_pairs(translator, "multipliers of activations are", N_PAIRS):
        batch = collate(*translator.encode_pairs([pair.source], [pair.target]), [0])
        model(batch.src, batch.tgt_in)
    for hook in hooks:
        hook.remove()
    return multipliers


def binary(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of model.bin. Matrices are quantized; other arrays are written as they are."""
    headers, names, shapes, values = [VERSION, len(arrays)], b"", b"", b""
    for name, array in arrays.items():
        # 1. The engine expects a projection that is not tied as (D, V).
        if name == "decoder_ff_logit_out_Wt":
            name, array = PROJECTIONS["none"], array.T
        # 2. Quantize a matrix. All but embeddings are transposed.
        kind, content = TYPES[array.dtype.name], array.tobytes()
        if array.ndim == 2 and len(array) > 1:
            kind, content = INTGEMM8, quantized(array if name.endswith("Wemb") else array.T)
        # 3. Add the array.
        headers += [len(name) + 1, kind, array.ndim, len(content)]
        names += name.encode() + b"\0"
        shapes += np.array(array.shape, np.int32).tobytes()
        values += content
    start = np.array(headers, np.uint64).tobytes() + names + shapes
    padding = -(len(start) + 8) % ALIGNMENT
    return start + padding.to_bytes(8, "little") + bytes(padding) + values


def quantized(matrix: NDArray[np.float32]) -> bytes:
    """Return the values as int8, then the multiplier that maps the largest absolute value to 127."""
    multiplier: np.float32 = 127 / np.abs(matrix).max()
    return np.rint(matrix * multiplier).astype(np.int8).tobytes() + multiplier.tobytes()
