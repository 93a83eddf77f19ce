"""Export of a model to a directory in Hugging Face's format, for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.

    config.json, generation_config.json, model.safetensors    for MarianMTModel if the model is post-norm, else for
                                                              PegasusForConditionalGeneration
    source.spm, target.spm, vocab.json, target_vocab.json,    for MarianTokenizer; target_vocab.json is written only if
    tokenizer_config.json                                     each side has its own vocabulary
    README.md                                                 an example of how to use the export

In both model classes, a sinusoid vector has all sines before all cosines. In ours, sines and cosines alternate.
Therefore the export permutes the D features of the residual stream, and of all matrices that read or write the stream.
"""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from nmt.config import Config, ModelSettings, languages_of
from nmt.decode.engines.ctranslate2_engine import SUPPORTED
from nmt.errors import NmtError
from nmt.files import atomic_directory, atomic_write, write_json
from nmt.interchange import export
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import tag_of, without_vocabulary
from nmt.translate.translator import Translator

log = logging.getLogger("nmt")

# Key: value of model.norm; value: model type and class in transformers.
CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
# The supported settings, by `model.norm`. MarianMTModel always computes its sinusoids, which differ from those of
# Marian. Pegasus reads a table of positions from the file, so it supports all positions.
BOTH: dict[str, tuple[object, ...]] = {"norm_epsilon": (1e-5,), "start": ("bos",)}
SUPPORTED_BY_NORM: dict[str, dict[str, tuple[object, ...]]] = {
    "post": {"positions": ("sinusoidal",), **BOTH},
    "pre": {"positions": ("sinusoidal", "learned", "none"), "tied_embeddings": ("all",), **BOTH},
}
FILES = {  # names of all files that an export may contain
    "config.json",
    "model.safetensors",
    "generation_config.json",
    "README.md",
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "tokenizer_config.json",
}
SPECIAL = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
SETTINGS = {  # key: name of a setting in transformers; value: name of the setting in our section `model`
    "d_model": "d_model",
    "encoder_layers": "n_encoder_layers",
    "decoder_layers": "n_decoder_layers",
    "encoder_attention_heads": "n_heads",
    "decoder_attention_heads": "n_heads",
    "encoder_ffn_dim": "d_ff",
    "decoder_ffn_dim": "d_ff",
    "activation_function": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "max_position_embeddings": "max_positions",
}
# Key: part of our encoder layer; value: the parts of transformers that have its weights, in this order.
LAYER = {
    "self_attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_attention_residual.norm": ("self_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.norm": ("final_layer_norm",),
}
DECODER_LAYER = LAYER | {
    "cross_attention.query": ("encoder_attn.q_proj",),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_attention_residual.norm": ("encoder_attn_layer_norm",),
}
# These linear layers read the residual stream. All other linear layers write to the residual stream.
READERS = ("query_key_value", "query", "key_value", "inner")
N_CHECKED = 8  # number of random texts on which both tokenizers are compared
CARD = """\
---
library_name: transformers
pipeline_tag: translation
---

# {name}

A Transformer trained with nmt.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
inputs = tokenizer(["…"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```
"""
TOLERANCE = 1e-3  # maximum difference of log-probabilities, in nats; rounding causes differences of about 1e-6


def to_huggingface(translator: Translator, path: Path) -> None:
    """Export a model, which must be on the CPU, to a directory for transformers. An earlier export is replaced.

    transformers loads the export, and its results are compared with ours. Without transformers, log a warning instead.

    Raises:
        InputError: the format does not support the model, or `path` exists and is not an export.
        NmtError: transformers' tokens or log-probabilities differ from ours.
    """
    export.check_replaceable(path, FILES, ["README.md", "source.spm"], "trained with nmt")
    norm = translator.config.model.norm
    supported = SUPPORTED | SUPPORTED_BY_NORM[norm]
    model = export.exportable_model(translator, CLASSES[norm][1], supported, unset=("nfkc_source", "target_tag"))
    # Import transformers before the directory is made: a signal during an import ends the process without cleanup.
    transformers = import_transformers()
    config = translator.config
    with atomic_directory(path, kept=export.KEPT) as directory:
        # 1. Write the files.
        atomic_write(directory / "model.safetensors", save(weights(model), {"format": "pt"}))
        write_json(directory / "config.json", model_config(config.model, n_rows(model)))
        write_json(directory / "generation_config.json", generation_settings(translator, model))
        write_tokenizers(directory, translator.tokenizers, config)
        atomic_write(directory / "README.md", CARD.format(name=path.name))

        # 2. Load the files with transformers, and compare pieces and log-probabilities with nmt's.
        if transformers is None:
            return
        loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
        check_pieces(translator, tokenizer)
        difference = check_log_probs(translator, model, loaded.eval())
    log.info("checked: pieces are the same, log-probabilities differ by at most %.1g nats", difference)


def model_config(settings: ModelSettings, vocab_size: int) -> dict[str, Any]:
    """Return the content of config.json. `vocab_size` is the number of rows of each embedding."""
    model_type, architecture = CLASSES[settings.norm]
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "is_encoder_decoder": True,
        "vocab_size": vocab_size,
    }
    if model_type == "marian":
        config["share_encoder_decoder_embeddings"] = settings.tied_embeddings == "all"
        config["decoder_vocab_size"] = vocab_size
    config["tie_word_embeddings"] = settings.tied_embeddings != "none"
    for theirs, ours in SETTINGS.items():
        config[theirs] = getattr(settings, ours)
    return {
        **config,
        "scale_embedding": True,  # embeddings are multiplied by sqrt(D)
        **SPECIAL,
        "forced_eos_token_id": None,  # set in generation_config.json; the default is not our EOS
        "use_cache": True,
        "dtype": "float32",
    }


