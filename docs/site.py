"""Build the site: these pages, a reference of every public name, and the notebooks with output.

``make docs`` runs it. It needs no network; what mkdocs warns of is an error.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
SECTIONS: dict[str, list[str]] = {
    "Questions": [
        "concepts", "demand", "scheduling", "rails", "rails-figures", "collectives", "racks",
        "slices", "sharing", "sharing-fabric", "sharing-simulation",
    ],
    "Fabrics and light": ["feed-forward", "netlists", "faults", "optics"],
    "Reference": ["solutions", "command-line", "file-formats", "glossary"],
    "For authors": ["adding-a-kind", "design-notes"],
}  # fmt: skip
"""The pages of this folder, by chapter; pages that are not listed come last."""
WHOLE = ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff"]


def main() -> None:
    """Write pages and configuration to a folder of their own, and build the site from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="do not run the notebooks")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site")
    args = parser.parse_args()
    source = args.to.with_name(args.to.name + "-source")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    nav: list[Any] = [{"Start": "index.md"}]
    (source / "index.md").write_text(_read(ROOT / "README.md").replace("](docs/", "]("))
    for page in (ROOT / "docs").glob("*.md"):
        (source / page.name).write_text(_read(page).replace("](../", "]("))
    for page in (ROOT / "docs").glob("*.png"):
        shutil.copy(page, source)
    for name in WHOLE:
        (source / name).write_text(_read(ROOT / name).replace("](docs/", "]("))
    nav += [{title: [f"{name}.md" for name in names]} for title, names in chapters().items()]
    nav.append({"Python": _write_reference(source)})
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    nav.append({"Notebooks": [_write_notebook(path, source, args.quick) for path in notebooks]})
    nav.append({"Project": WHOLE[:2]})
    config = source.with_suffix(".yml")
    config.write_text(yaml.safe_dump(_configuration(source, args.to, nav), sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    raise SystemExit(subprocess.run(command, env=quiet).returncode)


def chapters() -> dict[str, list[str]]:
    """Return the pages of this folder by chapter, so that none is forgotten."""
    known = {name for names in SECTIONS.values() for name in names}
    found = {page.stem for page in (ROOT / "docs").glob("*.md")}
    if missing := sorted(known - found):
        raise SystemExit(f"docs/site.py lists pages that are not there: {', '.join(missing)}")
    return SECTIONS | ({"More": sorted(found - known)} if found - known else {})


def public_names() -> dict[str, str]:
    """Return the full name of every public function and class of the package."""
    import optmatch as om

    places = {}
    for name in om.__all__:
        found = getattr(om, name)
        if hasattr(found, "__module__"):
            places[name] = f"{found.__module__}.{found.__qualname__}"
    return places


def _read(path: Path) -> str:
    """Read a page; links to folders, of which a site has none, become text."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\([^)]*/\)", r"\1", text)


def _write_reference(source: Path) -> list[str]:
    """Write a page of functions and one of classes."""
    texts = {"functions": "# Functions\n", "classes": "# Classes\n"}
    for name, place in sorted(public_names().items(), key=lambda pair: pair[0].lower()):
        kind = "classes" if name[0].isupper() else "functions"
        texts[kind] += f"\n## {name}\n\n::: {place}\n"
    for kind, text in texts.items():
        (source / f"{kind}.md").write_text(text)
    return [f"{kind}.md" for kind in texts]


def _write_notebook(path: Path, source: Path, quick: bool) -> str:
    """Run a notebook in a folder of its own, and write what it says and draws as a page."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    if not quick:
        from nbclient import NotebookClient

        NotebookClient(notebook, resources={"metadata": {"path": str(source)}}).execute()
    lines = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            lines.append(cell.source)
            continue
        lines.append(f"```python\n{cell.source}\n```")
        for place, output in enumerate(cell.get("outputs", [])):
            lines.append(_shown(output, source, f"{path.stem}-{number}-{place}"))
    page = path.with_suffix(".md").name
    (source / page).write_text("\n\n".join(lines) + "\n")
    return page


def _shown(output: Any, source: Path, name: str) -> str:
    """Return an output of a cell as Markdown; pictures become files."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        (source / f"{name}.png").write_bytes(base64.b64decode(data["image/png"]))
        return f"![]({name}.png)"
    if "image/svg+xml" in data:
        (source / f"{name}.svg").write_text("".join(data["image/svg+xml"]))
        return f"![]({name}.svg)"
    if "text/html" in data:
        (source / f"{name}.html").write_text("".join(data["text/html"]))
        return (
            f'<iframe src="../{name}.html" style="width: 100%; height: 760px; border: 0"></iframe>'
        )
    text = re.sub(r"\x1b\[[0-9;]*m", "", "".join(data["text/plain"]))
    return f"```text\n{text.rstrip()}\n```"


def _configuration(source: Path, to: Path, nav: list[Any]) -> dict[str, Any]:
    python = {
        "docstring_style": "numpy",
        "show_source": False,
        "show_root_heading": False,
        "show_root_toc_entry": False,
        "show_bases": False,
        "heading_level": 3,
        "members_order": "source",
        "filters": ["!^_"],
        "docstring_options": {"warnings": False},
    }
    return {
        "site_name": "optmatch",
        "docs_dir": str(source),
        "site_dir": str(to),
        "strict": True,
        "nav": nav,
        "theme": {"name": "material", "font": False, "features": ["navigation.indexes"]},
        "plugins": [
            "search",
            {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT)], "options": python}}}},
        ],
        "markdown_extensions": ["admonition", "attr_list", "tables", "pymdownx.highlight",
                                "pymdownx.superfences", {"toc": {"permalink": True}}],
        "validation": {"links": {"anchors": "warn", "not_found": "warn"}},
    }  # fmt: skip


if __name__ == "__main__":
    main()
