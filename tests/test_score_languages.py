"""Scores of 20 languages: what `nmt eval` prints is what sacreBLEU computes with the settings of the signature."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import err_lines, run_nmt
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER


class Case(NamedTuple):
    """Two translated lines of a language, their references, and the settings that fit its script."""

    language: str
    tokenizer: str
    ter: str  # what TER counts; none: it is left out
    hypotheses: list[str]
    references: list[str]

    @classmethod
    def of(cls, lines: str) -> "Case":
        settings, hypotheses, references = lines.split("\n")
        language, tokenizer, ter = settings.split()
        return cls(language, tokenizer, ter, hypotheses.split(" | "), references.split(" | "))


# Language, BLEU's tokenizer, what TER counts; below them the translated lines; below these the references.
LANGUAGES = """
en 13a words
The train leaves at nine. | She's got two dogs.
The train leaves at 9. | She has two dogs.

de 13a words
Der Zug fährt um neun. | Sie hat zwei Hunde.
Der Zug geht um neun ab. | Sie hat zwei Hunde.

fr 13a words
Le train part à neuf heures. | Elle a deux chiens.
Le train part à 9 heures. | Elle a deux chiens !

ru 13a words
Поезд уходит в девять. | У неё две собаки.
Поезд отходит в девять. | У неё есть две собаки.

tr 13a words
Tren dokuzda kalkıyor. | İki köpeği var.
Tren saat dokuzda kalkıyor. | Onun iki köpeği var.

el 13a words
Το τρένο φεύγει στις εννέα. | Έχει δύο σκύλους.
Το τρένο φεύγει στις 9. | Έχει δύο σκυλιά.

hy 13a words
Գնացքը մեկնում է իննին։ | Նա երկու շուն ունի։
Գնացքը մեկնում է ժամը իննին։ | Նա ունի երկու շուն։

ar 13a words
يغادر القطار في التاسعة. | لديها كلبان.
يغادر القطار الساعة التاسعة. | عندها كلبان.

he 13a words
הרכבת יוצאת בתשע. | יש לה שני כלבים.
הרכבת יוצאת בשעה תשע. | יש לה שני כלבים!

hi 13a words
रेलगाड़ी नौ बजे छूटती है। | उसके पास दो कुत्ते हैं।
रेल नौ बजे छूटती है। | उसके दो कुत्ते हैं।

ta 13a words
ரயில் ஒன்பது மணிக்குப் புறப்படும். | அவளிடம் இரண்டு நாய்கள் உள்ளன.
ரயில் 9 மணிக்குப் புறப்படும். | அவளிடம் இரண்டு நாய்கள் உண்டு.

am 13a words
ባቡሩ በዘጠኝ ሰዓት ይነሳል። | ሁለት ውሾች አሏት።
ባቡሩ ዘጠኝ ሰዓት ላይ ይነሳል። | እሷ ሁለት ውሾች አሏት።

ko char words
기차는 아홉 시에 떠납니다. | 그녀는 개가 두 마리 있다.
기차는 9시에 떠납니다. | 그녀는 개 두 마리를 키운다.

zh zh characters
火车九点开。 | 她有两只狗，叫Max和Mia。
火车在九点出发。 | 她有两条狗，叫Max和Mia。

ja char characters
電車は九時に出ます。 | 彼女は犬を二匹飼っている。
電車は9時に出発します。 | 彼女は犬を2匹飼っています。

th char none
รถไฟออกเก้าโมง | เธอมีหมาสองตัว
รถไฟออกตอนเก้าโมง | เธอมีสุนัขสองตัว

lo char none
ລົດໄຟອອກເກົ້າໂມງ | ລາວມີໝາສອງໂຕ
ລົດໄຟອອກຕອນເກົ້າໂມງ | ລາວມີໝາຢູ່ສອງໂຕ

km char none
រថភ្លើងចេញនៅម៉ោងប្រាំបួន។ | នាងមានឆ្កែពីរ។
រថភ្លើងចេញដំណើរម៉ោងប្រាំបួន។ | នាងមានឆ្កែពីរក្បាល។

my char none
ရထားကိုးနာရီထွက်တယ်။ | သူမမှာခွေးနှစ်ကောင်ရှိတယ်။
ရထားကကိုးနာရီမှာထွက်တယ်။ | သူမမှာခွေးနှစ်ကောင်ရှိသည်။

bo char none
མེ་འཁོར་ཆུ་ཚོད་དགུ་པར་འགྲོ། | མོར་ཁྱི་གཉིས་ཡོད།
མེ་འཁོར་དེ་ཆུ་ཚོད་དགུ་པར་ཐོན། | མོ་ལ་ཁྱི་གཉིས་ཡོད།
""".strip()
CASES = list(map(Case.of, LANGUAGES.split("\n\n")))
TER_SIGNATURES = {"words": "norm:no|punct:yes|asian:no", "characters": "norm:yes|punct:yes|asian:yes"}
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.language)


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def metric_of(name: str, signature: str) -> Metric:
    """Build sacreBLEU's metric from a name and a signature."""
    values = dict(part.split(":") for part in signature.split("|"))
    lowercase = values["case"] == "lc"
    if name == "BLEU":
        return BLEU(tokenize=values["tok"], smooth_method=values["smooth"], lowercase=lowercase)
    if name == "TER":
        return TER(normalized=values["norm"] == "yes", asian_support=values["asian"] == "yes")
    return CHRF(char_order=int(values["nc"]), word_order=int(values["nw"]), lowercase=lowercase)


def scores_of(case: Case, folder: Path, *options: object) -> list[dict[str, Any]]:
    hypotheses = write_lines(folder / f"hyp.{case.language}", case.hypotheses)
    references = write_lines(folder / f"ref.{case.language}", case.references)
    done = run_nmt("eval", "--hyp", hypotheses, "--ref", references, "--json", *options)
    scores: list[dict[str, Any]] = json.loads(done.stdout)["scores"]
    return scores


@every_case
def test_scores_are_those_of_sacrebleu_with_the_signature(case: Case, tmp_path: Path) -> None:
    for score in scores_of(case, tmp_path, "--bootstrap", 0):
        metric = metric_of(score["name"], score["signature"])
        expected = metric.corpus_score(case.hypotheses, [case.references]).score
        assert score["value"] == pytest.approx(expected, abs=1e-9)
        assert score["signature"] == str(metric.get_signature())


@every_case
def test_each_script_has_settings_that_make_sense(case: Case, tmp_path: Path) -> None:
    bleu, _, *ter = scores_of(case, tmp_path)
    assert f"|tok:{case.tokenizer}|" in bleu["signature"]
    if case.ter == "none":
        assert ter == []
    else:
        assert TER_SIGNATURES[case.ter] in ter[0]["signature"]


def test_it_is_said_that_ter_is_left_out(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "ref.th", ["รถไฟออกตอนเก้าโมง"])
    done = run_nmt("eval", "--hyp", lines, "--ref", lines)
    assert err_lines(done) == ["TER is left out: it counts words, and the references have no spaces between words"]
    assert b"TER" not in done.stdout
    words = run_nmt("eval", "--hyp", lines, "--ref", lines, "--tokenize", "none")
    assert b"TER = 0.00" in words.stdout, "with this option, spaces separate words"
