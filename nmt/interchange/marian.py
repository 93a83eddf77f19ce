"""Import of Marian models in Hugging Face's format, such as those of OPUS-MT, as runs.

The import converts what is different in Marian:

- EOS has id 0, UNK has id 1 and PAD has the last id. The import puts the rows of embeddings into our order.
- The decoder starts with PAD. Our BOS gets a copy of the row of PAD, and a bias that excludes BOS from the softmax.
- A sinusoid vector has all sines before all cosines. The import permutes the features of the residual stream, as
  `nmt.interchange.huggingface` does.
- Token ids come from vocab.json, not from the SentencePiece models: see `nmt.text.vocabulary`.
- The logits have a bias. The import sets model.projection_bias.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.config import check_config, is_language
from nmt.config.yaml_file import Origins
from nmt.errors import InputError, ModelError, os_errors_as
from nmt.files import atomic_directory, hash_file, read_capped
from nmt.interchange.export import compare_with_transformers
from nmt.interchange.huggingface import SETTINGS, import_transformers, layer_names, permuted, sines_first
from nmt.interchange.marian_files import HINT, MarianSettings, read_json, read_settings, read_vocabulary, read_weights
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import Checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory, new_manifest
from nmt.text import BOS, EOS
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers
from nmt.text.vocabulary import TAG, with_vocabulary, without_vocabulary

log = logging.getLogger("nmt")

SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]  # pieces of PAD, UNK, BOS and EOS
# Bias of BOS. It excludes BOS from the softmax: exp(-100) is 4e-44. A lower bias would raise the loss in fine-tuning,
# because label smoothing includes the log-probability of BOS.
BAN = -100.0
# data.max_length of the run. Longer lines are split into sentences, because Marian models are trained on sentences.
MAX_LENGTH = 200
TOLERANCE = 1e-4  # maximum difference of log-probabilities computed in float64, in nats


class Side(NamedTuple):
    """The vocabulary of one side in the order of nmt's token ids, which differs from Marian's."""

    rows: list[int]  # row of Marian's embedding for each of our token ids
    pieces: list[str]  # piece of each of our token ids


def import_marian(
    directory: Path, output: Path, *, name: str = "", source_lang: str = "", target_lang: str = "", target_tag: str = ""
) -> None:
    """Convert the Marian model in a directory to a run. If an error is raised, nothing is written.

    Args:
        directory: a directory with the files that `marian_files` lists.
        output: the run directory, which must not exist.
        name: where the model comes from, for the manifest; by default, the directory.
        source_lang, target_lang: language codes. An empty code is taken from the model's files or from `target_tag`.
        target_tag: a tag without brackets, such as fra for >>fra<<.
    Raises:
        ModelError: a file is missing or damaged, or nmt does not support the model.
        ConfigError: settings contradict each other, or a language is not a language code.
        InputError: `output` exists, or the model does not have the given tag.
        NmtError: log-probabilities differ from those of the original model by more than `TOLERANCE`.
    """
    if output.exists() or output.is_symlink():
        raise InputError(f"{output} exists already", hint="give another name with -o, or move it away")
    # 1. Read and check the files.
    settings = read_settings(directory)
    tokenizer_config = read_json(directory / "tokenizer_config.json", may_be_missing=True)
    source, target = read_sides(directory, settings, tokenizer_config)
    check_tag(source.pieces, target_tag)
    source_model = model_of(directory / "source.spm", source.pieces)
    target_model = model_of(directory / "target.spm", target.pieces)

    # 2. Make the config and the tokenizers.
    tree = config_tree(settings, source, target)
    tag_language = target_tag if is_language(target_tag) else ""
    tree["data"]["source_lang"] = source_lang or language_in(tokenizer_config, "source_lang")
    tree["data"]["target_lang"] = target_lang or tag_language or language_in(tokenizer_config, "target_lang")
    tree["data"]["target_tag"] = target_tag
    # If a language is wrong, the message names the option that gave it.
    origins: Origins = {("data", "source_lang"): "--source-lang", ("data", "target_lang"): "--target-lang"}
    config = check_config(tree, origins, str(directory / "config.json"))
    tokenizers = Tokenizers.from_models(source_model, target_model, nfkc_source=False, target_tag=target_tag)

    # 3. Convert the model, and check that it computes the same log-probabilities as the original model.
    weights = read_weights(directory, settings)
    checkpoint = Checkpoint(config, checkpoint_tensors(weights, settings, source, target), tokenizers)
    check_log_probs(directory, checkpoint.model(), source, target)

    # 4. Write the run.
    origin = {
        "from": name or str(directory),
        "format": "marian",
        "model.safetensors": hash_file(directory / "model.safetensors"),
    }
    with atomic_directory(output) as temp:
        run = RunDirectory(temp)
        run.create()
        run.write_config(config.model_copy(update={"run": str(output)}))
        run.write_tokenizers(tokenizers, config.tokenizer.joint)
        manifest = new_manifest({}, {}, config.seed)
        run.write_manifest({**manifest, "imported": origin})
        save_checkpoint(run.model_file, checkpoint)


def read_sides(directory: Path, settings: MarianSettings, tokenizer_config: dict[str, Any]) -> tuple[Side, Side]:
    """Read the vocabularies of both sides, in our order. If there is only one, return it for both sides."""
    file = directory / "vocab.json"
    source = read_vocabulary(file, settings.vocab_size)
    start = settings.decoder_start_token_id
    # 1. If there is one vocabulary for both sides, return it.
    is_separate = tokenizer_config.get("separate_vocabs") is True
    if not is_separate or settings.share_encoder_decoder_embeddings:
        if len(source) != settings.n_target:
            reason = f"{file}: config.json has another number of pieces of the target, {settings.n_target}"
            raise ModelError(reason, hint="are config.json and tokenizer_config.json of one model?")
        side = in_our_order(file, source, start)
        return side, side

    # 2. Otherwise read the vocabulary of the target side, too.
    target_file = directory / "target_vocab.json"
    target = read_vocabulary(target_file, settings.n_target)
    # The encoder never reads BOS, so BOS of the source can have any row.
    source_start = source.index("<s>") if "<s>" in source else None
    return in_our_order(file, source, source_start), in_our_order(target_file, target, start)


def in_our_order(path: Path, pieces: list[str], start: int | None) -> Side:
    """Return a vocabulary in our order: PAD, UNK, BOS and EOS, then the rest in the order of `pieces`.

    BOS gets the row of the token `start`, or of PAD if `start` is None. A `start` token that is a piece of text occurs
    in the rest as well. The rest has made-up names for ids that have no piece or a special piece.
    """
    for piece in ("<pad>", "<unk>", "</s>"):
        if piece not in pieces:
            raise ModelError(f"{path} has no {piece}", hint=HINT)
    pad = pieces.index("<pad>")
    if start is None:
        start = pad
    if start >= len(pieces):
        raise ModelError(f"{path} has no id {start}, the decoder_start_token_id of config.json", hint=HINT)
    # Collect the rows and names of PAD, UNK, BOS and EOS, then the rows and names of the rest.
    special_rows = [pad, pieces.index("<unk>"), start, pieces.index("</s>")]
    rows = list(special_rows)
    names = list(SPECIAL_PIECES)
    for row, piece in enumerate(pieces):
        is_special = piece in SPECIAL_PIECES
        if not (is_special and row in special_rows):
            rows.append(row)
            names.append(f"<{row}>" if is_special or not piece else piece)
    return Side(rows, names)


def model_of(path: Path, pieces: list[str]) -> bytes:
    """Read a SentencePiece model, and replace its vocabulary by `pieces`."""
    with os_errors_as(ModelError, f"read {path}", hint=HINT):
        model = read_capped(path, MAX_MODEL_BYTES)
    try:
        model = with_vocabulary(without_vocabulary(model), pieces)
        Tokenizer(model)  # check that the model can be loaded
    except ModelError as error:
        raise ModelError(f"{path}: {error}", hint=error.hint) from error
    return model


def check_tag(pieces: Sequence[str], tag: str) -> None:
    """Raise InputError if the model lacks the target tag `tag`. Warn if `tag` is empty although the model has tags."""
    tags = [piece for piece in pieces if TAG.fullmatch(piece)]
    known = sorted(piece.strip("<>") for piece in tags)
    some = shorten(", ".join(known), 200, placeholder=" …")
    if tag and tag not in known:
        raise InputError(f"the model has no target tag {tag!r}", hint=f"it has {some or 'none: leave it out'}")
    if tags and not tag:
        message = "the model translates into several languages: choose one with -l, begin each line with a tag, as in"
        log.warning("%s `%s …`, or import it with --target-tag; it has %s", message, tags[0], some)


def language_in(tokenizer_config: dict[str, Any], key: str) -> str:
    """Return a language code in tokenizer_config.json. Return an empty string if there is no valid code."""
    code = tokenizer_config.get(key)
    return code if isinstance(code, str) and is_language(code) else ""


def config_tree(settings: MarianSettings, source: Side, target: Side) -> dict[str, Any]:
    """Return the settings of the run by section. The languages are missing: `import_marian` adds them."""
    model = {ours: getattr(settings, theirs) for theirs, ours in SETTINGS.items()}
    if settings.activation_function == "swish":
        model["activation"] = "silu"
    # Choose the value of model.tied_embeddings: "decoder" ties the target embedding and the projection.
    tied = "none"
    if settings.tie_word_embeddings:
        tied = "all" if settings.share_encoder_decoder_embeddings else "decoder"
    max_length = min(MAX_LENGTH, settings.max_position_embeddings - 1)
    model |= {"norm": "post", "projection_bias": True, "tied_embeddings": tied}
    tokenizer = {"byte_fallback": False, "vocab_size": len(target.pieces), "joint": source == target}
    return {
        "run": "run",
        "data": {"train": {"source": "unknown", "target": "unknown"}, "max_length": max_length},
        "tokenizer": tokenizer,
        "model": model,
        "decode": {"beam": settings.num_beams, "alpha": settings.length_penalty},
    }


def checkpoint_tensors(
    weights: dict[str, Tensor], settings: MarianSettings, source: Side, target: Side
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint: the weights with nmt's names and nmt's order of features."""
    order = sines_first(settings.d_model).argsort()  # our features 2i and 2i + 1 are Marian's features i and D/2 + i
    # 1. Convert linear layers and norms.
    state: dict[str, Tensor] = {}
    for ours, theirs in layer_names(settings.encoder_layers, settings.decoder_layers, "post").items():
        # One linear layer of nmt can join several layers of Marian, such as queries, keys and values.
        weight = torch.cat([weights[f"{name}.weight"] for name in theirs])
        bias = torch.cat([weights[f"{name}.bias"] for name in theirs])
        state[f"{ours}.weight"], state[f"{ours}.bias"] = permuted(ours, weight, bias, order)

    # 2. Convert embeddings and projection. If matrices are tied, a checkpoint has the common matrix only once.
    source_rows = weights["model.encoder.embed_tokens.weight"][source.rows]
    target_rows = weights["model.decoder.embed_tokens.weight"][target.rows]
    output_rows = weights["lm_head.weight"][target.rows]
    tied = settings.tie_word_embeddings
    state["source_embedding.weight"] = source_rows[:, order]
    if not (tied and settings.share_encoder_decoder_embeddings):
        state["target_embedding.weight"] = target_rows[:, order]
    if not tied:
        state["projection.weight"] = output_rows[:, order]

    # 3. Convert the bias of the logits to (V,), in our order.
    no_bias = torch.zeros(1, settings.n_target)
    bias = weights.get("final_logits_bias", no_bias)[0][target.rows]
    bias[:EOS] = bias[:EOS].clamp(min=BAN)
    bias[BOS] = BAN  # replaces the bias of Marian's start token
    state["projection.bias"] = bias
    return {f"model.{name}": x for name, x in state.items()}


def check_log_probs(directory: Path, model: Seq2Seq, source: Side, target: Side) -> None:
    """Raise NmtError if the log-probabilities of nmt and of transformers differ by more than `TOLERANCE`.

    If transformers is not installed, log a warning instead. float64 is used, because rounding in float32 could hide a
    wrong import.
    """
    transformers = import_transformers()
    if transformers is None:
        return
    original = transformers.MarianMTModel.from_pretrained(directory, local_files_only=True, use_safetensors=True)
    theirs = original.eval().double()
    rows = torch.tensor(source.rows), torch.tensor(target.rows)
    difference = compare_with_transformers(model.double(), theirs, *rows, TOLERANCE, "the original's")
    log.info("checked: log-probabilities differ from the original's by at most %.1g nats", difference)
