"""Let the solver of a question race its rivals, and print the cells that it lost."""

import argparse
import sys
from contextlib import suppress
from datetime import date
from importlib import import_module

import numpy as np

from tests.helpers.defects import raise_defects
from tests.rivals.races import Race, tabulate


def main() -> None:
    """Read the arguments, run the races, and print the table of those that were lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.rivals", description=__doc__)
    parser.add_argument("question", help="a package of tests/rivals, for example collectives")
    parser.add_argument("--cells", type=int, default=300, help="how many problems are drawn")
    today = int(date.today().strftime("%Y%m%d"))
    parser.add_argument("--seed", type=int, default=today, help="the date of today if not given")
    options = parser.parse_args()
    raise_defects()

    # Ctrl-C ends the run with the table of what was done.
    grid = import_module(f"tests.rivals.{options.question}.grid")
    cells = grid.draw_cells(np.random.default_rng(options.seed), options.cells)
    races: list[Race] = []
    with suppress(KeyboardInterrupt):
        for cell in cells:
            races.append(grid.race(cell))
            if len(races) % 25 == 0:
                print(f"{len(races)} cells are done", file=sys.stderr, flush=True)
    print(f"{options.question}, seed {options.seed}")
    print(tabulate(races))


if __name__ == "__main__":
    main()
