"""The translation page in a browser: by mouse, by keyboard alone, wide and narrow, light and dark."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ARABIC, SCREENS, SOURCE, TARGET, FiveRun, check_accessible, opened_page
from models import small_translator
from served import Client, served

from nmt.serve.guard import Limits
from nmt.translate.loading import load

FAST = 30_000  # ms; playwright continues as soon as the condition is true


@pytest.fixture(scope="module")
def client(browser: Any, five_run: FiveRun) -> Iterator[Client]:
    with served(load(five_run.run, device="cpu"), limits=Limits(n_lines=3)) as client:
        yield client


@contextlib.contextmanager
def opened(browser: Any, client: Client, path: str = "/", **options: Any) -> Iterator[Any]:
    may_load = (client.url, "data:", f"blob:{client.url}")
    with opened_page(browser, client.url + path, *may_load, **options) as page:
        page.set_default_timeout(FAST)
        yield page


def expect(locator: Any) -> Any:
    """Playwright's waiting assertions; unlike `wait_for_function`, they work under the page's security policy."""
    from playwright.sync_api import expect as expect_that

    return expect_that(locator)


def wait_for(page: Any, selector: str, text: str) -> None:
    expect(page.locator(selector)).to_have_text(text, timeout=FAST)


def wait_for_models(page: Any) -> None:
    page.locator("#pair option").first.wait_for(state="attached")


def translate(page: Any, text: str, expected: str) -> None:
    """Type a text and wait for its translation."""
    page.fill("#text", text)
    wait_for(page, "#result", expected)


def test_typing_translates_and_a_word_can_be_changed_by_mouse(browser: Any, client: Client) -> None:
    with opened(browser, client) as page:
        translate(page, SOURCE[0], TARGET[0])
        words = page.locator("#words button")
        words.first.wait_for()
        assert [word.inner_text() for word in words.all()] == TARGET[0].split()
        # Another second word.
        words.nth(1).click()
        alternative = page.locator("#alternatives li button").first
        alternative.wait_for()
        sentence = alternative.locator("span").first.inner_text()
        assert sentence != TARGET[0]
        assert sentence.startswith(TARGET[0].split()[0])
        alternative.click()
        wait_for(page, "#result", sentence)
        beginning = page.inner_text("#beginning")
        assert sentence.startswith(beginning)
        assert beginning != ""
        # The beginning is free again.
        page.click("#release")
        wait_for(page, "#result", TARGET[0])
        assert page.is_hidden("#begins")


def test_the_same_by_keyboard_alone(browser: Any, client: Client) -> None:
    with opened(browser, client) as page:
        wait_for_models(page)
        expect(page.locator("#text")).to_be_focused()
        page.keyboard.insert_text(SOURCE[1])
        page.keyboard.press("Control+Enter")
        wait_for(page, "#result", TARGET[1])
        page.locator("#words button").first.wait_for()
        # From control to control, to the first word.
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.parentElement.id") == "words":
                break
        page.keyboard.press("Enter")
        expect(page.locator("#alternatives button:focus")).to_have_count(1)
        sentence = page.evaluate("document.activeElement.firstChild.textContent")
        page.keyboard.press("Enter")
        wait_for(page, "#result", sentence)
        expect(page.locator("#result")).to_be_focused()


def test_the_search_is_drawn_and_controlled(browser: Any, client: Client) -> None:
    with opened(browser, client) as page:
        page.fill("#text", SOURCE[0])
        figure = page.locator("#attention-figure svg")
        figure.wait_for()
        figure.focus()
        page.keyboard.press("ArrowDown")
        assert "looks at" in page.inner_text("#attention-figure output")
        # The tree.
        page.click("#tree summary")
        nodes = page.locator("#tree-figure .node")
        nodes.first.wait_for()  # the toggle event, which draws it, is asynchronous
        assert nodes.count() > 10
        assert TARGET[0] in page.locator("#hypotheses tbody tr").first.inner_text()
        wait_for(page, "#result", TARGET[0])
        # The settings.
        page.locator("summary", has_text="Search settings").click()
        page.fill("#beam", "2")
        page.press("#beam", "Tab")
        expect(page.locator("#hypotheses tbody tr")).to_have_count(2, timeout=FAST)
        page.check("#sample")
        page.fill("#temperature", "10")
        page.press("#temperature", "Tab")
        expect(page.locator("#result")).not_to_have_text(TARGET[0], timeout=FAST)


def test_a_document_comes_back_line_for_line(browser: Any, client: Client, tmp_path: Path) -> None:
    # More lines than a request may have.
    lines = [*SOURCE, "", *SOURCE]
    expected = [*TARGET, "", *TARGET]
    file = tmp_path / "letter.txt"
    file.write_text("\r\n".join(lines), encoding="utf-8")
    with opened(browser, client, accept_downloads=True) as page:
        wait_for_models(page)
        page.set_input_files("#file", file)
        wait_for(page, "#status", "11 lines translated")
        assert page.inner_text("#result") == "\n".join(expected)
        assert page.is_hidden("#inside")
        with page.expect_download() as download:
            page.click("#download")
        assert download.value.suggested_filename == "letter.en.txt"
        assert Path(download.value.path()).read_text(encoding="utf-8").split("\n") == [*expected, ""]


def test_a_document_is_dropped_or_opened_and_then_saved(browser: Any, client: Client, tmp_path: Path) -> None:
    drop = """() => { const dataTransfer = new DataTransfer(); dataTransfer.items.add(new File([%r], "a.md"));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true })); }"""
    (tmp_path / "b.csv").write_text("id,text\n1,a")
    with opened(browser, client, accept_downloads=True, ignored="400") as page:
        wait_for_models(page)
        page.evaluate(drop % f"# {SOURCE[0]}")
        wait_for(page, "#status", "a.md is translated")
        expect(page.locator("#progress")).to_be_hidden()
        for press in (page.locator("#result a"), page.locator("#download")):
            with page.expect_download() as download:
                press.press("Enter")
            assert download.value.suggested_filename == "a_en.md"
            assert Path(download.value.path()).read_text(encoding="utf-8") == f"# {TARGET[0]}"
        assert ".docx" in (page.get_attribute("#file", "accept") or "")
        page.on("dialog", lambda dialog: dialog.accept("3"))
        page.set_input_files("#file", tmp_path / "b.csv")
        wait_for(page, "#status", "which column of the file? There are ['id', 'text']")
        assert page.inner_text("#result") == ""


def test_a_line_is_cut_only_if_it_is_longer_than_a_request(browser: Any, five_run: FiveRun) -> None:
    longest = max(SOURCE, key=len)
    limits = Limits(n_characters=len(longest))
    with served(load(five_run.run, device="cpu"), limits=limits) as client, opened(browser, client) as page:
        wait_for_models(page)
        page.fill("#text", f"{longest}\n{longest} {longest}\n{SOURCE[0]}")
        wait_for(page, "#status", "3 lines translated")
        first, second, third = page.inner_text("#result").split("\n")
        assert (first, third) == (TARGET[SOURCE.index(longest)], TARGET[0])
        assert second.startswith(first)


def test_the_full_explanation_opens(browser: Any, client: Client) -> None:
    with opened(browser, client) as page:
        page.fill("#text", SOURCE[0])
        page.locator("#explain button").wait_for()
        with page.context.expect_page() as popup:
            page.click("#explain button")
        problems: list[str] = []
        explanation = popup.value
        explanation.on("console", lambda message: problems.append(message.text))
        explanation.wait_for_load_state()
        assert explanation.inner_text("#translation") == TARGET[0]
        assert explanation.locator(".stage svg").count() > 30
        assert problems == []


def test_errors_are_told(browser: Any, five_run: FiveRun) -> None:
    with (
        served(load(five_run.run, device="cpu"), keys=["secret", "ключ"]) as client,
        opened(browser, client, ignored="400") as page,  # Chromium logs refused requests
    ):
        page.fill("#text", SOURCE[0])
        wait_for(page, "#status", "the API key is missing or wrong")
        page.fill("#key", "secret")
        page.click("#go")
        wait_for(page, "#result", TARGET[0])
        page.fill("#text", SOURCE[1])
        page.fill("#key", "ключ")
        page.keyboard.press("Enter")
        wait_for(page, "#result", TARGET[1])
        assert page.url == f"{client.url}/", "the form of the key does not leave the page"


def test_languages_are_chosen(browser: Any, five_run: FiveRun) -> None:
    with served(load(five_run.run, device="cpu"), small_translator()) as client, opened(browser, client) as page:
        wait_for_models(page)
        assert page.locator("#pair option").all_inner_texts() == ["Chinese → English", "German → English"]
        page.select_option("#pair", "1")
        page.fill("#text", "a cat sleeps")
        page.locator("#words button").first.wait_for()
        assert page.get_attribute("#text", "lang") == "de"


def test_the_text_and_its_translation_stand_at_the_same_height(browser: Any, client: Client) -> None:
    with opened(browser, client, viewport={"width": 1280, "height": 800}) as page:
        text, result = (page.locator(name).bounding_box() for name in ("#text", "#result"))
        assert text["y"] == result["y"]


@pytest.fixture(scope="module")
def arabic(browser: Any, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A server of the Arabic model, which is not trained where there is no browser."""
    run = request.getfixturevalue("arabic_run")
    with served(load(run.run, device="cpu")) as client:
        yield client


