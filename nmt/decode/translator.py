"""The translator: lines in, as many lines out, in order.

Blank lines stay blank and never meet the engine; a line longer than the model's limit is split, translated in
parts and joined. Memory is bounded by a window of lines. What searches is an engine: ours in torch, or another
that reads our export and starts without torch, which is why nothing here imports it.
"""

import json
import logging
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, get_args

from nmt.config import Config, base_language, language
from nmt.decode import EngineName, Precision, Utility
from nmt.decode.options import Engine, Hypothesis, SearchOptions
from nmt.distributed import gather, merged, mine, n_ranks, rank
from nmt.errors import ConfigError, InputError, ModelError
from nmt.processes import prepare_torch
from nmt.run.directory import RunDirectory
from nmt.seeds import seed_of
from nmt.text.lines import Pause, is_blank, one_line
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

# A window is what is read ahead, so that lines of like length can share a batch; no line of it is written before
# all are translated.
WINDOW_LINES = 2_000
WINDOW_CHARACTERS = 1_000_000
WINDOW_S = 5.0  # that translating a window may take: later windows are shorter where the machine is slow
FIRST_WINDOW_LINES = 250
READ_S = 1.0  # that lines are collected for a window, once there is one
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？；])(?![。！？；”’」』）])\s*|(?<=[。！？；][”’」』）])\s*")
# written without spaces between sentences
UNSPACED = frozenset(["zh", "zho", "cmn", "yue", "ja", "jpn", "th", "lo", "my", "km"])


@dataclass(frozen=True)
class Translated:
    """One hypothesis as text.

    Attributes:
        text: detokenised, on one line.
        score: log-probability after the length penalty; by minimum Bayes risk the expected utility, 0-100.
        log_prob: sum of `log_probs`, nats.
        pieces: what it is made of, `</s>` last.
        log_probs: of each piece.
    """

    text: str
    score: float
    log_prob: float
    pieces: list[str]
    log_probs: list[float]


@dataclass(frozen=True)
class Translation:
    """All that was found for a line: its hypotheses, the best first; one that is blank for a blank line."""

    source: str
    hypotheses: list[Translated]

    @property
    def text(self) -> str:
        return self.hypotheses[0].text


BLANK = Translated("", 0.0, 0.0, [], [])


