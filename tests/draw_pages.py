"""Take the screenshots of the READMEs: `python tests/draw_pages.py RUN`, after `make browser` and `make demo`."""

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "nmt" / "insight"
WIDTH = 860  # of a README on GitHub
SCHEMES: dict[Literal["light", "dark"], str] = {"light": "", "dark": "-dark"}  # and the end of the file's name
# The parts of the explanation that say most, without the text between them: words, alternatives, attention.
EXPLANATION = """
#model, nav, h2, main p:not(#choices p), #summary, #word-table, #parts, #views, #large :is(details, output),
#head-figures, main > section:not(#words, #attention), footer { display: none !important; }
header { padding-top: 1px; }
h1 { margin-top: 12px; }
main { display: grid; grid-template-columns: 400px 1fr; gap: 14px 24px; padding-bottom: 20px; }
#words, #attention, .split { display: contents; }
#tokens { grid-column: 1 / 3; margin: 0; }
.token { padding: 4px 12px; }
#large { grid-area: 2 / 2 / 4; }
#head-name { margin: 4px 0; }
#head-figure svg { zoom: 1.45; }
"""
REPORT = """
header, nav, main > :not(#curves), #curves > :is(h2, p, .controls), #curves details, .charts > :nth-child(n + 5),
footer { display: none !important; }
main { padding-top: 16px; }
"""


def main(run: Path) -> None:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme, suffix in SCHEMES.items():
            context = browser.new_context(
                viewport={"width": WIDTH, "height": 400}, color_scheme=scheme, device_scale_factor=2, bypass_csp=True
            )
            for name, style in (("explanation", EXPLANATION), ("report", REPORT)):
                page = context.new_page()
                page.goto((run / f"{name}.html").absolute().as_uri())
                picture(page, style, FOLDER / f"{name}{suffix}.png")
        browser.close()


def picture(page: Page, style: str, file: Path) -> None:
    """Save what a style leaves of a page."""
    page.add_style_tag(content=style)
    page.screenshot(path=file, full_page=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
