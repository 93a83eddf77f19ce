"""Draw the pictures of README.md and of nmt/insight and configs/ladder, after `make demo ladder browser`.

`.venv/bin/python tests/draw_pages.py runs/demo .bench/ladder/growth.html` draws each light and dark.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from nmt.insight import explain, report
from nmt.translate.loading import load

ROOT = Path(__file__).parents[1]
SOURCE = "我昨天买了一本书。"
# Picture -> what it leaves out of the page, and the number of clicks that lead to the step that it shows.
PICTURES = {
    "nmt/insight/explanation": (".toolbar, .bench > div > p, section:not(#map), details, #map-tree, #map-tree-name", 5),
    "nmt/insight/report": ("header, section:not(#curves), details, #charts > :nth-child(n + 5)", 0),
    "configs/ladder/growth": ("#model, .present, section:not(#together), .columns", 0),
}
ALWAYS_HIDDEN = "nav, footer, h2, .controls"
STYLE = "section {{ margin: 0 }} {hidden} {{ display: none !important }}"


def draw(browser: Any, file: Path, scheme: str, hidden: str, n_clicks: int) -> bytes:
    """A PNG of the page without the hidden elements, after some clicks on its player."""
    context = browser.new_context(color_scheme=scheme, device_scale_factor=2, bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    page.set_viewport_size({"width": 1010, "height": 1000})
    page.goto(file.as_uri())
    for i in range(n_clicks):
        page.get_by_role("button", name="To the first step" if i == 0 else "Forward", exact=True).click()
    page.mouse.move(0, 0)  # else the button that was clicked, or what moved below it, looks pointed at
    page.add_style_tag(content=STYLE.format(hidden=f"{hidden}, {ALWAYS_HIDDEN}"))
    picture: bytes = page.locator("body").screenshot()
    context.close()
    return picture


def main() -> None:
    run, growth = map(Path, sys.argv[1:])
    explanation = explain.explain(load(run, engine="torch"), SOURCE)
    pages = [explain.as_page(explanation)]
    pages.append(report.as_page([report.read_report(run)]))
    pages.append(growth.read_text(encoding="utf-8"))
    with TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for page, (name, (hidden, n_clicks)) in zip(pages, PICTURES.items(), strict=True):
            file = Path(home, "page.html")
            file.write_text(page, encoding="utf-8")
            light = draw(browser, file, "light", hidden, n_clicks)
            dark = draw(browser, file, "dark", hidden, n_clicks)
            (ROOT / f"{name}.png").write_bytes(light)
            (ROOT / f"{name}-dark.png").write_bytes(dark)


if __name__ == "__main__":
    main()
