"""CTranslate2 as an engine, on a directory that `nmt export` wrote. Imports no torch.

Where its search is not ours, see `nmt.export`.
"""

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nmt.config import Config
from nmt.decode import Precision
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.distributed import launched
from nmt.errors import ConfigError, InputError, ModelError
from nmt.files import hash_file
from nmt.run.directory import RunDirectory
from nmt.sandbox import check_loadable
from nmt.text import EOS
from nmt.text.tokenizer import Tokenizers

COMPUTE_TYPES = {None: "default", "fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


class CTranslate2Engine:
    """An exported model as an engine.

    Args:
        engine: a `ctranslate2.Translator`.
        tokenizers: it reads and writes pieces, not ids.
        max_length: the longest sequence that the model can hold.
    """

    def __init__(self, engine: Any, tokenizers: Tokenizers, max_length: int) -> None:
        self.engine = engine
        self.tokenizers = tokenizers
        self.max_length = max_length

    def translate(
        self,
        segments: Sequence[list[int]],
        options: SearchOptions,
        *,
        batch_size: int,
        prefixes: Sequence[Sequence[int]],
        seeds: Sequence[int],  # noqa: ARG002 - for sampling
    ) -> list[list[Hypothesis]]:
        """See `Engine`.

        Raises:
            ConfigError: it cannot search so.
        """
        for wrong, what in (
            (options.sample, "sampling with a seed a line"),
            (options.length_penalty == "gnmt", "length penalty gnmt"),
        ):
            if wrong:
                raise ConfigError(f"CTranslate2 has no {what}", hint="take the run itself, with --engine torch")

        def limit(i: int) -> int:
            return options.limit(len(segments[i]) + 1, len(prefixes[i]), self.max_length)

        found: list[tuple[int, list[int]]] = []  # the segment of each hypothesis, and its ids without EOS
        order = sorted(range(len(segments)), key=lambda i: (-limit(i), -len(segments[i])))
        for most, of_limit in groupby(order, limit):  # it knows one limit a call
            rows = list(of_limit)
            if most == 1:  # EOS alone
                found += [(i, []) for i in rows]
                continue
            results = self.engine.translate_batch(
                [self._source(segments[i]) for i in rows],
                [self.tokenizers.target.pieces(prefixes[i]) for i in rows],
                max_batch_size=batch_size,
                beam_size=options.beam,
                num_hypotheses=options.n_best,
                length_penalty=options.alpha,
                max_input_length=0,
                max_decoding_length=most - 1,  # without EOS
                min_decoding_length=min(options.min_length, most - 1),
                return_end_token=True,
            )
            for i, result in zip(rows, results, strict=True):
                for pieces in result.hypotheses:
                    ids = self.tokenizers.target.ids(pieces)
                    found.append((i, ids[:-1] if ids and ids[-1] == EOS else ids))
        # it scores a whole hypothesis; and one that it cut at the limit had no EOS to score
        log_probs = self.score([segments[i] for i, _ in found], [ids for _, ids in found])
        hypotheses: list[list[Hypothesis]] = [[] for _ in segments]
        for (i, ids), row in zip(found, log_probs, strict=True):
            hypotheses[i].append(Hypothesis([*ids, EOS], row, sum(row) / options.divisor(len(row))))
        return [sorted(of_segment, key=lambda h: -h.score) for of_segment in hypotheses]

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        """See `Engine`."""
        limit = self.max_length - 1
        results = self.engine.score_batch(
            [self._source(ids[:limit]) for ids in source],
            [self.tokenizers.target.pieces(ids[:limit]) for ids in target],
            max_batch_size=64,
            max_input_length=0,
        )
        return [result.log_probs for result in results]

    def _source(self, ids: list[int]) -> list[str]:
        return self.tokenizers.source.pieces(ids)  # the export's settings add EOS


def import_ctranslate2() -> Any:
    """The engine's package.

    Raises:
        InputError: it is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise InputError("CTranslate2 is not installed", hint="pip install 'ctranslate2>=4.8.5'") from error
    return ctranslate2


def load_export(path: Path, device: str, precision: Precision | None) -> tuple[CTranslate2Engine, Tokenizers, Config]:
    """What a translator is made of, from an exported model; see `translator.load`."""
    ctranslate2 = import_ctranslate2()
    run = RunDirectory(path)
    config = run.read_config()
    tokenizers = run.read_tokenizers(config)
    if tokenizers is None:
        raise ModelError(f"{path} lacks its tokenizer", hint="export the model again")
    kind, _, index = device.partition(":")
    _try_out(path)
    try:
        engine = ctranslate2.Translator(
            str(path),
            kind,
            device_index=int(index or launched().local_rank if kind != "cpu" else 0),
            compute_type=COMPUTE_TYPES[precision],
            # one thread, if no number was asked for: more wait for one another
            intra_threads=int(os.environ.get("OMP_NUM_THREADS", "1")),
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"CTranslate2 cannot load {path}: {reason}", hint="export it again, or change --device or --precision"
        ) from error
    return CTranslate2Engine(engine, tokenizers, config.model.max_positions), tokenizers, config


def _try_out(path: Path) -> None:
    """Let a child process load it first, unless this machine has seen the same files before."""
    files = [file for file in sorted(path.iterdir()) if not file.is_dir()]
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is not a file", hint="export the model again")
    content = "".join(f"{file.name} {hash_file(file)}\n" for file in files)
    check_loadable("ctranslate2", f"the export {path}", content.encode(), str(path))
