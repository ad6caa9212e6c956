"""Build the site: these pages, a reference of every public name, and the notebooks with output.

``make docs`` runs it. It writes the pages and the configuration, which is in ``docs/sphinx``, to a
folder of their own, and has Sphinx build the site from them. It needs no network, and what Sphinx
warns of is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import importlib
import inspect
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
SECTIONS: dict[str, list[str]] = {
    "Tutorials": [
        "tutorials", "tutorials/all-to-all", "tutorials/routing", "tutorials/demand",
        "tutorials/rail-job", "tutorials/reroute",
        "tutorials/slice-allocation", "tutorials/collective", "tutorials/port-sharing",
        "cheat-sheet", "gallery", "coming-from",
    ],
    "Questions": [
        "concepts", "demand", "scheduling", "rails", "rails-figures", "collectives", "racks",
        "switches", "slices", "sharing", "papers",
    ],
    "Fabrics and light": ["feed-forward", "netlists", "faults", "optics"],
    "Reference": [
        "methods", "solutions", "verification", "command-line", "file-formats", "instances",
        "logging", "stability", "glossary", "sweeps",
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
DOORS = """
::::{grid} 1 2 2 4
:gutter: 3

:::{grid-item-card} I have a chip
:link: tutorials/routing
:link-type: doc
A mesh or a feed-forward fabric: which cells route a matching, and what is lost?
:::

:::{grid-item-card} I have a netlist
:link: netlists
:link-type: doc
Of gdsfactory, sax or PICBench: which cells are in it, and which voltages set them?
:::

:::{grid-item-card} I have traffic
:link: tutorials/demand
:link-type: doc
A matrix or a list of flows: which matchings carry it, in which order, for how long?
:::

:::{grid-item-card} I have a training job
:link: tutorials/rail-job
:link-type: doc
Its parallelism or a trace: when do the switches change, and what does a step take?
:::
::::
"""
"""Where a visitor of the first page goes on."""


class Name(NamedTuple):
    """A public name of the reference."""

    room: str  # the package that exports it, as "optmatch.verify"
    name: str
    summary: str  # the first sentence of its docstring
    is_class: bool

    @property
    def page(self) -> str:
        """The name of its page, without the ending."""
        return f"{self.room}.{self.name}"


def main() -> None:
    """Write pages and configuration to a folder of their own, and build the site from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="do not run the notebooks")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site")
    args = parser.parse_args()

    # The source is written anew, so that no page of a former build is left in it.
    source = args.to.with_name(args.to.name + "-source")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "sphinx", source)
    write_pages(source, args.quick)
    write_reference(source)
    write_notebooks(source, args.quick)
    write_home(source, args.quick)

    shutil.rmtree(args.to, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "--jobs", "2", "--quiet"]
    command += ["--fail-on-warning", "--keep-going", str(source), str(args.to)]
    code = subprocess.run(command, check=False).returncode
    broken = [] if code else broken_links(args.to)
    print(*broken, sep="\n", end="\n" if broken else "", file=sys.stderr)
    raise SystemExit(code or bool(broken))


def write_pages(source: Path, quick: bool) -> None:
    """Write the pages of this folder, the tutorials, and the pages of the whole project."""
    for page in (ROOT / "docs").glob("*.md"):
        text = read_page(page).replace("](../", "](")
        (source / page.name).write_text(with_widths(with_pictures(text, quick)))
    for ending in ("png", "svg"):
        for picture in (ROOT / "docs").glob(f"*.{ending}"):
            shutil.copy(picture, source)
    shutil.copytree(ROOT / "docs" / "figures", source / "figures")
    for name in WHOLE:
        shutil.copy(ROOT / name, source)
        if name.endswith(".md"):
            (source / name).write_text(read_page(ROOT / name).replace("](docs/", "]("))
    write_tutorials(source, quick)
    write_benchmarks(source)
    if not quick:
        draw_gallery(source)


