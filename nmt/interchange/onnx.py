"""Export to a directory with ONNX graphs for ONNX Runtime and transformers.js. optimum traces the Hugging Face export.

    onnx/encoder_model.onnx           token ids to encoder memory
    onnx/decoder_model_merged.onnx    one decoder step: the first without a KV cache, the next ones with it
    config.json, generation_config.json, README.md and the tokenizer    as huggingface.py writes them
    tokenizer.json                    for transformers.js; only if this format supports the tokenizer

The graphs of post- and pre-norm models have the same inputs and outputs. transformers.js supports only Marian, so
config.json always names Marian. The name does not matter otherwise, because the weights are in the graphs.
"""

import json
import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

from nmt.decode.translator import Translator
from nmt.errors import InputError
from nmt.files import atomic_directory, atomic_write, sync
from nmt.interchange import huggingface
from nmt.interchange.export import check_replaceable
from nmt.interchange.tokenizer_json import KINDS, tokenizer_json

log = logging.getLogger("nmt")

GRAPHS = ("encoder_model.onnx", "decoder_model_merged.onnx")
FILES = (huggingface.FILES - {"model.safetensors"}) | {"onnx", "tokenizer.json"}
USE = """\
```python
from optimum.onnxruntime import ORTModelForSeq2SeqLM
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = ORTModelForSeq2SeqLM.from_pretrained("{name}")
inputs = tokenizer(["…"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```
"""


def to_onnx(translator: Translator, path: Path) -> None:
    """Export a model to a directory for ONNX Runtime, if it computes what nmt does. Replaces an earlier export.

    Raises:
        InputError: optimum is not installed, the format does not support the model, or `path` is not an export.
        NmtError: ONNX Runtime's log-probabilities differ from nmt's.
    """
    check_replaceable(path, FILES, "onnx")
    model = huggingface.holdable_model(translator)
    with huggingface.quiet_transformers():
        main_export, runtime, tokenizers = import_optimum()
        logging.getLogger("optimum").setLevel(logging.ERROR)  # no messages about tied weights
        with atomic_directory(path) as directory:
            held = directory / "huggingface"
            held.mkdir()
            huggingface.write_huggingface(held, translator, model, path.name, USE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # tracing warns
                task = "text2text-generation-with-past"
                main_export(str(held), directory / "onnx", task=task, do_validation=False, local_files_only=True)
            arrange(directory, held)
            write_for_browsers(directory, translator)
            loaded = runtime.from_pretrained(directory, local_files_only=True)
            tokenizer = tokenizers.from_pretrained(directory, local_files_only=True)
            huggingface.check_log_probs(translator, model, loaded, tokenizer)


def import_optimum() -> tuple[Any, Any, Any]:
    """Import optimum's export function and its model class for ONNX Runtime, and transformers' MarianTokenizer."""
    try:
        from optimum.exporters.onnx import main_export
        from optimum.onnxruntime import ORTModelForSeq2SeqLM
        from transformers import MarianTokenizer
    except ImportError as error:
        hint = "pip install 'optimum-onnx[onnxruntime]>=0.1'"
        raise InputError(f"optimum for ONNX Runtime is not installed: {error}", hint=hint) from error
    return main_export, ORTModelForSeq2SeqLM, MarianTokenizer


def arrange(directory: Path, held: Path) -> None:
    """Keep only the two graphs in onnx/, and move the files in `held` to `directory`, except the weights."""
    for file in (directory / "onnx").iterdir():
        if file.name in GRAPHS:
            sync(file)
        else:
            file.unlink()
    (held / "model.safetensors").unlink()
    for file in held.iterdir():
        file.rename(directory / file.name)
    shutil.rmtree(held)


def write_for_browsers(directory: Path, translator: Translator) -> None:
    """Adapt config.json to transformers.js, and write tokenizer.json if this format supports the tokenizer."""
    file = directory / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | {"model_type": "marian", "architectures": ["MarianMTModel"]}
    atomic_write(file, json.dumps(config, indent=2) + "\n")
    kind, tokenizers = translator.config.tokenizer.type, translator.tokenizers
    if kind not in KINDS or not tokenizers.joint:
        reason = f"tokenizer.type={kind}" if kind not in KINDS else "tokenizer.joint=false"
        log.warning("no tokenizer.json is written, because transformers.js does not support %s", reason)
        return
    atomic_write(directory / "tokenizer.json", tokenizer_json(tokenizers.source, kind))
