"""Which language a name means."""

from pathlib import Path

import pytest
from conftest import rows_of

from nmt.languages import base_language, language_code, language_of_file, script_of

# name, its code, the code without region and script, the usual script
NAMES = """
de         de       de   Latn
deu        de       de   Latn
ger        de       de   Latn
de-DE      de-DE    de   Latn
de_DE      de-DE    de   Latn
deu_Latn   de       de   Latn
>>deu<<    de       de   Latn
zh-CN      zh-CN    zh   Hans
zho_Hans   zh-Hans  zh   Hans
zho_Hant   zh-Hant  zh   Hant
cmn        cmn      zh   Hans
arb_Arab   arb-Arab ar   Arab
sr-Latn    sr-Latn  sr   Latn
iw         he       he   Hebr
mya_Mymr   my       my   Mymr
chr        chr      chr  Cher
ja         ja       ja   Jpan
"""


@pytest.mark.parametrize("row", rows_of(NAMES), ids=lambda row: row.split()[0])
def test_the_language_of_a_name(row: str) -> None:
    name, code, base, script = row.split()
    result = (language_code(name), base_language(name), script_of(name))
    assert result == (code, base, script)


@pytest.mark.parametrize("name", ["", "xx", "und", "zxx", "German", "1", "a b", "clean", "lc", ">>", "de-"])
def test_a_name_of_no_language(name: str) -> None:
    assert language_code(name) == ""
    assert script_of(name) == ""


def test_the_script_of_a_language_may_be_unknown() -> None:
    assert script_of("acm") == ""


# file name and its code; - stands for an empty text
FILES = """
train.de              de
train.zh-CN.gz        zh-CN
a/flores.deu_Latn     de
corpus.chr            chr
train.src             -
train.tgt             -
zh.trg                -
train.tok             -
train.bpe             -
news.dev              -
train.de.tok          de
train.en.bpe.xz       en
x.DE                  de
deu_Latn.devtest      de
x.tmp                 -
train.lc              -
train.clean           -
train.txt             -
de                    -
"""


@pytest.mark.parametrize("row", rows_of(FILES), ids=lambda row: row.split()[0])
def test_the_language_of_a_file(row: str) -> None:
    name, code = row.split()
    result = language_of_file(Path(name))
    assert result == code.removeprefix("-")
