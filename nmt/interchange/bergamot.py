"""Export of a model to a static page, which translates offline in the browser with Bergamot's engine, in int8.

model.bin is in Marian's binary format: the names, types and shapes of all arrays, then their values. Weight matrices
have 8 bits a value. The inputs of a matrix product are quantized by a multiplier ("alpha") that is measured on training
pairs. If the engine measured it on each batch, a translation would depend on the other texts of its batch.

The engine is not part of the export: npm installs it, and checks its hash.
"""

import shutil
from array import array
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from nmt.config import languages_of
from nmt.files import atomic_directory, write_json
from nmt.interchange import export, marian
from nmt.interchange.huggingface import layer_names
from nmt.model.transformer import Transformer
from nmt.text import PAD
from nmt.text.batches import collate
from nmt.translate.translator import Translator

PACKAGE = Path(__file__).parents[1]
PAGE = [  # files that are copied
    *PACKAGE.glob("interchange/pages/*"),
    PACKAGE / "insight/pages/base.css",
    PACKAGE / "serve/pages/serve.css",
]
FILES = {"config.json", "model.bin", "vocab.spm", "source.spm", "target.spm"}  # other files
N_PAIRS = 500  # number of training pairs on which the inputs of matrix products are measured
MULTIPLES = range(0, 1_000_000, 64)
SUPPORTED_BY_BERGAMOT = marian.SUPPORTED_BY_MARIAN | {"d_model": MULTIPLES, "d_ff": MULTIPLES}
PROJECTIONS = {"all": "Wemb", "decoder": "decoder_Wemb", "none": "decoder_ff_logit_out_W"}
SUFFIX = "_QuantMultA"  # of the names of multipliers
TYPES = {"int8": 0x101, "float32": 0x404}  # of the engine's arrays
INTGEMM8 = 0x4101  # type of a quantized matrix; Marian itself has another number for it


def to_browser(translator: Translator, path: Path) -> None:
    """Export a model, which must be on the CPU, to a directory with a page. An earlier export is replaced.

    Raises InputError if the engine does not support the model, if there are no training pairs, or if `path` exists and
    is not an export.
    """
    files = FILES | {file.name for file in PAGE}
    export.check_replaceable(path, files, ["package.json", "model.bin"], "bergamot-translator")
    model = export.exportable_model(translator, "Bergamot's engine", SUPPORTED_BY_BERGAMOT, unset=marian.UNSET)
    multipliers = activation_multipliers(translator, model)
    with atomic_directory(path, kept=export.KEPT) as directory:
        # 1. Write the tokenizers. The engine needs a multiple of 8 pieces. The added ones are banned, as PAD is.
        names, tokens = marian.write_tokenizers(translator.tokenizers, directory)
        for ids in tokens:
            ids += [PAD] * (-len(ids) % 8)
        # 2. Write the model and the settings.
        content = binary(marian.arrays(model, *tokens) | multipliers)
        (directory / "model.bin").write_bytes(content)
        settings = {
            "languages": languages_of(translator.config.data),
            "vocabularies": names,
            "decode": translator.config.decode.model_dump(),
        }
        write_json(directory / "config.json", settings)
        # 3. Copy the page.
        for file in PAGE:
            shutil.copy(file, directory)


@torch.inference_mode()
def activation_multipliers(translator: Translator, model: Transformer) -> dict[str, NDArray[Any]]:
    """Return the multipliers of the inputs of matrix products. Their names are those of the matrices with a suffix.

    A multiplier maps the largest absolute value on training pairs to 127. Raises InputError if there are no such pairs.
    """
    settings = model.settings
    multipliers: dict[str, NDArray[Any]] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        for name in names_of.get(layer, []):
            largest = inputs[0].abs().amax((1, 2))
            multiplier = 127 / largest.numpy()
            multipliers[name] = np.minimum(multiplier, multipliers.get(name, multiplier))

    # 1. Name the multipliers of each linear layer. Its matrices have the same input.
    names_of: dict[nn.Module, list[str]] = {model.projection: [PROJECTIONS[settings.tied_embeddings] + SUFFIX]}
    for ours, theirs in layer_names(settings.n_encoder_layers, settings.n_decoder_layers, settings.norm).items():
        layer = model.get_submodule(ours)
        if isinstance(layer, nn.Linear):
            names_of[layer] = [marian.array_name(f"{name}.weight") + SUFFIX for name in theirs]
    # 2. Run the model on one pair after another. In batches, padding would be measured, too.
    with register_module_forward_pre_hook(note):
        for pair in islice(export.training_pairs(translator), N_PAIRS):
            batch = collate(*translator.encode_pairs([pair.source], [pair.target]), [0])
            model(batch.src, batch.tgt_in)
    return multipliers


def binary(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of model.bin. Matrices are quantized; other arrays are written as they are."""
    headers = [1, len(arrays)]  # the version of the format
    names = b""
    shapes = b""
    values = bytearray()
    for name, x in arrays.items():
        # 1. The engine expects a projection that is not tied as (D, V).
        if name == "decoder_ff_logit_out_Wt":
            name = PROJECTIONS["none"]
            x = x.T
        # 2. Quantize a matrix. All but embeddings are transposed.
        kind = TYPES[x.dtype.name]
        content = x.tobytes()
        if x.ndim == 2 and len(x) > 1:
            kind = INTGEMM8
            content = quantized(x if name.endswith("Wemb") else x.T)
        # 3. Add the array.
        headers += [len(name) + 1, kind, x.ndim, len(content)]
        names += name.encode() + b"\0"
        shapes += array("i", x.shape).tobytes()
        values += content
    # 4. Write 0 bytes of padding, because the engine copies all values.
    start = array("Q", headers).tobytes()
    return start + names + shapes + bytes(8) + values


def quantized(matrix: NDArray[np.float32]) -> bytes:
    """Return the values as int8, then the multiplier that maps the largest absolute value to 127."""
    multiplier = 127 / np.abs(matrix).max()
    values = np.rint(matrix * multiplier).astype(np.int8)
    return bytes(values) + bytes(multiplier)
