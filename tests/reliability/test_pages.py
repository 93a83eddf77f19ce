"""Pages that show hostile text, in Chromium: nothing of it runs, no policy is violated, no page scrolls sideways."""

import random
from pathlib import Path
from typing import Any

import pytest
from conftest import SCREENS, opened_page, run_nmt, soak, wait_until
from small_run import config_of, run_training, write_small_corpus

from nmt.run.directory import RunDirectory

from .hostile import HOSTILE
from .served import KEY, serving

pytest.importorskip("playwright.sync_api", reason="no playwright: make browser")
RUN = "window.PWNED=1"
NAME = f'"><img src=x onerror="{RUN}">{{{{DATA}}}}שלום' + "n" * 120
PAGES = ["check", "compare", "explain", "report"]
IS_TRANSLATED = "!byId('result').hasAttribute('aria-busy') && byId('result').textContent"


def hostile_text(text: str) -> str:
    """A text of hostile.toml; one that begins with LONG is repeated to 5,000 characters."""
    repeated = text.removeprefix("LONG ")
    if repeated != text:
        return (5000 * repeated)[:5000]
    return text.replace("WINDOW", RUN)


TEXTS = [hostile_text(text) for text in HOSTILE["pages"]]


def add_texts(path: Path, draw: random.Random, max_length: int) -> None:
    """Put all hostile texts, in any order, before the lines of a file."""
    texts = draw.sample(TEXTS, len(TEXTS))
    lines = "".join(f"{text[:max_length]}\n" for text in texts)
    path.write_text(lines + path.read_text(encoding="utf-8"), encoding="utf-8")


@pytest.fixture(scope="module")
def pages(folder: Path) -> Path:
    """The folder of the `PAGES` about a run, files and texts that are hostile."""
    # 1. A corpus.
    home = folder / NAME
    home.mkdir()
    write_small_corpus(home)
    draw = random.Random(1)
    for side in ("zh", "en"):
        add_texts(home / f"train.{side}", draw, 5000)
        add_texts(home / f"dev.{side}", draw, 200)
        add_texts(home / f"more.{side}", draw, 200)

    # 2. A run, with scores.
    config = config_of(home, NAME, train__max_steps=20, tokenizer__vocab_size=420)
    run_training(config)
    texts = {"model_sha256": TEXTS[1], "source": NAME, "references": TEXTS[:3]}
    RunDirectory(config.run).append_scores(texts | {"n_lines": 3, "scores": [], "search": {}})

    # 3. The pages.
    source = home / "train.zh"
    target = home / "train.en"
    write_page("check", source, target, "--show", 5, "--html", home / "check.html")
    write_page("compare", source, target, "--src", target, "--ref", source, "--html", home / "compare.html")
    options = ["--reference", TEXTS[4], "-m", config.run, "-o", home / "explain.html"]
    write_page("explain", "<img src=x> \u202eשל", *options)
    write_page("report", config.run, "-o", home / "report.html")
    return home


def write_page(*words: object) -> None:
    done = run_nmt(*words)
    assert done.returncode in (0, 1), done.stderr.decode()
    assert b"Traceback" not in done.stderr


def check_harmless(page: Any) -> None:
    assert page.evaluate("window.PWNED") is None
    assert page.locator("main script, img, base, iframe, main style").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page.url


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("screen", SCREENS)
def test_pages_about_hostile_text(browser: Any, pages: Path, name: str, screen: dict[str, Any]) -> None:
    with opened_page(browser, (pages / f"{name}.html").as_uri(), **screen) as page:
        check_harmless(page)
        page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        page.wait_for_timeout(300)
        check_harmless(page)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_served_page_translates_hostile_text(browser: Any, folder: Path, screen: dict[str, Any]) -> None:
    with serving(folder, "--engine", "torch") as server:
        url = f"http://127.0.0.1:{server.port}/"
        with opened_page(browser, url, url, ignored="400 (Bad Request)", **screen) as page:  # too long to be explained
            page.locator("#key").fill(KEY)
            for text in soak(TEXTS[1::8], TEXTS):
                page.locator("#text").fill(text[:1000])
                page.locator("#go").click()
                wait_until(lambda: page.evaluate(IS_TRANSLATED))
                check_harmless(page)
