"""The translator: lines in, as many lines out, in the same order.

    window of lines -> segments -> engine -> hypotheses of segments -> translations of lines

A window is translated as a whole before its first line is returned, so that lines of similar length can share a batch.
Windows also limit memory. This module does not import torch, because CTranslate2 does not need it.
"""

import functools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args

from nmt.config import Config, base_language, chosen_direction, language
from nmt.decode import EngineName, Precision
from nmt.decode.constraints import Constraint
from nmt.decode.options import Engine, SearchOptions
from nmt.errors import ConfigError, InputError, ModelError, NmtError
from nmt.files import hash_file
from nmt.processes import prepare_torch
from nmt.run.directory import RunDirectory
from nmt.run.header import read_header
from nmt.text import EOS
from nmt.text.lines import Pause, one_line
from nmt.text.tokenizer import Tokenizers
from nmt.translate.segments import UNSPACED, Line, Translation, join, naming_cut_lines, split
from nmt.translate.windows import start_windows

log = logging.getLogger("nmt")

MAX_LINES = 4_000  # of a window; in longer windows, batches have less padding

T = TypeVar("T")
Watch = Callable[[Callable[[int], str]], None]


class Translator:
    """An engine with its tokenizers and settings."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        config: Config,
        run: RunDirectory | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = engine
        self.tokenizers = tokenizers
        self.config = config
        self.run = run  # run directory that the model was loaded from, if any
        self.progress = progress or {}  # training progress stored in the model file; ensembles and exports have none
        self.options = SearchOptions(**config.decode.model_dump(exclude={"batch_size", "engine"}))
        self.target_language = language(config.data, "target")
        self.protected: Sequence[re.Pattern[str]] = []  # spans to keep as they are, see `nmt.text.placeholders`
        if config.data.placeholders:
            from nmt.text.placeholders import patterns_of  # imported late: its expressions take 15 ms to compile

            self.protected = patterns_of([])
        self.joiner = "" if base_language(self.target_language) in UNSPACED else " "

    def to(self, languages: str) -> "Translator":
        """Return a translator from de to en, given `de-en`, or into en, given `en`, by the same engine.

        Raises ConfigError if the model lacks this direction. The empty text chooses that of a model of one direction.
        """
        source, target = self.tokenizers
        languages = chosen_direction(self.config.data, source.targets, languages)
        if not languages:
            return self
        tokenizers = Tokenizers(replace(source, target_tag=languages.rpartition("-")[2]), target)
        return Translator(self.engine, tokenizers, self.config.direction(languages), self.run, self.progress)

    def directions(self) -> list["Translator"]:
        """Return a translator for each direction."""
        return [self.to(languages) for languages in self.config.data.directions] or [self]

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each text; `options` change fields of `SearchOptions`, for example `beam=1`."""
        if isinstance(texts, str):
            raise InputError("translate takes a list of sentences, not one string", hint='translate(["…"])')
        return [found.text for found in self.translate_lines(texts, self.with_options(**{"scores": False, **options}))]

    def with_options(self, **changes: Any) -> SearchOptions:
        return self.options.changed(**changes)

    def unknown(self, text: str) -> set[str]:
        """The characters of a text that the model cannot read; see `Tokenizer.unknown`."""
        tokenizer = self.tokenizers.source
        return tokenizer.unknown(tokenizer.split_tag(text)[1])

    def engine_for(self, options: SearchOptions, *, watched: bool = False) -> Engine:
        """Return the engine, or if these options need it, that of torch. Raises ConfigError if there is none."""
        if options.sample:
            if options.glossary and not self.config.data.glossary:
                raise ConfigError("a glossary needs beam search", hint="leave out the glossary, or sampling")
            return self.engine.torch_engine("sampling with a seed for each line")
        if options.glossary and not self.config.data.glossary:
            return self.engine.torch_engine("search for given terms")
        return self.engine.torch_engine("steps to watch") if watched and self.engine.explains else self.engine

    def encode_prefix(self, prefix: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prefix, given as text or tokens. Raises ConfigError if it is invalid or too long."""
        target = self.tokenizers.target
        tokens = target.encode(prefix) if isinstance(prefix, str) else list(prefix)
        for token in tokens:
            if not EOS < token < len(target):
                message = f"the prefix has the token {token}, but tokens of words are {EOS + 1} to {len(target) - 1}"
                raise ConfigError(message, hint="give the prefix as text")
        self.options.limit(1, len(tokens), self.engine.max_length)
        return tokens

    def translate_lines(
        self,
        lines: Iterable[str | Line | Pause],
        options: SearchOptions | None = None,
        *,
        batch_size: int | None = None,
        prefix: str = "",
        window: int = MAX_LINES,
        fixed_windows: bool = False,
        first: int = 1,
        after_window: Callable[[], object] = lambda: None,
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in order. A warning names those that were cut off; see `naming_cut_lines`.

        Args:
            lines: read one window at a time; a `Pause` ends one, a `Line` keeps its number.
            options, batch_size: the model's defaults if None.
            prefix: text that every translation must begin with.
            window: maximum lines of a window; with 1, each line is translated as soon as it is read.
            fixed_windows: all windows have as many lines, however long they take, so that batches are always the same.
            first: number of the first line, for messages and random seeds.
            after_window: called after each window, once all its translations have been consumed.
        Raises:
            ConfigError: the prefix is too long.
            InputError: a line is not a string.
        """
        windows = self.translate_windows(
            lines,
            options,
            batch_size=batch_size,
            prefix=prefix,
            window=window,
            fixed_windows=fixed_windows,
            first=first,
        )
        with naming_cut_lines(at_once=window == 1) as take_note:
            for translations in windows:
                take_note(translations)
                yield from translations
                after_window()

    def translate_windows(
        self,
        lines: Iterable[str | Line | Pause],
        options: SearchOptions | None = None,
        *,
        batch_size: int | None = None,
        prefix: str = "",
        window: int = MAX_LINES,
        fixed_windows: bool = False,
        first: int = 1,
    ) -> Iterator[list[Translation]]:
        """Translate a stream of lines, and yield the translations of each window; see `translate_lines`."""
        options = options or self.options
        batch_size = batch_size or self.config.decode.batch_size
        tokens = self.encode_prefix(prefix)

        def start(chunk: list[Line]) -> Callable[[], list[Translation]]:
            lines = [line._replace(prefix=tokens) for line in chunk]
            return self.start(lines, options, batch_size)

        least = window if fixed_windows else batch_size
        searches = start_windows(start, lines, first, least, window)
        if window > 1 and self.engine_for(options).in_background:
            searches = (search for search, _ in pairwise(chain(searches, [list])))  # starts the next one before this
        for finish in searches:
            yield finish()

    def start(
        self, lines: Sequence[Line], options: SearchOptions, batch_size: int, watch: Watch | None = None
    ) -> Callable[[], list[Translation]]:
        """Start to translate lines in one search of the engine; the returned function waits for it and finishes.

        `watch` is called after every step of the search, with a function from the index of a line to the text of its
        best hypothesis so far. An exception that `watch` raises ends the translation.
        """
        if self.protected or any(self.unknown(line.text) for line in lines):
            from nmt.translate.masking import start_masked  # it imports this module

            return start_masked(self, lines, options, batch_size, watch)
        return self.start_search(lines, options, batch_size, watch)

    def start_search(
        self, lines: Sequence[Line], options: SearchOptions, batch_size: int, watch: Watch | None = None
    ) -> Callable[[], list[Translation]]:
        """Start to translate lines; placeholders get no special treatment. See `start`."""
        max_length, target = self.config.data.max_length, self.tokenizers.target
        engine = self.engine_for(options, watched=watch is not None)
        read = lines
        if options.glossary:
            from nmt.text.glossary import annotated, find_terms, required_tokens  # late: takes 5 ms
        if options.glossary and self.config.data.glossary:
            read = [line._replace(text=annotated(line.text, find_terms(line.text, options.glossary))) for line in lines]
        segments_of_lines = split(read, self.tokenizers.source, max_length)
        segments = [segment for of_line in segments_of_lines for segment in of_line]
        is_constrained = options.glossary and not (engine.in_background or options.sample)
        for segment in segments if is_constrained else []:
            text, room = self.tokenizers.source.decode(segment.tokens), engine.max_length - 1 - len(segment.prefix)
            terms = required_tokens(text, options.glossary, target, room, segment.place[0])
            segment.constraint = Constraint(terms, target.inside_words)
        begun: dict[int, list[int]] = {}  # segment index -> tokens so far
        ends = list(accumulate(map(len, segments_of_lines), initial=0))

        def text_of(line: int) -> str:
            texts = (segments[i].style(target.decode(begun.get(i, []))) for i in range(ends[line], ends[line + 1]))
            return one_line(self.joiner.join(texts))

        def after_step(tokens: dict[int, list[int]]) -> None:
            assert watch
            begun.update(tokens)
            watch(text_of)

        search = engine.start(segments, options, batch_size=batch_size, watch=after_step if watch else None)

        def finish() -> list[Translation]:
            found = search()
            if not all(found):
                raise ModelError("the model's output is not a number", hint="check the loss of its training")
            n_best = iter(found)
            n_bests = zip(segments, found, strict=True)
            texts = (segment.style(target.decode(one.tokens)) for segment, of_segment in n_bests for one in of_segment)
            joined = (
                join([next(n_best) for _ in of_line], texts, target, options, self.joiner)
                for of_line in segments_of_lines
            )
            return [
                Translation(line.text, found, line.number, of_line[0].tokens if len(of_line) == 1 else [])
                for line, found, of_line in zip(lines, joined, segments_of_lines, strict=True)
            ]

        return finish

    def reference_log_probs(self, sources: Sequence[str], references: Sequence[str]) -> list[list[float]]:
        """Return log-probabilities (nats) of each reference's pieces and EOS; long texts are cut to fit the model."""
        return self.engine.score(*self.encode_pairs(sources, references))

    def encode_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token ids of both sides without EOS, cut to fit the model."""
        limit = self.engine.max_length - 1
        src, tgt = self.tokenizers.source.encode_all(sources), self.tokenizers.target.encode_all(targets)
        return [tokens[:limit] for tokens in src], [tokens[:limit] for tokens in tgt]


def is_export(path: Path) -> bool:
    """Whether `path` is a directory written by `nmt export`."""
    return (path / "model.bin").is_file()


def model_file(path: Path) -> Path:
    """The model file of a run, or the path itself. Raises ModelError if there is none."""
    file = RunDirectory(path).model_file if path.is_dir() else path
    if not file.exists():
        raise ModelError(f"no model at {file}", hint="train one with `nmt train CONFIG`, or name another with -m")
    return file


def load(
    path: Path | str | Sequence[Path | str],
    device: str = "auto",
    precision: Precision | None = None,
    engine: EngineName | None = None,
) -> Translator:
    """Load a translator from a run directory, a model file or an export to CTranslate2.

    Args:
        path: path of one of these; a sequence of several runs or model files is an ensemble.
        device: `auto` is cuda, else mps, else cpu.
        precision: None is fp32, or the precision of an export. bf16 (on some hardware) and int8 (on CPUs) are faster
            but less exact.
        engine: `auto` is CTranslate2 on a CPU if it can hold the model, else torch; None is the config's, `auto`.
    Raises:
        ModelError: the model is missing, damaged or of another engine, or its tokenizer differs from that of its run or
            of the other models of the ensemble.
        ConfigError: the device is missing or does not support the precision.
    """
    paths = [Path(path)] if isinstance(path, Path | str) else [Path(one) for one in path]
    if not paths:
        raise ModelError("no model was named", hint="give the path of a run")
    for name, value, choices in (("precision", precision, Precision), ("engine", engine, EngineName)):
        if value is not None and value not in get_args(choices):
            raise ConfigError(f"unknown {name} {value!r}", hint=f"choose one of {', '.join(get_args(choices))}")
    for one in paths:
        if is_export(one) and (engine == "torch" or len(paths) > 1):
            raise ModelError(f"{one} is a CTranslate2 export", hint="give the run that was exported")
    if is_export(paths[0]):
        from nmt.decode.engines.ctranslate2_engine import load_export

        return Translator(*load_export(paths[0], device, precision))
    headers = [read_header(model_file(one)) for one in paths]
    configs = [config for config, _ in headers]
    engine = engine or configs[0].decode.engine
    reason = needs_torch(configs, device, precision, engine)
    if not reason:
        try:
            return load_converted(paths[0], precision or "fp32", headers[0][1])
        except NmtError as error:
            if engine == "ctranslate2" or precision == "int8":
                raise
            reason = str(error)
            log.warning("torch translates, because CTranslate2 cannot: %s", reason)
    elif engine == "ctranslate2":
        raise ConfigError(f"CTranslate2 cannot translate: {reason}", hint="use --engine auto or torch")
    log.debug("engine: torch: %s", reason)
    return load_torch(paths, device, precision or "fp32")


def needs_torch(
    configs: Sequence[Config], device: str = "auto", precision: Precision | None = None, engine: EngineName = "auto"
) -> str:
    """Why models need the torch engine, or "" if CTranslate2 translates; see `load` for the arguments."""
    if engine == "torch":
        return "chosen"
    from nmt.decode.engines.ctranslate2_engine import import_ctranslate2, unsupported

    try:
        ctranslate2 = import_ctranslate2()
    except InputError:
        return "CTranslate2 is not installed"
    if len(configs) > 1:
        return "several models"
    if setting := unsupported(configs[0].model):
        return setting
    if precision == "bf16":
        return "precision bf16"
    if device == "cpu":
        return ""
    # Apple's GPUs are found by torch only. On GPUs, torch has not been compared with CTranslate2.
    has_gpu = sys.platform == "darwin" or ctranslate2.get_cuda_device_count() > 0
    return "" if device == "auto" and not has_gpu else f"device {device}"


def load_converted(path: Path, precision: Precision, progress: Mapping[str, Any]) -> Translator:
    """Load a run or model file for CTranslate2, converted in the cache. Raises NmtError if that fails."""
    from nmt.decode.engines.ctranslate2_engine import converted, load_export

    file = model_file(path)
    export, digest = converted(file, precision)

    @functools.cache
    def load_reference() -> Engine:
        if hash_file(file) != digest:  # by a training
            raise ModelError(f"{file} has been replaced since it was loaded", hint="start again to use the new model")
        return load_torch([path], "cpu", "fp32").engine

    run = RunDirectory(path) if path.is_dir() else None
    engine, tokenizers, config = load_export(export, "cpu", precision, load_reference)
    log.debug("engine: %s", engine.name)
    return Translator(engine, tokenizers, config, run, progress)


def load_torch(paths: Sequence[Path], device: str, precision: Precision) -> Translator:
    """Load runs or model files for torch; see `load`."""
    prepare_torch()  # if torch is already imported, it affects only malloc
    from nmt.decode.engines.torch_engine import load_models

    return Translator(*load_models(paths, device, precision))
