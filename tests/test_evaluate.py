"""Scores and signatures equal those of sacreBLEU; perplexity equals values computed by hand."""

import importlib.util
import math
from collections.abc import Sequence

import pytest
import sacrebleu
from conftest import rows_of
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as MetricScore
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from nmt.errors import DataError, InputError
from nmt.evaluate import (
    Score,
    ScoreSettings,
    choose_settings,
    paired_score,
    perplexity,
    readable,
    sacrebleu_metrics,
    score,
    warn_if_tokenized,
)

HYPOTHESES = ["The cat sat on the mat.", "A dog runs through the park", "Two birds fly over the house!", ""]
REFERENCES = ["The cat is on the mat.", "A dog runs in a park.", "two birds fly over the house!", "It rains."]
OTHERS = ["A cat sat on the mat.", "The dog runs through the park.", "Two Birds fly over that house!", "Rain falls."]
ALL = ("bleu", "chrf", "ter")


def check(ours: Score, theirs: MetricScore) -> None:
    assert ours.value == pytest.approx(theirs.score, abs=1e-9)


def test_scores_are_those_of_sacrebleu() -> None:
    references = [REFERENCES]
    bleu, chrf, ter = score(HYPOTHESES, references, metrics=ALL)
    check(bleu, sacrebleu.corpus_bleu(HYPOTHESES, references))
    check(chrf, sacrebleu.corpus_chrf(HYPOTHESES, references))
    check(ter, sacrebleu.corpus_ter(HYPOTHESES, references))


def lower(lines: Sequence[str]) -> list[str]:
    return [line.lower() for line in lines]


def test_scores_of_several_references_in_lower_case_are_those_of_sacrebleu() -> None:
    references = [REFERENCES, OTHERS]
    ter, chrf, bleu = score(HYPOTHESES, references, ALL[::-1], ScoreSettings("char", lowercase=True))
    check(bleu, sacrebleu.corpus_bleu(HYPOTHESES, references, tokenize="char", lowercase=True))
    # corpus_chrf has no option to ignore case, so its input is lower-cased.
    check(chrf, sacrebleu.corpus_chrf(lower(HYPOTHESES), list(map(lower, references))))
    check(ter, sacrebleu.corpus_ter(HYPOTHESES, references))


def test_a_score_without_resamples_has_no_interval() -> None:
    (bleu,) = score(HYPOTHESES, [REFERENCES], metrics=("bleu",))
    assert bleu.low is None
    (bleu,) = score(HYPOTHESES, [REFERENCES], metrics=("bleu",), n_bootstrap=1)
    assert bleu.low is None


@pytest.mark.parametrize("metric", ALL)
def test_the_interval_of_many_lines_contains_the_score_and_is_reproducible(metric: str) -> None:
    (first,) = score(HYPOTHESES * 8, [REFERENCES * 8], metrics=(metric,), n_bootstrap=200)
    (second,) = score(HYPOTHESES * 8, [REFERENCES * 8], metrics=(metric,), n_bootstrap=200)
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.value < first.high
    assert first == second


EXTREMES = {
    "one wrong": ([*REFERENCES[:3], "~~~"], REFERENCES),  # a resample of only wrong lines scores 0
    "empty": ([""] * 4, REFERENCES),
    "perfect": (REFERENCES, REFERENCES),
    "empty references": (["a", ""], ["", ""]),
}


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_scores_have_an_interval(case: str, metric: str) -> None:
    hypotheses, references = EXTREMES[case]
    (extreme,) = score(hypotheses, [references], metrics=(metric,), n_bootstrap=100)
    assert extreme.low is not None
    assert extreme.high is not None
    assert extreme.low <= extreme.high


# By tokenizer: languages by ISO 639-1 and 639-3 codes, locales, and FLORES codes.
LANGUAGES = {
    "13a": "en de xx",
    "zh": "zh ZH zh-TW cmn yue zho zh_CN zho_Hans",
    "char": "ja jpn ja_JP ko ko-KR th-TH lao km my_Mymr bo_Tibt dz lzh wuu",
}