class Translator:
    """An engine with its tokenizers, ready to translate.

    Args:
        engine: what searches.
        tokenizers: of both sides.
        config: for the limits, the languages and decoding's defaults.
        run: the run's directory that the model came from, if any.
    """

    def __init__(self, engine: Engine, tokenizers: Tokenizers, config: Config, run: RunDirectory | None = None) -> None:
        self.engine = engine
        self.tokenizers = tokenizers
        self.config = config
        self.run = run
        self.options = SearchOptions(**config.decode.model_dump(exclude={"batch_size"}))
        self.joiner = "" if base_language(language(config.data, "target")) in UNSPACED else " "

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each text.

        Args:
            texts: any number of sentences.
            options: fields of `SearchOptions` that differ from the model's defaults, `beam=1` for example.
        Raises:
            ConfigError: an option is unknown or out of range.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of sentences, not one string", hint='translate(["…"])')
        return [found.text for found in self.translate_lines(texts, self.with_options(**options))]

    def with_options(self, **changes: Any) -> SearchOptions:
        """The model's default options with some changed.

        Raises:
            ConfigError: an option is unknown, of another type or out of range.
        """
        return self.options.changed(**changes)

    def encode_prefix(self, prefix: str) -> list[int]:
        """The tokens that every translation is to begin with.

        Raises:
            ConfigError: the model cannot hold them.
        """
        tokens = self.tokenizers.target.encode(prefix) if prefix else []
        self.options.limit(1, len(tokens), self.engine.max_length)
        return tokens

    def translate_lines(
        self,
        lines: Iterable[str | Pause],
        options: SearchOptions | None = None,
        *,
        batch_size: int | None = None,
        prefix: str = "",
        window: int = WINDOW_LINES,
        first: int = 1,
    ) -> Iterator[Translation]:
        """Translate a stream of lines.

        Several ranks share the lines of the first one; each of them yields all translations.

        Args:
            lines: read a window at a time; a `Pause` among them ends a window.
            options: how to search; the model's defaults if None.
            batch_size: sentences decoded together; the config's if None.
            prefix: what every translation must begin with.
            window: lines read ahead at most; 1 answers each line as it comes.
            first: the number of the first line, for messages and what is drawn at random.
        Yields:
            a translation for each line, in order.
        Raises:
            ConfigError: `batch_size`, `window` or `first` is not a positive integer, or the model cannot hold the
                prefix.
            InputError: a line is not a string.
        """
        options = options or self.options
        forced = self.encode_prefix(prefix)
        size = self.config.decode.batch_size if batch_size is None else batch_size
        for name, value in (("batch_size", size), ("window", window), ("first", first)):
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} is {value!r}, not an integer of 1 or more", hint="leave it out")
        stream = _checked(lines)
        n_lines = min(window, FIRST_WINDOW_LINES)
        while True:
            chunk, first = _from_first_rank(_take(stream, n_lines * n_ranks()) if rank() == 0 else [], first)
            if not chunk:
                return
            started = time.monotonic()
            order = sorted(range(len(chunk)), key=lambda i: len(chunk[i])) if n_ranks() > 1 else range(len(chunk))
            own = mine(order)  # as much work for each rank
            texts, numbers = [chunk[i] for i in own], [first + i for i in own]
            found = self._translate_window(texts, numbers, options, size, forced)
            translations = list(_from_all_ranks(found, order))
            seconds = max(time.monotonic() - started, 1e-3)
            n_lines = min(max(int(WINDOW_S / seconds * len(chunk) / n_ranks()), size), window)
            yield from translations
            first += len(chunk)

    def _translate_window(
        self,
        lines: Sequence[str],
        numbers: Sequence[int],
        options: SearchOptions,
        batch_size: int,
        prefix: Sequence[int],
    ) -> Iterator[Translation]:
        if not lines:  # there are more ranks than lines
            return
        texts = [line for line in lines if not is_blank(line)]
        encoded = iter(self.tokenizers.source.encode_all(texts))
        segments: list[list[int]] = []  # of all lines
        ranges: list[range] = []  # which of them are a line's
        for number, line in zip(numbers, lines, strict=True):
            parts = [] if is_blank(line) else self._split(line, next(encoded), number)
            ranges.append(range(len(segments), len(segments) + len(parts)))
            segments += parts
        seeds = [seed_of(n, i) for n, of_line in zip(numbers, ranges, strict=True) for i in range(len(of_line))]
        starts = {of_line.start for of_line in ranges if of_line}
        prefixes = [prefix if i in starts else [] for i in range(len(segments))]

        log.debug("lines %d to %d: %d segments", min(numbers), max(numbers), len(segments))
        found = self.engine.translate(
            segments, options.for_engine(), batch_size=batch_size, prefixes=prefixes, seeds=seeds
        )
        if not all(found):
            raise ModelError("the model's output is not a number", hint="was its training healthy?")
        if options.mbr:
            found = [self._by_utility(samples, options.mbr)[: options.n_best] for samples in found]
        for line, of_line in zip(lines, ranges, strict=True):
            yield Translation(line, self._join([found[i] for i in of_line], options))

    def _by_utility(self, samples: list[Hypothesis], utility: Utility) -> list[Hypothesis]:
        from nmt.decode.mbr import by_expected_utility  # brings sacreBLEU, which is needed for nothing else
        from nmt.evaluate import bleu_tokenizer, pairwise_scores

        tokenize = bleu_tokenizer(language(self.config.data, "target"))
        texts = [one_line(self.tokenizers.target.decode(sample.ids)) for sample in samples]
        return by_expected_utility(samples, texts, lambda some: pairwise_scores(some, utility, tokenize=tokenize))

    def _split(self, line: str, ids: list[int], number: int) -> list[list[int]]:
        """A line's ids in parts that the model can hold: at sentence ends, then spaces, then pieces."""
        limit = self.config.data.max_length
        if len(ids) <= limit:
            return [ids] if ids else []
        encode = self.tokenizers.source.encode
        parts: list[list[int]] = []
        for sentence in SENTENCE_END.split(line):
            if len(sentence_ids := encode(sentence.strip())) <= limit:  # a sentence each: as in training
                parts.append(sentence_ids)
                continue
            part: list[int] = []
            for word_ids in self.tokenizers.source.encode_all(sentence.split()):
                for start in range(0, len(word_ids), limit):
                    chunk = word_ids[start : start + limit]
                    if len(part) + len(chunk) > limit:
                        parts.append(part)
                        part = []
                    part = part + chunk
            parts.append(part)
        parts = [part for part in parts if part]
        if len(parts) > 1:
            log.warning(
                "line %d has %d pieces, the model takes %d: translated in %d parts",
                number,
                len(ids),
                limit,
                len(parts),
            )
        return parts

    def _join(self, parts: list[list[Hypothesis]], options: SearchOptions) -> list[Translated]:
        """The n-best of a line from those of its parts: the first of each, the second of each, …

        Their score is that of the whole, by minimum Bayes risk the mean of the parts'.
        """
        if not parts:
            return [BLANK]
        joined = []
        for place in range(max(map(len, parts))):
            chosen = [hypotheses[min(place, len(hypotheses) - 1)] for hypotheses in parts]
            log_probs = [p for h in chosen for p in h.log_probs]
            if options.mbr or len(chosen) == 1:
                score = sum(h.score for h in chosen) / len(chosen)
            else:
                score = sum(log_probs) / options.divisor(len(log_probs))
            joined.append(
                Translated(
                    text=one_line(self.joiner.join(self.tokenizers.target.decode(h.ids) for h in chosen)),
                    score=score,
                    log_prob=sum(log_probs),
                    pieces=[piece for h in chosen for piece in self.tokenizers.target.pieces(h.ids)],
                    log_probs=log_probs,
                )
            )
        return joined

    def reference_log_probs(self, sources: Sequence[str], references: Sequence[str]) -> list[list[float]]:
        """What the model thinks of given translations: the log-probability of each piece, EOS last, by line.

        A pair longer than the model can hold is cut to what it can.
        """
        source = self.tokenizers.source.encode_all(list(sources))
        return self.engine.score(source, self.tokenizers.target.encode_all(list(references)))


