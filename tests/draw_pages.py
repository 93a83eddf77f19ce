"""Take the README's screenshots: `python tests/draw_pages.py RUN`, after `make browser` and `make demo`."""

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "nmt" / "insight"
WIDTH = 1180


def main(run: Path) -> None:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme="light")
        page.goto((run / "explanation.html").absolute().as_uri())
        picture(page, "#attention", "explanation.png", 640)
        page.goto((run / "report.html").absolute().as_uri())
        picture(page, "#curves", "report.png", 560)
        browser.close()


def picture(page: Page, section: str, name: str, height: int) -> None:
    """Save the upper part of a section as a PNG file."""
    page.locator(section).scroll_into_view_if_needed()
    box = page.locator(section).bounding_box()
    assert box
    y = box["y"] + page.evaluate("window.scrollY")
    clip: Any = {"x": 0, "y": y, "width": WIDTH, "height": min(height, box["height"])}
    page.screenshot(path=FOLDER / name, full_page=True, clip=clip)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
