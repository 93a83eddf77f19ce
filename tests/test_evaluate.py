"""Scores and signatures equal those of sacreBLEU; perplexity equals values computed by hand."""

import importlib.util
import math
from collections.abc import Sequence

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest, Result

from nmt.errors import ConfigError, DataError, InputError
from nmt.evaluate import (
    ScoreSettings,
    bleu_tokenizer,
    choose_settings,
    paired_scores,
    perplexity,
    readable,
    sacrebleu_metrics,
    score,
    tokenized_warning,
)

HYPOTHESES = ["The cat sat on the mat.", "A dog runs through the park", "Two birds fly over the house!", ""]
REFERENCES = ["The cat is on the mat.", "A dog runs in a park.", "two birds fly over the house!", "It rains."]
OTHERS = ["A cat sat on the mat.", "The dog runs through the park.", "Two Birds fly over that house!", "Rain falls."]
ALL = ("bleu", "chrf", "ter")


@pytest.mark.parametrize(
    ("tokenize", "lowercase", "references"), [("13a", False, [REFERENCES]), ("char", True, [REFERENCES, OTHERS])]
)
def test_scores_are_those_of_sacrebleu(references: list[list[str]], lowercase: bool, tokenize: str) -> None:
    bleu, chrf, ter = score(HYPOTHESES, references, tokenize=tokenize, lowercase=lowercase, metrics=ALL)
    own = sacrebleu.corpus_bleu(HYPOTHESES, references, tokenize=tokenize, lowercase=lowercase).score
    assert bleu.value == pytest.approx(own, abs=1e-9)
    # corpus_chrf has no option to ignore case, so its input is lower-cased
    hypotheses, *sides = ([line.lower() if lowercase else line for line in side] for side in (HYPOTHESES, *references))
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(hypotheses, sides).score, abs=1e-9)
    assert ter.value == pytest.approx(sacrebleu.corpus_ter(HYPOTHESES, references).score, abs=1e-9)
    assert [one.low for one in (bleu, chrf, ter)] == [None, None, None]
    assert [one.name for one in score(HYPOTHESES, references, metrics=("ter", "bleu"))] == ["TER", "BLEU"]


def test_the_interval_of_many_lines_contains_the_score_and_is_reproducible() -> None:
    found = score(HYPOTHESES * 8, [REFERENCES * 8], metrics=ALL, n_bootstrap=200)
    for one in found:
        assert one.low is not None
        assert one.high is not None
        assert one.low < one.value < one.high
    assert found == score(HYPOTHESES * 8, [REFERENCES * 8], metrics=ALL, n_bootstrap=200)


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [([*REFERENCES[:3], "~~~"], REFERENCES), ([""] * 4, REFERENCES), (REFERENCES, REFERENCES), (["a", ""], ["", ""])],
)
def test_extreme_scores_have_an_interval(hypotheses: list[str], references: list[str], metric: str) -> None:
    """A bootstrap sample of only wrong lines scores 0."""
    (found,) = score(hypotheses, [references], metrics=(metric,), n_bootstrap=100)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.high
    assert score(hypotheses, [references], metrics=(metric,), n_bootstrap=1)[0].low is None


def test_the_target_language_picks_the_tokenizer() -> None:
    for tokenizer, languages in {
        "13a": ["en", "de", "", "xx"],
        "zh": ["zh", "ZH", "zh-TW", "cmn", "yue", "zho", "zh_CN", "zho_Hans"],  # ISO 639-3, locales, FLORES codes
        "char": ["ja", "jpn", "ja_JP", "ko", "ko-KR", "th-TH", "lao", "km", "my_Mymr", "bo_Tibt", "dz", "lzh", "wuu"],
    }.items():
        assert {language: bleu_tokenizer(language) for language in languages} == dict.fromkeys(languages, tokenizer)


