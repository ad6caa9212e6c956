"""Every kind is shown: its problem, its answer, its page in a browser, and its notebook figure."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.kinds import all_kinds
from optmatch.model import unit_of, write_amount, write_score
from optmatch.plotting import viewer_page
from optmatch.plotting.comparison import Panel, draw_dots_by_label
from tests.helpers.answers import PROBLEMS, answer_named, problem_named
from tests.helpers.browsers import open_html
from tests.helpers.command import call, refused
from tests.helpers.pictures import sized_answer

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def test_every_kind_is_here() -> None:
    assert {kind.problem.kind for kind in all_kinds()} == {
        problem_named(name).kind for name in PROBLEMS
    }


def embedded(page: str) -> dict[str, Any]:
    """Return the data of a page."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    found: dict[str, Any] = json.loads(text)
    return found


def kinds_shown(data: dict[str, Any]) -> set[str]:
    """Return the names in the legend of all that a page shows at any step."""
    if "rows" in data:
        kinds = {kind for bars in data["bars"] for kind in bars[::3]}
    else:
        kinds = {node[5] for node in data["nodes"]} | {link[2] for link in data["links"]}
        for step in data["steps"]:
            for changes in (step.get("nodes", {}), step.get("links", {})):
                kinds |= set(changes.values())
    looks = [data["legend"][kind] for kind in kinds - {-1}]
    return {look[0] for look in looks if look[4:] != [True]}  # pale bars are not listed


def value_of(text: str) -> list[float]:
    """Read what a viewer says of an objective, in the unit of the file."""
    text = text.replace(",", "") if " " in text and text.count(" ") == 1 else text
    numbers = re.findall(r"(-?[\d.]+(?:e[+-]?\d+)?) ?([a-zµ]*)", text)
    return [float(number) * UNITS.get(unit, 1.0) for number, unit in numbers]


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_objective_of_the_page_is_that_of_the_file(name: str, tmp_path: Path) -> None:
    """To three digits, with a unit; so is the bound."""
    solution = answer_named(name)
    om.save(solution, tmp_path / "a.schedule.json")
    tree = json.loads((tmp_path / "a.schedule.json").read_text("utf-8"))
    figures = {row[0]: row[1] for row in embedded(viewer_page(solution))["figures"]}
    for key, label in (("objective", "Objective"), ("lower_bound", "Lower bound")):
        stored = np.atleast_1d(np.array(tree[key], dtype=float))
        np.testing.assert_allclose(value_of(figures[label])[: len(stored)], stored, rtol=5e-4)
        assert re.search(r"[a-zµ]", figures[label]), "no unit"
    assert ("Proof" in figures) == (solution.proof is not None)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_page_in_a_browser(name: str, browser: Any, tmp_path: Path) -> None:
    """Keys, play, clicks, search, dark mode, 390 pixels; no word on the console, no request."""
    path = tmp_path / "page.html"
    page_text = viewer_page(answer_named(name))
    assert len(page_text) < 150_000
    data = embedded(page_text)
    steps = len(data.get("steps") or data["durations"])
    viewport = {"width": 1300, "height": 800}
    options: Any = {"viewport": viewport, "color_scheme": "dark", "reduced_motion": "reduce"}
    page, noise = open_html(browser, tmp_path, page_text, **options)

    def at() -> int:
        if steps == 1:
            assert page.locator("#transport").is_hidden(), "there is nothing to play"
            return 0
        (number,) = re.findall(r"^\w+ (\d+) of 0 to", page.inner_text("#now .slot"))
        return int(number)

    def play() -> None:
        if steps == 1:
            return
        page.click("#play")
        assert page.get_attribute("#play", "aria-pressed") == "true"
        page.click("#play")

    def click_the_middle() -> None:
        box = page.locator("#picture").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if "legend" in data:  # what is not there is not explained
        assert set(page.locator("#legend li").all_inner_texts()) == kinds_shown(data)
    assert page.locator("#legend .job").all_inner_texts() == data.get("jobs", [])
    page.keyboard.press("End")
    assert at() == steps - 1
    page.keyboard.press("ArrowLeft")
    assert at() == max(0, steps - 2)
    play()
    page.keyboard.press("/")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    assert page.locator(".followed, .band").count() > 0, "what was searched is marked"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.locator("#search").blur()
    page.keyboard.press("Escape")
    assert page.locator(".followed, .band").count() == 0
    click_the_middle()

    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="light")
    page.reload()
    assert noise.pop(0) == path.as_uri()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    if steps > 1:
        page.click("#next")
    assert at() == min(1, steps - 1)
    play()
    click_the_middle()
    page.click("[aria-label='Zoom in']")
    page.click("[aria-label='Show everything']")
    assert noise == []
    page.close()


