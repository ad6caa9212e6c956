"""Frames of the largest page at play: `python -m tests.helpers.frames [SECONDS] [--profile]`.

1,000 slots of 128 ports on 36x36 hexagons, 15 slots a second, 1,400 x 900 pixels: the share of
frames within 50 ms, and what a step costs the page. With `--profile` also where the time goes.
"""

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import optmatch as om
from optmatch.plotting import viewer_page
from tests.helpers.traced import schedule_of, traced_schedule

FRAMES = """(seconds) => new Promise((done) => {
  const ends = [performance.now()];
  const next = (now) => {
    ends.push(now);
    if (now - ends[0] < 1000 * seconds) return requestAnimationFrame(next);
    done(ends.slice(1).map((end, k) => end - ends[k]).slice(1));
  };
  requestAnimationFrame(next);
})"""
SPEEDS = "1", "5", "15"


def large_page() -> str:
    """Write the page: 50 slots of random states, whose light is long, twenty times."""
    mesh = om.HexMesh(36, 36, ports=128)
    some = traced_schedule(mesh, 50)
    assert some.cell_states is not None
    again = np.tile(some.matchings, (20, 1))
    return viewer_page((mesh, schedule_of(again, cell_states=np.tile(some.cell_states, (20, 1)))))


def list_costs(profile: dict[str, Any]) -> list[tuple[str, float]]:
    """List functions of a profile of the page with their own milliseconds, dearest first."""
    names = {node["id"]: node["callFrame"]["functionName"] for node in profile["nodes"]}
    spent: Counter[str] = Counter()
    for node, passed_us in zip(profile["samples"], profile["timeDeltas"], strict=True):
        spent[names[node] or "(page)"] += passed_us
    return [(name, us / 1e3) for name, us in spent.most_common(12)]


def main() -> None:
    """Measure, and print."""
    from playwright.sync_api import sync_playwright

    words = [word for word in sys.argv[1:] if word != "--profile"]
    seconds = float(words[0]) if words else 10.0
    with TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder) / "page.html"
        path.write_text(large_page(), encoding="utf-8")
        flags = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(path.as_uri())
        for speed in SPEEDS:
            page.select_option("#speed", speed)
            page.click("#play")
            watch = page.context.new_cdp_session(page)
            watch.send("Profiler.enable")
            watch.send("Profiler.start")
            frames = np.array(page.evaluate(FRAMES, seconds))
            profile = watch.send("Profiler.stop")["profile"]
            page.click("#play")
            share, middle = (frames <= 50).mean(), np.median(frames)
            print(f"{speed} slots/s: {len(frames)} frames, {share:.3f} within 50 ms")
            print(f"  median {middle:.0f} ms, longest {frames.max():.0f} ms")
            for name, ms in list_costs(profile) if "--profile" in sys.argv else ():
                print(f"  {name:28} {ms / seconds:7.1f} ms of each second")
        browser.close()


if __name__ == "__main__":
    main()
