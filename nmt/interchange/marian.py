"""Import Marian models in Hugging Face's format, such as OPUS-MT's, as runs.

Differences between Marian and nmt, and how they are converted:
- Marian's ids are EOS 0, UNK 1, PAD last, and its decoder starts with PAD. Embedding rows are put into our order. Our
  BOS gets a copy of the start token's row, as PAD does if its id is that of a piece of text. A bias excludes copies
  from the softmax.
- Marian's sinusoids have all sines before all cosines, ours alternate. Therefore the features of the residual stream
  are permuted: columns of embeddings and norms, columns of matrices that read it, rows of matrices that write to it.
- Token ids come from vocab.json, not from the SentencePiece models: see `nmt.text.vocabulary`.
- Logits have a bias: model.projection_bias.
"""

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
import torch
from torch import Tensor

from nmt.config import check_config, is_language
from nmt.errors import ConfigError, InputError, ModelError, NmtError
from nmt.files import atomic_directory, hash_file, read_capped
from nmt.interchange.export import CHECKED_LENGTHS, largest, random_pairs
from nmt.interchange.huggingface import CLASSES, SETTINGS, layer_names, permuted, quiet_transformers, sines_first
from nmt.interchange.marian_files import HINT, MarianSettings, read_json, read_settings, read_vocabulary, read_weights
from nmt.model.positions import sinusoidal_positions
from nmt.run.checkpoint import Checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory, new_manifest
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import pad_source
from nmt.text.tokenizer import MAX_MODEL_BYTES, Tokenizer, Tokenizers
from nmt.text.vocabulary import TAG, with_vocabulary, without_vocabulary

log = logging.getLogger("nmt")

CODERS = {"source": "encoder", "target": "decoder"}
SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]  # of PAD, UNK, BOS, EOS
BAN = -100.0  # bias of a copy: exp(BAN) is 0, and label smoothing adds little to the loss
NEVER = -1e3  # a bias at or below it bans a piece, as our exports do with PAD, UNK and BOS
MAX_LENGTH = 200  # data.max_length: longer lines are split into sentences, because Marian models are trained on these
MIN_KNOWN = 0.5  # minimum share of a SentencePiece model's pieces that vocab.json must contain
TOLERANCE = 1e-4  # maximum difference of log-probabilities, in nats; in float64
MODEL_NAME = re.compile(r"opus-mt-(?:tc-)?(?:tiny-|base-|big-)?([a-zA-Z]{2,8})-([a-zA-Z]{2,8})$")


class Side(NamedTuple):
    """The vocabulary of a side in our order."""

    rows: list[int]  # row of Marian's embedding for each of our token ids
    pieces: list[str]


class Imported(NamedTuple):
    """A Marian model in memory, and the checkpoint converted from it."""

    settings: MarianSettings
    weights: dict[str, Tensor]  # Marian's, by Marian's names
    source: Side
    target: Side
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Languages:
    """Languages that the user gives; an empty string leaves the choice to the model.

    Raises:
        InputError: `source` or `target` is not a language code.
    """

    source: str = ""
    target: str = ""
    tag: str = ""  # of the target language, without brackets: fra for >>fra<<

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            if not is_language(code := getattr(self, side)):
                hint = "give a code such as de, zh-CN or zho_Hans"
                raise InputError(f"--{side}-lang: '{code}' is not a language code", hint=hint)


NOT_GIVEN = Languages()


def import_marian(directory: Path, output: Path, languages: Languages = NOT_GIVEN, name: str = "") -> None:
    """Convert the Marian model in a directory (see `marian_files`) to a run. On any error, nothing is written.

    Args:
        name: where the model comes from, for the manifest; the directory if empty.
    Raises:
        ModelError: a file is missing or damaged, or nmt does not support the model.
        InputError: `output` exists, or the model does not have the given tag.
        NmtError: log-probabilities differ by more than `TOLERANCE`.
    """
    if output.exists() or output.is_symlink():
        raise InputError(f"{output} exists already", hint="give another name with -o, or move it away")
    imported = read_marian(directory, languages)
    check_log_probs(imported, directory)
    with atomic_directory(output) as temp:
        run = RunDirectory(temp)
        run.create()
        run.write_config(imported.checkpoint.config.model_copy(update={"run": str(output)}))
        run.write_tokenizers(imported.checkpoint.tokenizers, imported.checkpoint.config.tokenizer.joint)
        origin = {"from": name or str(directory), "format": imported.settings.model_type}
        origin["model.safetensors"] = hash_file(directory / "model.safetensors")
        run.write_manifest(
            {**new_manifest({}, {}, imported.checkpoint.config.seed, reproducible=True), "imported": origin}
        )
        save_checkpoint(run.model_file, imported.checkpoint)


