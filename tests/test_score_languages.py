"""Scores of 16 languages: what `nmt eval` prints is what sacreBLEU computes with the settings of the signature."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import err_lines, run_nmt
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

# `norm` and `asian` of TER's signature
WORDS = "norm:no|punct:yes|asian:no"
CHARACTERS = "norm:yes|punct:yes|asian:yes"


class Case(NamedTuple):
    """Two translated lines of a language, their references, and the settings that fit its script."""

    language: str
    hypotheses: list[str]
    references: list[str]
    tokenizer: str = "13a"
    ter: str | None = WORDS  # None: TER is left out


CASES = [
    Case("en", ["The train leaves at nine.", "She's got two dogs."], ["The train leaves at 9.", "She has two dogs."]),
    Case("ru", ["Поезд уходит в девять.", "У неё две собаки."], ["Поезд отходит в девять.", "У неё есть две собаки."]),
    Case(
        "hy",
        ["Գնացքը մեկնում է իննին։", "Նա երկու շուն ունի։"],
        ["Գնացքը մեկնում է ժամը իննին։", "Նա ունի երկու շուն։"],
    ),
    Case("ar", ["يغادر القطار في التاسعة.", "لديها كلبان."], ["يغادر القطار الساعة التاسعة.", "عندها كلبان."]),
    Case("he", ["הרכבת יוצאת בתשע.", "יש לה שני כלבים."], ["הרכבת יוצאת בשעה תשע.", "יש לה שני כלבים!"]),
    Case("hi", ["रेलगाड़ी नौ बजे छूटती है।", "उसके पास दो कुत्ते हैं।"], ["रेल नौ बजे छूटती है।", "उसके दो कुत्ते हैं।"]),
    Case(
        "ta",
        ["ரயில் ஒன்பது மணிக்குப் புறப்படும்.", "அவளிடம் இரண்டு நாய்கள் உள்ளன."],
        ["ரயில் 9 மணிக்குப் புறப்படும்.", "அவளிடம் இரண்டு நாய்கள் உண்டு."],
    ),
    Case("am", ["ባቡሩ በዘጠኝ ሰዓት ይነሳል።", "ሁለት ውሾች አሏት።"], ["ባቡሩ ዘጠኝ ሰዓት ላይ ይነሳል።", "እሷ ሁለት ውሾች አሏት።"]),
    Case(
        "ko",
        ["기차는 아홉 시에 떠납니다.", "그녀는 개가 두 마리 있다."],
        ["기차는 9시에 떠납니다.", "그녀는 개 두 마리를 키운다."],
        "char",
        WORDS,
    ),
    Case(
        "zh",
        ["火车九点开。", "她有两只狗，叫Max和Mia。"],
        ["火车在九点出发。", "她有两条狗，叫Max和Mia。"],
        "zh",
        CHARACTERS,
    ),
    Case(
        "ja",
        ["電車は九時に出ます。", "彼女は犬を二匹飼っている。"],
        ["電車は9時に出発します。", "彼女は犬を2匹飼っています。"],
        "char",
        CHARACTERS,
    ),
    Case("th", ["รถไฟออกเก้าโมง", "เธอมีหมาสองตัว"], ["รถไฟออกตอนเก้าโมง", "เธอมีสุนัขสองตัว"], "char", None),
    Case("lo", ["ລົດໄຟອອກເກົ້າໂມງ", "ລາວມີໝາສອງໂຕ"], ["ລົດໄຟອອກຕອນເກົ້າໂມງ", "ລາວມີໝາຢູ່ສອງໂຕ"], "char", None),
    Case("km", ["រថភ្លើងចេញនៅម៉ោងប្រាំបួន។", "នាងមានឆ្កែពីរ។"], ["រថភ្លើងចេញដំណើរម៉ោងប្រាំបួន។", "នាងមានឆ្កែពីរក្បាល។"], "char", None),
    Case("my", ["ရထားကိုးနာရီထွက်တယ်။", "သူမမှာခွေးနှစ်ကောင်ရှိတယ်။"], ["ရထားကကိုးနာရီမှာထွက်တယ်။", "သူမမှာခွေးနှစ်ကောင်ရှိသည်။"], "char", None),
    Case("bo", ["མེ་འཁོར་ཆུ་ཚོད་དགུ་པར་འགྲོ།", "མོར་ཁྱི་གཉིས་ཡོད།"], ["མེ་འཁོར་དེ་ཆུ་ཚོད་དགུ་པར་ཐོན།", "མོ་ལ་ཁྱི་གཉིས་ཡོད།"], "char", None),
]


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def metric_of(name: str, signature: str) -> Metric:
    """Build sacreBLEU's metric from a name and a signature."""
    parts = signature.split("|")
    values = dict(part.split(":") for part in parts)
    is_lower_case = values["case"] == "lc"
    if name == "BLEU":
        return BLEU(tokenize=values["tok"], smooth_method=values["smooth"], lowercase=is_lower_case)
    if name == "TER":
        return TER(normalized="norm:yes" in parts, asian_support="asian:yes" in parts)
    return CHRF(char_order=int(values["nc"]), word_order=int(values["nw"]), lowercase=is_lower_case)