@pytest.mark.parametrize("screen", SCREENS)
def test_a_translation_from_right_to_left(browser: Any, arabic: Client, screen: dict[str, Any]) -> None:
    with opened(browser, arabic, **screen) as page:
        translate(page, SOURCE[0], ARABIC[0])
        assert page.locator("#result").evaluate("result => getComputedStyle(result).direction") == "rtl"
        words = page.locator("#words button")
        words.nth(1).wait_for()
        first, second = (words.nth(i).bounding_box() for i in (0, 1))
        assert first["x"] >= second["x"] + second["width"], "the first word stands on the right"
        words.nth(0).click()
        expect(page.locator("#alternatives ul")).to_have_attribute("dir", "rtl", timeout=FAST)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("screen", SCREENS)
def test_accessibility_and_width(browser: Any, client: Client, screen: dict[str, Any]) -> None:
    for path in ("/", "/docs"):
        with opened(browser, client, path, **screen, bypass_csp=True) as page:  # for axe
            if path == "/":
                page.fill("#text", SOURCE[0])
                page.locator("#words button").nth(1).click()
                page.locator("#alternatives li button").first.wait_for()
                page.click("#tree summary")
                page.locator("summary", has_text="Search settings").click()
            else:
                page.locator("#endpoints section").first.wait_for()
            check_accessible(page)
