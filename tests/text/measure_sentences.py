"""How well texts are split into sentences: F1 on treebanks of Universal Dependencies, beside other splitters.

    pip install blingfire==0.1.8 pysbd==0.3.4 sentence-splitter==1.4
    python tests/text/measure_sentences.py de-pud.conllu zh-pud.conllu ...

The name of a file begins with the language. A text consists of five sentences of the treebank.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blingfire import text_to_sentences  # type: ignore
from pysbd import Segmenter  # type: ignore
from sentence_splitter import SentenceSplitter  # type: ignore

from nmt.text.sentences import join_sentences, sentence_spans

N_JOINED = 5  # number of sentences in a text
Split = Callable[[str], list[str]]


def ours(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


def splitters(language: str) -> dict[str, Split]:
    return {
        "nmt": ours,
        "sentence-splitter": of_language(SentenceSplitter, language).split,
        "pysbd": of_language(Segmenter, language).segment,
        "blingfire": lambda text: text_to_sentences(text).split("\n"),
    }


def of_language(make: Any, language: str) -> Any:
    """Return a splitter for the language, or for English if the library does not know the language."""
    try:
        return make(language=language)
    except Exception:  # each library has an exception of its own
        return make(language="en")


def ends_of(text: str, sentences: list[str]) -> set[int]:
    """Return the positions in a text at which sentences end, except the last one."""
    ends = set()
    position = 0
    for sentence in sentences:
        start = text.find(sentence.strip(), position)
        if start >= 0:
            position = start + len(sentence.strip())
            ends.add(position)
    return ends - {0, len(text)}


def f1(split: Split, sentences: list[str]) -> float:
    """Return the F1 of sentence ends, 0-100."""
    n_right = n_wrong = n_missed = 0
    for first in range(0, len(sentences) - N_JOINED + 1, N_JOINED):
        gold = sentences[first : first + N_JOINED]
        text = join_sentences(gold)
        expected, ends = ends_of(text, gold), ends_of(text, split(text))
        n_right += len(ends & expected)
        n_wrong += len(ends - expected)
        n_missed += len(expected - ends)
    return 200 * n_right / (2 * n_right + n_wrong + n_missed)


def main(files: list[Path]) -> None:
    for file in files:
        lines = file.read_text(encoding="utf-8").split("\n")
        sentences = [line.removeprefix("# text = ").strip() for line in lines if line.startswith("# text = ")]
        scores = {name: f1(split, sentences) for name, split in splitters(file.name.partition("-")[0]).items()}
        print(file.name, *(f"{name} {score:.1f}" for name, score in scores.items()), sep="\t")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