def scores_of(case: Case, folder: Path, *options: object) -> list[dict[str, Any]]:
    hypotheses = write_lines(folder / f"hyp.{case.language}", case.hypotheses)
    references = write_lines(folder / f"ref.{case.language}", case.references)
    done = run_nmt("eval", "--hyp", hypotheses, "--ref", references, "--json", *options)
    found: list[dict[str, Any]] = json.loads(done.stdout)["scores"]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.language)
def test_scores_are_those_of_sacrebleu_with_the_signature(case: Case, tmp_path: Path) -> None:
    for score in scores_of(case, tmp_path, "--bootstrap", 0):
        metric = metric_of(score["name"], score["signature"])
        expected = metric.corpus_score(case.hypotheses, [case.references]).score
        assert score["value"] == pytest.approx(expected, abs=1e-9)
        assert score["signature"] == str(metric.get_signature())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.language)
def test_each_script_has_settings_that_make_sense(case: Case, tmp_path: Path) -> None:
    scores = scores_of(case, tmp_path)
    signatures = {score["name"]: score["signature"] for score in scores}
    assert f"|tok:{case.tokenizer}|" in signatures["BLEU"]
    if case.ter is None:
        assert "TER" not in signatures
    else:
        assert case.ter in signatures["TER"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.language)
def test_a_perfect_translation_has_perfect_scores(case: Case, tmp_path: Path) -> None:
    lines = case.references * 3
    perfect = case._replace(hypotheses=lines, references=lines)
    for score in scores_of(perfect, tmp_path):
        expected = 0 if score["name"] == "TER" else 100
        assert score["value"] == score["low"] == score["high"] == pytest.approx(expected)


TOLD_BY_SCRIPT = [case for case in CASES if case.tokenizer != "13a"]


@pytest.mark.parametrize("case", TOLD_BY_SCRIPT, ids=lambda case: case.language)
def test_the_script_decides_for_files_without_a_language(case: Case, tmp_path: Path) -> None:
    unnamed = case._replace(language="tgt")
    assert scores_of(unnamed, tmp_path) == scores_of(case, tmp_path)


def test_it_is_said_that_ter_is_left_out(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "ref.th", ["รถไฟออกตอนเก้าโมง"])
    done = run_nmt("eval", "--hyp", lines, "--ref", lines)
    # Thai has no spaces between words.
    assert err_lines(done) == ["TER is left out: it counts words, and the references have no spaces between words"]
    assert b"TER" not in done.stdout
    words = run_nmt("eval", "--hyp", lines, "--ref", lines, "--tokenize", "none")
    assert b"TER = 0.00" in words.stdout, "with this option, spaces separate words"


ONE_OF_EACH_KIND = [case for case in CASES if case.language in ("en", "zh", "th")]


@pytest.mark.parametrize("case", ONE_OF_EACH_KIND, ids=lambda case: case.language)
def test_the_command_of_sacrebleu_finds_the_same(case: Case, tmp_path: Path) -> None:
    scores = scores_of(case, tmp_path, "--bootstrap", 0)
    settings = ["--tokenize", case.tokenizer, "--width", "2"]
    if case.ter == CHARACTERS:
        settings += ["--ter-normalized", "--ter-asian-support"]
    files = [f"ref.{case.language}", "-i", f"hyp.{case.language}"]
    command = [sys.executable, "-m", "sacrebleu", *files, "-m", "bleu", "chrf", "ter", *settings]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    expected = {score["name"]: score["score"] for score in json.loads(done.stdout)}
    for score in scores:
        # sacreBLEU prints two digits.
        assert round(score["value"], 2) == expected[score["name"]]
