"""Our own engine: segments in batches of like length, searched by `search` over a model, or several."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.config import Config
from nmt.decode import Precision
from nmt.decode.ensemble import Ensemble
from nmt.decode.int8 import to_int8
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import Stepper, search
from nmt.distributed import launched
from nmt.errors import ConfigError, ModelError, NmtError
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.batches import collate, cut_batches, pad_source
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

MAX_BATCH_POSITIONS = 131_072  # beams x source positions of a batch: bounds the memory of caches
SCORED_TOKENS = 4096  # positions of a batch in scoring, each of which has V log-probabilities


class TorchEngine:
    """A model, or several together, as an engine.

    Args:
        model: in eval mode, on its device.
    """

    def __init__(self, model: Seq2Seq | Ensemble) -> None:
        self.model = model
        self.max_positions = MAX_BATCH_POSITIONS  # less once memory has not held so many

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int:
        """See `Engine`."""
        return self.model.max_length

    def translate(
        self,
        segments: Sequence[list[int]],
        options: SearchOptions,
        *,
        batch_size: int,
        prefixes: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """See `Engine`."""
        found: list[list[Hypothesis]] = [[] for _ in segments]
        model: Stepper[Any] = self.model

        def search_batch(rows: list[int]) -> None:
            with torch.inference_mode():
                results = search(
                    model,
                    pad_source([segments[i] for i in rows]).to(self.device),
                    options,
                    prefixes=[prefixes[i] for i in rows],
                    max_length=self.max_length,
                    sentence_seeds=[seeds[i] for i in rows],
                )
            for i, hypotheses in zip(rows, results, strict=True):
                found[i] = hypotheses

        for rows in self._batches(segments, batch_size, options.beam):
            n_held = within_memory(search_batch, rows)
            if n_held < len(rows):
                self.max_positions = n_held * (len(segments[rows[0]]) + 1) * options.beam
        return found

    def _batches(self, segments: Sequence[list[int]], batch_size: int, n_beams: int) -> Iterator[list[int]]:
        """Indices of segments of like length, longest first: what needs most memory comes first."""
        order = sorted(range(len(segments)), key=lambda i: -len(segments[i]))
        while order:
            n = max(1, min(batch_size, self.max_positions // ((len(segments[order[0]]) + 1) * n_beams)))
            yield order[:n]
            order = order[n:]

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """See `Engine`."""
        limit = self.max_length - 1
        src, tgt = [ids[:limit] for ids in source], [ids[:limit] for ids in target]
        result: list[list[float]] = [[] for _ in src]

        def score_batch(rows: list[int]) -> None:
            batch = collate([src[i] for i in rows], [tgt[i] for i in rows], rows).to(self.device)
            with torch.inference_mode():
                log_probs = self.model(batch.src, batch.tgt_in).float().log_softmax(-1)
            gold = log_probs.gather(-1, batch.tgt_out[..., None])[..., 0]  # (B, T)
            for i, row in zip(rows, gold.tolist(), strict=True):
                result[i] = row[: len(tgt[i]) + 1]

        for rows in cut_batches([(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], SCORED_TOKENS):
            within_memory(score_batch, rows)
        return result


def within_memory(work: Callable[[list[int]], None], rows: list[int]) -> int:
    """Do a batch, in halves where memory does not hold it, so that no sentence is left out.

    Returns:
        how many rows at a time it does hold.
    Raises:
        NmtError: not even one.
    """
    try:
        work(rows)
        return len(rows)
    except torch.OutOfMemoryError as error:
        if len(rows) == 1:
            raise NmtError("out of memory with one sentence", hint="take fewer --beam, or --device cpu") from error
    if torch.cuda.is_available():  # below the except, whose traceback holds the memory
        torch.cuda.empty_cache()
    half = (len(rows) + 1) // 2
    log.warning("out of memory with %d sentences: going on with %d at a time", len(rows), half)
    n_held = within_memory(work, rows[:half])
    within_memory(work, rows[half:])
    return n_held


Loaded = tuple[TorchEngine, Tokenizers, Config, RunDirectory | None]


def load_models(paths: Sequence[Path], device: str, precision: Precision) -> Loaded:
    """What a translator is made of, from one or more runs' directories or model files; see `translator.load`.

    Of an ensemble, settings and run are those of the first, but for the longest source that all can hold.
    """
    model, tokenizers, config, run = _load(paths[0], device, precision)
    if len(paths) == 1:
        return TorchEngine(model), tokenizers, config, run
    models, most = [model], config.data.max_length
    for path in paths[1:]:
        model, others, its_config, _ = _load(path, device, precision)
        models, most = [*models, model], min(most, its_config.data.max_length)
        if others != tokenizers:
            raise ModelError(
                f"{paths[0]} and {path} have different tokenizers, an ensemble has one",
                hint="runs of the same data.train and tokenizer settings have the same, whatever their seed",
            )
    data = config.data.model_copy(update={"max_length": most})
    return TorchEngine(Ensemble(models)), tokenizers, config.model_copy(update={"data": data}), run


def _load(
    path: Path, device: str, precision: Precision
) -> tuple[Seq2Seq, Tokenizers, Config, RunDirectory | None]:
    file = RunDirectory(path).model_file if path.is_dir() else path
    if not file.exists():
        raise ModelError(f"no model at {file}", hint="train one with `nmt train CONFIG`, or name another with -m")
    checkpoint = read_checkpoint(file, prefixes=("model",))
    run = RunDirectory(path) if path.is_dir() else None
    if run is not None:
        run.check_tokenizers(checkpoint.tokenizers)
    model = in_precision(checkpoint.model().to(pick_device(device)), precision).requires_grad_(False)
    if model.device.type == "cpu":
        model.trace_steps()
    return model, checkpoint.tokenizers, checkpoint.config, run


def in_precision(model: Seq2Seq, precision: Precision) -> Seq2Seq:
    """The model for decoding in fp32, bf16 or int8.

    Raises:
        ConfigError: int8 on a GPU.
    """
    if precision == "bf16":  # not by model.bfloat16(), which drops the imaginary part of rotary positions
        for x in (*model.parameters(), *model.buffers()):
            if x.is_floating_point():
                x.data = x.data.bfloat16()
        return model
    if precision == "int8":
        if next(model.parameters()).device.type != "cpu":
            raise ConfigError("int8 is for CPUs", hint="on a GPU take --precision bf16")
        to_int8(model)
        if torch.ops.mkldnn._is_mkldnn_bf16_supported():  # else its products are slow
            model.cache_dtype = torch.bfloat16
    return model


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is cuda, else mps, else cpu.

    Raises:
        ConfigError: this machine has no such device.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    try:
        device = torch.device(f"cuda:{launched().local_rank}" if name == "cuda" else name)  # each rank has its own
        there = available.get(device.type, False)
    except RuntimeError:
        there = False
    if there and device.type == "cuda":
        there = (device.index or 0) < torch.cuda.device_count()
    if not there:
        names = ", ".join(kind for kind, there in available.items() if there)
        raise ConfigError(f"no device '{name}' on this machine", hint=f"there is auto, {names}")
    return device
