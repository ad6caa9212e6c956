"""Build the site: these pages, a reference of every public name, and the notebooks with output.

``make docs`` runs it. It needs no network; what mkdocs warns of is an error.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import html
import importlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

ROOT = Path(__file__).resolve().parents[1]
SECTIONS: dict[str, list[str]] = {
    "Tutorials": [
        "tutorials", "tutorials/all-to-all", "tutorials/routing", "tutorials/demand",
        "tutorials/rail-job", "tutorials/reroute", "tutorials/slice-allocation",
        "tutorials/collective", "tutorials/port-sharing", "tutorials/tenancy",
        "tutorials/placement", "gallery",
        "coming-from",
    ],
    "Questions": [
        "concepts", "demand", "scheduling", "rails", "rails-figures", "collectives", "racks",
        "switches", "placements", "slices", "sharing", "sharing-fabric", "sharing-simulation",
    ],
    "Fabrics and light": ["feed-forward", "netlists", "faults", "optics"],
    "Reference": [
        "methods", "solutions", "command-line", "file-formats", "instances", "logging",
        "stability", "glossary",
    ],
    "For authors": ["adding-a-kind", "design-notes"],
}  # fmt: skip
"""The pages of this folder, by chapter; pages that are not listed come last."""
ROOMS = [
    "fabrics", "problems", "model", "solvers", "verify", "io", "plotting", "control", "studies",
    "sweeps", "switches", "testing",
]  # fmt: skip
"""The packages whose public names the reference documents, beside those of the top level. Pages,
notebooks and examples import from these packages and from no module inside them."""
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
        (source / page.name).write_text(
            with_pictures(_read(page).replace("](../", "]("), args.quick)
        )
    write_tutorials(source, args.quick)
    for page in [*(ROOT / "docs").glob("*.png"), *(ROOT / "docs").glob("*.js")]:
        shutil.copy(page, source)
    for name in WHOLE:
        (source / name).write_text(_read(ROOT / name).replace("](docs/", "]("))
    write_benchmarks(source)
    if not args.quick:
        draw_gallery(source)
        draw_home(source)
    nav += [{title: [f"{name}.md" for name in names]} for title, names in chapters().items()]
    nav.append({"Python": _write_reference(source)})
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    with ThreadPoolExecutor(2) as pool:  # each runs in a process of its own
        nav.append({"Notebooks": list(pool.map(
            lambda path: _write_notebook(path, source, args.quick), notebooks
        ))})  # fmt: skip
    nav.append({"Project": ["benchmarks.md", *WHOLE[:2]]})
    config = source.with_suffix(".yml")
    config.write_text(yaml.safe_dump(_configuration(source, args.to, nav), sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    code = subprocess.run(command, env=quiet).returncode
    if not code:
        write_index(args.to)
        set_formulas(args.to)
    broken = broken_links(args.to) if not code else []
    print(*broken, sep="\n", end="\n" if broken else "", file=sys.stderr)
    raise SystemExit(code or bool(broken))


def draw_home(source: Path) -> None:
    """Draw the moving picture of the first page: the slots of an answer, one after the other."""
    from matplotlib.figure import Figure
    from PIL import Image

    import optmatch as om
    from optmatch.plotting import plot_slot

    solution = om.solve(om.AllToAll(om.HexMesh(5, 5, ports=12)), seed=0)
    frames = []
    for slot in range(solution.schedule.n_slots):
        figure, drawn = Figure(figsize=(6.4, 5.2), layout="constrained"), io.BytesIO()
        plot_slot(solution, slot, ax=figure.subplots())
        figure.savefig(drawn, dpi=85)
        frames.append(Image.open(drawn).convert("RGB").quantize(48))
    frames[0].save(
        source / "moving.gif", save_all=True, append_images=frames[1:], duration=900, loop=0
    )
    page = source / "index.md"
    moving = "![The slots of an all-to-all of 12 ports, one after the other](moving.gif)"
    text = re.sub(r"!\[[^]]*\]\([\w-]+\.png\)", moving, page.read_text(), count=1)
    drawn_now = f"above: {len(frames)} matchings"
    page.write_text(text.replace("above: one matching of 32 ports", drawn_now))


def write_benchmarks(source: Path) -> None:
    """Write the page of benchmarks: what is kept, and the newest run of `make bench` here."""
    text = _read(ROOT / "benchmarks" / "README.md").replace("](../", "](")
    runs = (ROOT / "build" / "bench").glob("*.json")
    if run := max(runs, key=lambda path: path.stat().st_mtime, default=None):
        machine = json.loads(run.read_text(encoding="utf-8"))["machine_info"]
        report = [sys.executable, "benchmarks/report.py", str(run.relative_to(ROOT))]
        shown = subprocess.run(report, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        where = f"{machine['cpu'].get('brand_raw', 'processor unknown')}, {machine['release']}"
        text += f"\n## The newest run here\n\nOn {where}.\n\n{shown}"
    (source / "benchmarks.md").write_text(text)


_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$")
_MARKED = re.compile(r":math:(<code[^>]*>)(.*?)</code>", re.DOTALL)


def mark_formulas(text: str) -> str:
    """Write the formulas of a page as docstrings do, as code after ``:math:``.

    Markdown leaves code alone, whereas it takes the underscores of a formula for emphasis.
    """

    def mark(found: re.Match[str]) -> str:
        display, inline = found.groups()
        return f":math:`\\displaystyle {display}`" if display else f":math:`{inline}`"

    parts = []
    end = 0
    for code in _CODE.finditer(text):
        parts += [_FORMULA.sub(mark, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _FORMULA.sub(mark, text[end:])])


def set_formulas(site: Path) -> None:
    """Set the formulas of all pages as MathML, which browsers draw by themselves."""
    from latex2mathml.converter import convert

    def to_mathml(found: re.Match[str]) -> str:
        latex = html.unescape(found[2])
        shown = "block" if latex.startswith("\\displaystyle ") else "inline"
        return str(convert(latex.removeprefix("\\displaystyle "), display=shown))

    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if ":math:" in text:
            path.write_text(_MARKED.sub(to_mathml, text), encoding="utf-8")


def write_index(site: Path) -> None:
    """Write the index of the search as a script, which a page of a disk may load."""
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    rows = [
        [entry["location"], *(html.unescape(re.sub(r"<[^>]+>", "", entry[key]))
                              for key in ("title", "text"))]
        for entry in found
    ]  # fmt: skip
    text = json.dumps(rows, separators=(",", ":"))
    (site / "search" / "local.js").write_text(f"var SITE_INDEX={text};\n", encoding="utf-8")


def with_pictures(text: str, quick: bool) -> str:
    """Put pictures where the gallery names them: small in its table, large below heads."""
    if quick or not text.startswith("# Gallery"):
        return text
    text = re.sub(r"\[([\w-]+)\]\(#\1\)", r'[![\1](gallery-\1.png){width="220"}](#\1)', text)
    return re.sub(
        r"^## ([\w-]+)\n\n(.*)$", r"## \1\n\n\2\n\n![\1](gallery-\1.png){width=720}", text,
        flags=re.MULTILINE,
    )  # fmt: skip


def draw_gallery(source: Path) -> None:
    """Run the blocks of the gallery; each leaves the picture that its page shows."""
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")

    def draw(block: str) -> None:
        done = subprocess.run([sys.executable, "-c", block], cwd=source, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"a block of docs/gallery.md fails:\n{block}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(draw, re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))


def write_tutorials(source: Path, quick: bool) -> None:
    """Write the tutorials; their commands are run, and each shows the picture that they draw."""
    folder = source / "tutorials"
    folder.mkdir()
    for page in (ROOT / "docs" / "tutorials").glob("*.md"):
        text = _read(page).replace("](../../", "](../")
        picture = f"{page.stem}.png"
        if not quick:
            with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
                for line in re.findall(r"^\$ optmatch (.*)$", text, re.MULTILINE):
                    _run(shlex.split(line))
                shutil.copy(picture, folder)
            block = rf"(^\$ optmatch plot .*{re.escape(picture)}\n```\n)"
            text = re.sub(
                block, rf"\1\n![{page.stem}]({picture}){{width=720}}\n", text, flags=re.MULTILINE
            )
        (folder / page.name).write_text(text)


def _run(words: list[str]) -> None:
    """Run a command of optmatch in this process, which has loaded what it needs."""
    from click.testing import CliRunner

    from optmatch.cli import main as optmatch

    done = CliRunner().invoke(optmatch, words)
    if done.exit_code:
        raise SystemExit(f"a command of the tutorials fails: {shlex.join(words)}\n{done.output}")


def broken_links(site: Path) -> list[str]:
    """List what pages of the site link to that is not a file of it, or no place in one."""
    found = []
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    for path, text in pages.items():
        if path.name == "404.html" or "<html" not in text[:2000]:
            continue  # the former has addresses of a server
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            name, _, anchor = html.unescape(target).partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            file = (path.parent / unquote(name)).resolve() if name else path
            page = pages.get(file, "")
            if not file.is_file() or (anchor and page and not has_place(page, anchor)):
                found.append(f"{path.relative_to(site)}: {target}: not there")
    return sorted(set(found))


def has_place(page: str, anchor: str) -> bool:
    """Tell whether a page has a place of this name."""
    names = unquote(anchor), anchor
    return any(f'{key}="{html.escape(name)}"' in page for name in names for key in ("id", "name"))


def chapters() -> dict[str, list[str]]:
    """Return the pages of this folder by chapter, so that none is forgotten."""
    known = {name for names in SECTIONS.values() for name in names}
    docs = ROOT / "docs"
    found = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    if missing := sorted(known - found):
        raise SystemExit(f"docs/site.py lists pages that are not there: {', '.join(missing)}")
    return SECTIONS | ({"More": sorted(found - known)} if found - known else {})


def public_names(room: str = "optmatch") -> dict[str, str]:
    """Return the full name of every public function and class of a package."""
    package, places = importlib.import_module(room), {}
    for name in package.__all__:
        found = getattr(package, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            places[name] = f"{found.__module__}.{found.__qualname__}"
    return places


def _read(path: Path) -> str:
    """Read a page; links to what a site has none of, folders and files of code, become text."""
    return mark_formulas(links_of_the_site(path.read_text(encoding="utf-8")))


def links_of_the_site(text: str) -> str:
    """Change links of the checkout into those of the site."""
    text = re.sub(r"\[([^\]]+)\]\([^)#:]*(?:/|instances/README\.md|\.py)\)", r"\1", text)
    text = re.sub(r"\((?:\.\./)?notebooks/README\.md\)", "(tutorials.md)", text)
    text = re.sub(r"\(((?:\.\./)*?)(?:\.\./)?notebooks/([\w-]+)\.ipynb", r"(\1\2.md", text)
    return text.replace("](../docs/", "](").replace("](docs/", "](")


def _write_reference(source: Path) -> list[str]:
    """Write a page of functions and one of classes, and one of what else each room has."""
    texts = {"functions": "# Functions\n", "classes": "# Classes\n"}
    texts |= {f"in-{room}": f"# More of `optmatch.{room}`\n" for room in ROOMS}
    told = set()
    for page, room in [("", "optmatch"), *((f"in-{room}", f"optmatch.{room}") for room in ROOMS)]:
        for name, place in sorted(public_names(room).items(), key=lambda pair: pair[0].lower()):
            if place not in told:
                kind = page or ("classes" if name[0].isupper() else "functions")
                made = "<" in place  # by a function: no file has it under its name
                said = getattr(importlib.import_module(room), name).__doc__ if made else ""
                texts[kind] += f"\n## {name}\n\n{said if made else f'::: {place}'}\n"
                told.add(place)
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
            lines.append(links_of_the_site(cell.source))
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
        return f'<iframe src="{name}.html" style="width: 100%; height: 760px; border: 0"></iframe>'
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
        "theme": {"name": "material", "font": False,
                  "features": ["navigation.indexes", "navigation.sections"]},
        "use_directory_urls": False,  # pages, not folders: they open from a disk
        "extra_javascript": ["search.js"],
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
