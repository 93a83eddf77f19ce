"""The torch engine: batches of segments of similar length, searched with a model or an ensemble."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.config import Config
from nmt.decode import Precision
from nmt.decode.ensemble import EnsembleDecoder, log_mean_probs
from nmt.decode.int8 import to_int8
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import IncrementalDecoder, search
from nmt.decode.threads import ThreadTuner
from nmt.distributed import launched
from nmt.errors import ConfigError, ModelError, NmtError
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.batches import collate, cut_batches, pad_source
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

MAX_BATCH_POSITIONS = 131_072  # beams x source positions per batch: bounds the memory of KV caches
SCORED_TOKENS = 4096  # target positions per batch in scoring, each with V log-probabilities


class TorchEngine:
    """See `Engine`.

    Args:
        models: in eval mode, on one device; several are an ensemble.
        cache_dtype, trace: see `TransformerDecoder`.
        tune_threads: whether to choose the number of CPU threads by timing batches; it may change last digits.
    """

    def __init__(
        self,
        *models: Seq2Seq,
        cache_dtype: torch.dtype | None = None,
        trace: bool = False,
        tune_threads: bool = False,
    ) -> None:
        self.models = models
        n_parameters = sum(p.numel() for model in models for p in model.parameters())
        self.tuner = ThreadTuner(n_parameters, torch.get_num_threads() if tune_threads else 1)
        decoders = [incremental_decoder(model, cache_dtype=cache_dtype, trace=trace) for model in models]
        self.decoder: IncrementalDecoder[Any] = decoders[0] if len(decoders) == 1 else EnsembleDecoder(decoders)
        self.max_positions = MAX_BATCH_POSITIONS  # reduced after running out of memory

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.models[0].device

    @property
    def max_length(self) -> int:
        """See `Engine`."""
        return min(model.max_length for model in self.models)

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

        def search_batch(batch: list[int]) -> None:
            n_tokens = sum(len(segments[i]) + 1 for i in batch)
            with torch.inference_mode(), self.tuner.batch(len(batch) * options.beam, n_tokens):
                results = search(
                    self.decoder,
                    pad_source([segments[i] for i in batch]).to(self.device),
                    options,
                    prefixes=[prefixes[i] for i in batch],
                    max_length=self.max_length,
                    sentence_seeds=[seeds[i] for i in batch],
                )
            for i, hypotheses in zip(batch, results, strict=True):
                found[i] = hypotheses

        for batch in self._batches(segments, batch_size, options.beam):
            n_fitting = within_memory(search_batch, batch)
            if n_fitting < len(batch):
                self.max_positions = n_fitting * (len(segments[batch[0]]) + 1) * options.beam
        return found

    def _batches(self, segments: Sequence[list[int]], batch_size: int, n_beams: int) -> Iterator[list[int]]:
        """Indices of segments of similar length, longest first: the first batch needs the most memory."""
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

        def score_batch(pairs: list[int]) -> None:
            batch = collate([src[i] for i in pairs], [tgt[i] for i in pairs], pairs).to(self.device)
            with torch.inference_mode():
                log_probs = log_mean_probs([model(batch.src, batch.tgt_in) for model in self.models])  # (B, T, V)
            of_reference = log_probs.gather(-1, batch.tgt_out[..., None])[..., 0]  # (B, T)
            for i, row in zip(pairs, of_reference.tolist(), strict=True):
                result[i] = row[: len(tgt[i]) + 1]

        for pairs in cut_batches([(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], SCORED_TOKENS):
            within_memory(score_batch, pairs)
        return result


def within_memory(process: Callable[[list[int]], None], batch: list[int]) -> int:
    """Process a batch, in halves if it does not fit into memory.

    Returns:
        how many sentences fit at a time.
    Raises:
        NmtError: not even one fits.
    """
    try:
        process(batch)
        return len(batch)
    except torch.OutOfMemoryError as error:
        if len(batch) == 1:
            raise NmtError("out of memory with one sentence", hint="take fewer --beam, or --device cpu") from error
    if torch.cuda.is_available():  # outside the except block, whose traceback keeps tensors alive
        torch.cuda.empty_cache()
    half = (len(batch) + 1) // 2
    log.warning("out of memory with %d sentences: going on with %d at a time", len(batch), half)
    n_fitting = within_memory(process, batch[:half])
    within_memory(process, batch[half:])
    return n_fitting


Loaded = tuple[TorchEngine, Tokenizers, Config, RunDirectory | None]


def load_models(paths: Sequence[Path], device: str, precision: Precision) -> Loaded:
    """The parts of a `Translator`, from one or more run directories or model files; see `translator.load`.

    An ensemble has the first model's config and run, with the smallest `data.max_length` of all.
    """
    loaded = [_load(path, device, precision) for path in paths]
    models = [model for model, *_ in loaded]
    _, tokenizers, config, run = loaded[0]
    for path, (_, others, _, _) in zip(paths, loaded, strict=True):
        if others != tokenizers:
            raise ModelError(
                f"{paths[0]} and {path} have different tokenizers, an ensemble has one",
                hint="runs of the same data.train and tokenizer settings have the same, whatever their seed",
            )
    max_length = min(config.data.max_length for _, _, config, _ in loaded)
    config = config.model_copy(update={"data": config.data.model_copy(update={"max_length": max_length})})
    on_cpu = models[0].device.type == "cpu"
    # Batched decoding reads the KV cache from memory at every step. Without bf16 kernels, converting costs more.
    has_bf16 = on_cpu and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    cache_dtype = torch.bfloat16 if precision == "int8" and has_bf16 else None
    engine = TorchEngine(*models, cache_dtype=cache_dtype, trace=on_cpu, tune_threads=on_cpu)
    return engine, tokenizers, config, run


def _load(path: Path, device: str, precision: Precision) -> tuple[Seq2Seq, Tokenizers, Config, RunDirectory | None]:
    file = RunDirectory(path).model_file if path.is_dir() else path
    if not file.exists():
        raise ModelError(f"no model at {file}", hint="train one with `nmt train CONFIG`, or name another with -m")
    checkpoint = read_checkpoint(file, prefixes=("model",))
    run = RunDirectory(path) if path.is_dir() else None
    if run is not None:
        run.check_tokenizers(checkpoint.tokenizers)
    model = in_precision(checkpoint.model().to(pick_device(device)), precision).requires_grad_(False)
    return model, checkpoint.tokenizers, checkpoint.config, run


def in_precision(model: Seq2Seq, precision: Precision) -> Seq2Seq:
    """The model for decoding in fp32, bf16 or int8.

    Raises:
        ConfigError: int8 on a GPU.
    """
    if precision == "bf16":  # not model.bfloat16(), which drops the imaginary part of rotary positions
        for x in (*model.parameters(), *model.buffers()):
            if x.is_floating_point():
                x.data = x.data.bfloat16()
        return model
    if precision == "int8":
        if next(model.parameters()).device.type != "cpu":
            raise ConfigError("int8 is for CPUs", hint="on a GPU take --precision bf16")
        to_int8(model)
    return model


def pick_device(name: str) -> torch.device:
    """The device with this name; `auto` is the first available of cuda, mps and cpu.

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