@pytest.mark.parametrize(
    ("language", "text", "tokenizer", "ter"),
    [
        ("tgt", "他今天在学校。", "zh", "characters"),  # the suffix of a file name is taken for a code
        ("en", "ຂ້ອຍຢູ່ເຮືອນ", "char", None),
        ("zh", "今日は学校にいます。", "char", "characters"),  # kana: Japanese
        ("ja", "東京大学", "char", "characters"),  # Japanese without kana
        ("nan", "I chit-má tī ha̍k-hāu.", "13a", "words"),  # Min Nan in Latin letters
        ("nan", "伊這馬佇學校。", "char", "characters"),
        ("th", "I am at home.", "13a", "words"),
        ("th", "ใช้ Kubernetes กับ PostgreSQL และ Prometheus", "char", None),  # many foreign names
        ("en", "The word 学校 means school.", "13a", "words"),
        ("ko", "그는 학교에 있다.", "char", "words"),
        ("my", "123", "char", None),  # no letter
        ("", "", "13a", "words"),
    ],
)
def test_the_script_of_the_references_picks_the_settings(
    language: str, text: str, tokenizer: str, ter: str | None
) -> None:
    settings = choose_settings(language, [[text]])
    assert (settings.tokenize, settings.ter) == (tokenizer, ter)


def test_an_option_picks_the_tokenizer() -> None:
    thai = [["ฉันอยู่บ้าน"]]
    assert choose_settings("th", thai, tokenize="13a") == ScoreSettings("13a", None)
    assert choose_settings("th", thai, tokenize="none") == ScoreSettings("none", "words"), "spaces separate words"


@pytest.mark.parametrize("reference", [[*REFERENCES, "one more"], []])
def test_unequal_numbers_of_lines_are_refused(reference: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        score(HYPOTHESES, [REFERENCES, reference])
    assert str(caught.value) == f"4 hypotheses but {len(reference)} lines in reference 2"
    assert "line N" in caught.value.hint


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match=r"^nothing to score: the files are empty$") as caught:
        score([], [[]])
    assert (caught.value.exit_code, caught.value.hint) == (2, "give at least one line")
    with pytest.raises(InputError, match=r"14a") as unknown:
        score(HYPOTHESES, [REFERENCES], tokenize="14a")
    assert "13a" in unknown.value.hint


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="MeCab is installed")
def test_tokenizer_without_its_library_is_refused() -> None:
    with pytest.raises(InputError, match=r"sacrebleu\[ja\]"):
        score(HYPOTHESES, [REFERENCES], tokenize="ja-mecab")


def test_perplexity_by_hand() -> None:
    """Four pieces of probability 1/2, 1/2, 1/4, 1/8: (2·2·4·8)^(1/4) = 128^(1/4)."""
    halves = [[math.log(1 / 2), math.log(1 / 2)], [], [math.log(1 / 4), math.log(1 / 8)]]
    assert perplexity(halves) == pytest.approx(128**0.25)
    assert perplexity([]) == perplexity([[]]) == 1.0
    assert perplexity([[-math.inf]]) == math.inf


def test_paired_tests_are_those_of_sacrebleu() -> None:
    systems, references = [HYPOTHESES, OTHERS, REFERENCES[::-1]], [REFERENCES, OTHERS[::-1]]
    found = paired_scores(systems, sacrebleu_metrics(references, lowercase=True, tokenize="char"))
    named: list[tuple[str, Sequence[str]]] = [(str(i), system) for i, system in enumerate(systems)]
    metrics = sacrebleu_metrics(references, lowercase=True, tokenize="char")
    signatures, expected = PairedTest(named, metrics, None, test_type="bs")()
    for paired in found:
        assert paired.signature == str(signatures[paired.name])
        assert paired.systems[0].difference is None
        for own, other in zip(paired.systems, expected[paired.name], strict=True):
            assert isinstance(other, Result)
            assert own.value == other.score
            if own.difference is not None:
                assert own.difference.p_value == other.p_value
                assert own.difference.value == own.value - paired.systems[0].value
                assert own.difference.low < own.difference.high