def write_home(source: Path, quick: bool) -> None:
    """Write the first page: that of the project, with four doors, and the tree of all pages."""
    text = read_page(ROOT / "README.md").replace("](docs/", "](")
    (source / "index.md").write_text(text)
    if not quick:
        draw_home(source)
    page = source / "index.md"
    text = page.read_text().replace("## Install", f"{DOORS}\n## Install", 1)
    pages = {title: list(names) for title, names in chapters().items()}
    pages["Python"] = ["reference/index"]
    pages["Notebooks"] = [path.stem for path in notebooks()]
    pages["Project"] = ["benchmarks", *(Path(name).stem for name in WHOLE if name.endswith(".md"))]
    for title, names in pages.items():
        entries = "\n".join(names)
        (source / f"{chapter_page(title)}.md").write_text(
            f"# {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
        )
    tree = "\n".join(chapter_page(title) for title in pages)
    page.write_text(f"{text}\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n")


def chapter_page(title: str) -> str:
    """Return the name of the page that lists the pages of a chapter."""
    return "chapter-" + title.lower().replace(" ", "-")


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
    drawn_now = f"shows {len(frames)} matchings of 12 ports, one after the other"
    text, n_places = re.subn(r"shows\s+one matching of 32 ports", drawn_now, text)
    assert n_places == 1, "README.md says in other words what its picture shows"
    page.write_text(text)


