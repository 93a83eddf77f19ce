"""The kinds of fault that `nmt check` looks for, and its findings.

An error would spoil training or a score, a warning costs quality, a note is worth knowing. Khayrallah & Koehn (2018,
"On the impact of various types of noise on neural machine translation") measure what faults cost: untranslated text
most by far, then misaligned pairs and wrong languages.
"""

import math
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
# What --fix does with a line: drop the pair, clean its text, exchange its sides, pair it with another line, or nothing.
Repair = Literal["drop", "clean", "exchange", "realign", ""]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
NEVER = math.inf


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    text: str  # the title, perhaps with {other}
    severity: Severity  # of a fault whose share is below spoils_at
    spoils_at: float  # share of the lines, 0-1, from which the severity is error
    repair: Repair
    other: str = "train"  # the corpus that title and advice name as {other}

    @property
    def title(self) -> str:
        return self.text.format(other=self.other)

    @property
    def advice(self) -> str:
        return ADVICE[self.name].format(other=self.other)


@dataclass(frozen=True)
class Example:
    """A line with a fault."""

    line: int  # from 1
    source: str
    target: str
    detail: str = ""


@dataclass(frozen=True)
class Finding:
    """All lines of a corpus with the same kind of fault."""

    corpus: str  # train, dev or test; "corpus" if two files were checked without a config
    kind: Kind
    severity: Severity
    lines: list[int]  # ascending, from 1; empty if the fault concerns the whole corpus
    share: float  # of the lines of the corpus, 0-1
    detail: str
    examples: list[Example]