def p_values(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The p-value of the second system by each metric."""
    found = {}
    for paired in paired_scores(systems, sacrebleu_metrics(references)):
        difference = paired.systems[1].difference
        assert difference is not None
        found[paired.name] = difference.p_value
    return found


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]])
def test_equal_systems_have_a_p_value_of_1(references: list[list[str]]) -> None:
    assert p_values([HYPOTHESES, HYPOTHESES], references) == {"BLEU": 1, "chrF2": 1, "TER": 1}
    in_capitals = [line.upper() for line in HYPOTHESES]
    found = p_values([HYPOTHESES, in_capitals], references)
    assert found["TER"] == 1, "TER ignores case"
    assert found["chrF2"] < 0.1


def test_lines_that_make_up_for_each_other_are_no_difference() -> None:
    """Each system has another line wrong, in the same way."""
    lines = [f"the number {n} is one of many numbers here" for n in range(10, 50)]
    first = ["the sum 10 is one of many numbers here", *lines[1:]]
    last = [*lines[:-1], "the sum 49 is one of many numbers here"]
    assert p_values([first, last], [lines]) == {"BLEU": 1, "chrF2": 1, "TER": 1}


def test_one_line_shows_no_difference() -> None:
    assert p_values([["a dog runs in it"], ["a cat sat on it"]], [["a dog runs in the park"]]) == {
        "BLEU": 1,
        "chrF2": 1,
        "TER": 1,
    }


def test_a_clear_difference_has_a_small_p_value() -> None:
    lines = [f"the number {n} is one of many numbers here" for n in range(40)]
    worse = [line.replace("many", "some") for line in lines]
    assert max(p_values([lines, worse], [lines]).values()) < 0.01


@pytest.mark.parametrize("text", ["the dog runs .", "the dog runs."])
def test_only_tokenized_text_is_warned_of(text: str) -> None:
    is_tokenized = text.endswith(" .")
    assert bool(tokenized_warning([text] * 100, "lines", "13a")) == is_tokenized
    assert not tokenized_warning([text] * 99, "lines", "13a"), "a few lines may end so"
    assert not tokenized_warning([text] * 100, "lines", "none")


def test_a_seed_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "twelve")
    with pytest.raises(ConfigError, match=r"^SACREBLEU_SEED is twelve, not a whole number$"):
        score(HYPOTHESES, [REFERENCES], n_bootstrap=10)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert "|seed:none|" in score(HYPOTHESES, [REFERENCES], n_bootstrap=10)[0].signature


def test_sacrebleu_says_nothing_itself(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["the dog runs ."] * 200
    score(lines, [lines], ALL, n_bootstrap=10)
    paired_scores([lines, lines], sacrebleu_metrics([lines]), n_trials=10)
    assert caplog.records == []


def test_a_large_perplexity_is_written_with_an_exponent() -> None:
    assert [readable(value) for value in (1.5, 9999.0, math.exp(100), math.inf)] == [
        "1.50",
        "9999.00",
        "2.69e+43",
        "inf",
    ]


def test_the_interval_of_a_difference_is_that_of_paired_resamples() -> None:
    """If two systems differ in only one of many lines, their difference varies less than their scores."""
    lines = [f"the number {n} is one of many numbers here" for n in range(40)]
    better = [*lines[:20], *(line.replace("many", "some") for line in lines[20:])]
    worse = [better[0].replace("one", "two"), *better[1:]]
    (bleu,) = paired_scores([better, worse], {"bleu": sacrebleu_metrics([lines])["bleu"]})
    difference = bleu.systems[1].difference
    assert difference is not None
    assert difference.low < difference.value < difference.high == 0
    (alone,) = score(worse, [lines], metrics=("bleu",), n_bootstrap=1000)
    assert alone.low is not None
    assert alone.high is not None
    assert difference.high - difference.low < alone.high - alone.low
