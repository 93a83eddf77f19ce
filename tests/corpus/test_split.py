"""The split of a text: nothing is lost, nothing of dev or test is in train."""

import random
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import soak

from nmt.corpus.split import Facts, key_of, split_corpus
from nmt.errors import DataError
from nmt.text.lines import Pair, iter_pairs


def split(directory: Path, pairs: list[tuple[str, str]], seed: int = 1) -> tuple[Facts, dict[str, list[Pair]]]:
    source, target, out = directory / "all.de", directory / "all.en", directory / f"parts{seed}"
    for side, file in enumerate((source, target)):
        file.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    facts = split_corpus([source], [target], out, ("de", "en"), seed)
    parts = {part: list(iter_pairs([out / f"{part}.de"], [out / f"{part}.en"])) for part in ("train", "dev", "test")}
    return facts, parts


def distinct(n: int) -> list[tuple[str, str]]:
    return [(f"Satz {word_of(i)}", f"sentence {word_of(i)}") for i in range(n)]


def word_of(i: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(i))


def test_every_pair_is_in_one_part_in_the_order_of_the_text(tmp_path: Path) -> None:
    pairs = distinct(400)
    facts, parts = split(tmp_path, pairs)
    assert (facts.n_train, facts.n_dev, facts.n_test, facts.n_blank, facts.n_leaking) == (320, 40, 40, 0, 0)
    found = [[(pair.source, pair.target) for pair in part] for part in parts.values()]
    assert sorted(pair for part in found for pair in part) == sorted(pairs)
    for part in found:
        assert part == sorted(part, key=pairs.index)
    assert facts.n_words == sum(len(target.split()) for _, target in found[0])


def test_sentences_that_differ_only_in_case_punctuation_and_digits_are_the_same() -> None:
    assert key_of("Am 3. Mai 2019!") == key_of("am 4. mai 1999")
    assert key_of("ＡＢＣ") == key_of("abc")
    assert key_of("!?") != key_of("..."), "without letters, the text itself"
    assert key_of("Mai") != key_of("Mais")


def test_vowel_signs_make_different_sentences_but_vowel_points_may_be_left_out() -> None:
    assert key_of("वह पीता है।") != key_of("वह पता है।")
    assert key_of("ကား") != key_of("ကူး")
    assert key_of("น้ำ") != key_of("นำ")
    assert key_of("שָׁלוֹם") == key_of("שלום")
    assert key_of("كَتَبَ") == key_of("كتب")
    assert key_of("वर्ष २०१९ में") == key_of("वर्ष १९९९ में")


def test_pairs_that_are_blank_on_a_side_are_left_out(tmp_path: Path) -> None:
    facts, parts = split(tmp_path, [*distinct(50), ("", "x"), ("x", " "), ("", "")])
    assert facts.n_blank == 3
    assert sum(map(len, parts.values())) == 50


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="5 pairs with text on both sides are too few"):
        split(tmp_path, distinct(5))


def test_a_text_whose_sentences_repeat_too_often_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without repeated sentences, 0 pairs are left for train"):
        split(tmp_path, [(source, "Yes.") for source, _ in distinct(300)])


def test_the_same_seed_gives_the_same_split(tmp_path: Path) -> None:
    one, again, other = (split(tmp_path, distinct(300), seed)[1]["dev"] for seed in (1, 1, 2))
    assert [pair.source for pair in one] == [pair.source for pair in again]
    assert [pair.source for pair in one] != [pair.source for pair in other]


def test_letters_of_two_scripts_do_not_overlap(tmp_path: Path) -> None:
    greek = str.maketrans("abcdefghijstnezS", "αβγδεζηθικστνεζΣ")
    facts, _ = split(tmp_path, [(f"{one.translate(greek)} T.", other) for one, other in distinct(400)])
    assert facts.letter_overlap == pytest.approx(0, abs=0.05)
    facts, _ = split(tmp_path, [(other, other) for _, other in distinct(400)], seed=2)
    assert facts.letter_overlap == pytest.approx(1)


def near(text: str) -> str:
    """What is left of a sentence without case, punctuation, spaces and digits."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join("" if unicodedata.category(c)[0] in "PSZCN" else c for c in folded)
    return kept or ("" if any(map(str.isdigit, folded)) else folded)


def varied(draw: random.Random, text: str) -> str:
    """The same sentence, nearly."""
    ways: list[Callable[[str], str]] = [str.upper, str.lower, str.title, str]
    ways += [
        lambda x: x + draw.choice("!?。… \u3000"),
        lambda x: x.replace(" ", "  "),
        lambda x: x.replace("1", draw.choice(["7", "23", "１"])),
        lambda x: f"„{x}“",
        lambda x: unicodedata.normalize("NFD", x),
        lambda x: re.sub("[,.]", " ", x),
    ]
    return draw.choice(ways)(text)


@pytest.mark.parametrize("seed", range(soak(10, 200)))
def test_no_sentence_of_a_part_is_nearly_in_another(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    words = ["Straße", "größer", "I", "have", "1", "11", "dogs", "çok", "İyi", "ﬁne", "x-y", "N.", "na\u0308"]
    texts = [" ".join(draw.choices(words, k=draw.randrange(2, 7))) for _ in range(draw.choice([30, 300]))]
    pairs = [
        (varied(draw, draw.choice(texts)), varied(draw, draw.choice(texts))) for _ in range(draw.randrange(99, 800))
    ]
    try:
        _, parts = split(tmp_path, pairs)
    except DataError as error:
        assert "pairs" in str(error)  # noqa: PT017
        return
    for part in parts.values():
        rest = iter(pairs)
        assert all((pair.source, pair.target) in rest for pair in part), "not pairs of the text, in its order"
    for side in ("source", "target"):
        train, dev, test = ({near(getattr(pair, side)) for pair in part} for part in parts.values())
        assert not train & dev | train & test | dev & test
