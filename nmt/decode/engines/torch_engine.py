"""The torch engine, which searches with `nmt.decode.search`, on any device, with any model or ensemble.

This engine is the reference. `ctranslate2_engine` lists what the CTranslate2 engine does differently.
"""

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.config import Config
from nmt.decode import Precision
from nmt.decode.options import Engine, NBest, RunningSearch, SearchOptions, SearchRequest, WatchStep
from nmt.decode.search import IncrementalDecoder, TraceStep, search
from nmt.distributed import launched
from nmt.errors import ConfigError, InputError, ModelError, NmtError
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory, model_file
from nmt.seeds import seed_of
from nmt.text import EOS
from nmt.text.batches import collate, cut_batches, pad_source, pair_batches
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

MAX_BATCH_POSITIONS = 131_072  # maximum beams x source positions per batch, to limit the memory of KV caches
ATTENTION_POSITIONS = 1024  # maximum positions per batch and side in `attention`, to limit the memory of the weights
SCORED_TOKENS = 4096  # maximum target positions per batch in `score`; each position has V log-probabilities

T = TypeVar("T")


class TorchEngine:
    """An `Engine` with models in eval mode on one device. Several models form an ensemble."""

    def __init__(self, *models: Seq2Seq) -> None:
        self.models = models
        dtype = next(models[0].parameters()).dtype
        self.name = f"torch {torch.__version__} {str(dtype).removeprefix('torch.')}"
        self.explains = len(models) == 1
        self.in_background = False
        self.device = models[0].device
        self.max_length = min(model.max_length for model in models)
        decoders = [incremental_decoder(model) for model in models]
        self.decoder = decoders[0] if len(decoders) == 1 else EnsembleDecoder(decoders)
        self.max_positions = MAX_BATCH_POSITIONS  # `search` lowers this value if the memory is too small

    def torch_engine(self, needed_for: str) -> "TorchEngine":  # noqa: ARG002 - see `Engine`
        return self

    def start(
        self, requests: Sequence[SearchRequest], options: SearchOptions, *, batch_size: int, watch: WatchStep | None
    ) -> RunningSearch:
        """Return a search that runs completely when it is called."""
        return partial(self.search, requests, options, batch_size, watch)

    def search(
        self, requests: Sequence[SearchRequest], options: SearchOptions, batch_size: int, watch: WatchStep | None
    ) -> list[NBest]:
        def search_some(batch: list[int]) -> list[NBest]:
            return self.search_batch(requests, options, watch, batch)

        # Sort the requests by length, so that a batch has little padding. The longest requests come first, so that a
        # lack of memory shows at once.
        order = sorted(range(len(requests)), key=lambda i: -len(requests[i].tokens))
        n_bests: list[NBest] = [[] for _ in requests]
        while order:
            n_positions = (len(requests[order[0]].tokens) + 1) * options.beam  # beams x positions per request
            n = max(1, min(batch_size, self.max_positions // n_positions))
            batch, order = order[:n], order[n:]
            parts = halve_on_out_of_memory(search_some, batch)
            if len(parts) > 1:
                self.max_positions = len(parts[0]) * n_positions
            for i, n_best in zip(batch, chain(*parts), strict=True):
                n_bests[i] = n_best
        return n_bests

    @torch.inference_mode()
    def search_batch(
        self, requests: Sequence[SearchRequest], options: SearchOptions, watch: WatchStep | None, batch: list[int]
    ) -> list[NBest]:
        """Search for the translations of the requests with the indices in `batch`."""
        batch_requests = [requests[i] for i in batch]
        src = pad_source([request.tokens for request in batch_requests])
        prefixes = [request.prefix for request in batch_requests]
        constraints = [request.constraint for request in batch_requests]
        seeds = [seed_of(*request.place) for request in batch_requests]
        trace = tracer(watch, batch) if watch else None
        return search(
            self.decoder,
            src.to(self.device),
            options,
            prefixes=prefixes,
            constraints=constraints,
            max_length=self.max_length,
            sentence_seeds=seeds,
            trace=trace,
        )

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        @torch.inference_mode()
        def score_batch(pairs: list[int]) -> list[list[float]]:
            sources = [source[i] for i in pairs]
            targets = [target[i] for i in pairs]
            batch = collate(sources, targets, pairs).to(self.device)
            logits = [model(batch.src, batch.tgt_in) for model in self.models]
            log_probs = log_mean_probs(logits)  # (B, T, V)
            log_probs = log_probs.gather(-1, batch.tgt_out[..., None]).squeeze(-1)  # (B, T)
            # Cut off the padding of each row. The last log-probability of a row belongs to EOS.
            rows = log_probs.tolist()
            return [row[: len(tokens) + 1] for tokens, row in zip(targets, rows, strict=True)]

        scores: list[list[float]] = [[] for _ in source]
        lengths = [(len(tokens), len(target[i])) for i, tokens in enumerate(source)]
        for pairs in cut_batches(lengths, SCORED_TOKENS):
            parts = halve_on_out_of_memory(score_batch, pairs)
            for i, row in zip(pairs, chain(*parts), strict=True):
                scores[i] = row
        return scores

    @torch.inference_mode()
    def attention(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        """Return the mean weights over all heads, all layers, and all models that have attention."""
        matrices: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32) for _ in source]
        for batch in pair_batches(source, target, ATTENTION_POSITIONS):
            src = batch.src.to(self.device)
            tgt_in = batch.tgt_in.to(self.device)
            # 1. Compute the mean over layers and heads for each model, of shape (B, T, S).
            means = []
            for model in self.models:
                weights = model.attention(src, tgt_in).cross  # (L, B, H, T, S); L is 0 without attention
                if len(weights):
                    means.append(weights.float().mean((0, 2)))
            if not means:
                raise InputError("the model has no attention", hint="name another with -m")
            # 2. Compute the mean over models, and cut off padding and EOS.
            mean = torch.stack(means).mean(0)
            for i, matrix in zip(batch.lines, mean.cpu().numpy(), strict=True):
                n_target, n_source = len(target[i]), len(source[i])
                matrices[i] = matrix[:n_target, :n_source]
        return matrices


def only_model(engine: Engine, needed_for: str, *, problem: str, hint: str) -> Seq2Seq:
    """Return the single model of an engine.

    Raises ConfigError if the engine has an export, and InputError(problem) if it has an ensemble.
    """
    torch_engine = engine.torch_engine(needed_for)
    assert isinstance(torch_engine, TorchEngine)
    if len(torch_engine.models) > 1:
        raise InputError(problem, hint=hint)
    return torch_engine.models[0]


def tracer(watch: WatchStep, batch: Sequence[int]) -> Callable[[TraceStep], None]:
    """Return a `trace` function for `search`, which passes the best live hypothesis of each request to `watch`."""
    ended: set[int] = set()  # sentences whose best hypothesis has ended; their search may continue

    def trace(step: TraceStep) -> None:
        # 1. If the first candidate of a sentence ends in EOS, the sentence's best hypothesis has ended.
        first_candidates = step.candidates.tokens[:, 0].tolist()
        for sentence, token in zip(step.sentences, first_candidates, strict=True):
            if token == EOS:
                ended.add(sentence)
        # 2. Show the best live hypothesis of each sentence that is not in `ended`.
        first_beams = step.live.tokens[:, 0].tolist()
        best = zip(step.sentences, first_beams, strict=True)
        watch({batch[sentence]: tokens for sentence, tokens in best if sentence not in ended})

    return trace


class EnsembleDecoder:
    """An `IncrementalDecoder` for several models with the same vocabularies. The models may differ in architecture.

    The state is the list of the decoders' states. `step` returns the logarithms of the mean probabilities as logits.
    """

    def __init__(self, decoders: Sequence[IncrementalDecoder[Any]]) -> None:
        self.decoders = decoders

    def start(self, src: Tensor) -> list[Any]:
        return [decoder.start(src) for decoder in self.decoders]

    def step(self, tokens: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        outputs = [decoder.step(tokens, state) for decoder, state in zip(self.decoders, states, strict=True)]
        logits, new_states = zip(*outputs, strict=True)
        return log_mean_probs(logits), list(new_states)

    def select(self, states: list[Any], beam_indices: Tensor) -> list[Any]:
        return [decoder.select(state, beam_indices) for decoder, state in zip(self.decoders, states, strict=True)]


def log_mean_probs(logits: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean probability of each token, with shape (..., V).

    `logits` has the logits of M models, each of shape (..., V). The result is computed in at least float32.
    """
    dtype = torch.promote_types(logits[0].dtype, torch.float32)
    log_probs = torch.stack([x.log_softmax(-1, dtype=dtype) for x in logits])  # (M, ..., V)
    return log_probs.logsumexp(0) - math.log(len(logits))


def halve_on_out_of_memory(process: Callable[[list[int]], list[T]], batch: list[int]) -> list[list[T]]:
    """Process a batch. If the memory is too small, process its halves in the same way.

    Returns a list of results for each part that was processed as a whole.
    """
    try:
        return [process(batch)]
    except torch.OutOfMemoryError as error:
        if len(batch) == 1:
            raise NmtError("out of memory with one sentence", hint="lower --beam, or use --device cpu") from error
    # Empty the cache after the except block. Inside of the block, the traceback of the error keeps tensors alive.
    torch.cuda.empty_cache()
    half = (len(batch) + 1) // 2
    log.warning("out of memory with %d sentences: continuing with %d at a time", len(batch), half)
    first = halve_on_out_of_memory(process, batch[:half])
    return first + halve_on_out_of_memory(process, batch[half:])


def in_precision(model: Seq2Seq, precision: Precision) -> Seq2Seq:
    """Convert a model to bf16 in place, or leave it in fp32. Return the model. Raises ConfigError for int8."""
    if precision == "int8":
        raise ConfigError(
            "torch does not translate in int8", hint="CTranslate2 does, on a CPU and with one Transformer"
        )
    if precision == "bf16":  # model.bfloat16() would drop the imaginary part of rotary positions
        for x in (*model.parameters(), *model.buffers()):
            if x.is_floating_point():
                x.data = x.data.bfloat16()
    return model


def pick_device(name: str) -> torch.device:
    """Return the device with the given name. Raises ConfigError if this machine has no such device.

    The name `cuda` means the GPU of this rank. The name `auto` means the first available device of cuda, mps and cpu.
    """
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    names = [*gpus, "mps", "cpu"] if torch.backends.mps.is_available() else [*gpus, "cpu"]
    if name == "cuda" or (name == "auto" and gpus):
        chosen = f"cuda:{launched().local_rank}"  # one GPU per rank
    else:
        chosen = names[0] if name == "auto" else name
    if chosen not in names:
        raise ConfigError(f"no device '{name}' on this machine", hint=f"choose auto, {', '.join(names)}")
    return torch.device(chosen)


def load_models(
    paths: Sequence[Path], device: str, precision: Precision
) -> tuple[TorchEngine, Tokenizers, Config, RunDirectory | None, dict[str, Any]]:
    """Load models from run directories or model files. Return the arguments of `Translator`; see `loading.load`.

    Several models form an ensemble, see `config_of_all` and `with_common_characters`.
    """
    models: list[Seq2Seq] = []
    configs: list[Config] = []
    learned: list[str | None] = []
    tokenizers = None
    for path in paths:
        # 1. Read the model. All models of an ensemble must have the same tokenizers.
        checkpoint = read_checkpoint(model_file(path), prefixes=("model",))
        tokenizers = tokenizers or checkpoint.tokenizers
        if checkpoint.tokenizers != tokenizers:
            hint = "runs with the same data.train and tokenizer settings have the same tokenizer, whatever the seed"
            raise ModelError(f"{paths[0]} and {path} have different tokenizers: they form no ensemble", hint=hint)
        # 2. Prepare the model for inference, with the given precision and device.
        model = checkpoint.model().to(pick_device(device))
        models.append(in_precision(model, precision).requires_grad_(False))
        configs.append(checkpoint.config)
        learned.append(checkpoint.tokenizers.source.learned)
    assert tokenizers
    config = configs[0]
    progress = checkpoint.progress
    if len(models) > 1:
        config = config_of_all(configs)
        progress = {}
        tokenizers = with_common_characters(tokenizers, learned)
    run = RunDirectory(paths[0]) if paths[0].is_dir() else None
    return TorchEngine(*models), tokenizers, config, run, progress


def config_of_all(configs: Sequence[Config]) -> Config:
    """Return the config of the first model of an ensemble, with length limits that suit all models."""
    first = configs[0]
    max_length = min(config.data.max_length for config in configs)
    # A translation may be as long as the model with the largest limit allows.
    limits = [config.decode for config in configs]
    a = max(decode.max_length_a for decode in limits)
    b = max(decode.max_length_b for decode in limits)
    data = first.data.model_copy(update={"max_length": max_length})
    decode = first.decode.model_copy(update={"max_length_a": a, "max_length_b": b})
    return first.model_copy(update={"data": data, "decode": decode})


def with_common_characters(tokenizers: Tokenizers, learned: Sequence[str | None]) -> Tokenizers:
    """Return the tokenizers with the source characters that all models have learned in bytes.

    `learned` has the characters of each model, or None for an imported model, which is ignored.
    """
    recorded = [set(characters) for characters in learned if characters is not None]
    if not recorded:
        return tokenizers
    common = set.intersection(*recorded)
    return tokenizers.with_learned("".join(sorted(common)))
