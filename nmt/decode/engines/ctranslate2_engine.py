"""The CTranslate2 engine: translates with a directory written by `nmt export`. Does not import torch.

`nmt.interchange.ctranslate2` lists how CTranslate2's search differs from `nmt.decode.search`.
"""

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nmt.config import Config
from nmt.decode import Precision
from nmt.decode.options import Hypothesis, NBest, SearchOptions, Segment, WatchStep
from nmt.distributed import launched
from nmt.errors import ConfigError, InputError, ModelError
from nmt.files import hash_file
from nmt.run.directory import RunDirectory
from nmt.sandbox import check_loadable
from nmt.text import EOS
from nmt.text.tokenizer import Tokenizers

COMPUTE_TYPES = {None: "default", "fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


class CTranslate2Engine:
    """An `Engine` around a `ctranslate2.Translator`, which reads and writes pieces."""

    def __init__(self, engine: Any, tokenizers: Tokenizers, max_length: int) -> None:
        self.engine = engine
        self.tokenizers = tokenizers
        self.max_length = max_length

    def translate(
        self,
        segments: Sequence[Segment],
        options: SearchOptions,
        *,
        batch_size: int,
        watch: WatchStep | None = None,  # noqa: ARG002 - CTranslate2 does not expose the steps of a beam search
    ) -> list[NBest]:
        """See `Engine`. Raises ConfigError for an option that CTranslate2 does not have."""
        if options.sample or options.length_penalty == "gnmt":
            option = "sampling with per-line seeds" if options.sample else "length penalty gnmt"
            raise ConfigError(f"CTranslate2 has no {option}", hint="use the run itself, with --engine torch")

        found: list[tuple[int, list[int]]] = []  # index of the segment and tokens without EOS, per hypothesis
        limits = [options.limit(len(s.tokens) + 1, len(s.prefix), self.max_length) for s in segments]
        order = sorted(range(len(segments)), key=lambda i: (-limits[i], -len(segments[i].tokens)))
        for limit, group in groupby(order, key=lambda i: limits[i]):  # CTranslate2 takes one limit per call
            indices = list(group)
            if limit == 1:  # only EOS fits
                found += [(i, []) for i in indices]
                continue
            results = self.engine.translate_batch(
                [self.tokenizers.source.pieces(segments[i].tokens) for i in indices],  # CTranslate2 adds EOS
                [self.tokenizers.target.pieces(segments[i].prefix) for i in indices],
                max_batch_size=batch_size,
                beam_size=options.beam,
                num_hypotheses=options.n_best,
                length_penalty=options.alpha,
                max_input_length=0,
                max_decoding_length=limit - 1,  # without EOS
                min_decoding_length=min(options.min_length, limit - 1),
                return_end_token=True,
            )
            for i, result in zip(indices, results, strict=True):
                hypotheses = map(self.tokenizers.target.ids, result.hypotheses)
                found += [(i, [token for token in tokens if token != EOS]) for tokens in hypotheses]
        # CTranslate2's search returns no scores per token, and none for the EOS appended at the length limit.
        log_probs = self.score([segments[i].tokens for i, _ in found], [tokens for _, tokens in found])
        n_best: list[NBest] = [[] for _ in segments]
        for (i, tokens), row in zip(found, log_probs, strict=True):
            n_best[i].append(Hypothesis([*tokens, EOS], row, sum(row) / options.length_divisor(len(row))))
        return [sorted(of_segment, key=lambda h: -h.score) for of_segment in n_best]

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        results = self.engine.score_batch(
            [self.tokenizers.source.pieces(tokens) for tokens in source],
            [self.tokenizers.target.pieces(tokens) for tokens in target],
            max_batch_size=64,
            max_input_length=0,
        )
        return [result.log_probs for result in results]


def import_ctranslate2() -> Any:
    """Import the ctranslate2 package. Raises InputError if it is not installed."""
    try:
        import ctranslate2
    except ImportError as error:
        raise InputError("CTranslate2 is not installed", hint="pip install 'ctranslate2>=4.8.5'") from error
    return ctranslate2


def load_export(path: Path, device: str, precision: Precision | None) -> tuple[CTranslate2Engine, Tokenizers, Config]:
    """Load an export. Returns the arguments of `Translator`; see `translator.load`."""
    ctranslate2 = import_ctranslate2()
    run = RunDirectory(path)
    config = run.read_config()
    tokenizers = run.read_tokenizers(config)
    if tokenizers is None:
        raise ModelError(f"{path} has no tokenizer", hint="export the model again")
    files = [file for file in sorted(path.iterdir()) if not file.is_dir()]
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is not a file", hint="export the model again")
    content = "".join(f"{file.name} {hash_file(file)}\n" for file in files)
    check_loadable("ctranslate2", f"the export {path}", content.encode(), str(path))  # loading a damaged one may crash
    kind, _, index = device.partition(":")
    try:
        engine = ctranslate2.Translator(
            str(path),
            kind,
            device_index=int(index or launched().local_rank if kind != "cpu" else 0),
            compute_type=COMPUTE_TYPES[precision],
            # OMP_NUM_THREADS is set by the user, or by --threads or --workers, for both engines (see prepare_torch).
            # The default is 1, because CTranslate2 would start more threads, which wait for each other.
            intra_threads=int(os.environ.get("OMP_NUM_THREADS", "1")),
        )
    except (ValueError, RuntimeError) as error:
        reason, hint = str(error).splitlines()[0], "export it again, or change --device or --precision"
        raise ModelError(f"CTranslate2 cannot load {path}: {reason}", hint=hint) from error
    return CTranslate2Engine(engine, tokenizers, config.model.max_positions), tokenizers, config
