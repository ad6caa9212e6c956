"""Pictures of tenancies: ports and light have the colour of their job."""

from functools import cache
from typing import Any

import numpy as np

import optmatch as om
from optmatch.plotting import plot_contact_sheet, plot_slot, slot_data
from optmatch.plotting.palette import CIRCUIT_COLOURS, FAINT_INK, shade
from optmatch.plotting.slots import owners_of
from optmatch.plotting.viewer import page_data
from optmatch.problems import Tenancy, Tenant
from tests.helpers.answers import answer_named


@cache
def solution() -> om.Solution:
    """Two jobs, of which one rests after a slot, and a port without a job."""
    tenants = Tenant("left", 4), Tenant("right", 2)
    return om.solve(Tenancy(om.HexMesh(3, 3, ports=7), tenants), seed=0)


def test_light_and_ports_have_the_colour_of_their_job() -> None:
    answer: Any = solution().answer
    job = {port: k for k, ports in enumerate(answer.ports) for port in ports}
    for slot in range(3):
        light = slot_data(solution(), slot)
        shades = {job: {shade(CIRCUIT_COLOURS[job], k) for k in range(6)} for job in range(2)}
        assert not shades[0] & shades[1]
        for k, circuit in enumerate(light.circuits):
            assert job[circuit.source] == job[circuit.destination]
            assert light.colour(k) in shades[job[circuit.source]]
        colours = [light.colour(k) for k in range(len(light.circuits))]
        assert len(set(colours)) == len(colours)  # circuits of a job are told apart
        ax = plot_slot(solution(), slot)
        marks: Any = next(each for each in ax.collections if each.get_label() == "ports")
        colours = [CIRCUIT_COLOURS[job[p]] if p in job else FAINT_INK for p in range(7)]
        wanted = [[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in colours]
        assert np.allclose(marks.get_facecolors()[:, :3], wanted)


def test_jobs_are_named_beside_all_slots() -> None:
    legends = plot_contact_sheet(solution()).legends
    assert [text.get_text() for text in legends[0].get_texts()] == ["left", "right"]
    other = om.solve(om.AllToAll(om.IdealSwitch(3)), seed=0)
    assert not plot_contact_sheet(other).legends and owners_of(other) is None


def test_the_viewer_has_the_jobs_too() -> None:
    owners = page_data(solution())["owners"]
    assert sorted(owners) == [-1, 0, 0, 0, 0, 1, 1]
    assert page_data(om.solve(om.AllToAll(om.IdealSwitch(3)), seed=0))["owners"] == []


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
