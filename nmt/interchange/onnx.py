"""Export to a directory with ONNX graphs for ONNX Runtime and transformers.js. optimum traces the Hugging Face export.

    onnx/encoder_model.onnx           token ids to encoder memory
    onnx/decoder_model_merged.onnx    one decoder step: the first without a KV cache, the next ones with it
    config.json, generation_config.json, README.md and the tokenizer    as huggingface.py writes them
    tokenizer.json                    for transformers.js; only if this format supports the tokenizer

The graphs of post- and pre-norm models have the same inputs and outputs. transformers.js supports only Marian, so
config.json always names Marian. The name does not matter otherwise, because the weights are in the graphs. In
tokenizer.json, text such as `</s>` is parsed as the special piece; for unigram models, transformers.js does not support
byte fallback: characters outside of the vocabulary become <unk>.
"""

import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.decode.translator import Translator
from nmt.errors import InputError
from nmt.files import atomic_directory, atomic_write, sync
from nmt.interchange import huggingface
from nmt.interchange.export import check_replaceable
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.subword_sampling import SPACE
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import vocabulary_of

log = logging.getLogger("nmt")

GRAPHS = ("encoder_model.onnx", "decoder_model_merged.onnx")
KINDS = ("unigram", "bpe", "char")  # values of tokenizer.type that tokenizer.json supports
NEVER = -1e4  # score of special and byte pieces, which keeps them out of segmentations; others are above -100
FILES = (huggingface.FILES - {"model.safetensors"}) | {"onnx", "tokenizer.json"}


def to_onnx(translator: Translator, path: Path) -> None:
    """Export a model to a directory for ONNX Runtime, if it computes what nmt does. Replaces an earlier export.

    Raises the errors of `to_huggingface`, and InputError if optimum is not installed.
    """
    check_replaceable(path, FILES, "onnx")
    model = huggingface.holdable_model(translator)
    main_export, runtime, tokenizers = import_optimum()
    with warnings.catch_warnings(action="ignore"), atomic_directory(path) as directory:  # tracing warns
        huggingface.write_huggingface(
            directory, translator, model, path.name, "optimum.onnxruntime.ORTModelForSeq2SeqLM"
        )
        graphs, task = directory / "onnx", "text2text-generation-with-past"
        main_export(str(directory), graphs, task=task, do_validation=False, local_files_only=True)
        (directory / "model.safetensors").unlink()
        for file in graphs.iterdir():
            if file.name in GRAPHS:
                sync(file)
            else:
                file.unlink()
        write_for_browsers(directory, translator)
        loaded = runtime.from_pretrained(directory, local_files_only=True)
        tokenizer = tokenizers.from_pretrained(directory, local_files_only=True)
        huggingface.check_log_probs(translator, model, loaded, tokenizer)


def import_optimum() -> tuple[Any, Any, Any]:
    """Import optimum's export function and its model class for ONNX Runtime, and transformers' MarianTokenizer."""
    try:
        from optimum.exporters.onnx import main_export
        from optimum.onnxruntime import ORTModelForSeq2SeqLM

        transformers = huggingface.import_transformers()
    except ImportError as error:
        hint = "pip install 'optimum-onnx[onnxruntime]>=0.1'"
        raise InputError(f"optimum for ONNX Runtime is not installed: {error}", hint=hint) from error
    logging.getLogger("optimum").setLevel(logging.ERROR)  # no messages about tied weights
    return main_export, ORTModelForSeq2SeqLM, transformers.MarianTokenizer


def write_for_browsers(directory: Path, translator: Translator) -> None:
    """Adapt config.json to transformers.js, and write tokenizer.json if this format supports the tokenizer."""
    file = directory / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | {"model_type": "marian", "architectures": ["MarianMTModel"]}
    atomic_write(file, json.dumps(config, indent=2) + "\n")
    kind, tokenizers = translator.config.tokenizer.type, translator.tokenizers
    if kind not in KINDS or not tokenizers.joint or vocabulary_of(tokenizers.source.model):
        kinds = ", ".join(KINDS)
        log.warning("no tokenizer.json for transformers.js, which needs nmt's own tokenizer of both sides: %s", kinds)
    else:
        atomic_write(directory / "tokenizer.json", tokenizer_json(tokenizers.source, kind))


def tokenizer_json(tokenizer: Tokenizer, kind: str) -> str:
    """Convert a SentencePiece model to tokenizer.json by Hugging Face's tokenizers; `kind` is one of `KINDS`."""
    from tokenizers import AddedToken, decoders, models, normalizers, processors
    from tokenizers import Tokenizer as Fast

    pieces = tokenizer.pieces(range(len(tokenizer)))
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    is_byte = [processor.is_byte(i) for i in range(len(pieces))]
    scores = {piece: processor.get_score(i) for i, piece in enumerate(pieces) if i > EOS and not is_byte[i]}
    if kind == "unigram":
        scored = [(piece, scores.get(piece, NEVER)) for piece in pieces]
        model: Any = models.Unigram(scored, unk_id=UNK, byte_fallback=any(is_byte))
    else:
        ids = {piece: i for i, piece in enumerate(pieces)}
        model = models.BPE(ids, merges(scores), unk_token=pieces[UNK], fuse_unk=True, byte_fallback=any(is_byte))
    found = Fast(model)
    found.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    found.post_processor = processors.TemplateProcessing(["$A", pieces[EOS]], special_tokens=[(pieces[EOS], EOS)])
    to_text = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    found.decoder = decoders.Sequence(to_text)
    found.add_special_tokens([AddedToken(pieces[i], normalized=False, special=True) for i in (PAD, UNK, BOS, EOS)])
    return str(found.to_str())


def merges(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return all pairs of pieces that form another piece, the highest score first.

    SentencePiece has no list of merges: it merges any two adjacent pieces that form a piece, the highest score first.
    """
    by_score = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    parts = [(piece[:i], piece[i:]) for piece in by_score for i in range(1, len(piece))]
    return [pair for pair in parts if pair[0] in scores and pair[1] in scores]
