"""Import of models of Marian, in its own or in Hugging Face's format, as runs.

The import converts what is different in Marian:

- EOS has id 0, UNK has id 1 and PAD has the last id. The import puts the rows of embeddings into our order.
- The decoder starts with PAD. Our BOS gets a copy of the row of PAD, and a bias that excludes BOS from the softmax.
- A sinusoid vector has all sines before all cosines. The import permutes the features of the residual stream, as
  `nmt.interchange.huggingface` does.
- Token ids come from a vocabulary, not from the SentencePiece models: see `nmt.text.vocabulary`.
- The logits have a bias. The import sets model.projection_bias.
- The sinusoids of Marian have other wavelengths than those of transformers, whose models were often converted from
  Marian. So the same weights can be read in two ways: see `MODEL_READINGS`.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor

from nmt.config import Config, check_config, is_language
from nmt.config.yaml_file import Origins
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.errors import InputError, ModelError, os_errors_as
from nmt.evaluate import perplexity
from nmt.files import atomic_directory, hash_file, read_capped
from nmt.interchange.export import compare_with_transformers
from nmt.interchange.huggingface import SETTINGS, import_transformers, layer_names, permuted, sines_first
from nmt.interchange.huggingface_import import BAN, HINT, HuggingFaceSettings, ModelFiles, Side
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import Checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory, new_manifest
from nmt.text import BOS
from nmt.text.lines import iter_pairs
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers
from nmt.text.vocabulary import TAG, with_vocabulary, without_vocabulary
from nmt.translate.scoring import score_pairs
from nmt.translate.translator import Translator

log = logging.getLogger("nmt")

# data.max_length of the run. Longer lines are split into sentences, because Marian models are trained on sentences.
MAX_LENGTH = 200
UNKNOWN_TEXTS = {"source": "unknown", "target": "unknown"}  # data.train of the run, because no file names it
# What differs between the two readings of the same weights, by Marian and by transformers.
MODEL_READINGS: dict[str, dict[str, object]] = {
    "marian": {"positions": "marian", "norm_epsilon": 1e-6},
    "huggingface": {"positions": "sinusoidal", "norm_epsilon": 1e-5},
}
TOLERANCE = 1e-4  # maximum difference of log-probabilities computed in float64, in nats


def import_model(
    files: ModelFiles,
    output: Path,
    *,
    name: str = "",
    source_lang: str = "",
    target_lang: str = "",
    target_tag: str = "",
    positions: str = "",
    dev: tuple[Path, Path] | None = None,
) -> None:
    """Convert a model to a run. If an error is raised, nothing is written.

    Args:
        output: the run directory, which must not exist.
        name: where the model comes from, for the manifest; by default, the directory.
        source_lang, target_lang: language codes. An empty code is taken from the model's files or from `target_tag`.
        target_tag: a tag without brackets, such as fra for >>fra<<.
        positions: one of `MODEL_READINGS`; by default, the one for which the weights were trained.
        dev: files of sentences and of their translations. Of several readings, the one that predicts them best is kept.
    Raises:
        ModelError: a file is missing or damaged, or nmt does not support the model.
        ConfigError: settings contradict each other, or a language is not a language code.
        InputError: `output` exists, or the model does not have the given tag.
        NmtError: log-probabilities differ from those of the original model by more than `TOLERANCE`.
    """
    if output.exists() or output.is_symlink():
        raise InputError(f"{output} exists already", hint="give another name with -o, or move it away")
    # 1. Make the config and the tokenizers.
    settings, source, target = files.settings, files.source, files.target
    check_tag(source.pieces, target_tag)
    source_model = model_of(files.spm[0], source.pieces)
    target_model = model_of(files.spm[1], target.pieces)
    tree = config_tree(settings, source, target)
    tag_language = target_tag if is_language(target_tag) else ""
    tree["data"]["source_lang"] = source_lang or language_in(files.about, "source_lang")
    tree["data"]["target_lang"] = target_lang or tag_language or language_in(files.about, "target_lang")
    tree["data"]["target_tag"] = target_tag
    # If a language is wrong, the message names the option that gave it.
    origins: Origins = {("data", "source_lang"): "--source-lang", ("data", "target_lang"): "--target-lang"}
    config = check_config(tree, origins, str(files.file))
    tokenizers = Tokenizers.from_models(source_model, target_model, nfkc_source=False, target_tag=target_tag)

    # 2. Convert the model, and check that it computes the same log-probabilities as transformers.
    weights = files.read_weights()
    starts_with_zeros = not weights["model.decoder.embed_tokens.weight"][target.rows[BOS]].any()
    tensors = checkpoint_tensors(weights, settings, source, target)
    readings = model_readings(config, starts_with_zeros)
    checkpoints = {reading: Checkpoint(changed, tensors, tokenizers) for reading, changed in readings.items()}
    if files.file.suffix == ".npz":
        log.info("%s is not compared: nmt does not run Marian", files.file.name)
    else:
        check_log_probs(files.file.parent, checkpoints["huggingface"].model(), source, target)

    # 3. Choose how the model is read, and write the run.
    reading = chosen_reading(checkpoints, positions, starts_with_zeros, dev)
    checkpoint = checkpoints[reading]
    origin = {"from": name or str(files.file.parent), "positions": reading}
    origin[files.file.name] = hash_file(files.file)
    write_imported(output, checkpoint, origin)


def write_imported(output: Path, checkpoint: Checkpoint, origin: Mapping[str, str]) -> None:
    """Write a run with a model. `origin` says in its manifest where the model comes from."""
    config = checkpoint.config
    with atomic_directory(output) as temp:
        run = RunDirectory(temp)
        run.create()
        run.write_config(config.model_copy(update={"run": str(output)}))
        run.write_tokenizers(checkpoint.tokenizers, config.tokenizer.joint)
        manifest = new_manifest({}, {}, config.seed)
        run.write_manifest({**manifest, "imported": origin})
        save_checkpoint(run.model_file, checkpoint)


def model_readings(config: Config, starts_with_zeros: bool) -> dict[str, Config]:
    """Return the config of each of `MODEL_READINGS`."""
    readings = {}
    for reading, changes in MODEL_READINGS.items():
        start = "zero" if starts_with_zeros and reading == "marian" else "bos"
        model = config.model.model_copy(update={**changes, "start": start})
        readings[reading] = config.model_copy(update={"model": model})
    return readings


def chosen_reading(
    readings: Mapping[str, Checkpoint], positions: str, starts_with_zeros: bool, dev: tuple[Path, Path] | None
) -> str:
    """Return one of `MODEL_READINGS`: the one that predicts `dev` best, or `positions`, or the one of the training."""
    # Only Marian's decoder starts with zeros. Training with transformers changes the vector that it starts with.
    reading, reason = "huggingface", "its decoder starts with a trained vector, unlike Marian's"
    if starts_with_zeros:
        reading, reason = "marian", "its decoder starts with zeros, as Marian's"
    if positions:
        reading, reason = positions, "--positions"
    if dev:
        perplexities = {name: f"{dev_perplexity(checkpoint, *dev):.4g}" for name, checkpoint in readings.items()}
        # If the perplexities are equal, as after a short training, keep the reading that was chosen above.
        reading = min(readings, key=lambda name: (float(perplexities[name]), name != reading))
        reason = f"perplexity on {dev[1]}: " + ", ".join(f"{name} {value}" for name, value in perplexities.items())
    log.info("the model has the positions of %s: %s", reading, reason)
    return reading


def dev_perplexity(checkpoint: Checkpoint, source: Path, target: Path) -> float:
    """Return the perplexity of a model on a dev set."""
    engine = TorchEngine(checkpoint.model())
    translator = Translator(engine, checkpoint.tokenizers, checkpoint.config)
    scored = score_pairs(translator, iter_pairs([source], [target]), translator.options)
    return perplexity([translation.hypotheses[0].log_probs for translation in scored])


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


def language_in(tokenizer_config: Mapping[str, Any], key: str) -> str:
    """Return a language code in tokenizer_config.json. Return an empty string if there is no valid code."""
    code = tokenizer_config.get(key)
    return code if isinstance(code, str) and is_language(code) else ""


def config_tree(settings: HuggingFaceSettings, source: Side, target: Side) -> dict[str, Any]:
    """Return the settings of the run by section. The languages are missing: `import_model` adds them."""
    model = {ours: getattr(settings, theirs) for theirs, ours in SETTINGS.items()}
    if settings.activation_function == "swish":
        model["activation"] = "silu"
    # Choose the value of model.tied_embeddings: "decoder" ties the target embedding and the projection.
    tied = "none"
    if settings.tie_word_embeddings:
        tied = "all" if settings.share_encoder_decoder_embeddings else "decoder"
    max_length = min(MAX_LENGTH, settings.max_position_embeddings - 1)
    model |= {"norm": settings.norm, "projection_bias": True, "tied_embeddings": tied}
    tokenizer = {"byte_fallback": False, "vocab_size": len(target.pieces), "joint": source == target}
    return {
        "run": "run",
        "data": {"train": UNKNOWN_TEXTS, "max_length": max_length},
        "tokenizer": tokenizer,
        "model": model,
        "decode": {"beam": settings.num_beams, "alpha": settings.length_penalty},
    }


def checkpoint_tensors(
    weights: dict[str, Tensor], settings: HuggingFaceSettings, source: Side, target: Side
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint: the weights with nmt's names and nmt's order of features."""
    order = sines_first(settings.d_model).argsort()  # our features 2i and 2i + 1 are Marian's features i and D/2 + i
    # 1. Convert linear layers and norms.
    state: dict[str, Tensor] = {}
    for ours, theirs in layer_names(settings.encoder_layers, settings.decoder_layers, settings.norm).items():
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
    message = "checked: with the positions of huggingface, log-probabilities differ from transformers' by at most"
    log.info("%s %.1g nats", message, difference)