@pytest.mark.parametrize("tokenizer", LANGUAGES)
def test_the_target_language_picks_the_tokenizer(tokenizer: str) -> None:
    for language in LANGUAGES[tokenizer].split():
        assert choose_settings(language, []).tokenize == tokenizer


def metric_of(name: str, signature: str) -> Metric:
    """Build sacreBLEU's metric from a name and a signature."""
    values = dict(part.split(":") for part in signature.split("|"))
    if name == "BLEU":
        return BLEU(tokenize=values["tok"], smooth_method=values["smooth"])
    if name == "TER":
        return TER(normalized=values["norm"] == "yes", asian_support=values["asian"] == "yes")
    return CHRF(char_order=int(values["nc"]), word_order=int(values["nw"]))


# Language, BLEU's tokenizer, what TER counts (none: it is left out), a reference.
SCRIPTS = """
tgt zh   characters 他今天在学校。
en  char none       ຂ້ອຍຢູ່ເຮືອນ
zh  char characters 今日は学校にいます。
ja  char characters 東京大学
nan 13a  words      I chit-má tī ha̍k-hāu.
nan char characters 伊這馬佇學校。
th  13a  words      I am at home.
th  char none       ใช้ Kubernetes กับ PostgreSQL และ Prometheus
en  13a  words      The word 学校 means school.
ko  char words      그는 학교에 있다.
my  char none       123
"""


@pytest.mark.parametrize("case", rows_of(SCRIPTS))
def test_the_script_of_the_references_picks_the_settings(case: str) -> None:
    language, tokenizer, ter, reference = case.split(maxsplit=3)
    settings = choose_settings(language, [[reference]])
    assert settings.tokenize == tokenizer
    assert str(settings.ter).lower() == ter
    # The signature says how the script was scored.
    hypotheses = [reference[:-3]]
    for ours in score(hypotheses, [[reference]], ALL, settings):
        metric = metric_of(ours.name, ours.signature)
        check(ours, metric.corpus_score(hypotheses, [[reference]]))
        assert ours.signature == str(metric.get_signature())


def test_without_language_and_letters_words_are_counted() -> None:
    assert choose_settings("", []).tokenize == "13a"
    result = choose_settings("", [[""]])
    assert result == ScoreSettings("13a", "words")


def test_an_option_picks_the_tokenizer() -> None:
    thai = [["ฉันอยู่บ้าน"]]
    result = choose_settings("th", thai, tokenize="13a")
    assert result == ScoreSettings("13a", None)
    assert choose_settings("th", thai, tokenize="none") == ScoreSettings("none", "words"), "spaces separate words"


@pytest.mark.parametrize("reference", [[*REFERENCES, "one more"], []])
def test_unequal_numbers_of_lines_are_refused(reference: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        score(HYPOTHESES, [REFERENCES, reference])
    result = str(caught.value)
    assert result == f"4 hypotheses but {len(reference)} lines in reference 2"
    assert "line N" in caught.value.hint


def test_empty_files_are_refused() -> None:
    with pytest.raises(DataError, match=r"^nothing to score: the files are empty$") as caught:
        score([], [[]])
    assert caught.value.hint == "give at least one line"
    assert caught.value.exit_code == 2


def test_an_unknown_tokenizer_is_refused() -> None:
    with pytest.raises(InputError, match="14a") as caught:
        score(HYPOTHESES, [REFERENCES], settings=ScoreSettings("14a"))
    assert "13a" in caught.value.hint


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="MeCab is installed")
def test_tokenizer_without_its_library_is_refused() -> None:
    with pytest.raises(InputError, match=r"sacrebleu\[ja\]"):
        score(HYPOTHESES, [REFERENCES], settings=ScoreSettings("ja-mecab"))


def test_perplexity_by_hand() -> None:
    """Four pieces of probability 1/2, 1/2, 1/4, 1/8: (2·2·4·8)^(1/4) = 128^(1/4)."""
    half = -math.log(2)
    log_probs = [[half, half], [], [2 * half, 3 * half]]
    result = perplexity(log_probs)
    assert result == pytest.approx(128**0.25)
    assert perplexity([]) == perplexity([[]]) == 1.0
    assert perplexity([[-math.inf]]) == math.inf