def test_ticks_of_a_page_are_steps_of_one_two_and_five(browser: Any, tmp_path: Path) -> None:
    """They were eighths of the span: 127.3 and 254.6 us."""
    page, noise = open_html(browser, tmp_path, viewer_page(answer_named("rail-job")))
    texts = page.locator(".tick").all_text_contents()
    step = int(texts[1].split()[0])
    assert step in (20, 50, 100)
    assert texts == ["0", *(f"{k} ms" for k in range(step, 431, step))]
    assert noise == []
    page.close()


def crossing(texts: list[Any]) -> list[tuple[str, str]]:
    """Return pairs of texts of a figure whose boxes overlap by more than a point."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    found = []
    for k, (one, a) in enumerate(boxes):
        for two, b in boxes[k + 1 :]:
            across = min(a.x1, b.x1) - max(a.x0, b.x0)
            up = min(a.y1, b.y1) - max(a.y0, b.y0)
            if min(across, up) > 1.5:
                found.append((one, two))
    return found


def labels_beyond_axes(figure: Any) -> Iterator[Any]:
    """List the labels of ticks that lie outside the limits of their axis, and are not drawn."""
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            room = 1e-6 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low - room <= tick.get_loc() <= high + room:
                    yield from (tick.label1, tick.label2)


def shown_texts(figure: Any) -> list[Any]:
    """Return the texts of a figure that are seen."""
    from matplotlib.text import Text

    figure.canvas.draw()
    hidden = {
        id(text)
        for ax in figure.axes
        if not ax.axison
        for axis in (ax.xaxis, ax.yaxis)
        for text in axis.findobj(Text)
    }
    hidden |= {id(label) for label in labels_beyond_axes(figure)}
    return [
        text
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden
    ]


def on_ports(figure: Any, texts: list[Any]) -> list[str]:
    """Return texts that lie on the mark of a port and do not name it."""
    found = []
    for ax in figure.axes:
        for marks in ax.collections:
            if marks.get_label() != "ports":
                continue
            at = ax.transData.transform(marks.get_offsets())
            radius = np.ptp(ax.transData.transform([[0, 0], [marks.get_widths()[0] / 2, 0]])[:, 0])
            for text in texts:
                box = text.get_window_extent()
                nearest = np.clip(at, [box.x0, box.y0], [box.x1, box.y1])
                hit = np.hypot(*(nearest - at).T) < radius - 1.5
                inside = np.hypot(*(np.array([box.x0 + box.x1, box.y0 + box.y1]) / 2 - at).T)
                if hit.any() and not (inside < radius / 2).any():
                    found.append(text.get_text())
    return found


def test_pictures_of_studies_can_be_read() -> None:
    """Long labels and legends have room; methods of 1 and 1.01 times the best are told apart."""
    groups = [f"even, {k / 10}, 0.5" for k in range(12)]
    for count in (4, 12):
        ratios = {"random": [1.0] * count, "fifo": [1.01] * count, "irs": [1.02] * count}
        figure = draw_dots_by_label(Panel("mean completion time", "ratio", groups[:count], ratios))
        check_texts(figure)
        low, high = figure.axes[0].get_xlim()
        assert 0.3 * (high - low) < 0.01


@pytest.mark.parametrize("what", ["problem", "answer"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_picture_can_be_read(name: str, what: str) -> None:
    figure = problem_named(name).plot() if what == "problem" else answer_named(name).plot()
    check_texts(figure)


def check_texts(figure: Any) -> None:
    """Of 1,200 pixels no letter is below 8 points; no two texts overlap, and none is cut off."""
    texts = shown_texts(figure)
    assert on_ports(figure, texts) == []
    least = 0.64 * figure.get_figwidth() - 0.01
    assert {t.get_text(): t.get_fontsize() for t in texts if t.get_fontsize() < least} == {}
    assert crossing(texts) == []
    page = figure.bbox.padded(1.5)
    ticks = {t for ax in figure.axes for t in [*ax.get_xticklabels(), *ax.get_yticklabels()]}
    ends = {t.get_text(): t.get_window_extent().corners() for t in texts if t not in ticks}
    assert [name for name, four in ends.items() if not all(page.contains(*p) for p in four)] == []


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_and_its_answer_show_themselves(name: str) -> None:
    """As text and as a table; what Jupyter shows is the text and the picture."""
    problem, solution = problem_named(name), answer_named(name)
    bound = write_score(problem.lower_bound(), unit_of(problem))
    assert problem.summary().startswith(problem.kind) and bound in problem.summary()
    assert solution.summary().startswith(problem.kind)
    assert len(solution.summary().splitlines()) <= (5 if name == "port-sharing" else 3)
    assert len(problem.to_dataframe()) > 0 and len(solution.to_dataframe()) > 0
    assert "<iframe" in solution._repr_html_()


def test_a_problem_is_drawn_from_its_file_and_in_jupyter(tmp_path: Path) -> None:
    problem = problem_named("routing")
    shown = problem._repr_html_()
    assert "<svg" in shown and "routing on hex mesh" in shown
    om.save(problem, tmp_path / "p.json")
    picture = tmp_path / "p.png"
    call("plot", tmp_path / "p.json", "-o", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    for more in (["--slot", "0", "-o", "a.png"], ["-o", str(tmp_path / "a.html")]):
        refused("a problem file", "plot", tmp_path / "p.json", *more)


def test_a_picture_for_a_paper_has_a_title_and_a_width(tmp_path: Path) -> None:
    """Newcomers asked for both at the command line: 85 mm are 241 points."""
    om.save(answer_named("collective"), tmp_path / "a.schedule.json")
    picture = tmp_path / "a.svg"
    words = ("plot", tmp_path / "a.schedule.json", "--title", "Bruck, 8 ranks", "--width", "85")
    call(*words, "-o", picture)
    text = picture.read_text()
    assert "Bruck, 8 ranks" in text
    assert abs(float(re.findall(r'<svg[^>]* width="([0-9.]+)pt"', text)[0]) - 240.9) < 0.2
    refused("slot and width are for drawings", *words, "-o", str(tmp_path / "a.html"))


def test_sharing_tells_both_figures() -> None:
    """What is not served, which is the objective, and what is."""
    told = answer_named("port-sharing").summary()
    assert "2 wanted and not served" in told and "served: 3 of 5 wanted" in told


def test_units_follow_sizes() -> None:
    """From ns to h; a value is never 0 because its unit is too large."""
    assert write_amount(0.003514, "s") == "3.514 ms"
    for exponent in range(-9, 6):
        text = write_amount(1.234 * 10.0**exponent, "s")
        assert value_of(text)[0] == pytest.approx(1.234 * 10.0**exponent, rel=1e-3)
        assert 1 <= abs(float(text.split()[0].replace(",", ""))) < 7200


def test_a_search_finds_what_is_written_and_then_what_is_named(
    browser: Any, tmp_path: Path
) -> None:
    """A rack shows chips by number; servers are found by their name."""
    page, _ = open_html(browser, tmp_path, viewer_page(answer_named("reroute")))
    for typed, wanted in (("3", "chip 3"), ("server 3", "server 3"), ("chip 5", "chip 5")):
        page.keyboard.press("/")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        label = page.locator(".followed").get_attribute("aria-label")
        assert label.startswith(f"{wanted},")
        page.locator("#search").blur()
        page.keyboard.press("Escape")
    page.close()


def rows_found(page: Any, word: str) -> list[str]:
    """Type a word into the search of a page, and return the rows that stay."""
    page.keyboard.press("/")
    page.keyboard.type(word)
    rows = page.locator("#rows tr:not([hidden])").all_inner_texts()
    page.keyboard.press("Escape")
    return [re.sub(r"\s+", " ", row).strip() for row in rows]


def open_solution(browser: Any, tmp_path: Path, solution: Any) -> Any:
    """Open the page of a solution."""
    return open_html(browser, tmp_path, viewer_page(solution), reduced_motion="reduce").page


def test_a_number_finds_its_port_alone(browser: Any, tmp_path: Path) -> None:
    """21 is no part of 121, no number of cells, and no loss."""
    problem = om.Routing(om.Benes(128), [(port + 1) % 128 for port in range(128)])
    page = open_solution(browser, tmp_path, om.solve(problem, seed=0))
    found = rows_found(page, "21")
    assert sorted(row.partition(" ")[0] for row in found) == ["20", "21"]
    assert all(row.startswith(("20 → 21 ", "21 → 22 ")) for row in found)
    page.close()


def labelled_demand() -> om.Demand:
    """Return a demand between ports that have names."""
    pandas = pytest.importorskip("pandas")
    names = ["rack-a", "rack-b", "store"]
    frame = pandas.DataFrame([[0, 9e6, 2e6], [4e6, 0, 6e6], [5e6, 1e6, 0]], names, names)
    return om.Demand.from_matrix(frame, rate_bytes_per_s=1e9, delay_s=1e-4)


def test_a_label_finds_its_ports_alone(browser: Any, tmp_path: Path) -> None:
    """Lists have the names of ports, and what each circuit carries."""
    page = open_solution(browser, tmp_path, om.solve(labelled_demand(), seed=0, time_limit_s=0.3))
    page.keyboard.press("Home")
    everything = rows_found(page, "")
    assert all(re.fullmatch(r"\S+ → \S+ [\d.]+ (B|kB|MB)", row) for row in everything)
    found = rows_found(page, "store")
    assert found == [row for row in everything if "store" in row] != everything
    page.close()


def test_a_number_in_a_list_of_steps_is_found_whole(browser: Any, tmp_path: Path) -> None:
    """A job, a round, a server: by its number alone, not by a part of it or of an amount."""
    page = open_solution(browser, tmp_path, sized_answer("port-sharing", "2000"))
    found = rows_found(page, "21")
    assert found
    assert all("21" in row.split() for row in found)
    assert "job 21" in {row.rpartition(" ")[0].rpartition(" ")[0] for row in found}
    page.close()


def test_gaps_of_levels_are_no_per_cent() -> None:
    """A bound that differs at the third of several levels is no gap of 100 %."""
    solution = answer_named("reroute-mesh")
    assert solution.gap == 1.0
    figures = {row[0]: row[1] for row in embedded(viewer_page(solution))["figures"]}
    assert figures["Gap"] == "open from level 3 of 5 on"


def test_a_bound_is_a_line_over_time_where_it_is_a_time() -> None:
    """Bounds of cells, circuits and unserved ports are none, though all of these are finite."""
    rail_job = answer_named("rail-job")
    assert embedded(viewer_page(rail_job))["bound_s"] == rail_job.lower_bound
    for name in ("slice-allocation", "port-sharing"):
        assert embedded(viewer_page(answer_named(name)))["bound_s"] is None


def test_a_circuit_keeps_its_colour_through_a_transition() -> None:
    """In pictures and on the page: what goes on shining is not mistaken for something new."""
    figure = answer_named("reroute-mesh").plot()
    colours = []
    for ax in figure.axes:
        marks: Any = next(each for each in ax.collections if each.get_label() == "ports")
        colours.append(np.round(marks.get_facecolors(), 3).tolist())
    stays = [port for port in (2, 3, 4, 5) if colours[0][port] == colours[1][port]]
    assert stays == [2, 3, 4, 5] and colours[0][2] != colours[0][4]
    assert not figure.axes[0].get_legend()
