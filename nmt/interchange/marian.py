"""Import Marian models in Hugging Face's format, such as OPUS-MT's, as runs.

Differences between Marian and nmt, and how they are converted:
- Marian's ids are EOS 0, UNK 1, PAD last, and its decoder starts with PAD. Embedding rows are put into our order. Our
  BOS gets a copy of the start token's row. A bias excludes the copy from the softmax.
- Marian's sinusoids have all sines before all cosines, ours alternate. Therefore the features of the residual stream
  are permuted: columns of embeddings and norms, columns of matrices that read it, rows of matrices that write to it.
- Token ids come from vocab.json, not from the SentencePiece models: see `nmt.text.vocabulary`.
- Logits have a bias: model.projection_bias.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.config import check_config, is_language
from nmt.config.yaml_file import Origins
from nmt.errors import InputError, ModelError, os_errors_as
from nmt.files import atomic_directory, hash_file, read_capped
from nmt.interchange.export import CHECKED_LENGTHS, check_difference, random_pairs
from nmt.interchange.huggingface import OURS, SETTINGS, import_transformers, layer_names, permuted, sines_first
from nmt.interchange.marian_files import HINT, MarianSettings, read_json, read_settings, read_vocabulary, read_weights
from nmt.run.checkpoint import Checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory, new_manifest
from nmt.text import BOS, EOS
from nmt.text.batches import pad_source
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers
from nmt.text.vocabulary import TAG, with_vocabulary, without_vocabulary

log = logging.getLogger("nmt")

SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]  # of PAD, UNK, BOS, EOS
BAN = -100.0  # bias of BOS: exp(BAN) is 0, and label smoothing adds little to the loss
NEVER = -1e3  # a bias at or below it bans a piece, as our exports do with PAD, UNK and BOS
MAX_LENGTH = 200  # data.max_length: longer lines are split into sentences, because Marian models are trained on these
TOLERANCE = 1e-4  # maximum difference of log-probabilities, in nats; in float64


class Side(NamedTuple):
    """The vocabulary of a side in our order."""

    rows: list[int]  # row of Marian's embedding for each of our token ids
    pieces: list[str]


def import_marian(
    directory: Path, output: Path, *, name: str = "", source_lang: str = "", target_lang: str = "", target_tag: str = ""
) -> None:
    """Convert the Marian model in a directory (see `marian_files`) to a run. On any error, nothing is written.

    `name` is where the model comes from, for the manifest. Language codes are the model's if empty; `target_tag` is
    without brackets: fra for >>fra<<.

    Raises:
        ModelError: a file is missing or damaged, or nmt does not support the model.
        ConfigError: settings do not agree, or a language is not a language code.
        InputError: `output` exists, or the model does not have the given tag.
        NmtError: log-probabilities differ by more than `TOLERANCE`.
    """
    if output.exists() or output.is_symlink():
        raise InputError(f"{output} exists already", hint="give another name with -o, or move it away")
    settings = read_settings(directory)
    tokenizer_config = read_json(directory / "tokenizer_config.json", may_be_missing=True)
    weights = read_weights(directory, settings)
    sides = read_sides(directory, settings, tokenizer_config, weights.get("final_logits_bias"))
    check_tag([piece for piece in sides[0].pieces if TAG.fullmatch(piece)], target_tag)
    files = zip(("source.spm", "target.spm"), sides, strict=True)
    models = [model_of(directory / file, side.pieces) for file, side in files]
    limit, learned = of_our_export(tokenizer_config)
    tokenizers = Tokenizers.from_models(*models, nfkc_source=False, target_tag=target_tag, learned=learned)
    tree = config_tree(settings, *sides)
    tree["decode"] |= limit
    spoken = target_lang or (target_tag if is_language(target_tag) else "")
    tree["data"]["source_lang"] = source_lang or language_in(tokenizer_config, "source_lang")
    tree["data"]["target_lang"] = spoken or language_in(tokenizer_config, "target_lang")
    tree["data"]["target_tag"] = target_tag
    origins: Origins = {("data", "source_lang"): "--source-lang", ("data", "target_lang"): "--target-lang"}
    config = check_config(tree, origins, str(directory / "config.json"))
    checkpoint = Checkpoint(config, converted(weights, settings, *sides), tokenizers)
    check_log_probs(checkpoint, settings, weights, *sides)
    with atomic_directory(output) as temp:
        run = RunDirectory(temp)
        run.create()
        run.write_config(config.model_copy(update={"run": str(output)}))
        run.write_tokenizers(tokenizers, config.tokenizer.joint)
        origin = {"from": name or str(directory), "format": "marian"}
        origin["model.safetensors"] = hash_file(directory / "model.safetensors")
        run.write_manifest({**new_manifest({}, {}, config.seed, reproducible=True), "imported": origin})
        save_checkpoint(run.model_file, checkpoint)


def of_our_export(tokenizer_config: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return what only `nmt export` writes: the length limit, as decode settings, and the learned characters."""
    ours = tokenizer_config.get(OURS)
    if not isinstance(ours, dict):
        return {}, None
    learned = ours.get("learned_characters")
    limit = {key: ours[key] for key in ("max_length_a", "max_length_b") if key in ours}
    if not isinstance(learned, str):
        return limit, None
    return limit, learned.encode(errors="ignore").decode()  # without lone surrogates, which no file can hold


