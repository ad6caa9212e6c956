"""Pages in a browser, and what they ask and say there."""

from pathlib import Path
from typing import Any, NamedTuple


class OpenedPage(NamedTuple):
    """A page of a browser, and its noise."""

    page: Any
    """The page of Playwright."""
    noise: list[str]
    """Messages of the console, errors of scripts, and addresses that the page has asked for after
    its own; empty for a page that is silent and needs no network."""


def open_html(browser: Any, folder: Path, text: str, **options: Any) -> OpenedPage:
    """Write the text of a page to a file, and open it.

    Parameters
    ----------
    browser
        A browser of Playwright.
    folder
        Where the file is written.
    text
        The page, as HTML.
    **options
        As of `browser.new_page`, such as ``viewport``.
    """
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    page = browser.new_page(**options)
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: noise.append(request.url))
    page.goto(path.as_uri())
    assert noise.pop(0) == path.as_uri()
    return OpenedPage(page, noise)
