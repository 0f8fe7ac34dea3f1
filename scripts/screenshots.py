#!/usr/bin/env python3
"""Take the screenshots of docs/ in an installed Chromium.

    scripts/screenshots.py docs/figures              # all
    scripts/screenshots.py docs/figures server       # only that of the server's page

The pictures are the page of nmt serve, a report of nmt data check and a document before and after
its translation.
"""

from __future__ import annotations

import argparse
import bz2
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

from command_errors import error_messages
from nmt.core.errors import UsageError

PHRASEBOOK = Path(__file__).resolve().parent.parent / "nmt/data/sources/phrasebook.tsv.bz2"
NMT = (sys.executable, "-m", "nmt")
LETTER = """<!DOCTYPE html>
<title>Letter</title>
<style>body { font: 16px sans-serif; margin: 1.5em; } td { border-bottom: 1px solid; }</style>
<h2>Our trip to the mountains</h2>
<p>We are <b>very happy</b> that you are coming. The train leaves at <i>9:15</i>.</p>
<ul><li>Please bring <a href="#">warm clothes</a>.</li><li>It is cold in the evening.</li></ul>
<table><tr><td>Monday</td><td>We walk to the lake.</td></tr>
<tr><td>Tuesday</td><td>We visit the old town.</td></tr></table>
<p>See you soon!</p>
"""


def main() -> None:
    """Take the selected screenshots."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCREENSHOTS))
    args = parser.parse_args()
    with error_messages(args.directory), chromium() as browser:
        for name in args.names or SCREENSHOTS:
            if name not in SCREENSHOTS:
                raise UsageError(
                    f"there is no screenshot '{name}'", f"choose {', '.join(SCREENSHOTS)}"
                )
            path = args.directory / f"{name}.png"
            with tempfile.TemporaryDirectory() as directory:
                SCREENSHOTS[name](browser, Path(directory), path)
            print(path)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium until the block ends."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise UsageError("there is no Chromium", "install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def take_server(browser: Browser, directory: Path, path: Path) -> None:
    """Translate a text on the page of a server."""
    with serving(directory) as url:
        page = new_page(browser, 900)
        page.goto(url)
        page.locator("#text").fill("Good morning!\n\nWe would like to rent two bikes for a day.")
        page.locator("#translate").click()
        page.locator("#status", has_text="Translated").wait_for()
        save(page, path, height=620)


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Run a server with the pretrained models until the block ends, and yield its URL."""
    command = [*NMT, "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=directory) as server:
        assert server.stderr
        try:
            urls = (re.search(r"http://[\w.:]+", line) for line in server.stderr)
            yield next(url[0] for url in urls if url)
        finally:
            server.terminate()


def take_check(browser: Browser, directory: Path, path: Path) -> None:
    """Check a corpus with a few errors."""
    rows = bz2.decompress(PHRASEBOOK.read_bytes()).decode("utf-8").splitlines()
    corpus = [tuple(row.split("\t")[-2:]) for row in rows[:2000]]
    for index, (source, target) in enumerate(corpus):
        if index % 200 == 0:
            corpus[index] = (source, source)
        elif index % 90 == 0:
            corpus[index] = (source, garble(target))
    corpus += corpus[10:20]
    for column, language in enumerate(("en", "de")):
        text = "".join(f"{pair[column]}\n" for pair in corpus)
        (directory / f"mine.{language}").write_text(text, encoding="utf-8")
    command = [*NMT, "data", "check", "mine.en", "mine.de", "--html", "report.html"]
    subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL, check=False)
    page = new_page(browser, 900)
    page.goto((directory / "report.html").as_uri())
    save(page, path, height=900)


def garble(text: str) -> str:
    """Return UTF-8 text as it looks when it was decoded as Windows-1252."""
    return text.encode("utf-8").decode("cp1252", errors="ignore")


def take_document(browser: Browser, directory: Path, path: Path) -> None:
    """Translate an HTML file, and show both side by side."""
    (directory / "letter.html").write_text(LETTER, encoding="utf-8")
    command = [*NMT, "translate", "letter.html"]
    subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL, check=True)
    frames = "".join(
        f'<iframe src="{name}" style="width: 49%; height: 290px; border: 1px solid #888"></iframe> '
        for name in ("letter.html", "letter.de.html")
    )
    (directory / "both.html").write_text(frames, encoding="utf-8")
    page = new_page(browser, 900)
    page.goto((directory / "both.html").as_uri())
    save(page, path, height=310)


SCREENSHOTS = {"server": take_server, "check": take_check, "document": take_document}


def new_page(browser: Browser, width: int) -> Page:
    """Return a page for a screenshot in light colors."""
    return browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")


def save(page: Page, path: Path, *, height: int) -> None:
    """Write the upper part of the page."""
    width = page.viewport_size["width"] if page.viewport_size else 900
    clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
    page.screenshot(path=path, full_page=True, clip=clip)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(64)  # a third of the bytes
    small.save(path, optimize=True)


if __name__ == "__main__":
    main()
