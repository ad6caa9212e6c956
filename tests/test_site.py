"""The site opens from a disk: every entry of its navigation, and its search, in Chromium."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plotting.test_viewer import browser

__all__ = ["browser"]  # a fixture
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without running its notebooks; what links to nowhere fails the build."""
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'optmatch[docs]'")
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, str(ROOT / "docs" / "site.py"), "--quick", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_navigation_and_search_work_from_a_disk(site: Path, browser: Any) -> None:
    """Each entry leads to a page with a headline; the search finds a word of the glossary."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    start, asked = (site / "index.html").as_uri(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(start)
    entries = "nav.md-nav--primary a.md-nav__link[href]"
    links = page.evaluate(f"[...document.querySelectorAll('{entries}')].map(a => a.href)")
    pages = {link.partition("#")[0] for link in links}
    assert len(pages) > 30
    for link in sorted(pages):
        assert Path(link.removeprefix("file://")).is_file(), link
        page.goto(link)
        assert page.locator("h1").count() > 0, link
    for place in (start, (site / "tutorials" / "routing.html").as_uri()):
        page.goto(place)
        page.keyboard.press("/")
        page.keyboard.type("involution")
        page.locator("#disk-search a").first.click(timeout=10_000)
        page.wait_for_url(lambda url, place=place: url.partition("#")[0] != place)
        assert "involution" in page.content().lower()
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    page.close()


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """To a page, and to a place in one."""
    import runpy

    site = runpy.run_path(str(ROOT / "docs" / "site.py"))
    (tmp_path / "a.html").write_text('<html><a href="b.html#x">b</a><a href="c.html">c</a></html>')
    (tmp_path / "b.html").write_text('<html><p id="y"></p><a href="a.html">a</a></html>')
    assert site["broken_links"](tmp_path) == [
        "a.html: b.html#x: not there", "a.html: c.html: not there"
    ]  # fmt: skip
