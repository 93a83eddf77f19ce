"""The translator, which passes texts through the steps of a translation and through the engine.

    units -> tags -> matches -> sentences -> placeholders -> glossary -> case -> token ids -> engine -> ... -> units

Before the search, each step changes the units. After the search, the steps undo their changes in the translations, in
reverse order: see [README.md](README.md).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import regex

from nmt.config import Config, chosen_direction, language
from nmt.decode.options import Engine, NBest, RunningSearch, SearchRequest
from nmt.documents.markup import STAND_IN, STAND_IN_RUN
from nmt.errors import ConfigError, InputError
from nmt.languages import target_of
from nmt.run.directory import RunDirectory
from nmt.text import EOS
from nmt.text.lines import Pause
from nmt.text.tokenizer import Tokenizers
from nmt.translate.case import Case
from nmt.translate.encode import Encoding
from nmt.translate.options import TranslationOptions
from nmt.translate.sentences import Sentences
from nmt.translate.units import Step, Translation, Unit
from nmt.translate.windows import one_ahead, warn_of_cut_lines, windows

log = logging.getLogger("nmt")

WINDOW = 1000  # the default maximum number of lines in a window

# A function that is called after every step of a search. Its argument is a function that returns the translation so far
# of each unit. The translation ends if a `Watch` raises an exception.
Watch = Callable[[Callable[[], list[str]]], None]


class Translator:
    """A translator of texts: an engine with its tokenizers and settings."""

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
        self.run = run  # the run directory that the model was loaded from, or None
        self.progress = progress or {}  # the training progress in the model file; empty for ensembles and exports
        search = config.decode.model_dump(exclude={"batch_size", "engine"})
        self.options = TranslationOptions(**search, protect_placeholders=config.data.placeholders)

    @property
    def target_language(self) -> str:
        """The code of the target language, or an empty text if it is unknown."""
        return language(self.config.data, "target")

    def to(self, languages: str) -> "Translator":
        """Return a translator of one direction with the same engine.

        `languages` is a direction such as `de-en`, or a target language such as `en`. It may be empty if the model has
        only one direction. Raises ConfigError if the model lacks the direction.
        """
        source, target = self.tokenizers
        languages = chosen_direction(self.config.data, source.targets, languages)
        if not languages:
            return self
        tokenizers = Tokenizers(replace(source, target_tag=target_of(languages)), target)
        return Translator(self.engine, tokenizers, self.config.direction(languages), self.run, self.progress)

    def directions(self) -> list["Translator"]:
        """Return a translator for each direction of the model."""
        return [self.to(languages) for languages in self.config.data.directions] or [self]

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Return the best translation of each text.

        `options` replace values of `TranslationOptions`, for example `beam=1`. A text is translated sentence by
        sentence unless the model has `decode.whole_lines`.
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
        window: int = WINDOW,
        first: int = 1,
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in order.

        The lines of a window are translated together, so that lines of similar length can share a batch. A warning
        after each window names the lines whose translations are cut off.

        Args:
            lines: the stream, which is read one window at a time. A `Pause` ends a window. A `Unit` already has a
                line number.
            options, batch_size: if None, the defaults of the model.
            prefix: the text that every translation must begin with.
            window: maximum number of lines in a window. With 1, each line is translated at once.
            first: the number of the first line, for messages and random seeds.
        Raises:
            ConfigError: the prefix is too long.
            InputError: a line is not a string.
        """
        options = options or self.options
        prefix_tokens = self.encode_prefix(prefix)

        def started() -> Iterator[RunningTranslation]:
            for units in windows(lines, first, window):
                # Units are copied only if there is a prefix, which is rare.
                if prefix_tokens:
                    units = [replace(unit, prefix=prefix_tokens) for unit in units]
                yield self.start(units, options, batch_size)

        running = started()
        # While an engine in the background translates a window, read and prepare the next window.
        if window > 1 and self.engine_for(options).in_background:
            running = one_ahead(running)
        for translation in running:
            translations = translation.result()
            warn_of_cut_lines(translations)
            yield from translations

    def start(
        self, units: list[Unit], options: TranslationOptions, batch_size: int | None, watch: Watch | None = None
    ) -> "RunningTranslation":
        """Start to translate units in one search of the engine. `watch` is called after every step of the search."""
        batch_size = batch_size or self.config.decode.batch_size
        # 1. Each step prepares the units for the next one.
        steps = self.steps(units, options)
        has_tags = any(unit.markup and unit.markup.root.children for unit in units)
        encoding = self.encoding(units, steps, options)
        # 2. Choose the engine, and give it the terms that the search must write.
        engine = self.engine_for(options, watched=watch is not None)
        if options.glossary and not (engine.in_background or options.sample):
            from nmt.translate.glossary import require_terms  # imported here, because the import takes 5 ms

            require_terms(encoding.requests, options.glossary, self.tokenizers, engine.max_length)
        for request in encoding.requests:
            request.attention = has_tags
        # 3. Start the search. `RunningTranslation.result` undoes the steps.
        begun: dict[int, list[int]] = {}  # index of a request -> its tokens so far

        def after_step(tokens: dict[int, list[int]]) -> None:
            assert watch
            begun.update(tokens)
            watch(lambda: preview(steps, encoding.preview(begun)))

        search = engine.start(encoding.requests, options, batch_size=batch_size, watch=after_step if watch else None)
        return RunningTranslation(search, encoding, steps)

    def steps(self, units: Sequence[Unit], options: TranslationOptions) -> list[Step]:
        """Return the steps that these units need, in the order of `prepare`.

        Sentences come before placeholders, because a sentence can have only a few symbols.
        """
        source = self.tokenizers.source
        protects = options.protect_placeholders or options.protect
        steps: list[Step] = []
        patterns: list[regex.Pattern[str]] = []
        # 1. Tags come first, because `Tags.restore` needs the translations of whole units.
        if any(unit.markup for unit in units):
            from nmt.text.placeholders import ADDRESS_OR_TEMPLATE
            from nmt.translate.tags import Tags  # imported here, because this takes 15 ms

            steps.append(Tags(self.engine, self.tokenizers))
            in_documents = [STAND_IN_RUN] if protects else [STAND_IN_RUN, ADDRESS_OR_TEMPLATE]
            patterns = [pattern for pattern in in_documents if any(pattern.search(unit.text) for unit in units)]
        # 2. Placeholders. No sentence ends inside of one.
        sentences = Sentences(options, source.split_tag)
        placeholders: list[Step] = []
        if protects or patterns or any(self.unknown(unit.text) for unit in units):
            from nmt.text.placeholders import SYMBOLS, patterns_of, spans_of
            from nmt.translate.placeholders import Placeholders

            if protects:
                patterns += patterns_of(options.protect)
            symbols = SYMBOLS if self.config.data.placeholders else []
            sentences = Sentences(options, source.split_tag, lambda text: spans_of(text, patterns))
            placeholders = [Placeholders(self.engine, self.tokenizers, patterns, symbols, self.unknown)]
        # 3. Matches of whole units in memories, sentences, exact matches of sentences, then placeholders.
        if options.memory:
            from nmt.translate.matches import Matches

            steps.append(Matches(options.memory, options.min_match))
            steps.append(sentences)
            steps.append(Matches(options.memory, 1.0))
        else:
            steps.append(sentences)
        steps += placeholders
        # 4. Terms, if the model was trained to read them. With other models, the search writes the terms.
        if options.glossary and self.config.data.glossary:
            from nmt.translate.glossary import Glossary

            steps.append(Glossary(options.glossary))
        # 5. The case comes last, so that it also changes the text that other steps have added.
        steps.append(Case(source))
        return steps

    def requests_of(self, text: str, options: TranslationOptions) -> list[SearchRequest]:
        """Return the search requests of a text, without placeholders, glossaries and memories."""
        plain = options.changed(glossary={}, memory=[], protect=[], protect_placeholders=False)
        return self.encoding([Unit(1, text)], self.steps([], plain), plain).requests

    def encoding(self, units: list[Unit], steps: Sequence[Step], options: TranslationOptions) -> Encoding:
        """Let the steps prepare the units, and encode the units as search requests."""
        for step in steps:
            units = step.prepare(units)
        return Encoding(units, self.tokenizers, self.config.data.max_length, options)

    def unknown(self, text: str) -> set[str]:
        """Return the characters of a text that the model cannot read; see `KnownCharacters.unknown`.

        Stand-ins of opaque elements are left out, because they are placeholders.
        """
        tokenizer = self.tokenizers.source
        return tokenizer.characters.unknown(STAND_IN.sub("", tokenizer.split_tag(text)[1]))

    def engine_for(self, options: TranslationOptions, *, watched: bool = False) -> Engine:
        """Return the engine of the translator, or the torch engine if these options need torch.

        `watched` tells whether the steps of the search will be watched. Raises ConfigError if torch is needed and there
        is no torch engine.
        """
        # Sampling, required terms and watching need torch's search.
        must_write_terms = options.glossary and not self.config.data.glossary
        if options.sample and must_write_terms:
            raise ConfigError("a glossary needs beam search", hint="leave out the glossary, or sampling")
        if options.sample:
            return self.engine.torch_engine("sampling with a seed for each line")
        if must_write_terms:
            return self.engine.torch_engine("search for given terms")
        if watched and self.engine.explains:
            return self.engine.torch_engine("steps to watch")
        return self.engine

    def encode_prefix(self, prefix: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prefix, given as text or tokens. Raises ConfigError if it is invalid or too long."""
        target = self.tokenizers.target
        tokens = target.encode(prefix) if isinstance(prefix, str) else list(prefix)
        # Refuse special tokens, which come first in the vocabulary.
        for token in tokens:
            if not EOS < token < len(target):
                message = f"the prefix has the token {token}, but tokens of words are {EOS + 1} to {len(target) - 1}"
                raise ConfigError(message, hint="give the prefix as text")
        # Check the length before anything is translated.
        self.options.limit(1, len(tokens), self.engine.max_length)
        return tokens

    def reference_log_probs(self, sources: Sequence[str], references: Sequence[str]) -> list[list[float]]:
        """Return the log-probabilities (nats) of the pieces and EOS of each reference.

        Texts that are too long for the model are truncated.
        """
        return self.engine.score(*self.encode_pairs(sources, references))

    def encode_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token ids of both sides without EOS. Texts that are too long for the model are truncated."""
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
        """Wait for the search, and return the translation of each unit.

        Raises ModelError if the output of the model is NaN.
        """
        return self.restored(self.search())

    def restored(self, n_bests: Sequence[NBest]) -> list[Translation]:
        """Return the translation of each unit, given what `search` returned. Raises ModelError as `result` does."""
        translations = self.encoding.translations(n_bests)
        for step in reversed(self.steps):
            translations = step.restore(translations)
        return translations


def preview(steps: Sequence[Step], texts: list[str]) -> list[str]:
    """Undo all steps in partial translations. Return one text for each unit."""
    for step in reversed(steps):
        texts = step.preview(texts)
    return texts