def generation_settings(translator: Translator, model: Transformer) -> dict[str, Any]:
    """Return the content of generation_config.json, the default settings of `generate`."""
    decode = translator.config.decode
    longest = translator.options.limit(translator.config.data.max_length + 1, model_limit=model.max_length)
    return {
        "num_beams": decode.beam,
        "length_penalty": decode.alpha,
        "early_stopping": False,  # the stopping rule of our search
        # `generate` has no limit that depends on the length of the source. Its limit counts BOS, too.
        "max_length": longest + 1,
        "min_new_tokens": decode.min_length,
        **SPECIAL,
        "forced_eos_token_id": EOS,  # `generate` ends a text at max_length tokens with EOS
    }


def n_rows(model: Transformer) -> int:
    """Return the number of rows of both exported embeddings: the size of the larger vocabulary.

    Both are equal, because transformers 4 has only one vocabulary size.
    """
    return max(model.source_embedding.num_embeddings, model.target_embedding.num_embeddings)


def weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights as transformers names them and orders their features. Tied weights appear once."""
    settings = model.settings
    rows = n_rows(model)
    order = sines_first(settings.d_model)

    def matrix(x: Tensor) -> Tensor:  # maps an embedding (V, D) to (rows, D)
        return nn.functional.pad(x.detach()[:, order], (0, 0, 0, rows - len(x)))

    # 1. Convert the bias of the logits, the embeddings and the projection. All of them get the same number of rows.
    bias = export.logits_bias(model)
    bias = nn.functional.pad(bias, (0, rows - len(bias)), value=export.BAN)
    tensors = {"final_logits_bias": bias[None]}
    if settings.tied_embeddings == "all":
        tensors["model.shared.weight"] = matrix(model.source_embedding.weight)
    else:
        tensors["model.encoder.embed_tokens.weight"] = matrix(model.source_embedding.weight)
        tensors["model.decoder.embed_tokens.weight"] = matrix(model.target_embedding.weight)
    if settings.tied_embeddings == "none":
        tensors["lm_head.weight"] = matrix(model.projection.weight)

    # 2. Convert linear layers and norms.
    state = model.state_dict()
    for ours, theirs in layer_names(settings.n_encoder_layers, settings.n_decoder_layers, settings.norm).items():
        weight, bias = permuted(ours, state[f"{ours}.weight"], state[f"{ours}.bias"], order)
        # Each layer of transformers gets an equal share of the rows of our layer.
        n = len(theirs)
        for name, weight_part, bias_part in zip(theirs, weight.chunk(n), bias.chunk(n), strict=True):
            tensors[f"{name}.weight"] = weight_part
            tensors[f"{name}.bias"] = bias_part

    # 3. Write the position tables, which only Pegasus has.
    if settings.norm == "pre":
        source_positions = export.position_table(model, model.source_positions)
        target_positions = export.position_table(model, model.target_positions)
        tensors["model.encoder.embed_positions.weight"] = source_positions[:, order]
        tensors["model.decoder.embed_positions.weight"] = target_positions[:, order]
    return {name: x.detach().float().contiguous() for name, x in tensors.items()}


def sines_first(d_model: int) -> Tensor:
    """Return indices (D,) that put all sines before all cosines: the even indices, then the odd indices."""
    index = torch.arange(d_model)
    return torch.cat([index[0::2], index[1::2]])


def layer_names(n_encoder_layers: int, n_decoder_layers: int, norm: str) -> dict[str, tuple[str, ...]]:
    """Map the name of each of our linear layers and norms to transformers' names of the same weights; see `LAYER`."""
    names = stack_names("encoder", n_encoder_layers, LAYER) | stack_names("decoder", n_decoder_layers, DECODER_LAYER)
    if norm == "pre":
        names["encoder_norm"] = ("model.encoder.layer_norm",)
        names["decoder_norm"] = ("model.decoder.layer_norm",)
    return names


