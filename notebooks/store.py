"""Run the notebooks and store what they say and draw: a viewer of the repository then shows it.

``python notebooks/store.py``, or with names of notebooks. What is stored stays small: pictures
have few colours and are at most 720 pixels wide, and pages with scripts, which such viewers do not
show, are replaced by a sentence.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
MOST_PIXELS = 720
MOST_HTML_BYTES = 20_000
MOST_SVG_BYTES = 80_000
PAGE = "(an interactive page: run this cell, or see the site)"


def main() -> None:
    """Run all notebooks, or those that are named, two at a time."""
    names = sys.argv[1:]
    paths = [path for path in sorted(FOLDER.glob("*.ipynb")) if not names or path.stem in names]
    with ThreadPoolExecutor(2) as pool:
        for path, size_bytes in zip(paths, pool.map(store_outputs, paths), strict=True):
            print(f"{path.name}: {size_bytes:,} bytes")


def store_outputs(path: Path) -> int:
    """Run a notebook in an empty folder, write it with its outputs, and return its size."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [shorten(output) for output in cell.outputs]
            cell.metadata.pop("execution", None)  # times differ from run to run
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
    return path.stat().st_size


def shorten(output: Any) -> Any:
    """Make an output small: pictures with few colours, and no pages with scripts."""
    data = output.get("data")
    if data is None:
        return output
    if "image/png" in data:
        data["image/png"] = shrink_picture(data["image/png"])
    page = data.get("text/html", "")
    has_page = "<iframe" in page or "<svg" in page or len(page) > MOST_HTML_BYTES
    if has_page:
        del data["text/html"]
        if "<iframe" in page:
            data["text/plain"] = PAGE
        elif "<svg" in page:
            # Viewers of repositories take SVG out of HTML, but show it as an output of its own.
            data["image/svg+xml"] = page[
                page.index("<svg") : page.rindex("</svg>") + len("</svg>")
            ]
    if "image/png" in data or len(data.get("image/svg+xml", "")) > MOST_SVG_BYTES:
        data.pop("image/svg+xml", None)
    return output


def shrink_picture(encoded: str) -> str:
    """Return a PNG picture with 64 colours and at most 720 pixels across."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        picture.load()
        small: Any = picture.convert("RGB")
    if small.width > MOST_PIXELS:
        height = round(small.height * MOST_PIXELS / small.width)
        small = small.resize((MOST_PIXELS, height), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    few_colours = small.quantize(64, dither=Image.Dither.NONE)
    few_colours.save(written, format="png", optimize=True)
    return base64.b64encode(written.getvalue()).decode("ascii")


if __name__ == "__main__":
    main()
