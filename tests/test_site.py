"""The site opens from a disk: its navigation, types and formulas, and its search in Chromium."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.modes import nightly_only
from tests.plotting.conftest import browser

__all__ = ["browser"]  # a fixture
pytestmark = nightly_only
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without running its notebooks; what links to nowhere fails the build."""
    # A module of it, since the folder docs/sphinx could be taken for a package without code.
    pytest.importorskip("sphinx.application", reason="needs Sphinx: pip install 'optmatch[docs]'")
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, str(ROOT / "docs" / "site.py"), "--quick", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages_of_chapters(site: Path) -> set[Path]:
    """Return what the lists of pages link to: every page but those of single names."""
    links = set()
    for chapter in site.glob("chapter-*.html"):
        article = chapter.read_text("utf-8").partition("<article")[2].partition("</article>")[0]
        for target in re.findall(r'class="reference internal" href="([^"#]+)', article):
            links.add((site / target).resolve())
    return links


def test_every_page_of_the_navigation_has_a_headline(site: Path) -> None:
    pages = pages_of_chapters(site)
    assert len(pages) > 50
    for page in pages:
        assert "<h1>" in page.read_text("utf-8"), page


def test_types_are_said_in_words(site: Path) -> None:
    page = (site / "reference" / "optmatch.Schedule.html").read_text("utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "matchings (array of int32, 2 axes)" in text
    assert "Annotated" not in text


def test_formulas_are_set(site: Path) -> None:
    """On pages and in the reference, as MathML: no page asks a network for a script."""
    for page in ("optics.html", "reference/optmatch.problems.Steering.html"):
        text = (site / page).read_text("utf-8")
        assert "<math" in text
        assert ":math:" not in text
    names = re.findall(r'src="([^"]+)"', (site / "optics.html").read_text("utf-8"))
    assert not [name for name in names if "://" in name]


@pytest.mark.slow
def test_search_works_from_a_disk(site: Path, browser: Any) -> None:
    """The search finds a word of the glossary, from the first page and from a folder."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("index.html", "tutorials/routing.html"):
        page.goto((site / name).as_uri())
        page.keyboard.press("Control+k")
        page.keyboard.type("involution")
        page.keyboard.press("Enter")
        page.locator("#search-results a[href*='.html']").first.click(timeout=20_000)
        page.wait_for_url(lambda url: "search.html" not in url)
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
