"""Our answers to the requests of libretranslate_requests.json have status and shape of LibreTranslate's answers.

Where ours are others by design, a row has ours, too, and the name of the reason.
"""

import json
from collections.abc import Iterator, Mapping

import pytest
from models import small_translator
from record_libretranslate import TABLE, Row, answered
from served import served

from nmt.serve.guard import Limits

RECORDED = json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def addresses() -> Iterator[Mapping[str, str]]:
    """Of a server without keys, and of one with a key; both have the limits of the recorded ones."""
    translators = [small_translator(source_lang=source, target_lang="en", max_length=99) for source in ("de", "fr")]
    limits = Limits(n_characters=100, n_lines=4)
    with served(*translators, limits=limits) as opened, served(*translators, limits=limits, keys=["secret"]) as keyed:
        yield {"open": f"127.0.0.1:{opened.port}", "keyed": f"127.0.0.1:{keyed.port}"}


@pytest.mark.parametrize("row", RECORDED["requests"], ids=lambda row: row["name"])
def test_an_answer_is_that_of_libretranslate(addresses: Mapping[str, str], row: Row) -> None:
    recorded = {"status": row["status"], "shape": row["shape"]}
    ours = row.get("ours", recorded)
    result = answered(addresses[row["server"]], row)
    assert result == ours
    assert (ours != recorded) == (row.get("reason") in RECORDED["reasons"])
