"""The translator: lines in, as many lines out, in order.

Blank lines stay blank and never meet the model; a line longer than the model's limit is split, translated in parts
and joined; lines of like length share a batch. Memory is bounded by a window of lines.
"""

import dataclasses
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from nmt.config import Config, base_language, language
from nmt.decode.search import Hypothesis, SearchOptions, search
from nmt.distributed import gather, local_rank, merged, mine, n_ranks, rank
from nmt.errors import ConfigError, InputError, ModelError
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import Checkpoint, read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.batches import collate, cut_batches, pad_source, seed_of
from nmt.text.lines import is_blank, one_line
from nmt.text.tokenizer import Tokenizers

log = logging.getLogger("nmt")

Precision = Literal["fp32", "bf16", "int8"]

WINDOW_LINES = 2_000  # lines read ahead, so that lines of like length can share a batch
WINDOW_CHARACTERS = 1_000_000
MAX_BATCH_POSITIONS = 131_072  # beams x source positions of a batch: bounds the memory of caches
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？；])(?![。！？；”’」』）])\s*|(?<=[。！？；][”’」』）])\s*")
# written without spaces between sentences
UNSPACED = frozenset(["zh", "zho", "cmn", "yue", "ja", "jpn", "th", "lo", "my", "km"])


@dataclass(frozen=True)
class Translated:
    """One hypothesis as text.

    Attributes:
        text: detokenised, on one line.
        score: log-probability after the length penalty.
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
    """A model with its tokenizers, ready to translate.

    Args:
        model: in eval mode, on its device.
        tokenizers: of both sides.
        config: for the limits, the languages and decoding's defaults.
        run: the run's directory that the model came from, if any.
    """

    def __init__(
        self, model: Transformer, tokenizers: Tokenizers, config: Config, run: RunDirectory | None = None
    ) -> None:
        self.model = model
        self.tokenizers = tokenizers
        self.config = config
        self.run = run
        self.options = SearchOptions(**config.decode.model_dump(exclude={"batch_size"}))
        self.joiner = "" if base_language(language(config.data, "target")) in UNSPACED else " "

    @property
    def device(self) -> torch.device:
        return self.model.target_embedding.weight.device

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
        """The model's default options with some changed."""
        try:
            return dataclasses.replace(self.options, **changes)
        except TypeError as error:
            names = ", ".join(field.name for field in dataclasses.fields(SearchOptions))
            raise ConfigError(f"unknown or wrong option: {error}", hint=f"there are {names}") from error

    def translate_lines(
        self,
        lines: Iterable[str],
        options: SearchOptions | None = None,
        *,
        batch_size: int | None = None,
        prefix: str = "",
        window: int = WINDOW_LINES,
    ) -> Iterator[Translation]:
        """Translate a stream of lines.

        Several ranks share the lines of the first one; each of them yields all translations.

        Args:
            lines: read a window at a time.
            options: how to search; the model's defaults if None.
            batch_size: sentences decoded together; the config's if None.
            prefix: what every translation must begin with.
            window: lines read ahead; 1 answers each line as it comes.
        Yields:
            a translation for each line, in order.
        """
        options = options or self.options
        size = batch_size or self.config.decode.batch_size
        first, stream = 1, iter(lines)
        while chunk := _from_first_rank(_take(stream, window * n_ranks()) if rank() == 0 else []):
            numbers = range(first, first + len(chunk))
            yield from _from_all_ranks(self._translate_window(mine(chunk), mine(numbers), options, size, prefix))
            first += len(chunk)

    def _translate_window(
        self,
        lines: Sequence[str],
        numbers: Sequence[int],
        options: SearchOptions,
        batch_size: int,
        prefix: str,
    ) -> Iterator[Translation]:
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
        forced = self.tokenizers.target.encode(prefix) if prefix else []
        prefixes = [forced if i in starts else [] for i in range(len(segments))]

        log.debug("lines %d to %d: %d segments", numbers[0], numbers[-1], len(segments))
        found: list[list[Hypothesis]] = [[] for _ in segments]
        for rows in self._batches(segments, batch_size, options.beam):
            src = pad_source([segments[i] for i in rows]).to(self.device)
            with torch.inference_mode():
                results = search(
                    self.model,
                    src,
                    options,
                    prefixes=[prefixes[i] for i in rows] if prefix else None,
                    max_length=self.model.max_length,
                    sentence_seeds=[seeds[i] for i in rows],
                )
            for i, hypotheses in zip(rows, results, strict=True):
                if not hypotheses:
                    raise ModelError("the model's output is not a number", hint="was its training healthy?")
                found[i] = hypotheses
        for line, of_line in zip(lines, ranges, strict=True):
            yield Translation(line, self._join([found[i] for i in of_line], options))

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

    @staticmethod
    def _batches(segments: list[list[int]], batch_size: int, n_beams: int) -> Iterator[list[int]]:
        """Indices of segments of like length, longest first: what needs most memory comes first."""
        order = sorted(range(len(segments)), key=lambda i: -len(segments[i]))
        while order:
            n = max(1, min(batch_size, MAX_BATCH_POSITIONS // ((len(segments[order[0]]) + 1) * n_beams)))
            yield order[:n]
            order = order[n:]

    def _join(self, parts: list[list[Hypothesis]], options: SearchOptions) -> list[Translated]:
        """The n-best of a line from those of its parts: the first of each, the second of each, …"""
        if not parts:
            return [BLANK]
        joined = []
        for place in range(max(map(len, parts))):
            chosen = [hypotheses[min(place, len(hypotheses) - 1)] for hypotheses in parts]
            log_probs = [p for h in chosen for p in h.log_probs]
            score = chosen[0].score if len(chosen) == 1 else sum(log_probs) / options.divisor(len(log_probs))
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
        limit = self.model.max_length - 1
        src = [ids[:limit] for ids in self.tokenizers.source.encode_all(list(sources))]
        tgt = [ids[:limit] for ids in self.tokenizers.target.encode_all(list(references))]
        result: list[list[float]] = [[] for _ in src]
        budget = max(self.config.train.batch_tokens, 4096)
        for rows in cut_batches([(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], budget):
            batch = collate([src[i] for i in rows], [tgt[i] for i in rows], rows).to(self.device)
            with torch.inference_mode():
                log_probs = self.model(batch.src, batch.tgt_in).float().log_softmax(-1)
            gold = log_probs.gather(-1, batch.tgt_out[..., None])[..., 0]  # (B, T)
            for i, row in zip(rows, gold.tolist(), strict=True):
                result[i] = row[: len(tgt[i]) + 1]
        return result


def _take(stream: Iterator[str], n_lines: int) -> list[str]:
    """The next lines of a stream, fewer where they are long."""
    taken: list[str] = []
    n_characters = 0
    for line in islice(stream, n_lines):
        taken.append(line)
        n_characters += len(line)
        if n_characters > WINDOW_CHARACTERS:
            break
    return taken


def _from_first_rank(lines: list[str]) -> list[str]:
    if n_ranks() == 1:
        return lines
    found: list[str] = json.loads(gather(json.dumps(lines).encode())[0])
    return found


def _from_all_ranks(translations: Iterable[Translation]) -> Iterable[Translation]:
    """The translations of all ranks in the order of the lines that were cut among them."""
    if n_ranks() == 1:
        return translations
    parts = gather(json.dumps([dataclasses.asdict(found) for found in translations]).encode())
    return [
        Translation(found["source"], [Translated(**hypothesis) for hypothesis in found["hypotheses"]])
        for found in merged([json.loads(part) for part in parts])
    ]


def load(
    path: Path | str, device: str = "auto", precision: Literal["fp32", "bf16", "int8"] = "fp32"
) -> Translator:
    """A translator from a run's directory or a model file.

    Args:
        path: of either.
        device: see `pick_device`.
        precision: of decoding. bf16 is quicker where the hardware is; int8, of weights and of the products with
            them, is for CPUs. Both move a few words; fp32 is the reference.
    Raises:
        ModelError: there is no model, or it is damaged, or its tokenizer was exchanged.
        ConfigError: there is no such device.
    """
    path = Path(path)
    file = RunDirectory(path).model_file if path.is_dir() else path
    if not file.exists():
        raise ModelError(f"no model at {file}", hint="train one with `nmt train CONFIG`, or name another with -m")
    checkpoint = read_checkpoint(file, prefixes=("model",))
    run = RunDirectory(path) if path.is_dir() else None
    if run is not None:
        check_tokenizers(run, checkpoint)
    model = in_precision(checkpoint.model().to(pick_device(device)), precision)
    return Translator(model, checkpoint.tokenizers, checkpoint.config, run)


def in_precision(model: Transformer, precision: Precision) -> Transformer:
    """The model for decoding in fp32, bf16 or int8.

    Raises:
        ConfigError: int8 on a GPU.
    """
    if precision == "bf16":
        return model.bfloat16()
    if precision == "int8":
        if next(model.parameters()).device.type != "cpu":
            raise ConfigError("int8 is for CPUs", hint="on a GPU take --precision bf16")
        from torch.ao.quantization import quantize_dynamic  # takes a third of a second

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wants to move this to another package
            quantized: Transformer = quantize_dynamic(  # type: ignore[no-untyped-call]
                model, {torch.nn.Linear}, dtype=torch.qint8
            )
        return quantized
    return model


def check_tokenizers(run: RunDirectory, checkpoint: Checkpoint) -> None:
    """Make sure that the tokenizer files of a run are those that its model was trained with.

    Raises:
        ModelError: one was exchanged.
    """
    ours = checkpoint.tokenizers
    for file, side in zip(run.tokenizer_files(ours.joint), (ours.source, ours.target), strict=True):
        if file.exists() and file.read_bytes() != side.model:
            raise ModelError(
                f"{file} is not the tokenizer that the model was trained with",
                hint="put the old one back, delete it (the model carries its own), or train anew with --fresh",
            )


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is cuda, else mps, else cpu.

    Raises:
        ConfigError: this machine has no such device.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    try:
        device = torch.device(f"cuda:{local_rank()}" if name == "cuda" else name)  # each rank has its own
        there = available.get(device.type, False)
    except RuntimeError:
        there = False
    if not there:
        names = ", ".join(kind for kind, there in available.items() if there)
        raise ConfigError(f"no device '{name}' on this machine", hint=f"there is auto, {names}")
    return device
