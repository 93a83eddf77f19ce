"""Pages that show hostile text, in Chromium: nothing of it runs, no policy is violated, no page scrolls sideways."""

import contextlib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SCREENS, run_nmt, soak, wait_until
from small_run import config_of, run_training, write_small_corpus

from nmt.run.directory import RunDirectory

from .fuzz import HOSTILE
from .test_clients import KEY, serving

pytest.importorskip("playwright.sync_api", reason="no playwright: make browser")
RUN = "window.PWNED=1"
TEXTS = [re.sub("LONG (.*)", lambda x: (5000 * x[1])[:5000], text.replace("WINDOW", RUN)) for text in HOSTILE["pages"]]
NAME = f'"><img src=x onerror="{RUN}">{{{{DATA}}}}שלום' + "n" * 120
WATCH = """window.seen = []; window.alert = () => window.PWNED = 1;
document.addEventListener("securitypolicyviolation", (event) => window.seen.push(event.violatedDirective));"""


@pytest.fixture(scope="module")
def pages(folder: Path) -> list[Path]:
    """The pages about a run, files and texts that are hostile, by command."""
    home = folder / NAME
    home.mkdir()
    write_small_corpus(home)
    draw = random.Random(1)
    for path in [home / f"{part}.{side}" for part in ("train", "dev", "more") for side in ("zh", "en")]:
        n = 5000 if path.stem == "train" else 200
        lines = [*(text[:n] for text in draw.sample(TEXTS, len(TEXTS))), *path.read_text("utf-8").splitlines()]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = config_of(home, NAME, train__snapshots=3, train__max_steps=20, tokenizer__vocab_size=420)
    run_training(config)
    scores = {"model_sha256": TEXTS[1], "source": NAME, "references": TEXTS[:3], "n_lines": 3}
    RunDirectory(config.run).append_scores({**scores, "scores": [], "search": {}})
    train = [home / "train.zh", home / "train.en"]
    explain = ["explain", "<img src=x> \u202eשל", "--reference", TEXTS[4]]
    commands: dict[str, list[object]] = {
        "check": ["check", *train, "--show", "5", "--html"],
        "compare": ["compare", *train, "--src", train[1], "--ref", train[0], "--html"],
        "explain": [*explain, "-m", config.run, "-o"],
        "growth": [*explain, "--growth", "-m", config.run, "-o"],
        "report": ["report", config.run, "-o"],
    }
    for name, words in commands.items():
        done = run_nmt(*words, home / f"{name}.html")
        assert done.returncode in (0, 1), done.stderr.decode()
        assert b"Traceback" not in done.stderr
    return [home / f"{name}.html" for name in commands]


def check(page: Any) -> None:
    assert page.evaluate("window.PWNED") is None
    assert page.evaluate("window.seen") == []
    assert page.evaluate("document.querySelectorAll('main script, img, base, iframe, main style').length") == 0
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], (page.url, wide)


@contextlib.contextmanager
def watched(browser: Any, url: str, screen: dict[str, Any]) -> Iterator[Any]:
    """An open page; at the end, nothing of its text may have run, and its console has no error."""
    context = browser.new_context(**screen)
    context.add_init_script(WATCH)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url)
    try:
        yield page
        check(page)
        assert [error for error in errors if "400 (Bad Request)" not in error] == []  # too long to be explained
    finally:
        context.close()


@pytest.mark.parametrize("screen", SCREENS)
def test_pages_about_hostile_text(browser: Any, pages: list[Path], screen: dict[str, Any]) -> None:
    for path in pages:
        with watched(browser, path.as_uri(), screen) as page:
            check(page)
            page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
            page.wait_for_timeout(300)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_served_page_translates_hostile_text(browser: Any, folder: Path, screen: dict[str, Any]) -> None:
    with (
        serving(folder, "--engine", "torch") as server,
        watched(browser, f"http://127.0.0.1:{server.port}", screen) as page,
    ):
        page.locator("#key").fill(KEY)
        for text in soak(TEXTS[1::8], TEXTS):
            page.locator("#text").fill(text[:1000])
            page.locator("#go").click()
            wait_until(lambda: page.evaluate("!byId('result').hasAttribute('aria-busy') && byId('result').textContent"))
            check(page)
