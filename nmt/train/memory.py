"""The memory of a training: limits on the model size, the number of replicas and the micro-batch sizes."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from nmt.config import Config, TrainSettings
from nmt.distributed import n_ranks
from nmt.errors import ConfigError, NmtError
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import meta_model
from nmt.text.batches import Batch
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

Result = TypeVar("Result")

SMALLER_MODEL = "lower model.d_model, model.d_ff, the number of layers or tokenizer.vocab_size"  # a hint

MIN_REPLICA_TOKENS = 384  # minimum tokens per replica and step; with fewer, the overhead of operations dominates


def check_memory(config: Config, tokenizers: Tokenizers, device: torch.device) -> None:
    """Raise ConfigError if weights, average, gradients and moments do not fit into the memory of the device."""
    settings, model = config.train, meta_model(config, tokenizers)
    model.freeze(settings.freeze)
    # A lower bound: 4 bytes for each weight, gradient and moment. AdamW has two moments per weight, Muon has one.
    n_copies = 2 if settings.average == "ema" else 1
    n_moments = 2 if settings.optimizer == "adamw" else 1
    needed = 4 * (model.n_parameters * n_copies + model.n_trainable * (1 + n_moments))
    available = memory_of(device)
    if needed > available:
        sizes = f"{model.n_parameters / 1e6:,.0f}M parameters need {needed / 1e9:.1f} GB to train"
        raise ConfigError(f"{sizes}, {device} has {available / 1e9:.1f} GB", hint=SMALLER_MODEL)


def memory_of(device: torch.device) -> int:
    """Return the memory of a GPU or, for a CPU, of the machine, in bytes. Unknown memory counts as 2^60."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if sys.platform == "win32":
        return 2**60
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def n_fitting_replicas(model: Seq2Seq, settings: TrainSettings, n_before: int = 0) -> int:
    """Return the number of replicas that train fastest. On a GPU, it is 1. On a CPU, there are three limits:

    - one replica per torch thread
    - one replica per `MIN_REPLICA_TOKENS` tokens of a step
    - half of the memory for all replicas together

    A resumed run keeps its number, `n_before`, if threads and memory allow it: dropout depends on this number. A new
    run has 0.
    """
    if model.device.type != "cpu":
        return 1
    n_replicas = n_before or settings.batch_tokens * settings.accumulate // MIN_REPLICA_TOKENS
    # A replica stores a gradient, and three float32 tensors as large as the logits.
    replica_bytes = 4 * model.n_trainable + 12 * settings.batch_tokens * model.projection.out_features
    n_in_memory = memory_of(model.device) // 2 // replica_bytes
    return max(1, min(n_replicas, torch.get_num_threads(), n_in_memory))


def split_on_out_of_memory(
    step: Callable[[Sequence[Batch]], Result], micro_batches: Sequence[Batch], max_positions: int
) -> tuple[Result, int]:
    """Run a step. If memory runs out, repeat the step with smaller micro-batches.

    The gradient is the same except for dropout and the sampled softmax.

    Args:
        max_positions: the maximum number of positions of a micro-batch, found in earlier steps; 0 for no maximum.
    Returns:
        The result of the step, and `max_positions` for the next steps.
    Raises:
        NmtError: a single pair does not fit into memory, or there are several ranks, which cannot repeat a step.
    """
    while True:
        parts: list[Batch] = []
        for batch in micro_batches:
            parts += batch.cut(max_positions or batch.n_positions)
        try:
            return step(parts), max_positions
        except torch.OutOfMemoryError as error:
            largest = max(parts, key=lambda part: part.n_positions)
            if n_ranks() > 1 or len(largest.src) == 1:
                raise NmtError(
                    f"out of memory with {len(largest.src)} pairs of {largest.n_positions} positions",
                    hint="lower train.batch_tokens, data.max_length or the model's sizes; the checkpoint is kept",
                ) from error
        # Inside the except block, the exception would keep the tensors of the step in memory.
        max_positions = max(half.n_positions for half in largest.split(2))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning(
            f"out of memory with a batch of {largest.n_positions} positions: from now on in parts of {max_positions} "
            "at most, gradients added; a lower train.batch_tokens is quicker"
        )


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of this process on the device, in bytes. Unknown memory counts as 0."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes per unit of `ru_maxrss`
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
