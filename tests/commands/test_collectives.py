"""Collectives at the command line: from a problem to a verified plan in a file."""

from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from tests.helpers.command import call, refused


def test_a_collective_is_generated_solved_and_verified(tmp_path: Path) -> None:
    path, answer = tmp_path / "reduce.json", tmp_path / "reduce.schedule.json"
    options = (
        "all-reduce --ranks 8 --bytes 1e6 --alpha 1.7e-6 --hop 1e-6 --delay 1e-5 --late 3=0.1"
    )
    call("generate", "collective", *options.split(), "-o", path)
    problem: Any = om.load(path)
    assert problem == om.Collective(
        "all-reduce", 8, 1e6, alpha_s=1.7e-6, hop_s=1e-6, delay_s=1e-5, late_s={"3": 0.1}
    )
    call("solve", path, "-o", answer)
    call("verify", answer)
    solution = om.load(answer)
    assert isinstance(solution, om.Solution)
    assert solution.objective == om.solve(problem, seed=solution.seed).objective
    assert om.verify(problem, solution).ok


def test_an_uneven_all_to_all_comes_from_a_matrix(tmp_path: Path) -> None:
    matrix, path = tmp_path / "bytes.csv", tmp_path / "uneven.json"
    matrix.write_text("9,6,0\n0,0,2\n1,1,0\n")
    call("generate", "collective", "all-to-all", "--matrix", matrix, "-o", path)
    problem: Any = om.load(path)
    assert problem.demand.tolist() == [[0, 6, 0], [0, 0, 2], [1, 1, 0]]
    assert problem.size_bytes == 7.0
    wrong = call(
        "generate", "collective", "all-to-all", "--matrix", matrix, "--ranks", "3", code=2
    )
    assert "not with --matrix" in wrong.stderr
    wrong = call("generate", "collective", "all-to-all", "--ranks", "3", code=2)
    assert "--ranks and --bytes, or --matrix" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("all-reduce --ranks 0 --bytes 1", "n_ranks = 0: must be >= 1"),
        ("all-reduce --ranks 4 --bytes -1", "size_bytes = -1: must be >= 0"),
        ("all-reduce --ranks 4 --bytes 1 --late 4=1", "late_s = '4': a rank of 4"),
        ("all-reduce --ranks 4 --bytes 1 --late x", "'x': 63=10ms, separated by commas"),
        ("all-sum --ranks 4 --bytes 1", "'all-sum' is not one of"),
        ("all-reduce --ranks 4 --bytes 1 --fabric ideal-switch --size 3", "a switch of 4 ports"),
    ],
)
def test_bad_options_are_named(options: str, message: str) -> None:
    refused(message, "generate", "collective", *options.split())


def test_a_method_that_does_not_fit_says_which_do(tmp_path: Path) -> None:
    path = tmp_path / "six.json"
    om.save(om.Collective("all-gather", 6, 6.0), path)
    refused(
        "these are: best, bruck, direct, mixed-radix, rewire, ring",
        "solve",
        path,
        "--method",
        "halving-doubling",
    )
