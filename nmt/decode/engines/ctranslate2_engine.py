"""The CTranslate2 engine, which searches with a converted model, usually on a CPU. This module does not import torch.

CTranslate2's search differs from `nmt.decode.search` in these ways:
- CTranslate2 masks forbidden pieces before the softmax, so the other pieces get their probability.
  `nmt.decode.search` masks the same pieces after the softmax.
- CTranslate2 stops when `EXTRA_FINISHED` more hypotheses than the beam size have finished. An unfinished hypothesis
  could have a better score.
- With a shortlist (`nmt export --shortlist`), CTranslate2 can only write the pieces that are listed for the source
  pieces of a batch. So a translation can depend on the other sentences of its batch.
- CTranslate2 truncates hypotheses at the largest length limit of a batch. Then the engine cuts off each hypothesis at
  the limit of its request, and ends it with EOS. `nmt.decode.search` forces EOS at the limit.
Sampling, required terms, steps to watch, and scores of references with UNK need the torch engine of the same model. An
export has no torch engine.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.config import Config, ModelSettings
from nmt.decode import Precision
from nmt.decode.options import Engine, Hypothesis, NBest, RunningSearch, SearchOptions, SearchRequest, WatchStep
from nmt.distributed import LAUNCH_VARIABLES, launched
from nmt.errors import ConfigError, InputError, ModelError, os_errors_as
from nmt.files import cached, hash_file, read_capped
from nmt.processes import child_variables, set_environment_variables, usable_cores
from nmt.run.directory import RunDirectory
from nmt.sandbox import check_loadable, is_known, mark_loadable
from nmt.text import EOS, UNK
from nmt.text.tokenizer import Tokenizers

COMPUTE_TYPES = {None: "default", "fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
CONVERTER = 2  # version of the converter; increase it if the converter's output for the same model changes
# CTranslate2 stops when this many hypotheses more than the beam size have finished. With the value 3, eight of 2,000
# translations differ from those of `nmt.decode.search` (beam 5, Multi30k de-en and Tatoeba zh-en). With the value 0,
# 108 translations differ, and a search takes 10 % less time.
EXTRA_FINISHED = 3
MAX_HYPOTHESES = 192  # maximum beams x requests per batch; 320 is no faster
SCORED_PAIRS, ALIGNED_PAIRS = 16, 64  # pairs per batch; the logits of larger batches would not fit into the CPU cache
SHORTLIST = "vmap.txt"  # file name in an export, fixed by CTranslate2
CHARACTERS = "characters.txt"  # file in an export with the characters that the model learned in bytes
MAX_CHARACTERS_BYTES = 5_000_000  # maximum size of `CHARACTERS`; all characters of Unicode take less
# Setting of a model -> the values that CTranslate2 supports. All other settings may have any value.
SUPPORTED: dict[str, tuple[object, ...]] = {
    "architecture": ("transformer",),
    "attention": ("scaled_dot",),
    "padding_mask": (True,),
    "attention_window": (None,),
}


@dataclass
class CTranslate2Engine:
    """An `Engine` with a `ctranslate2.Translator`, which reads and writes pieces instead of token ids."""

    engine: Any
    tokenizers: Tokenizers
    max_length: int  # maximum length of a sequence that the model accepts, in tokens including EOS
    load_torch: Callable[[], Engine] | None = None  # returns the torch engine of the same model; None in an export
    in_background: bool = True

    def __post_init__(self) -> None:
        self.name = f"CTranslate2 {metadata.version('ctranslate2')} {self.engine.compute_type}"
        self.explains = self.load_torch is not None

    def torch_engine(self, needed_for: str) -> Engine:
        if self.load_torch is None:
            raise ConfigError(f"CTranslate2 has no {needed_for}", hint="give the run that was exported")
        return self.load_torch()

    def start(
        self,
        requests: Sequence[SearchRequest],
        options: SearchOptions,
        *,
        batch_size: int,
        watch: WatchStep | None,  # noqa: ARG002 - CTranslate2 shows no steps
    ) -> RunningSearch:
        """Start a search in CTranslate2's threads."""
        limits = []
        for request in requests:
            length = len(request.tokens) + 1  # with EOS
            limits.append(options.limit(length, len(request.prefix), self.max_length))
        # Sort the requests by length limit, the largest first. The first limit of a batch is the limit of the batch.
        order = sorted(range(len(requests)), key=lambda i: (-limits[i], -len(requests[i].tokens)))
        fair_share = math.ceil(len(requests) / self.engine.num_translators)  # so that all threads get requests
        size = max(1, min(batch_size, MAX_HYPOTHESES // options.beam, fair_share))
        futures: dict[int, Any] = {}  # index of a request -> future
        for first in range(0, len(requests), size):
            batch = order[first : first + size]
            batch_futures = self.search_batch([requests[i] for i in batch], options, limits[batch[0]])
            futures |= zip(batch, batch_futures, strict=True)

        def result() -> list[NBest]:
            n_bests = []
            for i, request in enumerate(requests):
                n_bests.append(self.hypotheses(futures[i].result(), request.tokens, limits[i]))
            return self.with_scores(requests, n_bests, options) if options.scores else n_bests

        return result

    def search_batch(self, requests: Sequence[SearchRequest], options: SearchOptions, limit: int) -> Any:
        """Start the search for a batch. Return a list of futures, one per request."""
        sources = [self.tokenizers.source.pieces(request.tokens) for request in requests]  # CTranslate2 adds EOS
        prefixes = None
        if any(request.prefix for request in requests):
            prefixes = [self.tokenizers.target.pieces(request.prefix) for request in requests]
        attention = any(request.attention for request in requests)
        min_length = min(options.min_length, limit - 1)  # EOS is allowed at the limit
        patience = 1 + EXTRA_FINISHED / options.beam if options.beam > 1 else 1
        return self.engine.translate_batch(
            sources,
            prefixes,
            asynchronous=True,
            beam_size=options.beam,
            patience=patience,
            num_hypotheses=options.n_best,
            length_penalty=options.alpha,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=min_length,
            return_end_token=True,  # so that EOS counts in the length of a hypothesis
            return_attention=attention,
            use_vmap=True,  # has no effect on a model without a shortlist
        )

    def hypotheses(self, result: Any, source: list[int], limit: int) -> NBest:
        """Return the hypotheses of a request, without scores. A hypothesis that exceeds the limit is cut off."""
        # Hypotheses that are cut off may become equal. The dict keeps the first of equal hypotheses.
        hypotheses: dict[tuple[int, ...], Hypothesis] = {}
        for pieces, weights in zip_longest(result.hypotheses, result.attention):
            tokens = self.tokenizers.target.ids(pieces)
            is_cut = len(tokens) > limit or tokens[-1:] != [EOS]
            if is_cut:
                tokens[limit - 1 :] = [EOS]
            hypothesis = Hypothesis(tokens, [], 0.0, is_cut=is_cut)
            if weights:
                rows = np.array(weights[: len(tokens) - 1], np.float32)
                # On a CPU, CTranslate2 4.8.5 returns the first row of another request, so let the first token attend to
                # the first source token.
                rows[:1] = np.eye(1, len(source))
                hypothesis.attention = {(tuple(source), tuple(tokens[:-1])): rows}
            hypotheses.setdefault(tuple(tokens), hypothesis)
        return list(hypotheses.values())

    def with_scores(
        self, requests: Sequence[SearchRequest], n_bests: Sequence[NBest], options: SearchOptions
    ) -> list[NBest]:
        """Compute the scores of all hypotheses, and sort the hypotheses of each request by score, the best first.

        This needs a second pass, because CTranslate2's search returns no log-probabilities of single tokens.
        """
        # 1. Compute the log-probabilities of all hypotheses of all requests in one pass.
        sources: list[list[int]] = []
        for request, n_best in zip(requests, n_bests, strict=True):
            sources += [request.tokens] * len(n_best)
        hypotheses = list(chain.from_iterable(n_bests))
        targets = [hypothesis.tokens[:-1] for hypothesis in hypotheses]
        rows = self.log_probs_of(sources, targets)
        # 2. Compute the scores, and sort by score.
        for hypothesis, log_probs in zip(hypotheses, rows, strict=True):
            hypothesis.log_probs = log_probs
            divisor = options.length_divisor(len(hypothesis.tokens))
            hypothesis.score = hypothesis.log_prob / divisor
        return [sorted(n_best, key=lambda hypothesis: -hypothesis.score) for n_best in n_bests]

    def _pieces(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> tuple[list[Any], list[Any]]:
        """Convert the token ids of sources and targets to pieces."""
        sources = [self.tokenizers.source.pieces(tokens) for tokens in source]
        targets = [self.tokenizers.target.pieces(tokens) for tokens in target]
        return sources, targets

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """Score pairs, see `Engine`. CTranslate2 gives UNK a probability of 0.

        So if a target has UNK, the torch engine scores all pairs. An export has no torch engine, and uses CTranslate2.
        """
        if self.load_torch is None or not any(UNK in tokens for tokens in target):
            return self.log_probs_of(source, target)
        return self.torch_engine("scores of references").score(source, target)

    def log_probs_of(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """Return the log-probabilities of the tokens of each target and of EOS, given the target's source."""
        pieces = self._pieces(source, target)
        results = self.engine.score_batch(*pieces, max_batch_size=SCORED_PAIRS, max_input_length=0)
        return [result.log_probs for result in results]

    def attention(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        """Return the mean weights over the heads of the last layer, the only layer that CTranslate2 returns."""
        longest = max(map(len, target), default=0)
        results = self.engine.translate_batch(
            *self._pieces(source, target),
            max_batch_size=ALIGNED_PAIRS,
            beam_size=1,
            max_input_length=0,
            max_decoding_length=longest + 1,
            return_attention=True,
        )
        matrices = []
        for result, tgt, src in zip(results, target, source, strict=True):
            rows = np.array(result.attention[0][: len(tgt)], np.float32)
            matrix = rows.reshape(len(tgt), len(src))  # (0, S) if the target is empty
            matrices.append(matrix)
        return matrices


def import_ctranslate2() -> Any:
    """Import the ctranslate2 package. Raises InputError if it is not installed."""
    try:
        import ctranslate2
    except ImportError as error:
        raise InputError("CTranslate2 is not installed", hint="pip install 'ctranslate2>=4.8.5'") from error
    return ctranslate2


def unsupported(settings: ModelSettings, supported: Mapping[str, Sequence[object]] = SUPPORTED) -> str:
    """Return the first unsupported setting as `model.key=value`, or "" if there is none."""
    for key, values in supported.items():
        value = getattr(settings, key)
        if value not in values:
            return f"model.{key}={str(value).lower()}"
    return ""


def converted(file: Path, precision: Precision) -> tuple[Path, str]:
    """Return the path of a model file's export in the cache, and the SHA-256 of the model file.

    The model is converted if the cache has no export of it. Raises NmtError if this fails.
    """
    before = file.stat()
    digest = hash_file(file)
    kind = COMPUTE_TYPES[precision]

    def make(directory: Path) -> None:
        convert(file, directory, kind)
        # During the conversion, the file may have been replaced, and even restored: compare hash, inode and ctime.
        now = file.stat()
        is_same_file = (now.st_ino, now.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
        if hash_file(file) != digest or not is_same_file:
            raise ModelError(f"{file} has changed while it was converted", hint="try again")
        mark_loadable("ctranslate2", contents(directory))

    def is_whole(directory: Path) -> bool:
        return is_known("ctranslate2", contents(directory))

    key = [CONVERTER, digest, kind, metadata.version("ctranslate2")]
    return cached("ctranslate2", key, make, is_whole), digest


def convert(file: Path, directory: Path, quantization: str) -> None:
    """Convert a model file with `nmt export` in a child process. Raises ModelError if the conversion fails.

    Only the child process imports torch. If the conversion crashes, only the child process ends.
    """
    command = [sys.executable, "-m", "nmt", "export", "-q", "-m", str(file), "-o", str(directory)]
    command += ["--to", "ctranslate2", "--quantization", quantization]
    # Remove the variables of a distributed training, because the child is not one of its ranks.
    env = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    env |= child_variables()
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        # Show the child's error message. A child that crashed has printed no message.
        stderr = done.stderr.decode(errors="replace")
        printed = re.search("^nmt: error: (.*)$", stderr, re.MULTILINE)
        message = printed[1] if printed else f"the conversion ended with exit code {done.returncode}"
        raise ModelError(message, hint="use --engine torch")


def contents(export: Path) -> bytes:
    """Return the names and hashes of an export's files as lines. Raises ModelError for a pipe or a device."""
    lines = []
    for file in sorted(export.iterdir()):
        if file.is_dir():
            continue
        if not file.is_file():  # a pipe, or a device
            raise ModelError(f"{file} is not a file", hint="export the model again")
        lines.append(f"{file.name} {hash_file(file)}\n")
    return "".join(lines).encode()


def read_characters(file: Path) -> str:
    """Read the file `CHARACTERS` of an export. Raises ModelError if the file cannot be read or is not UTF-8."""
    with os_errors_as(ModelError, f"read {file}", hint="export the model again"):
        content = read_capped(file, MAX_CHARACTERS_BYTES)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{file} is damaged", hint="export the model again") from error


def load_export(
    path: Path, device: str, precision: Precision | None, load_torch: Callable[[], Engine] | None = None
) -> tuple[CTranslate2Engine, Tokenizers, Config]:
    """Load an export. Return the arguments of `Translator`; see `loading.load`."""
    ctranslate2 = import_ctranslate2()
    # 1. Read config and tokenizers.
    config, tokenizers = RunDirectory(path).read_export()
    if (path / CHARACTERS).is_file():  # the export of an imported model has no such file
        tokenizers = tokenizers.with_learned(read_characters(path / CHARACTERS))
    # A damaged export may crash this process, so a child process loads it first. `load_torch` is given only for exports
    # from the cache, which have been checked.
    if load_torch is None:
        check_loadable("ctranslate2", f"the export {path}", contents(path), str(path))
    # 2. Choose the device: a CPU with one batch per thread, or the GPU of this rank.
    kind, _, index = device.partition(":")
    on_cpu = kind == "cpu" or (kind == "auto" and not ctranslate2.get_cuda_device_count())
    set_environment_variables()  # replaces an invalid OMP_NUM_THREADS
    setting = os.environ.get("OMP_NUM_THREADS", "0")
    chosen, *_ = setting.split(",")
    n_threads = int(chosen) or usable_cores()
    # 3. Load the engine.
    try:
        device_index = 0 if on_cpu else int(index or launched().local_rank)
        engine = ctranslate2.Translator(
            str(path),
            kind,
            device_index=device_index,
            compute_type=COMPUTE_TYPES[precision],
            inter_threads=n_threads if on_cpu else 1,  # one thread per batch: threads that share a batch are slower
            intra_threads=1,
            max_queued_batches=n_threads,  # only a few, because all queued batches are translated after Ctrl-C
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        hint = "export it again, or change --device or --precision"
        raise ModelError(f"CTranslate2 cannot load {path}: {reason}", hint=hint) from error
    return CTranslate2Engine(engine, tokenizers, config.model.max_positions, load_torch), tokenizers, config