def read_marian(directory: Path, languages: Languages) -> Imported:
    """Read and convert a model. For errors see `import_marian`."""
    settings = read_settings(directory)
    tokenizer_config = read_json(directory / "tokenizer_config.json", may_be_missing=True)
    weights = read_weights(directory, settings)
    source, target = read_sides(directory, settings, tokenizer_config, weights.get("final_logits_bias"))
    check_tag([piece for piece in source.pieces if TAG.fullmatch(piece)], languages.tag)
    files = [directory / "source.spm", directory / "target.spm"]
    models = [model_of(file, side.pieces) for file, side in zip(files, (source, target), strict=True)]
    tokenizers = Tokenizers.from_models(*models, nfkc_source=False, target_tag=languages.tag)
    bias = bias_of(weights, target)
    tree = config_tree(settings, languages_of(directory, tokenizer_config, languages))
    tree["data"]["target_tag"] = languages.tag
    tree["model"]["projection_bias"] = bias is not None
    tensors = converted(weights, settings, source, target) | ({} if bias is None else {"projection.bias": bias})
    tree["model"]["positions"] = "learned" if "source_positions" in tensors else "sinusoidal"
    tree["tokenizer"] = {**kind_of(models), "vocab_size": len(target.pieces), "joint": source == target}
    try:
        config = check_config(tree, {}, "its settings")
    except ConfigError as error:
        raise ModelError(f"{directory / 'config.json'}: {str(error).partition(chr(10))[0]}", hint=HINT) from error
    checkpoint = Checkpoint(config, {f"model.{key}": x for key, x in tensors.items()}, tokenizers)
    return Imported(settings, weights, source, target, checkpoint)


# --- vocabulary ---------------------------------------------------------------------------------------------


def read_sides(
    directory: Path, settings: MarianSettings, tokenizer_config: dict[str, Any], bias: Tensor | None
) -> tuple[Side, Side]:
    """Read both sides' vocabularies, often the same, in our order; `bias`: of the logits, (1, V) or None."""
    file = directory / "vocab.json"
    source = target = read_vocabulary(file, settings.vocab_size)
    start = settings.decoder_start_token_id
    if tokenizer_config.get("separate_vocabs") is True:
        other = directory / "target_vocab.json"
        target = read_vocabulary(other, settings.n_target)
        while not target[-1] and bias is not None and bias[0, len(target) - 1] <= NEVER:
            target.pop()  # a padding row that makes both embeddings equally large
        while not source[-1]:
            source.pop()
        if source != target:
            if settings.share_encoder_decoder_embeddings:
                reason = f"{other}: both sides share their embeddings, but their vocabularies differ"
                raise ModelError(reason, hint="are config.json and tokenizer_config.json of one model?")
            of_source = source.index("<s>") if "<s>" in source else settings.pad_token_id  # the encoder reads no BOS
            return in_our_order(file, source, settings, of_source), in_our_order(other, target, settings, start)
    elif len(target) != settings.n_target:
        reason = f"{file}: config.json has another number of pieces of the target, {settings.n_target}"
        raise ModelError(reason, hint="are config.json and tokenizer_config.json of one model?")
    side = in_our_order(file, target, settings, start)
    return side, side


def in_our_order(path: Path, pieces: list[str], settings: MarianSettings, start: int) -> Side:
    """Put PAD, UNK, the start token (our BOS) and EOS first, then the rest in order; ids without a piece get a name.

    If PAD or the start token is a piece of text, its row is also among the rest, so that the piece is not lost.
    """
    if "<unk>" not in pieces:
        raise ModelError(f"{path} has no <unk>", hint=HINT)
    pad = pieces.index("<pad>") if "<pad>" in pieces else settings.pad_token_id
    unk, eos = pieces.index("<unk>"), settings.eos_token_id
    if max(eos, start, pad) >= len(pieces) or len({pad, unk, eos}) < 3 or pieces[eos] not in ("</s>", ""):
        reason = f"{path}: by its pieces PAD is {pad} and UNK {unk}, by config.json EOS is {eos}"
        raise ModelError(reason, hint="vocabulary and config.json do not agree: are they of one model?")
    special = [pad, unk, start, eos]
    of_no_text = {"", *SPECIAL_PIECES}
    rows = [*special, *(row for row, piece in enumerate(pieces) if row not in special or piece not in of_no_text)]
    taken = {*SPECIAL_PIECES, *pieces}
    named = list(SPECIAL_PIECES)
    for row in rows[len(special) :]:
        name = pieces[row]
        if not name or name in SPECIAL_PIECES:
            name = f"<{row}>"
            while name in taken:
                name += "'"
            taken.add(name)
        named.append(name)
    return Side(rows, named)