def _checked(lines: Iterable[str | Pause]) -> Iterator[str | Pause]:
    """The lines, if each is a string.

    Raises:
        InputError: one is not.
    """
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str | Pause):
            raise InputError(f"text {number} is {line!r:.40}, not a string", hint="decode bytes; leave out None")
        yield line


def _take(stream: Iterator[str | Pause], n_lines: int) -> list[str]:
    """The next lines of a stream: fewer where they are long, or where the stream is slow."""
    taken: list[str] = []
    n_characters = 0
    started = math.inf
    for line in stream:
        if isinstance(line, str):
            taken.append(line)
            n_characters += len(line)
            started = min(started, time.monotonic())
        elif taken:
            break
        if len(taken) >= n_lines or n_characters > WINDOW_CHARACTERS or time.monotonic() - started > READ_S:
            break
    return taken


def _from_first_rank(lines: list[str], first: int) -> tuple[list[str], int]:
    if n_ranks() == 1:
        return lines, first
    found, number = json.loads(gather(json.dumps([lines, first]).encode())[0])
    return found, number


def _from_all_ranks(translations: Iterable[Translation], order: Sequence[int]) -> Iterable[Translation]:
    """The translations of all ranks in the order of the lines, which were cut among them in another order."""
    if n_ranks() == 1:
        return translations
    parts = gather(json.dumps(list(translations), default=vars).encode())
    found = sorted(zip(order, merged([json.loads(part) for part in parts]), strict=True), key=lambda one: one[0])
    return [
        Translation(one["source"], [Translated(**hypothesis) for hypothesis in one["hypotheses"]]) for _, one in found
    ]


def model_files(path: Path) -> list[Path]:
    """What `load` reads a model from."""
    if (path / "model.bin").is_file():
        return sorted(file for file in path.iterdir() if file.is_file())
    return [RunDirectory(path).model_file if path.is_dir() else path]


def load(
    path: Path | str | Sequence[Path | str],
    device: str = "auto",
    precision: Precision | None = None,
    engine: EngineName | None = None,
) -> Translator:
    """A translator from a run's directory, a model file, or an export to CTranslate2.

    Args:
        path: of any of these; or several of runs or model files, which then translate together, as an ensemble.
        device: auto is cuda, else mps, else cpu.
        precision: of decoding; None is fp32, the reference, or what an export is stored in. bf16 is quicker where
            the hardware is; int8, of weights and of the products with them, on CPUs. Both move a few words.
        engine: what searches; None is CTranslate2 for its exports, else torch.
    Raises:
        ModelError: there is no model for this engine, or it is damaged, or its tokenizer was exchanged or, in an
            ensemble, is not that of the others.
        ConfigError: there is no such device, or it has no such precision.
    """
    paths = [Path(path)] if isinstance(path, Path | str) else [Path(one) for one in path]
    if not paths:
        raise ModelError("no model was named", hint="give the path of a run")
    for name, value, known in (("precision", precision, Precision), ("engine", engine, EngineName)):
        if value is not None and value not in get_args(known):
            raise ConfigError(f"no {name} {value!r}", hint=f"there are {', '.join(get_args(known))}")
    for one in paths:
        exported = (one / "model.bin").is_file()
        if exported and (engine == "torch" or len(paths) > 1):
            taker = "an ensemble" if len(paths) > 1 else "--engine torch"
            raise ModelError(f"{one} is an export", hint=f"give {taker} the run that it was made from")
        if engine == "ctranslate2" and not exported:
            raise ModelError(
                f"{one} is no export to CTranslate2",
                hint=f"nmt export --to ctranslate2 -m {quote(str(one))} -o DIR makes one; translate with -m DIR",
            )
    if exported:
        from nmt.decode.ctranslate2_engine import load_export

        return Translator(*load_export(paths[0], device, precision))
    prepare_torch()  # no effect where torch is imported already
    from nmt.decode.torch_engine import load_models

    return Translator(*load_models(paths, device, precision or "fp32"))