def read_sides(
    directory: Path, settings: MarianSettings, tokenizer_config: dict[str, Any], bias: Tensor | None
) -> tuple[Side, Side]:
    """Read both sides' vocabularies, often the same, in our order; `bias`: of the logits, (1, V) or None."""
    file = directory / "vocab.json"
    source, start = read_vocabulary(file, settings.vocab_size), settings.decoder_start_token_id
    if tokenizer_config.get("separate_vocabs") is True and not settings.share_encoder_decoder_embeddings:
        other = directory / "target_vocab.json"
        target = read_vocabulary(other, settings.n_target)
        while target and not target[-1] and bias is not None and bias[0, len(target) - 1] <= NEVER:
            target.pop()  # a padding row that makes both embeddings equally large
        while source and not source[-1]:
            source.pop()
        first = source.index("<s>") if "<s>" in source else None  # it becomes BOS, which the encoder does not read
        return in_our_order(file, source, first), in_our_order(other, target, start)
    if len(source) != settings.n_target:
        reason = f"{file}: config.json has another number of pieces of the target, {settings.n_target}"
        raise ModelError(reason, hint="are config.json and tokenizer_config.json of one model?")
    side = in_our_order(file, source, start)
    return side, side


def in_our_order(path: Path, pieces: list[str], start: int | None = None) -> Side:
    """Put PAD, UNK, the start token (our BOS; None is PAD) and EOS first, then the rest in order.

    If the start token is a piece of text, its row is also among the rest, so that the piece is not lost. Special pieces
    among the rest, and ids without a piece, get a name.
    """
    if missing := [piece for piece in ("<pad>", "<unk>", "</s>") if piece not in pieces]:
        raise ModelError(f"{path} has no {missing[0]}", hint=HINT)
    pad, unk, eos = map(pieces.index, ("<pad>", "<unk>", "</s>"))
    start = pad if start is None else start
    if start >= len(pieces):
        raise ModelError(f"{path} has no id {start}, the decoder_start_token_id of config.json", hint=HINT)
    special = [pad, unk, start, eos]
    rest = [row for row, piece in enumerate(pieces) if row not in special or piece not in SPECIAL_PIECES]
    names = [pieces[row] if pieces[row] not in ("", *SPECIAL_PIECES) else f"<{row}>" for row in rest]
    return Side(special + rest, SPECIAL_PIECES + names)


def model_of(path: Path, pieces: list[str]) -> bytes:
    """Read a SentencePiece model, and store the vocabulary `pieces` in it."""
    with os_errors_as(ModelError, f"read {path}", hint=HINT):
        model = read_capped(path, MAX_MODEL_BYTES)
    try:
        model = with_vocabulary(without_vocabulary(model), pieces)
        Tokenizer(model)  # checks that it can be loaded
        return model
    except ModelError as error:
        raise ModelError(f"{path}: {error}", hint=error.hint) from error


def check_tag(tags: Sequence[str], tag: str) -> None:
    """Raise InputError if the model does not have the tag. Warn if it has tags but none was chosen."""
    known = sorted(one.removeprefix(">>").removesuffix("<<") for one in tags)
    some = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    if tag and tag not in known:
        raise InputError(f"the model has no target tag {tag!r}", hint=f"it has {some or 'none: leave it out'}")
    if tags and not tag:
        message = "the model translates into several languages: choose one with -l, begin each line with a tag, as in"
        log.warning("%s `%s …`, or import it with --target-tag; it has %s", message, tags[0], some)


def language_in(tokenizer_config: dict[str, Any], key: str) -> str:
    """Return the language code with this key, or an empty string."""
    code = tokenizer_config.get(key)
    return code if isinstance(code, str) and is_language(code) else ""


