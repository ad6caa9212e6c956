"""Units that a header, a tag or a comment names are used or refused, in all formats alike."""

import logging
from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.io.matrices import read_flows, read_matrix, read_traffic
from tests.helpers.command import put

SNDLIB = """<network xmlns="http://sndlib.zib.de/network">
 <meta><granularity>5min</granularity><unit>{unit}</unit></meta>
 <networkStructure><nodes><node id="A"/><node id="B"/></nodes></networkStructure>
 <demands><demand id="A_B"><source>A</source><target>B</target>
 <routingUnit>{routing_unit}</routingUnit><demandValue>5.0</demandValue></demand></demands>
</network>"""


@pytest.fixture(params=["header", "corner", "comment"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Write 5 from a to b and 7 back, with a unit at one of the places where files name it."""

    def write_unit(unit: str) -> Path:
        text = {
            "header": f"src,dst,{unit}\na,b,5\nb,a,7\n",
            "corner": f"from/to ({unit}),a,b\na,0,5\nb,7,0\n",
            "comment": f"# unit: {unit}\nsrc,dst,size\na,b,5\nb,a,7\n",
        }[request.param]
        path = put(tmp_path, "traffic.csv", text)
        return path

    return write_unit


@pytest.mark.parametrize(
    ("unit", "bytes_each"),
    [
        ("bytes", 1.0),
        ("kbytes", 1e3),
        ("GB", 1e9),
        ("GiB", 2.0**30),
        ("octets", 1.0),
        ("bits", 1 / 8),
        ("Mbit", 1e6 / 8),
        ("megabytes", 1e6),
        ("Gb", 1e9 / 8),
    ],
)
def test_a_size_is_converted(write, unit: str, bytes_each: float) -> None:  # type: ignore[no-untyped-def]
    assert np.allclose(read_matrix(write(unit)), [[0, 5 * bytes_each], [7 * bytes_each, 0]])


@pytest.mark.parametrize("unit", ["Mbit/s", "mbps", "GBps", "Gbps"])
def test_a_rate_keeps_its_numbers_and_is_named(  # type: ignore[no-untyped-def]
    write, unit: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_matrix(write(unit)).tolist() == [[0, 5], [7, 0]]
    assert f"rates in {unit}" in caplog.text


@pytest.mark.parametrize("unit", ["km", "distance_km", "packets", "latency_ms", "hops"])
def test_what_is_no_traffic_is_refused(write, unit: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(om.FormatError, match=r"no traffic|bytes, bits or their multiples"):
        read_matrix(write(unit))


def test_counts_of_packets_beside_bytes_say_nothing_more(tmp_path: Path) -> None:
    path = put(tmp_path, "traffic.csv", "src,dst,packets,bytes\na,b,1,500\nb,a,2,700\n")
    assert read_matrix(path).tolist() == [[0, 500], [700, 0]]


@pytest.mark.parametrize(
    ("unit", "routing_unit", "amount"),
    [("", "1", 5.0), ("MBITPERSEC", "1", 5.0), ("GBYTE", "1.0", 5e9)],
)
def test_the_unit_of_a_network_is_used_or_named(
    tmp_path: Path, unit: str, routing_unit: str, amount: float, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path, "network.xml", SNDLIB.format(unit=unit, routing_unit=routing_unit))
    assert read_traffic(path).demand_bytes.toarray().tolist() == [[0, amount], [0, 0]]
    assert ("rates in" in caplog.text) == (unit == "MBITPERSEC")


@pytest.mark.parametrize(("unit", "routing_unit"), [("ERLANG", "1"), ("", "3")])
def test_a_unit_of_a_network_that_is_none_of_traffic_is_refused(
    tmp_path: Path, unit: str, routing_unit: str
) -> None:
    path = put(tmp_path, "network.xml", SNDLIB.format(unit=unit, routing_unit=routing_unit))
    with pytest.raises(om.FormatError, match="unit"):
        read_traffic(path)


def test_flows_name_the_units_of_times_and_sizes(tmp_path: Path) -> None:
    path = put(
        tmp_path,
        "flows.csv",
        "arrival_ms,src,dst,size_kbytes,deadline_ms\n500,a,b,3,2000\n0,b,a,1,\n",
    )
    flows = read_flows(path)
    assert flows.time_s.tolist() == [0.0, 0.5]
    assert flows.size_bytes.tolist() == [1000.0, 3000.0]
    assert flows.deadline_s is not None
    assert flows.deadline_s.tolist() == [np.inf, 2.0]


def test_rows_of_json_are_a_matrix(tmp_path: Path) -> None:
    path = put(tmp_path, "traffic.json", "[[0, 5], [3, 0]]")
    assert read_matrix(path).tolist() == [[0, 5], [3, 0]]


def test_a_coflow_without_mappers_names_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, "coflows.txt", "3 1\n1 0 0 1 2:6.0\n")
    for read in (read_matrix, read_flows):
        with pytest.raises(om.FormatError, match="without mappers") as caught:
            read(path)
        assert f"{path}:2" in str(caught.value)


@pytest.mark.parametrize(("first", "n_ports"), [(0, 3), (1, 4)])
def test_ports_that_begin_at_1_leave_a_port_0_and_say_so(
    tmp_path: Path, first: int, n_ports: int, caplog: pytest.LogCaptureFixture
) -> None:
    edges = "".join(f"{first + k},{first + (k + 1) % 3},5\n" for k in range(3))
    traffic = read_traffic(put(tmp_path, "traffic.csv", f"source,destination,bytes\n{edges}"))
    assert traffic.demand_bytes.shape == (n_ports, n_ports)
    assert ("a port 0 without traffic" in caplog.text) == (first == 1)