def model_of(path: Path, pieces: list[str]) -> bytes:
    """Read a SentencePiece model, and store the vocabulary `pieces` in it unless the model has the same ids itself."""
    try:
        model = without_vocabulary(read_capped(path, MAX_MODEL_BYTES))
        with_own = with_vocabulary(model, pieces)
        Tokenizer(with_own)  # checks that it can be loaded
        own = pieces_of(model)
        if len({*own} & {*pieces}) < MIN_KNOWN * len(own):
            raise ModelError("most of its pieces are not in the vocabulary", hint="are the files of one model?")
        return model if own == pieces else with_own
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=HINT) from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}", hint=error.hint) from error


def pieces_of(model: bytes) -> list[str]:
    """Return the pieces of a SentencePiece model in the order of its own ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def kind_of(models: Sequence[bytes]) -> dict[str, Any]:
    """Return the settings of a tokenizer, type and byte_fallback, that describe these SentencePiece models."""
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    every = [(processor, i) for processor in processors for i in range(processor.get_piece_size())]
    is_ranked = all(score == int(score) for score in (processor.get_score(i) for processor, i in every))
    is_bytes = any(processor.is_byte(i) for processor, i in every)
    return {"type": "bpe" if is_ranked else "unigram", "byte_fallback": is_bytes}  # BPE scores are ranks


def check_tag(tags: Sequence[str], tag: str) -> None:
    """Raise InputError if the model does not have the tag. Warn if it has tags but none was chosen."""
    known = [one.removeprefix(">>").removesuffix("<<") for one in tags]
    some = ", ".join(sorted(known)[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    if tag and tag not in known:
        hint = f"it has {some}" if known else "it translates into one language: leave out --target-tag"
        raise InputError(f"the model has no target tag {tag!r}", hint=hint)
    if tags and not tag:
        log.warning(
            "the model translates into several languages: begin each line with a tag, as in `%s …`, or import it with "
            "--target-tag; it has %s",
            tags[0],
            some,
        )


# --- settings ---------------------------------------------------------------------------------------------


def languages_of(directory: Path, tokenizer_config: dict[str, Any], given: Languages) -> list[str]:
    """Return source and target language from the user, else the tag, the tokenizer or the model's name, else empty."""
    by_name = MODEL_NAME.search(directory.resolve().name)
    codes = [given.source, given.target or (given.tag if is_language(given.tag) else "")]
    for i, key in enumerate(("source_lang", "target_lang")):
        of_tokenizer = tokenizer_config.get(key)
        if not codes[i] and isinstance(of_tokenizer, str) and is_language(of_tokenizer):
            codes[i] = of_tokenizer
        codes[i] = codes[i] or (by_name[i + 1] if by_name else "")
    return codes


