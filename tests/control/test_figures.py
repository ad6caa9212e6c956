"""The view of an operator: figures against plain counts, and their text read by a parser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.control.figures import BUCKETS_S, Call, Histogram, Tally, to_prometheus
from optmatch.model import InfeasibleError
from tests.control.reroutes.test_rerouter import mesh_state, rack_state

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def read(text: str) -> tuple[Series, dict[str, str]]:
    """Read the text format, and refuse what it forbids; return the series, and their kinds."""
    assert text.endswith("\n")
    kinds, series, helped = dict[str, str](), Series(), None
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert helped not in kinds
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped and kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
            continue
        found = LINE.fullmatch(line)
        assert found, line
        name, inside, value = found.groups()
        family = re.sub("_(bucket|sum|count)$", "", name) if name not in kinds else name
        assert list(kinds)[-1] == family, "each name has its lines together"
        assert (kinds[family] == "counter") == name.endswith("_total")
        labels = LABEL.findall(inside)
        assert sum(len(key) + len(text) + 4 for key, text in labels) == len(inside) + 1
        plain = ((k, re.sub(r"\\.", lambda m: ESCAPES[m[0]], text)) for k, text in labels)
        key = name, frozenset(plain)
        assert key not in series and len(key[1]) == len(labels)
        series[key] = float(value)
    return series, kinds


def pick(series: Series, name: str, **labels: str) -> float:
    """Return the one value with these labels, whichever its source."""
    (found,) = [v for (n, have), v in series.items() if n == name and labels.items() <= have]
    return found


def test_a_controller_counts_what_it_is_asked(tmp_path: Path) -> None:
    """Calls by outcome, spares by rack, parts by what was done about them, age and lines."""
    told = list[Call]()
    state, path = replace(rack_state(), spares=(60, 61)), tmp_path / "controller.json"
    controller = om.Rerouter.open(path, state, prepare=False, on_event=told.append)
    proposal = controller.fail(chip=3)
    controller.fail(fibre=5)
    with pytest.raises(InfeasibleError):
        controller.fail(chip=[10, 11, 12])
    controller.apply(proposal)
    with pytest.raises(om.InputError):
        controller.apply(proposal)
    controller.what_if(chip=20)
    text = to_prometheus(
        {"rack": controller.figures(), "mesh": om.Rerouter(mesh_state()).figures()}
    )
    series, kinds = read(text)
    calls = "optmatch_calls_total"
    assert pick(series, calls, call="fail", outcome="done") == 2
    assert pick(series, calls, call="fail", outcome="infeasible") == 1
    assert pick(series, calls, call="apply", outcome="refused") == 1
    assert pick(series, "optmatch_call_seconds_count", call="fail") == 3
    assert pick(series, "optmatch_spares", source="rack", rack="0") == 1
    assert pick(series, "optmatch_spares", source="mesh", rack="0") == 2
    for kind, what, count in (
        ("chip", "replaced", 1),
        ("chip", "refused", 3),
        ("fibre", "answered", 1),
    ):
        assert pick(series, "optmatch_parts", source="rack", kind=kind, state=what) == count
    assert pick(series, "optmatch_journal_lines") == 4
    assert 0 <= pick(series, "optmatch_snapshot_age_seconds") < 60
    assert kinds["optmatch_call_seconds"] == "histogram"
    names = [(call.call, call.outcome) for call in told]
    assert names[:3] == [("fail", "done")] * 2 + [("fail", "infeasible")]
    assert names[3:] == [("apply", "done"), ("apply", "refused"), ("what_if", "done")]
    assert told[2].parts.failed_chips == (10, 11, 12) and told[2].took_s > 0
    controller.close()


def test_a_schedule_counts_and_tells_as_well(tmp_path: Path) -> None:
    """Its queue, its calls by outcome, and how long these took; a loaded one counts anew."""
    told = list[Call]()
    rolling = om.RollingSchedule(om.IdealSwitch(2), delay_s=0.5, on_event=told.append)
    rolling.add([[0, 3], [2, 0]])
    slot: Any = rolling.next_slot()
    rolling.advance(slot.end_s)
    with pytest.raises(om.InputError):
        rolling.advance(0.0)
    rolling.take_back([[0, 1], [0, 0]])
    figures = rolling.figures()
    series, _ = read(to_prometheus({"a": figures}))
    plain = [value for name, value in figures.items() if name not in ("calls", "call_s")]
    values = [value for (name, _), value in series.items() if "_call" not in name]
    assert sorted(values) == sorted(map(float, plain))
    names = [(call.call, call.outcome) for call in told]
    assert names == [
        ("add", "done"),
        ("next_slot", "done"),
        ("advance", "done"),
        ("advance", "refused"),
        ("take_back", "done"),
    ]
    for call in set(names):
        assert pick(series, "optmatch_calls_total", call=call[0], outcome=call[1]) == 1
    assert pick(series, "optmatch_call_seconds_count", call="advance") == 2
    rolling.save(tmp_path / "rolling.json")
    om.RollingSchedule.load(tmp_path / "rolling.json", on_event=told.append).next_slot()
    assert len(told) == len(names) + 1


@given(
    st.lists(st.floats(0, 20), max_size=30),
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), max_size=8),
)
def test_buckets_hold_what_lies_below_their_end(times: list[float], source: str) -> None:
    counts = [0] * (len(BUCKETS_S) + 1)
    for took in times:
        counts[next((k for k, end in enumerate(BUCKETS_S) if took <= end), len(BUCKETS_S))] += 1
    figures = {"call_s": {"fail": Histogram(tuple(counts), sum(times))}}
    series, _ = read(to_prometheus({source: figures}))
    for (name, labels), value in series.items():
        told = dict(labels)
        assert told["source"] == source
        if name.endswith("_bucket"):
            assert value == sum(took <= float(told["le"]) for took in times)
        else:
            assert value == (sum(times) if name.endswith("_sum") else len(times))


def test_an_error_of_a_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:

    def fail(call: Call) -> None:
        raise RuntimeError("no listener")

    tally = Tally(fail)
    with tally.call("route"):
        pass
    assert tally.figures()["calls"] == {("route", "done"): 1}
    assert "on_event failed" in caplog.text
