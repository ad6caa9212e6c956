"""Answers that do not fit their problem are refused where they enter, before anybody uses them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.io.exports import exported

ANSWERS = Path(__file__).parents[1] / "data" / "answers"


def change(place: str, value: Any) -> Callable[[Any], Any]:
    """Return a function that puts a value into the tree of a file."""

    def put(tree: Any) -> None:
        *steps, last = [int(step) if step.isdecimal() else step for step in place.split("/")]
        for step in steps:
            tree = tree[step]
        tree[last] = value

    return put


WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    ("sharing-flow", change("answer/job_of/0", 2147483647), "job_of: job 2147483647 given"),
    ("sharing-flow", lambda tree: tree["answer"]["job_of"].pop(), "job_of has . entries"),
    ("reroute-in-a-rack", change("answer/changed/0", 100000), "changed: circuit 100000 given"),
    ("reroute-in-a-rack", change("answer/steps/0/1", 100000), "steps: c"),
    ("reroute-in-a-switch", change("answer/routes/0/0", 10**6), "terminal 1000000 given"),
    ("reroute-in-a-switch", change("answer/circuits/0/0", 99), "circuits: port 99 given"),
    ("slice", change("answer/servers/0", 10**6), "servers: server 1000000 given"),
    ("slice", change("answer/servers", []), "servers: none is given"),
    ("slice", change("answer/fibres/0/1", 10**6), "fibres: fibre 1000000 given"),
    ("collective", change("answer/sends/0/3", 99), "sends: chunk 99 given"),
    ("collective", change("answer/circuits/0/0/0", 99), "circuits: rank 99 given"),
    ("collective", lambda tree: tree["answer"]["circuits"][0][0].pop(), "circuits has shape"),
    ("demand-on-planes", lambda tree: tree["answer"]["schedules"].pop(), "schedules has . entr"),
    ("rail-job", change("answer/rails/0/rails", [77]), "timelines of rails 77"),
    ("rail-job", change("answer/start_s/0", -1e300), "at most 1e.100 s are expected"),
    ("rail-job", change("answer/ports/3", 2**30), "set of ports 1073741824 given"),
    ("demand", change("schedule/durations_s/0", 1.7e308), "at most 1e.100 s are expected"),
    ("demand", lambda tree: tree["schedule"]["matchings"][0].append(-1), "matchings"),
]


@pytest.mark.parametrize("name, put, message", WRONG)
def test_an_answer_that_does_not_fit_is_refused_where_it_is_read(
    name: str, put: Callable[[Any], Any], message: str
) -> None:
    tree = json.loads((ANSWERS / f"{name}.schedule.json").read_text())
    put(tree)
    with pytest.raises(om.InputError, match=message) as caught:
        loads(json.dumps(tree))
    assert caught.value.where.startswith("/")


@pytest.mark.parametrize("path", sorted(ANSWERS.glob("*.json")), ids=lambda path: path.name)
def test_right_answers_fit(path: Path) -> None:
    solution = om.load(path)
    assert loads(dumps(solution)) == solution


def test_an_answer_by_hand_is_refused_before_it_is_drawn_or_exported() -> None:
    solution: Any = om.load(ANSWERS / "sharing-flow.schedule.json")
    job_of = np.full(len(solution.answer.job_of), 2147483647)
    wrong = replace(solution, answer=replace(solution.answer, job_of=job_of))
    for use in (wrong.plot, wrong.to_dataframe, lambda: exported(wrong, "timeline")):
        with pytest.raises(om.InputError, match="job 2147483647 given, less than"):
            use()


@pytest.mark.parametrize(
    "name, place, fibre, message",
    [
        ("slice", "answer/fibres/0/1", 100, "fibre 100 does not begin at server 0"),
        ("slice-across-racks", "answer/fibres/4/1", 272, "272 does not begin where fibre 272"),
        ("slice-across-racks", "answer/fibres/5/1", 336, "336 does not begin where fibre 8"),
    ],
)
def test_fibres_that_lead_elsewhere_are_refused_by_exports(
    name: str, place: str, fibre: int, message: str
) -> None:
    tree = json.loads((ANSWERS / f"{name}.schedule.json").read_text())
    change(place, fibre)(tree)
    solution: Any = loads(json.dumps(tree))
    with pytest.raises(om.InputError, match=message):
        exported(solution, "sonic-ocs")


def test_a_delay_that_no_float_divides_by_is_refused() -> None:
    with pytest.raises(om.InputError, match="far too many times delay_s"):
        om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1e-320)