_ALL = (
    # The whole corpus.
    Kind("counts", "the sides have different numbers of lines", "error", 0, "realign"),
    Kind("unrelated", "the sides do not translate each other", "error", 0, ""),
    Kind("swapped", "its sides are exchanged, compared with train", "error", 0, "exchange"),
    Kind("declared", "not the language that the config or the file's name says", "error", 0, ""),
    Kind("pieces", "the tokenizer cuts words into many pieces", "note", NEVER, ""),
    # Pairs that are no translations.
    Kind("shifted", "blocks of lines paired with a neighbor's translation", "warning", 0.01, "realign"),
    Kind("shuffled", "blocks of lines without their translations", "warning", 0.01, "drop"),
    Kind("mismatch", "words that hardly ever translate each other", "note", 0.1, ""),
    Kind("exchanged", "source and target exchanged", "warning", 0.02, "exchange"),
    Kind("untranslated", "a side is in the language of the other side", "warning", 0.02, "drop"),
    Kind("copy", "source and target are the same", "warning", 0.02, "drop"),
    Kind("language", "a third language", "warning", 0.02, "drop"),
    Kind("script", "an unusual script", "warning", 0.02, "drop"),
    Kind("ratio", "one side is much longer than the other", "warning", 0.02, "drop"),
    Kind("truncated", "one side ends in mid-sentence", "warning", 0.05, "drop"),
    Kind("blank", "a side is blank", "warning", 0.2, "drop"),
    Kind("no-words", "mostly digits, punctuation or symbols", "warning", 0.1, "drop"),
    Kind("long", "very long lines", "warning", 0.1, "drop"),
    # Details that differ.
    Kind("numbers", "different numbers", "warning", 0.05, ""),
    Kind("urls", "different web or e-mail addresses", "warning", 0.05, ""),
    Kind("placeholders", "different placeholders", "warning", 0.05, ""),
    Kind("punctuation", "different punctuation at the end", "note", NEVER, ""),
    Kind("brackets", "brackets or quotes that do not close", "note", NEVER, ""),
    Kind("repetition", "words or characters repeated on one side only", "warning", 0.05, "drop"),
    Kind("capitals", "one side only in capitals", "note", NEVER, ""),
    # Characters.
    Kind("encoding", "not UTF-8", "warning", 0.01, "drop"),
    Kind("mojibake", "UTF-8 that was read as another encoding", "warning", 0.01, "clean"),
    Kind("replaced", "U+FFFD, left by a failed conversion", "warning", 0.01, "drop"),
    Kind("markup", "HTML tags or entities", "warning", 0.05, "clean"),
    Kind("control", "control, invisible or private characters", "warning", 0.05, "clean"),
    Kind("homoglyphs", "letters of two scripts in one word", "warning", 0.02, ""),
    Kind("bytes", "characters that the tokenizer spells in bytes", "note", 0.2, ""),
    # Form.
    Kind("bom", "a byte order mark at the beginning", "note", NEVER, "clean"),
    Kind("crlf", "lines that end in \\r\\n", "note", NEVER, "clean"),
    Kind("spacing", "space at the ends, several spaces in a row, or tabs", "note", NEVER, "clean"),
    Kind("unicode", "not in Unicode's composed form (NFC)", "note", NEVER, "clean"),
    Kind("full-width", "full-width Latin letters or digits", "note", NEVER, "clean"),
    Kind("tokenized", "text split by a tokenizer", "note", NEVER, ""),
    Kind("han-variants", "traditional and simplified Chinese mixed", "note", NEVER, ""),
    # Repeated text.
    Kind("duplicate", "repeats an earlier pair", "note", 0.5, "drop"),
    Kind("many-targets", "a source with five or more translations", "note", NEVER, ""),
    Kind("many-sources", "a target of five or more sources", "note", NEVER, ""),
    Kind("leak", "a side is also in {other}", "warning", 0.05, ""),
    Kind("near-leak", "a side is almost the same in {other}", "warning", NEVER, ""),
    # Found by a model (--model).
    Kind("unlikely", "the pairs that the model believes least", "note", NEVER, ""),
)
KINDS = {kind.name: kind for kind in _ALL}
ADVICE = {
    "counts": "look where they part and add or delete lines there; --fix pairs the lines that belong together",
    "unrelated": "find the file that belongs to the other one, or give both the same order",
    "swapped": "exchange source and target in the config",
    "declared": "exchange the files, or set data.source_lang and data.target_lang",
    "pieces": "train the tokenizer on this text, or raise tokenizer.vocab_size",
    "shifted": "look for a missing or extra line where the block begins; --fix pairs the lines anew",
    "shuffled": "drop the block, or find the order of its lines",
    "mismatch": "read them: free translations and misaligned lines look alike; --model RUN ranks them better",
    "exchanged": "exchange the two texts",
    "untranslated": "drop the pairs: a few percent of them teach a model to copy",
    "copy": "drop the pairs: a few percent of them teach a model to copy",
    "language": "drop the pairs",
    "script": "drop the pairs",
    "ratio": "drop the pairs: text is missing, or was added",
    "truncated": "restore the text, or drop the pairs",
    "blank": "nothing: training drops them (data.drop_blank)",
    "no-words": "drop the pairs if the sides differ: they teach no words",
    "long": "split them into sentences; training drops what exceeds data.max_length",
    "numbers": "check the translation",
    "urls": "check the translation",
    "placeholders": "check the translation: a program that fills them in would fail",
    "punctuation": "check whether a sentence is cut, or is a question on one side only",
    "brackets": "check whether a sentence is cut",
    "repetition": "drop the pairs: a machine often makes such text",
    "capitals": "write both sides in the same way",
    "encoding": "convert the file",
    "mojibake": "convert the file again; --fix restores the text",
    "replaced": "convert the file again, or drop the pairs",
    "markup": "remove tags and decode entities",
    "control": "remove them",
    "homoglyphs": "replace the letters that only look right",
    "bytes": "train the tokenizer on this text, or correct rare characters",
    "bom": "nothing: nmt ignores it, but other programs may not",
    "crlf": "nothing: nmt drops the \\r, but other programs may not",
    "spacing": "write one space between words and none at the ends",
    "unicode": "normalize: otherwise one word has two spellings",
    "full-width": "write them in ASCII",
    "tokenized": "use the original text: users do not type spaces before punctuation",
    "han-variants": "convert one into the other, for example with OpenCC",
    "duplicate": "nothing: training drops them (data.drop_duplicates)",
    "many-targets": "check that these are translations and not misaligned lines",
    "many-sources": "check that this is a translation and not a filler",
    "leak": "drop the pairs from {other}, as --fix does with train: scores are too high",
    "near-leak": "choose dev and test from other documents: scores are too high",
    "unlikely": "read them: misaligned pairs usually come first",
}


def severity_of(kind: Kind, share: float) -> Severity:
    """The severity of a fault that a share (0-1) of the lines has."""
    return "error" if share >= kind.spoils_at else kind.severity