def config_tree(settings: MarianSettings, source: Side, target: Side) -> dict[str, dict[str, Any]]:
    """Return the run's settings by section, without languages."""
    shared, tied = settings.share_encoder_decoder_embeddings, settings.tie_word_embeddings
    activation = settings.activation_function
    tree: dict[str, Any] = {"run": "run", "decode": {"beam": settings.num_beams, "alpha": settings.length_penalty}}
    tree["data"] = {
        "train": {"source": "unknown", "target": "unknown"},
        "max_length": min(MAX_LENGTH, settings.max_position_embeddings - 1),
    }
    tree["tokenizer"] = {"byte_fallback": False, "vocab_size": len(target.pieces), "joint": source == target}
    tree["model"] = {
        **{ours: getattr(settings, names[0]) for ours, names in SETTINGS.items()},
        "activation": "silu" if activation == "swish" else activation,
        "norm": "post",
        "projection_bias": True,
        "tied_embeddings": ("all" if shared else "decoder") if tied else "none",
    }
    return tree


def converted(weights: dict[str, Tensor], settings: MarianSettings, source: Side, target: Side) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint: the weights with nmt's names and order of features."""
    order = sines_first(settings.d_model).argsort()  # our feature 2i is Marian's i, our 2i + 1 is its D/2 + i
    found: dict[str, Tensor] = {}
    for ours, theirs in layer_names(settings.encoder_layers, settings.decoder_layers, "post").items():
        weight, bias = (torch.cat([weights[f"{name}.{kind}"] for name in theirs]) for kind in ("weight", "bias"))
        found[f"{ours}.weight"], found[f"{ours}.bias"] = permuted(ours, weight, bias, order)
    shared, tied = settings.share_encoder_decoder_embeddings, settings.tie_word_embeddings
    found["source_embedding.weight"] = weights["model.encoder.embed_tokens.weight"][source.rows][:, order]
    if not (shared and tied):
        found["target_embedding.weight"] = weights["model.decoder.embed_tokens.weight"][target.rows][:, order]
    if not tied:
        found["projection.weight"] = weights["lm_head.weight"][target.rows][:, order]
    bias = weights.get("final_logits_bias", torch.zeros(1, settings.n_target))[0][target.rows]
    bias[:EOS] = bias[:EOS].clamp(min=BAN)
    bias[BOS] = BAN  # mostly a copy of the row of PAD or of a piece of text
    found["projection.bias"] = bias
    return {f"model.{name}": x for name, x in found.items()}


def check_log_probs(
    checkpoint: Checkpoint, settings: MarianSettings, weights: dict[str, Tensor], source: Side, target: Side
) -> None:
    """Raise NmtError if log-probabilities differ from those of transformers; only warn if it is not installed.

    They are computed in float64, without PAD, UNK and BOS, which search bans. In float32, rounding can change those of
    random weights as much as a wrong import would.
    """
    try:
        theirs = original(settings, weights)
    except ImportError:
        hint = "pip install 'transformers>=4.57', and import again"
        log.warning("the import is not compared with the original, because transformers is not installed: %s", hint)
        return
    source_rows, target_rows = torch.tensor(source.rows), torch.tensor(target.rows)
    model, differences = checkpoint.model().double(), []
    for src, tgt in random_pairs(model.max_length, len(source_rows), len(target_rows)):
        tgt_in = torch.tensor([[BOS, *tgt]])
        with torch.inference_mode():
            found = model(pad_source([src]), tgt_in)[..., EOS:]  # (1, T + 1, V - 3)
            inputs = source_rows[[*src, EOS]][None], target_rows[tgt_in]
            expected = theirs(input_ids=inputs[0], decoder_input_ids=inputs[1]).logits[..., target_rows[EOS:]]
        differences.append(found.log_softmax(-1) - expected.log_softmax(-1))
    difference = check_difference(differences, TOLERANCE, "the original's")
    log.info("checked: log-probabilities differ from the original's by at most %.1g nats", difference)


def original(settings: MarianSettings, weights: dict[str, Tensor]) -> Any:
    """Return transformers' model in float64, made from checked settings and weights, not from untrusted files.

    It has only the positions that the check uses, because transformers fills the table in a loop of Python.
    """
    transformers = import_transformers()
    n_positions = min(settings.max_position_embeddings, max(CHECKED_LENGTHS) + 1)
    choices = settings.model_dump(exclude={"model_type", "num_beams", "length_penalty"}, exclude_none=True)
    choices |= {"max_position_embeddings": n_positions, "pad_token_id": 0}
    model = transformers.MarianMTModel(transformers.MarianConfig(**choices)).eval()
    cut = {name: x[:n_positions] if "embed_positions" in name else x for name, x in weights.items()}
    model.load_state_dict(cut, strict=False)  # sinusoids may be missing
    return model.double()