def config_tree(settings: MarianSettings, languages: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the run's settings by section, without those that depend on tokenizers and weights."""
    shared, tied = settings.share_encoder_decoder_embeddings, settings.tie_word_embeddings
    activation = settings.activation_function
    tree: dict[str, Any] = {"run": "run", "decode": {"beam": settings.num_beams, "alpha": settings.length_penalty}}
    tree["data"] = {
        "train": {"source": "unknown", "target": "unknown"},
        "source_lang": languages[0],
        "target_lang": languages[1],
        "max_length": min(MAX_LENGTH, settings.max_position_embeddings - 1),
    }
    tree["model"] = {
        **{ours: getattr(settings, names[0]) for ours, names in SETTINGS.items()},
        "activation": "silu" if activation == "swish" else activation,
        "norm": settings.norm,
        "tied_embeddings": ("all" if shared else "decoder") if tied else "none",
    }
    return tree


# --- weights ----------------------------------------------------------------------------------------------


def converted(weights: dict[str, Tensor], settings: MarianSettings, source: Side, target: Side) -> dict[str, Tensor]:
    """Return the weights with nmt's names and order of features, without the bias of the projection."""
    order = sines_first(settings.d_model).argsort()  # our feature 2i is Marian's i, our 2i + 1 is its D/2 + i
    found: dict[str, Tensor] = {}
    for ours, theirs in layer_names(settings.encoder_layers, settings.decoder_layers, settings.norm).items():
        weight, bias = (torch.cat([weights[f"{name}.{kind}"] for name in theirs]) for kind in ("weight", "bias"))
        found[f"{ours}.weight"], found[f"{ours}.bias"] = permuted(ours, weight, bias, order)
    found |= {name: table[:, order] for name, table in learned_positions(weights, settings).items()}
    shared, tied = settings.share_encoder_decoder_embeddings, settings.tie_word_embeddings
    scale = 1.0 if settings.scale_embedding else math.sqrt(settings.d_model)  # nmt always multiplies by sqrt(D)
    embedded = {"source": weights["model.encoder.embed_tokens.weight"][source.rows][:, order] / scale}
    if not (shared and tied):
        embedded["target"] = weights["model.decoder.embed_tokens.weight"][target.rows][:, order] / scale
    found |= {f"{side}_embedding.weight": x for side, x in embedded.items()}
    if not tied:
        found["projection.weight"] = weights["lm_head.weight"][target.rows][:, order]
    elif scale != 1.0:  # the tied projection was divided by scale, too: the last norm is multiplied by it
        last = f"decoder.{settings.decoder_layers - 1}.feed_forward_residual.norm"
        last = "decoder_norm" if settings.norm == "pre" else last
        for kind in ("weight", "bias"):
            found[f"{last}.{kind}"] = found[f"{last}.{kind}"] * scale
    return found


def bias_of(weights: dict[str, Tensor], target: Side) -> Tensor | None:
    """Return the bias of the logits (V,), or None if it is 0 except for pieces that search bans anyway."""
    bias = torch.zeros(len(target.rows))
    if "final_logits_bias" in weights:
        bias = weights["final_logits_bias"][0][target.rows]
    if copies := [i for i in (PAD, BOS) if target.rows[i] in (*target.rows[:i], *target.rows[EOS:])]:
        bias[copies] = NEVER
    elif not bias[EOS:].any() and all(x == 0 or x <= NEVER for x in bias[:EOS].tolist()):
        return None
    bias[:EOS] = bias[:EOS].where(bias[:EOS] > NEVER, BAN)
    return bias


def learned_positions(weights: dict[str, Tensor], settings: MarianSettings) -> dict[str, Tensor]:
    """Return the position tables in Marian's order of features; empty if both are sinusoidal.

    Most files have no tables, because they are sinusoidal. Exports of our pre-norm models always have them.
    """
    names = {f"{side}_positions": f"model.{coder}.embed_positions.weight" for side, coder in CODERS.items()}
    sinusoids = sinusoidal_positions(settings.max_position_embeddings, settings.d_model)
    sinusoids = sinusoids[:, sines_first(settings.d_model)]
    tables = {ours: weights.get(theirs, sinusoids) for ours, theirs in names.items()}
    are_sinusoids = all(torch.allclose(table, sinusoids, atol=1e-3) for table in tables.values())
    return {} if are_sinusoids else tables


def check_log_probs(imported: Imported, directory: Path) -> None:
    """Raise NmtError if log-probabilities differ from those of transformers; only warn if it is not installed.

    They are computed in float64, without PAD, UNK and BOS, which search bans. In float32, rounding can change those of
    random weights as much as a wrong import would.
    """
    source_rows, target_rows = (torch.tensor(side.rows) for side in (imported.source, imported.target))
    model, differences = imported.checkpoint.model().double(), []
    with quiet_transformers(), torch.inference_mode():
        try:
            theirs = original(imported.settings, imported.weights)
        except ImportError:
            hint = "pip install 'transformers>=4.57', and import again"
            log.warning("the import is not compared with the original, because transformers is not installed: %s", hint)
            return
        for src, tgt in random_pairs(model.max_length, len(source_rows), len(target_rows)):
            tgt_in = torch.tensor([[BOS, *tgt]])
            found = model(pad_source([src]), tgt_in)[..., EOS:]  # (1, T + 1, V - 3)
            inputs = source_rows[[*src, EOS]][None], target_rows[tgt_in]
            expected = theirs(input_ids=inputs[0], decoder_input_ids=inputs[1]).logits[..., target_rows[EOS:]]
            differences.append(found.log_softmax(-1) - expected.log_softmax(-1))
    difference = largest(differences)
    if not difference <= TOLERANCE:  # also true for NaN
        reason = f"{directory}: log-probabilities differ from those of the original by {difference:.2g} nats"
        raise NmtError(reason, hint="report it, with the name of the model")
    log.info("checked: log-probabilities differ from the original's by at most %.1g nats", difference)


def original(settings: MarianSettings, weights: dict[str, Tensor]) -> Any:
    """Return transformers' model in float64, made from checked settings and weights, not from untrusted files.

    It has only the positions that the check uses, because transformers fills the table in a loop of Python.
    """
    import transformers

    model_class = getattr(transformers, CLASSES[settings.norm][1])
    n_positions = min(settings.max_position_embeddings, max(CHECKED_LENGTHS) + 1)
    choices = settings.model_dump(exclude={"model_type", "num_beams", "length_penalty"}, exclude_none=True)
    model = model_class(model_class.config_class(**choices | {"max_position_embeddings": n_positions})).eval()
    cut = {name: x[:n_positions] if "embed_positions" in name else x for name, x in weights.items()}
    model.load_state_dict(cut, strict=False)  # sinusoids are not in the file
    return model.double()
