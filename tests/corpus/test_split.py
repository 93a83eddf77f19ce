"""The split of a text: nothing is lost, nothing of dev or test is in train."""

import random
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import soak
from parallel_text import PairText, read_pairs, write_pairs

from nmt.corpus.split import Facts, key_of, split_corpus
from nmt.errors import DataError


class Split(NamedTuple):
    facts: Facts
    train: list[PairText]
    dev: list[PairText]
    test: list[PairText]


def split(folder: Path, pairs: list[PairText]) -> Split:
    files = write_pairs(folder, "all", pairs)
    facts = split_corpus(files.source, files.target, folder / "parts", ("zh", "en"))
    parts = []
    for name in ("train", "dev", "test"):
        part = folder / "parts" / name
        parts.append(read_pairs(part.with_suffix(".zh"), part.with_suffix(".en")))
    return Split(facts, *parts)


def distinct(n: int) -> list[PairText]:
    """Pairs that differ in letters, since all numbers count as the same."""
    digits = str.maketrans("0123456789", "abcdefghij")
    words = [str(i).translate(digits) for i in range(n)]
    return [(f"Satz {word}", f"sentence {word}") for word in words]


def test_every_pair_is_in_one_part(tmp_path: Path) -> None:
    pairs = distinct(400)
    facts, train, dev, test = split(tmp_path, pairs)
    found = (facts.n_train, facts.n_dev, facts.n_test)
    assert found == (320, 40, 40)
    assert facts.n_blank == facts.n_leaking == 0
    result = sorted(train + dev + test)
    assert result == sorted(pairs)


def test_the_words_of_train_are_counted(tmp_path: Path) -> None:
    facts, train, *_ = split(tmp_path, distinct(400))
    words = " ".join(target for _, target in train).split()
    assert facts.n_words == len(words)


def test_the_pairs_with_code_on_both_sides_are_counted(tmp_path: Path) -> None:
    pairs = distinct(400) + [("%s fehlt" + word, "no %s" + word) for word, _ in distinct(30)]
    pairs += [("<b>", "no code"), ("50 %", "50 %")]
    facts, train, *_ = split(tmp_path, pairs)
    assert facts.n_with_code == sum("%s" in source for source, _ in train) > 0


def test_sentences_that_differ_only_in_case_punctuation_and_digits_are_the_same() -> None:
    assert key_of("Am 3. Mai 2019!") == key_of("am 4. mai 1999")
    assert key_of("ＡＢＣ") == key_of("abc")
    assert key_of("!?") != key_of("..."), "without letters, the text itself"
    assert key_of("Mai") != key_of("Mais")


def test_vowel_signs_make_different_sentences_but_vowel_points_may_be_left_out() -> None:
    assert key_of("वह पीता है।") != key_of("वह पता है।")
    assert key_of("ကား") != key_of("ကူး")
    assert key_of("น้ำ") != key_of("นำ")
    # Hebrew and Arabic are written with and without points.
    assert key_of("שָׁלוֹם") == key_of("שלום")
    assert key_of("كَتَبَ") == key_of("كتب")
    assert key_of("वर्ष २०१९ में") == key_of("वर्ष १९९९ में")


def test_pairs_that_are_blank_on_a_side_are_left_out(tmp_path: Path) -> None:
    blank = [("", "x"), ("x", " "), ("", "")]
    facts, train, dev, test = split(tmp_path, distinct(50) + blank)
    assert facts.n_blank == 3
    result = len(train + dev + test)
    assert result == 50


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="5 pairs with text on both sides are too few"):
        split(tmp_path, distinct(5))


def test_a_text_whose_sentences_repeat_too_often_is_refused(tmp_path: Path) -> None:
    pairs = [(source, "Yes.") for source, _ in distinct(300)]
    with pytest.raises(DataError, match="without repeated sentences, 0 pairs are left for train"):
        split(tmp_path, pairs)


def test_the_same_text_gives_the_same_split(tmp_path: Path) -> None:
    first = split(tmp_path, distinct(300))
    assert split(tmp_path, distinct(300)) == first


def test_dev_and_test_are_sampled_at_random(tmp_path: Path) -> None:
    pairs = distinct(300)
    parts = split(tmp_path, pairs)
    # Neither is a block of the text.
    for part in (parts.dev, parts.test):
        places = [pairs.index(pair) for pair in part]
        assert min(places) < 60
        assert max(places) > 240


def near(text: str) -> str:
    """What is left of a sentence without case, punctuation, spaces and digits."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    letters = ""
    for character in folded:
        category = unicodedata.category(character)
        if category[0] not in "PSZCN":
            letters += character
    # Without letters and digits, a text is itself.
    if letters or any(map(str.isdigit, folded)):
        return letters
    return folded


REPLACED = {" ": "  ", "1": "23", "11": "１7", ".": " "}


def vary(text: str, rng: random.Random) -> str:
    """The sentence in another case, with another sign at its end, other spaces, digits or Unicode forms."""
    match rng.choice(["as it is", "case", "end", "quoted", "replaced", "decomposed"]):
        case "case":
            return rng.choice([text.upper(), text.lower(), text.title()])
        case "end":
            return text + rng.choice(["!", "。", " …\u3000"])
        case "quoted":
            return f"„{text}“"
        case "replaced":
            old = rng.choice([*REPLACED])
            return text.replace(old, REPLACED[old])
        case "decomposed":
            return unicodedata.normalize("NFD", text)
    return text


WORDS = ["Straße", "größer", "I", "have", "1", "11", "dogs", "çok", "İyi", "ﬁne", "x-y", "N.", "na\u0308"]


@pytest.mark.parametrize("seed", range(soak(10, 200)))
def test_no_sentence_of_a_part_is_nearly_in_another(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    n_sentences = rng.choice([30, 300])
    sentences = []
    for _ in range(n_sentences):
        words = rng.choices(WORDS, k=rng.randrange(2, 7))
        sentences.append(" ".join(words))
    # Pairs of random variations of these sentences.
    pairs = []
    for _ in range(rng.randrange(99, 800)):
        source, target = rng.choices(sentences, k=2)
        pairs.append((vary(source, rng), vary(target, rng)))
    try:
        _, train, dev, test = split(tmp_path, pairs)
    except DataError as error:  # few sentences repeat too often
        assert "pairs" in str(error)  # noqa: PT017
        return
    for part in (train, dev, test):
        rest = iter(pairs)
        assert all(pair in rest for pair in part), "not pairs of the text, in its order"
    for side in (0, 1):
        in_train = {near(pair[side]) for pair in train}
        in_dev = {near(pair[side]) for pair in dev}
        in_test = {near(pair[side]) for pair in test}
        assert in_train.isdisjoint(in_dev | in_test)
        assert in_dev.isdisjoint(in_test)
