"""The page of `nmt check` in a browser: it loads no other files, logs no error, shows all findings, is accessible."""

from pathlib import Path
from typing import Any

import pytest
from conftest import SCREENS, check_accessible, opened_text

from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.render import as_plain
from nmt.insight import pages

DATA = Path(__file__).parents[2] / "data" / "zh-en"


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_shows_all_findings(browser: Any, tmp_path: Path, screen: dict[str, Any]) -> None:
    sides = [(DATA / f"train.{lang}").read_text("utf-8").splitlines(keepends=True)[:1000] for lang in ("zh", "en")]
    del sides[1][500]
    sides[1][20] = "<script>document.title = 'bad'</script> &amp;\n"
    paths = [tmp_path / "train.zh", tmp_path / "train.en"]
    for path, lines in zip(paths, sides, strict=True):
        path.write_text("".join(lines), encoding="utf-8")
    report = check([CorpusFiles("train", [paths[0]], [paths[1]])], ("zh", "en"))
    with opened_text(browser, tmp_path, pages.page("check", "nmt check", as_plain(report)), **screen) as page:
        assert page.title() == "nmt check"
        sections = [section.get_attribute("id") for section in page.locator("main section").all()]
        assert sections == ["overview", "errors", "warnings", "notes", "files"]
        assert page.locator("#finding-table tbody tr").count() == len(report.findings)
        assert page.locator(".finding").count() == len(report.findings)
        assert "different numbers of lines" in page.locator("#error-list").inner_text()
        assert "<script>" in page.locator("#warning-list").inner_text()
        check_accessible(page)