def write_benchmarks(source: Path) -> None:
    """Write the page of benchmarks: what is kept, and the newest run of `make bench` here."""
    text = read_page(ROOT / "benchmarks" / "README.md").replace("](../", "](")
    runs = (ROOT / "build" / "bench").glob("*.json")
    if run := max(runs, key=lambda path: path.stat().st_mtime, default=None):
        machine = json.loads(run.read_text(encoding="utf-8"))["machine_info"]
        report = [sys.executable, "benchmarks/report.py", str(run.relative_to(ROOT))]
        shown = subprocess.run(report, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        where = f"{machine['cpu'].get('brand_raw', 'processor unknown')}, {machine['release']}"
        text += f"\n## The newest run here\n\nOn {where}.\n\n{shown}"
    (source / "benchmarks.md").write_text(text)


def with_widths(text: str) -> str:
    """Say how wide figures are on a wide page: letters of sketches are larger than of charts."""
    text = re.sub(r"(!\[[^]]*\]\(figures/[\w-]+\.svg\))", r"\1{width=480px}", text)
    return re.sub(r"(!\[[^]]*\]\(figures/[\w-]+\.png\))", r"\1{width=560px}", text)


def with_pictures(text: str, quick: bool) -> str:
    """Put the pictures of the gallery into its page: small in its table, large below heads.

    The picture of a head is the one that the block below it saves.
    """
    if quick or not text.startswith("# Gallery"):
        return text
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head = section.partition("\n")[0]
        saved = re.search(r'savefig\("([\w-]+\.png)"\)', section)
        if saved is None:
            raise SystemExit(f"docs/gallery.md: the block of {head!r} saves no picture")
        place = "#" + head.lower().replace(" ", "-")
        small = f"[![{head}]({saved[1]}){{width=330px}}]({place}) [{head}]({place})"
        text = text.replace(f"[{head}]({place})", small)
        large = f"![{head}]({saved[1]}){{width=720px}}"
        text = re.sub(rf"^## {head}\n\n(.*)$", rf"\g<0>\n\n{large}", text, flags=re.MULTILINE)
    return text


def write_tutorials(source: Path, quick: bool) -> None:
    """Write the tutorials; their commands are run, and each shows the picture that they draw."""
    folder = source / "tutorials"
    folder.mkdir()
    for page in (ROOT / "docs" / "tutorials").glob("*.md"):
        text = read_page(page).replace("](../../", "](../")
        picture = f"{page.stem}.png"
        if not quick:
            with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
                for line in re.findall(r"^\$ optmatch (.*)$", text, re.MULTILINE):
                    _run(shlex.split(line))
                shutil.copy(picture, folder)
            block = rf"(^\$ optmatch plot .*{re.escape(picture)}\n```\n)"
            shown = rf"\1\n![{page.stem}]({picture}){{width=720px}}\n"
            text = re.sub(block, shown, text, flags=re.MULTILINE)
        (folder / page.name).write_text(text)


def draw_gallery(source: Path) -> None:
    """Run the blocks of the gallery; each leaves the picture that its page shows."""
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")

    def draw(block: str) -> None:
        done = subprocess.run([sys.executable, "-c", block], cwd=source, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"a block of docs/gallery.md fails:\n{block}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(draw, re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))


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
            address, _, anchor = html.unescape(target).partition("#")
            name = address.partition("?")[0]  # what follows tells versions apart
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


def read_page(path: Path) -> str:
    """Read a page; links to what a site has none of, folders and files of code, become text."""
    return links_of_the_site(path.read_text(encoding="utf-8"))


def links_of_the_site(text: str) -> str:
    """Change links of the checkout into those of the site."""
    text = re.sub(r"\[([^\]]+)\]\([^)#:]*(?:/|instances/README\.md|\.py)\)", r"\1", text)
    text = re.sub(r"\((?:\.\./)?notebooks/README\.md\)", "(tutorials.md)", text)
    text = re.sub(r"\(((?:\.\./)*?)(?:\.\./)?notebooks/([\w-]+)\.ipynb", r"(\1\2.ipynb", text)
    return text.replace("](../docs/", "](").replace("](docs/", "](")


def list_names() -> list[Name]:
    """List every public name once, by the first package that exports it."""
    names = []
    known = set()
    for room in ("optmatch", *(f"optmatch.{room}" for room in ROOMS)):
        package = importlib.import_module(room)
        for name, place in sorted(public_names(room).items(), key=lambda pair: pair[0].lower()):
            if place not in known:
                known.add(place)
                found = getattr(package, name)
                summary = (inspect.getdoc(found) or "").partition("\n")[0]
                names.append(Name(room, name, summary, inspect.isclass(found)))
    return names


def groups_of_names() -> dict[str, list[str]]:
    """Return the public names of the top level by group, as its docstring has them."""
    package = importlib.import_module("optmatch")
    found = re.findall(r"^(\w[^:\n]*):\n((?:    .*\n?)+)", package.__doc__ or "", re.MULTILINE)
    return {title: re.findall(r"\w+", names) for title, names in found}


def write_reference(source: Path) -> None:
    """Write a page for each public name, and one that lists them by package."""
    folder = source / "reference"
    folder.mkdir()
    names = list_names()
    lines = ["# Python"]
    for room in dict.fromkeys(name.room for name in names):
        of_room = [name for name in names if name.room == room]
        lines += ["", f"## `{room}`"]
        groups = groups_of_names() if room == "optmatch" else {"": [n.name for n in of_room]}
        for title, listed in groups.items():
            lines += ["", f"### {title}"] if title else []
            lines += ["", "| name | what it is |", "|---|---|"]
            for name in sorted(of_room, key=lambda name: name.name.lower()):
                if name.name in listed:
                    summary = name.summary.replace("|", "\\|")
                    lines.append(f"| [{name.name}]({name.page}.rst) | {summary} |")
        pages = "\n".join(name.page for name in of_room)
        lines += ["", f"```{{toctree}}\n:hidden:\n\n{pages}\n```"]
    (folder / "index.md").write_text("\n".join(lines) + "\n")
    for name in names:
        title = f"{name.room}.{name.name}"
        directive = "autoclass" if name.is_class else "autofunction"
        (folder / f"{name.page}.rst").write_text(
            f"{title}\n{'=' * len(title)}\n\n.. {directive}:: {title}\n"
        )


def notebooks() -> list[Path]:
    """List the notebooks in their order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def write_notebooks(source: Path, quick: bool) -> None:
    """Write the notebooks with what they say and draw; some are run, two at a time."""
    with ThreadPoolExecutor(2) as pool:  # each runs in a process of its own
        list(pool.map(lambda path: _write_notebook(path, source, quick), notebooks()))


def _write_notebook(path: Path, source: Path, quick: bool) -> None:
    """Write one notebook with its outputs: those that are stored, where they are all there is.

    What is stored has a sentence in place of an interactive page. A notebook that has one is run
    in a folder of its own, so that the site shows the page.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    has_page = "an interactive page: run this cell" in path.read_text(encoding="utf-8")
    if has_page and not quick:
        from nbclient import NotebookClient

        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = links_of_the_site(cell.source).replace("](../", "](")
    nbformat.write(notebook, source / path.name)


if __name__ == "__main__":
    main()
