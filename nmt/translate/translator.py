"""The translator: text in, text out.

    units -> tags -> sentences -> placeholders -> glossary -> case -> token ids -> engine -> token ids -> ... -> units

Each step changes the units on their way to the engine, and undoes that in the translations, in reverse order: see
[README.md](README.md).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nmt.config import Config, base_language, chosen_direction, language
from nmt.decode.options import Engine, RunningSearch, SearchRequest
from nmt.errors import ConfigError, InputError
from nmt.run.directory import RunDirectory
from nmt.text import EOS
from nmt.text.lines import Pause
from nmt.text.tokenizer import Tokenizers
from nmt.translate.case import Case
from nmt.translate.encode import Encoding
from nmt.translate.options import TranslationOptions
from nmt.translate.sentences import Sentences
from nmt.translate.units import Step, Translation, Unit
from nmt.translate.windows import CutLines, one_ahead, windows

log = logging.getLogger("nmt")

MAX_LINES = 4_000  # of a window; in longer windows, batches have less padding
UNSPACED = frozenset(["zh", "zho", "cmn", "yue", "ja", "jpn"])  # languages without a space between sentences

# Called after every step of a search, with a function that returns the translation of each unit so far. What it raises
# ends the translation.
Watch = Callable[[Callable[[], list[str]]], None]


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
        search = config.decode.model_dump(exclude={"batch_size", "engine"})
        self.options = TranslationOptions(**search, protect_placeholders=config.data.placeholders)
        self.target_language = language(config.data, "target")
        self.joiner = "" if base_language(self.target_language) in UNSPACED else " "  # between two sentences

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
        """Return the best translation of each text.

        `options` change fields of `TranslationOptions`, for example `beam=1`. A text of several sentences is
        translated sentence by sentence, unless `whole_lines=True`.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of sentences, not one string", hint='translate(["…"])')
        translations = self.translate_lines(texts, self.with_options(**{"scores": False, **options}))
        return [translation.text for translation in translations]

    def with_options(self, **changes: Any) -> TranslationOptions:
        return self.options.changed(**changes)

    def translate_lines(
        self,
        lines: Iterable[str | Unit | Pause],
        options: TranslationOptions | None = None,
        *,
        batch_size: int | None = None,
        prefix: str = "",
        window: int = MAX_LINES,
        fixed_windows: bool = False,
        first: int = 1,
        after_window: Callable[[], object] = lambda: None,
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in order. A warning names those that were cut off; see `CutLines`.

        A window is translated as a whole before its first line is returned, so that lines of similar length can share
        a batch. Windows also limit memory.

        Args:
            lines: read one window at a time; a `Pause` ends one, a `Unit` keeps its number.
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
        options = options or self.options
        batch_size = batch_size or self.config.decode.batch_size
        prefix_tokens = self.encode_prefix(prefix)

        def start(units: list[Unit]) -> RunningTranslation:
            # Without a prefix, which few have, no unit is copied.
            if prefix_tokens:
                units = [replace(unit, prefix=prefix_tokens) for unit in units]
            return self.start(units, options, batch_size)

        least_lines = window if fixed_windows else batch_size
        running = windows(start, lines, first, least_lines, window)
        # An engine in the background translates a window while the next one is read and prepared.
        if window > 1 and self.engine_for(options).in_background:
            running = one_ahead(running)
        with CutLines(at_once=window == 1) as cut_lines:
            for translation in running:
                translations = translation.result()
                cut_lines.note(translations)
                yield from translations
                after_window()

    def start(
        self, units: list[Unit], options: TranslationOptions, batch_size: int, watch: Watch | None = None
    ) -> "RunningTranslation":
        """Start to translate units in one search of the engine."""
        # 1. Each step prepares the units for the next one.
        steps = self.steps(units, options)
        for step in steps:
            units = step.prepare(units)
        # 2. Text to token ids.
        max_length = self.config.data.max_length
        encoding = Encoding(units, self.tokenizers, max_length, options, self.joiner)
        engine = self.engine_for(options, watched=watch is not None)
        if options.glossary and not (engine.in_background or options.sample):
            from nmt.translate.glossary import require_terms  # imported late: takes 5 ms

            require_terms(encoding.requests, options.glossary, self.tokenizers, engine.max_length)
        # 3. Start the search; `result` goes the same way back.
        begun: dict[int, list[int]] = {}  # index of a request -> its tokens so far

        def after_step(tokens: dict[int, list[int]]) -> None:
            assert watch
            begun.update(tokens)
            watch(lambda: preview(steps, encoding.preview(begun)))

        search = engine.start(encoding.requests, options, batch_size=batch_size, watch=after_step if watch else None)
        return RunningTranslation(search, encoding, steps)

    def steps(self, units: Sequence[Unit], options: TranslationOptions) -> list[Step]:
        """Return the steps that these units need, in their order.

        Sentences come before placeholders and terms, because a model has few symbols and aligns single sentences best.
        """
        source = self.tokenizers.source
        protects = options.protect_placeholders or options.protect
        needs_symbols = protects or any(self.unknown(unit.text) for unit in units)
        steps: list[Step] = []
        # 1. Tags are around whole units, so their step is first on the way in and last on the way out.
        if any(unit.markup for unit in units):
            from nmt.translate.tags import Tags  # imported late, as are others: their expressions take 15 ms to compile

            steps.append(Tags(self.engine, self.tokenizers))
        # 2. Sentences, and what is kept in them. No sentence ends inside of a placeholder.
        if needs_symbols:
            from nmt.text.placeholders import SYMBOLS, patterns_of, spans_of
            from nmt.translate.placeholders import Placeholders

            patterns = patterns_of(options.protect) if protects else []
            symbols = SYMBOLS if self.config.data.placeholders else []
            steps.append(Sentences(options, self.joiner, source.split_tag, lambda text: spans_of(text, patterns)))
            steps.append(Placeholders(self.engine, self.tokenizers, patterns, symbols, self.unknown))
        else:
            steps.append(Sentences(options, self.joiner, source.split_tag))
        # 3. Terms, for a model that was trained to read them; else the search sees to them.
        if options.glossary and self.config.data.glossary:
            from nmt.translate.glossary import Glossary

            steps.append(Glossary(options.glossary))
        # 4. The case, last, so that the model reads all of the text as it is used to.
        steps.append(Case(source))
        return steps

    def requests_of(self, text: str, options: TranslationOptions) -> list[SearchRequest]:
        """Return the search requests of a text without placeholders and terms: one for each sentence."""
        units = [Unit(1, text)]
        for step in self.steps([], options.changed(glossary={}, protect=[], protect_placeholders=False)):
            units = step.prepare(units)
        return Encoding(units, self.tokenizers, self.config.data.max_length, options, self.joiner).requests

    def unknown(self, text: str) -> set[str]:
        """Return the characters of a text that the model cannot read; see `Tokenizer.unknown`."""
        tokenizer = self.tokenizers.source
        return tokenizer.unknown(tokenizer.split_tag(text)[1])

    def engine_for(self, options: TranslationOptions, *, watched: bool = False) -> Engine:
        """Return the engine, or if these options need it, that of torch. Raises ConfigError if there is none."""
        # Samples and required terms need the search of torch, which also shows its steps.
        reads_terms = self.config.data.glossary
        if options.sample:
            if options.glossary and not reads_terms:
                raise ConfigError("a glossary needs beam search", hint="leave out the glossary, or sampling")
            return self.engine.torch_engine("sampling with a seed for each line")
        if options.glossary and not reads_terms:
            return self.engine.torch_engine("search for given terms")
        if watched and self.engine.explains:
            return self.engine.torch_engine("steps to watch")
        return self.engine

    def encode_prefix(self, prefix: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prefix, given as text or tokens. Raises ConfigError if it is invalid or too long."""
        target = self.tokenizers.target
        tokens = target.encode(prefix) if isinstance(prefix, str) else list(prefix)
        # Special tokens, which come first in the vocabulary, cannot be in the middle of a translation.
        for token in tokens:
            if not EOS < token < len(target):
                message = f"the prefix has the token {token}, but tokens of words are {EOS + 1} to {len(target) - 1}"
                raise ConfigError(message, hint="give the prefix as text")
        # This raises the error of a prefix that is too long before anything is translated.
        self.options.limit(1, len(tokens), self.engine.max_length)
        return tokens

    def reference_log_probs(self, sources: Sequence[str], references: Sequence[str]) -> list[list[float]]:
        """Return log-probabilities (nats) of each reference's pieces and EOS; long texts are cut to fit the model."""
        return self.engine.score(*self.encode_pairs(sources, references))

    def encode_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token ids of both sides without EOS, cut to fit the model."""
        limit = self.engine.max_length - 1
        source_tokens = self.tokenizers.source.encode_all(sources)
        target_tokens = self.tokenizers.target.encode_all(targets)
        return [tokens[:limit] for tokens in source_tokens], [tokens[:limit] for tokens in target_tokens]


class RunningTranslation:
    """A translation whose search has started."""

    def __init__(self, search: RunningSearch, encoding: Encoding, steps: Sequence[Step]) -> None:
        self.search = search
        self.encoding = encoding
        self.steps = steps

    def result(self) -> list[Translation]:
        """Wait for the search; return the translation of each unit. Raises ModelError if the output is NaN."""
        translations = self.encoding.translations(self.search.result())
        for step in reversed(self.steps):
            translations = step.restore(translations)
        return translations


def preview(steps: Sequence[Step], texts: list[str]) -> list[str]:
    """Return the texts of unfinished translations as the units have them, given those that the engine has."""
    for step in reversed(steps):
        texts = step.preview(texts)
    return texts
