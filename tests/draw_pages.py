"""Draw the pictures of README.md and nmt/insight/README.md from the demo's run, light and dark.

Run `make demo browser`, then `.venv/bin/python tests/draw_pages.py runs/demo`.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from nmt.decode.translator import load
from nmt.insight import explain, render, report

INSIGHT = Path(__file__).parents[1] / "nmt" / "insight"
SOURCE = "我昨天买了一本书。"
# Page -> what its picture leaves out, and the keys that lead to the step that it shows.
PICTURES = {
    "explanation": ("nav, footer, .controls, #model, section:not(#map), h2, h2 + p, #map-tree, #map-tree-name", 5),
    "report": ("header, nav, footer, .controls, section:not(#curves), h2, details, #charts > :nth-child(n + 5)", 0),
}
STYLE = "section {{ margin: 0 }} {hidden} {{ display: none !important }}"


def draw(browser: Any, file: Path, scheme: str, hidden: str, n_steps: int) -> bytes:
    """A PNG of the page without the hidden elements, `n_steps` steps after the start of the player."""
    context = browser.new_context(color_scheme=scheme, device_scale_factor=2, bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    page.set_viewport_size({"width": 1010, "height": 1000})
    page.goto(file.as_uri())
    for i in range(n_steps):
        page.get_by_role("button", name="To the first step" if i == 0 else "Forward", exact=True).click()
    page.mouse.move(0, 0)  # else the button that was clicked, or what moved below it, looks pointed at
    page.add_style_tag(content=STYLE.format(hidden=hidden))
    picture: bytes = page.locator("body").screenshot()
    context.close()
    return picture


def main() -> None:
    run = Path(sys.argv[1])
    translator = load(run, engine="torch")
    pages = {
        "explanation": render.as_page(explain.explain(translator, SOURCE)),
        "report": report.as_page([report.read_report(run)]),
    }
    with TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (hidden, n_steps) in PICTURES.items():
            (file := Path(home, f"{name}.html")).write_text(pages[name], encoding="utf-8")
            for scheme, suffix in (("light", ""), ("dark", "-dark")):
                (INSIGHT / f"{name}{suffix}.png").write_bytes(draw(browser, file, scheme, hidden, n_steps))


if __name__ == "__main__":
    main()