@pytest.mark.parametrize("name", ALL)
def test_paired_tests_are_those_of_sacrebleu(name: str) -> None:
    systems = [HYPOTHESES, OTHERS, REFERENCES[::-1]]
    metric = sacrebleu_metrics([REFERENCES, OTHERS[::-1]], ScoreSettings("char", lowercase=True))[name]
    paired = paired_score(systems, metric)
    named_systems: list[tuple[str, Sequence[str]]] = list(zip("abc", systems, strict=True))
    signatures, scores = PairedTest(named_systems, {name: metric}, None, test_type="bs")()
    assert paired.signature == str(signatures[paired.name])
    baseline, *others = paired.systems
    _, *expected = scores[paired.name]
    assert baseline.difference is None
    for system, result in zip(others, expected, strict=True):
        assert isinstance(result, Result)
        assert system.difference is not None
        assert system.value == result.score
        assert system.difference.p_value == result.p_value
        assert system.difference.value == system.value - baseline.value
        assert system.difference.low < system.difference.high


ALL_EQUAL = {"BLEU": 1, "chrF2": 1, "TER": 1}
NUMBERS = [f"the number {n} is one of many numbers here" for n in range(40)]


def p_values(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The p-value of the second system by each metric."""
    found = {}
    for metric in sacrebleu_metrics(references).values():
        paired = paired_score(systems, metric)
        difference = paired.systems[1].difference
        assert difference is not None
        found[paired.name] = difference.p_value
    return found


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]])
def test_equal_systems_have_a_p_value_of_1(references: list[list[str]]) -> None:
    assert p_values([HYPOTHESES, HYPOTHESES], references) == ALL_EQUAL
    in_capitals = [line.upper() for line in HYPOTHESES]
    found = p_values([HYPOTHESES, in_capitals], references)
    assert found["TER"] == 1, "TER ignores case"
    assert found["chrF2"] < 0.1


def test_lines_that_make_up_for_each_other_are_no_difference() -> None:
    """Each system has another line wrong, in the same way."""
    lines = NUMBERS[10:]
    first = ["the sum 10 is one of many numbers here", *lines[1:]]
    last = [*lines[:-1], "the sum 39 is one of many numbers here"]
    assert p_values([first, last], [lines]) == ALL_EQUAL


def test_one_line_shows_no_difference() -> None:
    systems = [["a dog runs in it"], ["a cat sat on it"]]
    assert p_values(systems, [["a dog runs in the park"]]) == ALL_EQUAL


def test_only_tokenized_text_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["the dog runs ."] * 100
    warn_if_tokenized(lines[1:], "lines")  # a few lines may end so
    warn_if_tokenized(lines, "lines", "none")
    warn_if_tokenized(["the dog runs."] * 100, "lines")
    assert caplog.records == []
    warn_if_tokenized(lines, "lines", "13a")
    assert caplog.messages[0].startswith("100 of 100 lines end in ' .', as in tokenized text")


def test_sacrebleu_says_nothing_itself(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["the dog runs ."] * 200
    score(lines, [lines], ALL, n_bootstrap=10)
    for metric in sacrebleu_metrics([lines]).values():
        paired_score([lines, lines], metric, n_trials=10)
    assert caplog.records == []


def test_a_large_perplexity_is_written_with_an_exponent() -> None:
    assert readable(1.5) == "1.50"
    assert readable(9999.0) == "9999.00"
    assert readable(2.688e43) == "2.69e+43"
    assert readable(math.inf) == "inf"


def test_the_interval_of_a_difference_is_that_of_paired_resamples() -> None:
    """If two systems differ in only one of many lines, their difference varies less than their scores."""
    better = [line.replace("number 1", "sum 1") for line in NUMBERS]
    worse = ["the number 0 is two of many numbers here", *better[1:]]
    bleu = paired_score([better, worse], sacrebleu_metrics([NUMBERS])["bleu"])
    difference = bleu.systems[1].difference
    assert difference is not None
    assert difference.low < difference.value < difference.high == 0
    (alone,) = score(worse, [NUMBERS], metrics=("bleu",), n_bootstrap=1000)
    assert alone.low is not None
    assert alone.high is not None
    assert difference.high - difference.low < alone.high - alone.low
