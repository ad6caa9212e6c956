"""Netlists in YAML: whatever tags, times and aliases say, each is a netlist or has a flaw."""

import re
import warnings
from pathlib import Path

import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.io.netlists.gdsfactory import read_tree
from tests.helpers.command import put, refused

pytest.importorskip("yaml", reason="needs PyYAML: pip install 'optmatch[netlist]'")

TEXT = """\
instances: {m1: mzi, m2: {component: mzi}}
nets: [{p1: "m1,o3", p2: "m2,o2"}, {p1: "m1,o4", p2: "m2,o1"}]
ports: {in0: "m1,o2", in1: "m1,o1", out0: "m2,o3", out1: "m2,o4"}
placements: {m1: {x: 0, y: 1, rotation: 0}, m2: {x: 5, y: 0}}
info: {cell_length: 2, open_pins: []}
"""
VALUES = [
    "2001-01-01", "2001-12-14t21:59:43.10-05:00", "2001-13-45", "!!timestamp x", "!!int x",
    "!!int 9" + "9" * 5000, "!!float x", "!!bool x", "!!null x", "!!binary x", "!!binary aGk=",
    "!!set {a, b}", "!!set x", "!!omap [a: 1]", "!!pairs x", "!!map [a]", "!!seq {a: b}",
    "!!python/object/apply:os.system [ls]", "!foo x", ".inf", "-.inf", ".nan", "1:30:00", "~",
    "yes", "<<", "{<<: 3}", "{=: x}", "{[1]: 2}", "{{a: b}: c}", "*absent", "&a x", '"\\0\\x1b"',
    '"\\ud800"',
]  # fmt: skip
"""What YAML has beside text and whole numbers."""


@pytest.mark.parametrize("value", VALUES)
def test_any_value_in_any_place(value: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    words = list(re.finditer(r"[\w,]+|\[]", TEXT))
    for word in words[VALUES.index(value) % 3 :: 3]:
        path.write_text(TEXT[: word.start()] + value + TEXT[word.end() :])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                problem = om.AllToAll(om.read_netlist(path))
            except om.InputError as exc:
                assert "a.yml" in str(exc)
            else:
                assert loads(dumps(problem)) == problem


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("!!timestamp x", r"a\.yml: .*: not YAML"),
        ("- !!bool maybe", r"a\.yml: .*: not YAML"),
        ("- !!python/object/apply:os.system [ls]", r"a\.yml:1:3: could not determine a construct"),
        ('- "\\ud83d"', r"a\.yml:1:6: found invalid Unicode character escape code: not YAML"),
    ],
)
def test_what_is_no_value_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = put(tmp_path, "a.yml", text)
    with pytest.raises(om.FormatError, match=complaint):
        read_tree(path, [])


def test_half_a_pair_of_surrogates_is_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    path = put(tmp_path, "a.yml", '- [\n"\\ud83d"]')
    with pytest.raises(om.FormatError, match=r"a\.yml:2: '\\ud83d': half of a pair of surrogates"):
        read_tree(path, [])


def test_aliases_repeat_no_more_than_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTMATCH_MAX_REPEATS", "20")
    path = put(
        tmp_path,
        "a.yml",
        "a: {b: &b [1, 2, 3, 4]}\nc: [*b, *b, *b]\nd: &d e\nf: [*d, *d, *d, *d, *d, *d]\n",
    )
    with pytest.raises(om.InputError, match=r"21 repeats: at most 20 \(OPTMATCH_MAX_REPEATS\)"):
        om.read_netlist(path)
    path.write_text("a: {b: &b [1, 2, 3, 4]}\nc: [*b, *b, *b]\nd: &d e\nf: [*d, *d]\n")
    assert read_tree(path, [])["c"] == [["1", "2", "3", "4"]] * 3


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """Escape sequences and letters that turn a line round are written out."""
    path = put(tmp_path, "a.yml", TEXT.replace("{m1: mzi", '{m1: "\\e[31m\\u202eé"'))
    refused(
        r"component \x1b[31m\u202eé of m1 is not known",
        "generate",
        "all-to-all",
        "--netlist",
        path,
        "-o",
        tmp_path / "a.json",
    )


def test_scalars_stay_names(tmp_path: Path) -> None:
    """As `on`, `off` and `1_0`, which YAML takes for values."""
    (tmp_path / "a.yml").write_text(
        "instances: {on: switch, off: switch, 1_0: straight, 2001-02-30: bend, 1e3: bend}\n"
        "connections: {'on,o3': '1_0,o1', '1_0,o2': 'off,o2', 'on,o4': '2001-02-30,o1',\n"
        "  '2001-02-30,o2': '1e3,o2', '1e3,o1': 'off,o1'}\n"
        "ports: {no: 'on,o1', yes: 'on,o2', 007: 'off,o3', ~: 'off,o4'}\n"
        "placements: {on: {x: 0, y: 1.5}, off: {x: 1e1, y: .5, rotation: null}}\n"
    )
    fabric = om.read_netlist(tmp_path / "a.yml")
    assert fabric.instances == ("on", "off")
    assert fabric.port_names == ("no", "yes", "007", "None")
    assert fabric.ends is not None


def test_tuples_of_python_are_lists(tmp_path: Path) -> None:
    """`yaml.dump` of a netlist of gdsfactory has its nets as a tuple."""
    plain, path = tmp_path / "plain.yml", tmp_path / "a.yml"
    plain.write_text(TEXT)
    path.write_text(TEXT.replace("nets: [", "nets: !!python/tuple ["))
    assert om.read_netlist(path) == om.read_netlist(plain)


def test_templates_of_gdsfactory_have_their_defaults(tmp_path: Path) -> None:
    text = (
        "default_settings:\n  cell:\n    value: mzi2x2\n  length:\n    value: 10.5\n"
        "instances:\n  m:\n    component: {{ settings.cell }}\n"
        "    settings:\n      length: {{ settings.length }}\n"
        "ports: {in0: 'm,o2', in1: 'm,o1', out0: 'm,o3', out1: 'm,o4'}\n"
    )
    path = put(tmp_path, "a.yml", text)
    assert om.read_netlist(path).instances == ("m",)
    path.write_text(text.replace("settings.cell", "settings.cell | upper"))
    with pytest.raises(om.FormatError, match="it is a template: export component"):
        om.read_netlist(path)
    path.write_text(text[text.index("instances:") :])
    with pytest.raises(om.FormatError, match="it is a template"):
        om.read_netlist(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.spi", "x"), ("a.txt", "* netlist\n.SUBCKT top a b\n"), ("a.gds", "")],
)
def test_formats_without_names_of_pins_are_refused(
    name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(om.FormatError, match="pins have no names: export the netlist of the lay"):
        om.read_netlist(tmp_path / name)
