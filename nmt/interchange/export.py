"""Code that the exports share: checks of the model and the directory, biases, positions, comparison of engines."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.decode.engines.ctranslate2_engine import unsupported
from nmt.decode.engines.torch_engine import only_model
from nmt.errors import InputError, NmtError, os_errors_as
from nmt.files import read_capped
from nmt.model.base import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.batches import pad_source
from nmt.text.lines import Pair
from nmt.train.corpora import pairs_of, training_corpora
from nmt.translate.translator import Translator

CHECKED_LENGTHS = (1, 5, 20)  # lengths, in pieces, of the random pairs on which engines are compared
KEPT = ("node_modules", "report.html")  # of npm and `nmt report`; they are kept when an export is replaced
BAN = -1e4  # bias of tokens that are never generated: exp(BAN) is 0, and float16 can represent BAN


def check_replaceable(path: Path, names: Collection[str], needed: Sequence[str], words: str) -> None:
    """Raise InputError if `path` exists and is neither an empty directory nor an export of ours.

    An export has all files in `needed`, only files in `names` and `KEPT`, and the text `words` in the file `needed[0]`.
    """
    real = Path(os.path.realpath(path))  # unlike `Path.resolve`, `realpath` accepts a loop of links
    if real == Path.cwd() or path.is_mount():
        raise InputError(f"{path} cannot be replaced: it is in use", hint="name a directory in it")
    # Accept a path at which nothing exists.
    if not os.path.lexists(real):
        return
    # Accept an empty directory and an export.
    if path.is_dir():
        present = {entry.name for entry in path.iterdir()}
        if not present:
            return
        if set(needed) <= present <= {*names, *KEPT}:
            with os_errors_as(InputError, f"read {path / needed[0]}", hint="name another directory"):
                content = read_capped(path / needed[0], 1_000_000)
            if words.encode() in content:
                return
    raise InputError(f"{path} exists and is not an export", hint="name another directory, or delete it")


def exportable_model(
    translator: Translator, tool: str, supported: Mapping[str, Sequence[object]], *, unset: Sequence[str] = ()
) -> Transformer:
    """Return the translator's model. Raises InputError if it is an ensemble, or if `tool` does not support it.

    `supported` has the supported values of settings in the section `model`. Other settings may have any value. `unset`
    are properties of the section `data` that must be empty, because they change a text before the tokenizer.
    """
    problem = "an ensemble cannot be exported as one model"
    hint = "export each model by itself"
    model = only_model(translator.engine, "weights to export", problem=problem, hint=hint)
    if setting := unsupported(translator.config.model, supported):
        raise InputError(f"{tool} does not support {setting}", hint="translate with nmt itself")
    for key in unset:
        if value := getattr(translator.config.data, key):
            reason = f"{tool} does not support data.{key}={str(value).lower()}"
            raise InputError(reason, hint="translate with nmt itself")
    assert isinstance(model, Transformer)
    return model


def training_pairs(translator: Translator) -> Iterator[Pair]:
    """Yield the training pairs of a translator's run.

    Raises InputError if the translator has no run, or if the training text cannot be read.
    """
    if translator.run is None:
        raise InputError("this export is made from the training text of a run", hint="give the run with -m")
    config = translator.run.read_config()
    for files in training_corpora(config).values():
        yield from pairs_of(config, files)


def output_bias(model: Transformer) -> Tensor:
    """Return a bias (V,) that bans PAD, UNK and BOS: `BAN` for these three tokens, and 0 for all others."""
    bias = torch.zeros(model.projection.out_features)  # (V,)
    bias[[PAD, UNK, BOS]] = BAN
    return bias


def logits_bias(model: Transformer) -> Tensor:
    """Return the bias (V,) of the exported projection: `output_bias` plus our projection's own bias, if it has one."""
    bias = output_bias(model)
    if model.settings.projection_bias:
        bias += model.projection.bias.detach()
    return bias


def log_probs_of(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Return the log-probabilities (T + 1, V) of the next token after BOS and after each of the T tokens of `target`.

    PAD, UNK and BOS get probability 0, as in an export.
    """
    tgt_in = torch.tensor([[BOS, *target]])
    with torch.inference_mode():
        logits: Tensor = model(pad_source([source]), tgt_in)[0]  # (T + 1, V)
    return (logits + output_bias(model)).log_softmax(-1)


def position_table(model: Transformer, learned: Tensor | None) -> Tensor:
    """Return the positional encodings (P, D): `learned` if it is not None, else the model's sinusoids, else zeros."""
    if learned is not None:
        return learned
    if model.sinusoids is not None:
        return model.sinusoids
    return torch.zeros(model.settings.max_positions, model.settings.d_model)


def random_pairs(max_length: int, n_source: int, n_target: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield random pairs of source and target tokens, on which engines are compared.

    There is a pair for each length in `CHECKED_LENGTHS`, shortened if it is too long for the model. `n_source` and
    `n_target` are the sizes of the vocabularies.
    """
    generator = torch.Generator().manual_seed(1)
    for length in CHECKED_LENGTHS:
        shape = (min(length, max_length - 1),)  # -1 leaves room for EOS in the source and for BOS in the target
        source = torch.randint(EOS + 1, n_source, shape, generator=generator)
        target = torch.randint(EOS + 1, n_target, shape, generator=generator)
        yield source.tolist(), target.tolist()


def compare_with_transformers(
    model: Seq2Seq, theirs: Any, source_rows: Tensor, target_rows: Tensor, tolerance: float, tool: str
) -> float:
    """Return the largest difference between the log-probabilities of two models on random sentences, in nats.

    `theirs` is a model of transformers. PAD, UNK and BOS are left out, because only exports ban them.

    Args:
        source_rows, target_rows: for each of our token ids, the token id in `theirs`.
    Raises:
        NmtError: the difference is above `tolerance`.
    """
    differences = []
    for src, tgt in random_pairs(model.max_length, len(source_rows), len(target_rows)):
        src_ids = pad_source([src])
        tgt_in = torch.tensor([[BOS, *tgt]])
        with torch.inference_mode():
            our_logits = model(src_ids, tgt_in)[..., EOS:]  # (1, T + 1, V - 3)
            their_logits = theirs(input_ids=source_rows[src_ids], decoder_input_ids=target_rows[tgt_in]).logits
        expected = their_logits[..., target_rows[EOS:]]
        differences.append(our_logits.log_softmax(-1) - expected.log_softmax(-1))
    return check_difference(differences, tolerance, tool)


def check_difference(differences: Iterable[Tensor], tolerance: float, tool: str) -> float:
    """Return the largest absolute difference. Raises NmtError if it is NaN or above `tolerance`.

    `differences` are the differences between our log-probabilities and those of `tool`, in nats.
    """
    largest_by_sentence = torch.stack([x.abs().max() for x in differences])
    largest = float(largest_by_sentence.max())
    if not largest <= tolerance:  # unlike `>`, `not <=` is True for NaN
        message = f"{tool} log-probabilities differ from the model's by {largest:.2g} nats"
        raise NmtError(message, hint="check that the model translates, or try another version of the tool")
    return largest
