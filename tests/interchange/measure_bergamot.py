"""Export a run to the browser, and compare the page in Chromium with node, and its BLEU with nmt's in int8.

    PYTHONPATH=.:tests/interchange python tests/interchange/measure_bergamot.py RUN SOURCE REFERENCE

This needs node 20, npm, a network for `npm ci`, and what `make browser` installs.
"""

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright
from sacrebleu.metrics.bleu import BLEU
from static_site import ENGINE, serving

import nmt
from nmt.interchange.bergamot import to_browser

N_LINES = 100  # lines that are translated in Chromium
PATIENCE_MS = 300_000
CLIENT = Path(__file__).with_name("translate_lines.mjs")


def in_node(site: Path, folder: Path, source: Path) -> list[str]:
    """Translate the lines of a file in node."""
    worker = shutil.copytree((site / ENGINE).parent, folder / "worker") / "translator-worker.js"
    with source.open(encoding="utf-8") as lines:
        done = subprocess.run(["node", CLIENT, site, worker], stdin=lines, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def in_chromium(url: str, text: str) -> tuple[list[str], str]:
    """Translate a text in the page, without network. Return the lines and the status. Problems are printed."""

    def log(message: Any) -> None:
        if message.type == "error":
            print(message.text)

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", log)
        page.goto(url)
        status = page.locator("#status")
        expect(status).to_contain_text("Ready after", timeout=PATIENCE_MS)
        page.context.set_offline(True)
        page.fill("#text", text)
        expect(status).to_have_text(re.compile("words a second"), timeout=PATIENCE_MS)
        translated = page.locator("#result").text_content() or ""
        return translated.split("\n"), status.inner_text()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    arguments = parser.parse_args()
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    references = [arguments.reference.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as name:
        # 1. Export the run, and install the engine.
        site = Path(name, "site")
        to_browser(nmt.load(arguments.run, engine="torch", device="cpu"), site)
        subprocess.run(["npm", "ci"], cwd=site, check=True, stdout=subprocess.DEVNULL)
        n_bytes = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
        print(f"size: {n_bytes / 1e6:.2f} MB, model.bin {(site / 'model.bin').stat().st_size / 1e6:.2f} MB")
        # 2. Translate.
        from_node = in_node(site, Path(name), arguments.source)
        with serving(site) as url:
            from_page, status = in_chromium(url, "\n".join(lines[:N_LINES]))
    n_equal = sum(map(str.__eq__, from_page, from_node))
    print(f"equal lines in Chromium and in node: {n_equal} of {len(from_page)}; {status}")
    # 3. Compare with nmt.
    ours = nmt.load(arguments.run, device="cpu", precision="int8").translate(lines)
    for label, hypotheses in (("engine", from_node), ("nmt, int8", ours)):
        print(f"BLEU of {label}: {BLEU().corpus_score(hypotheses, references).score:.2f}")


if __name__ == "__main__":
    main()