def stack_names(stack: str, n_layers: int, parts: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    names = {}
    for i in range(n_layers):
        for ours, theirs in parts.items():
            prefix = f"model.{stack}.layers.{i}"
            names[f"{stack}.{i}.{ours}"] = tuple(f"{prefix}.{name}" for name in theirs)
    return names


def permuted(ours: str, weight: Tensor, bias: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight and bias of our layer `ours`, with the residual stream's features in the given order."""
    if ours.endswith(READERS):
        return weight[:, order], bias
    return weight[order], bias[order]


def write_tokenizers(directory: Path, tokenizers: Tokenizers, config: Config) -> None:
    """Write the files from which transformers loads a MarianTokenizer."""
    # MarianTokenizer reads vocabularies from JSON files, so remove them from the SentencePiece models.
    source, target = tokenizers
    (directory / "source.spm").write_bytes(without_vocabulary(source.model))
    (directory / "target.spm").write_bytes(without_vocabulary(target.model))
    write_json(directory / "vocab.json", vocabulary(source))
    if not tokenizers.one_vocabulary:
        write_json(directory / "target_vocab.json", vocabulary(target))
    pad, unk, bos, eos = source.pieces([PAD, UNK, BOS, EOS])
    special = {"pad_token": pad, "unk_token": unk, "bos_token": bos, "eos_token": eos}
    source_lang, target_lang = languages_of(config.data)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        **special,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "separate_vocabs": not tokenizers.one_vocabulary,
        "model_max_length": config.model.max_positions,
        "split_special_tokens": True,  # the text "</s>" does not become EOS
        "clean_up_tokenization_spaces": False,
    }
    write_json(directory / "tokenizer_config.json", settings)


def vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    pieces = tokenizer.pieces(range(len(tokenizer)))
    return {piece: i for i, piece in enumerate(pieces)}


def import_transformers() -> Any:
    """Import transformers, and turn off its warnings and progress bars.

    If transformers is not installed, log a warning and return None.
    """
    try:
        import transformers
        from transformers.utils import logging as their_logging
    except ImportError:
        advice = "pip install 'transformers>=4.57', and try again"
        log.warning("log-probabilities are not compared, because transformers is not installed: %s", advice)
        return None
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="transformers")
    return transformers


def check_pieces(translator: Translator, tokenizer: Any) -> None:
    """Raise NmtError if `tokenizer`, a MarianTokenizer, splits random texts into other pieces than our tokenizer."""
    source = translator.tokenizers.source
    tag = "".join(map(tag_of, source.targets[:1]))
    generator = torch.Generator().manual_seed(1)
    random_tokens = torch.randint(EOS + 1, len(source), (N_CHECKED, 20), generator=generator)
    for tokens in random_tokens.tolist():
        text = tag + source.decode(tokens)
        if tokenizer([text]).input_ids[0] != [*source.encode(text), EOS]:
            raise NmtError(f"MarianTokenizer gives other pieces to '{text}'", hint="translate with nmt itself")


def check_log_probs(translator: Translator, model: Transformer, theirs: Any) -> float:
    """Return the largest difference between the log-probabilities of our model and `theirs`, in nats.

    `theirs` is the model that transformers loaded. Raises NmtError if the difference is above `TOLERANCE`.
    """
    source, target = translator.tokenizers
    rows = torch.arange(len(source)), torch.arange(len(target))
    return export.compare_with_transformers(model, theirs, *rows, TOLERANCE, "transformers'")
