"""The Chinese-English corpus: its files are current, no sentence is in two parts, and copying scores low."""

import os
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from conftest import file_bytes

DATA = Path(__file__).parents[2] / "data"
sys.path.insert(0, str(DATA))  # the programs are beside the data, not in a package
grammar = import_module("zh_en_grammar")
lexicon = import_module("zh_en_lexicon")
measure = import_module("zh_en_baselines")

SEED = 1  # of the committed files
Corpus = dict[str, list[Any]]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    built: Corpus = grammar.build(SEED)
    return built


def pairs(corpus: Corpus) -> list[Any]:
    return corpus["train"] + corpus["dev"] + corpus["test"]


def test_committed_files_are_what_the_program_writes(tmp_path: Path) -> None:
    # The order of Python's sets must not matter.
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    program = [DATA / "zh_en_grammar.py", "--seed", SEED, "--out", tmp_path]
    subprocess.run([sys.executable, *map(str, program)], check=True, env=environment)
    result = file_bytes(tmp_path)
    assert result == file_bytes(DATA / "zh-en")


def test_no_sentence_comes_twice_on_either_side(corpus: Corpus) -> None:
    """No duplicates, no leak from train into dev or test, and one English for each Chinese; not that of the demo."""
    all_pairs = [*pairs(corpus), grammar.demo_pair()]
    sources = {pair.zh for pair in all_pairs}
    targets = {pair.en for pair in all_pairs}
    assert len(sources) == len(targets) == 5401


def test_dev_and_test_have_known_words_characters_and_patterns(corpus: Corpus) -> None:
    words: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    patterns: Counter[Any] = Counter()
    for pair in corpus["train"]:
        words.update(grammar.tokens(pair.en))
        characters.update(pair.zh)
        patterns[pair.pattern] += 1
    for pair in corpus["dev"] + corpus["test"]:
        assert min(words[word] for word in grammar.tokens(pair.en)) >= 5
        assert min(characters[character] for character in pair.zh) >= 5
        assert patterns[pair.pattern] >= 20


@pytest.mark.parametrize(("part", "other"), [("dev", "test"), ("test", "dev")])
def test_each_sentence_of_dev_and_test_has_a_new_combination(corpus: Corpus, part: str, other: str) -> None:
    known: set[Any] = set()
    for pair in corpus["train"] + corpus[other]:
        known.update(pair.combos)
    for pair in corpus[part]:
        assert set(pair.combos) - known


def test_the_nearest_training_sentence_and_the_gloss_score_low(corpus: Corpus) -> None:
    sides = []
    for part in (corpus["train"], corpus["test"]):
        sides.append([pair.zh for pair in part])
        sides.append([pair.en for pair in part])
    scores = measure.baselines(*sides)
    assert scores["neighbour"] <= 40
    assert scores["gloss"] <= 40


def test_spelling_and_punctuation(corpus: Corpus) -> None:
    for pair in pairs(corpus):
        assert re.fullmatch(r"[\u4e00-\u9fff]+(，[\u4e00-\u9fff]+)?[。？]", pair.zh)
        assert re.fullmatch(r"[A-Z][A-Za-z' ]*(, [A-Za-z' ]+)?[.?]", pair.en)
        assert (pair.zh[-1] == "？") == (pair.en[-1] == "?")
        assert not re.search(r"  |\ba [aeiou]|\ban [^aeiou]|\b(\w+) \1\b(?<!that that)", pair.en), pair.en
